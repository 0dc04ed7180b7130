//! Hostile GGUF files. Each test is a failure that users of other engines met, or a field that lies.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Raw, refused, small_llama};
use foredraft_formats::Checkpoint;

const F32: u32 = 0;

#[test]
fn a_dimension_product_that_wraps_2_to_the_64() {
    // 2^32 * 2^32 * 4 bytes wraps to 0 bytes.
    let file = Raw::gguf(1, 0)
        .tensor("w", &[1 << 32, 1 << 32], F32, 0)
        .data(64);
    refused(file.open(), &["tensor `w`", "product of its dimensions"]);
    // The number of elements fits, the number of bytes does not.
    let file = Raw::gguf(1, 0)
        .tensor("w", &[1 << 31, 1 << 32], F32, 0)
        .data(64);
    refused(file.open(), &["tensor `w`", "overflows"]);
    let file = Raw::gguf(1, 0).tensor("w", &[u64::MAX], F32, 0).data(64);
    refused(file.open(), &["tensor `w`"]);
}

#[test]
fn more_than_four_dimensions() {
    let file = Raw::gguf(1, 0)
        .tensor("w", &[1, 1, 1, 1, 1], F32, 0)
        .data(64);
    refused(
        file.open(),
        &["tensor `w`", "5 dimensions", "between 1 and 4"],
    );
    let file = Raw::gguf(1, 0).string("w").u32(u32::MAX).data(64);
    refused(file.open(), &["tensor `w`", "4294967295 dimensions"]);
    let file = Raw::gguf(1, 0).tensor("w", &[], F32, 0).data(64);
    refused(file.open(), &["tensor `w`", "0 dimensions"]);
}

#[test]
fn a_zero_dimension() {
    let file = Raw::gguf(1, 0).tensor("w", &[32, 0], F32, 0).data(64);
    refused(file.open(), &["tensor `w`", "dimension 0 is zero"]);
}

#[test]
fn a_string_of_gibibytes() {
    let file = Raw::gguf(0, 1).u64(8 << 30).bytes(b"general.name").data(64);
    refused(
        file.open(),
        &["length of metadata key 0", "8589934592", "65535"],
    );
    let file = Raw::gguf(0, 1)
        .string("general.name")
        .u32(8)
        .u64(8 << 30)
        .data(64);
    refused(
        file.open(),
        &["metadata `general.name`", "8589934592 bytes are needed"],
    );
    let file = Raw::gguf(0, 1)
        .string("general.name")
        .u32(8)
        .u64(u64::MAX)
        .data(64);
    refused(file.open(), &["metadata `general.name`"]);
    let file = Raw::gguf(1, 0).u64(8 << 30).data(64);
    refused(file.open(), &["length of the name of tensor 0", "512"]);
}

#[test]
fn an_alignment_of_2_to_the_30() {
    for alignment in [1 << 30, 0, 4, 24, 48, u32::MAX] {
        let file = Raw::gguf(0, 1)
            .pair_u32("general.alignment", alignment)
            .data(64);
        refused(
            file.open(),
            &[
                "`general.alignment`",
                &alignment.to_string(),
                "power of two between 8 and 65536",
            ],
        );
    }
    let file = Raw::gguf(0, 1)
        .string("general.alignment")
        .u32(8)
        .string("32")
        .data(64);
    refused(file.open(), &["`general.alignment`", "the string `32`"]);
}

#[test]
fn nested_arrays() {
    // An array (type 9) of arrays, a thousand deep.
    let mut file = Raw::gguf(0, 1).string("deep").u32(9);
    for _ in 0..1000 {
        file = file.u32(9).u64(1);
    }
    refused(
        file.data(64).open(),
        &["metadata `deep`", "an array of arrays", "not supported"],
    );
}

#[test]
fn tensors_that_overlap() {
    let two = |offset| {
        Raw::gguf(2, 0)
            .tensor("first", &[16], F32, 0)
            .tensor("second", &[16], F32, offset)
            .data(128)
    };
    refused(
        two(32).open(),
        &["tensor `second`", "overlap those of `first`"],
    );
    refused(two(0).open(), &["overlap"]);
    assert_eq!(two(64).open().unwrap().tensors().count(), 2);
    // Their order in the table does not matter.
    let file = Raw::gguf(2, 0)
        .tensor("b", &[16], F32, 64)
        .tensor("a", &[16], F32, 0)
        .data(128);
    assert!(file.open().is_ok());
}

#[test]
fn tensors_that_end_past_the_file() {
    let one = |offset, length| Raw::gguf(1, 0).tensor("w", &[16], F32, offset).data(length);
    refused(
        one(0, 63).open(),
        &[
            "tensor `w`",
            "64 bytes are needed",
            "63 are left",
            "truncated",
        ],
    );
    refused(one(32, 64).open(), &["tensor `w`", "32 are left"]);
    refused(one(1 << 40, 64).open(), &["tensor `w`", "0 are left"]);
    refused(
        one(u64::MAX - 31, 64).open(),
        &["tensor `w`", "beyond any file"],
    );
    assert!(one(0, 64).open().is_ok());
}

#[test]
fn an_offset_off_the_alignment() {
    let file = Raw::gguf(1, 0).tensor("w", &[16], F32, 4).data(128);
    refused(file.open(), &["tensor `w`", "offset 4", "alignment 32"]);
    // 8 is allowed by the specification when the file says so.
    let mut file = Raw::gguf(1, 1)
        .pair_u32("general.alignment", 8)
        .tensor("w", &[16], F32, 8);
    file.0.resize(file.0.len().next_multiple_of(8) + 8 + 64, 7);
    assert_eq!(file.open().unwrap().tensor("w").unwrap().data, [7; 64]);
}

#[test]
fn counts_beyond_the_file() {
    for count in [3, 1 << 20, 1 << 40, u64::MAX] {
        refused(
            Raw::gguf(count, 0).data(64).open(),
            &["the number of tensors", &count.to_string()],
        );
    }
    for count in [7, 1 << 20, u64::MAX] {
        refused(
            Raw::gguf(0, count).data(64).open(),
            &["number of metadata keys", &count.to_string()],
        );
    }
    for count in [17, 1 << 40, u64::MAX, u64::MAX / 4 + 1] {
        let file = Raw::gguf(0, 1)
            .string("a")
            .u32(9)
            .u32(4)
            .u64(count)
            .bytes(&[0; 64]);
        refused(
            file.open(),
            &[
                "length of metadata `a`",
                &count.to_string(),
                "the limit is 16",
            ],
        );
        let file = Raw::gguf(0, 1)
            .string("a")
            .u32(9)
            .u32(8)
            .u64(count)
            .bytes(&[0; 64]);
        refused(file.open(), &["length of metadata `a`", "the limit is 8"]);
    }
}

#[test]
fn a_row_that_is_not_whole_blocks() {
    let q4_0 = 2;
    let file = Raw::gguf(1, 0).tensor("w", &[48, 2], q4_0, 0).data(1024);
    refused(
        file.open(),
        &["tensor `w`", "rows of 48", "blocks of 32 (Q4_0)"],
    );
    // 96 weights in all would be whole blocks, were rows not counted.
    let file = Raw::gguf(1, 0).tensor("w", &[3, 32], q4_0, 0).data(1024);
    refused(file.open(), &["rows of 3"]);
    let q6_k = 14;
    let file = Raw::gguf(1, 0).tensor("w", &[128, 2], q6_k, 0).data(1024);
    refused(file.open(), &["blocks of 256 (Q6_K)"]);
}

#[test]
fn an_unsupported_type_is_refused_by_name() {
    for (number, name) in [
        (16, "IQ2_XXS"),
        (39, "MXFP4"),
        (31, "Q4_0_4_4"),
        (9, "Q8_1"),
    ] {
        let file = Raw::gguf(1, 0).tensor("w", &[256], number, 0).data(4096);
        refused(
            file.open(),
            &["tensor `w`: type", name, "not supported", "Q4_K"],
        );
    }
    for number in [42, 1000, u32::MAX] {
        let file = Raw::gguf(1, 0).tensor("w", &[256], number, 0).data(4096);
        refused(
            file.open(),
            &["tensor `w`: type", &format!("number {number}")],
        );
    }
    // A table of integers may stand beside weights, but a weight may not be one.
    let i64_type = 27;
    let d2t = Raw::gguf(1, 0)
        .tensor("d2t", &[4], i64_type, 0)
        .data(32)
        .open()
        .unwrap();
    assert!(d2t.tensor("d2t").is_none());
    assert_eq!(d2t.raw_tensor("d2t").unwrap().data.len(), 32);
    let file = Raw::gguf(1, 0)
        .tensor("fc.weight", &[4], i64_type, 0)
        .data(32);
    refused(file.open(), &["tensor `fc.weight`: type", "I64"]);
}

#[test]
fn names_and_keys_that_occur_twice_or_are_empty() {
    let file = Raw::gguf(2, 0)
        .tensor("w", &[16], F32, 0)
        .tensor("w", &[16], F32, 64)
        .data(128);
    refused(file.open(), &["tensor `w`", "twice"]);
    let file = Raw::gguf(0, 2).pair_u32("k", 1).pair_u32("k", 1).data(64);
    refused(file.open(), &["metadata key `k`", "twice"]);
    refused(
        Raw::gguf(0, 1).pair_u32("", 1).data(64).open(),
        &["metadata key 0", "empty"],
    );
    refused(
        Raw::gguf(1, 0).tensor("", &[16], F32, 0).data(64).open(),
        &["name of tensor 0", "empty"],
    );
}

#[test]
fn other_files_are_explained() {
    let version = |version: u32| {
        Raw(b"GGUF".to_vec())
            .u32(version)
            .u64(0)
            .u64(0)
            .data(64)
            .open()
    };
    refused(version(1), &["GGUF version 1", "version 2 or 3"]);
    refused(version(4), &["GGUF version 4"]);
    refused(version(0), &["GGUF version 0"]);
    refused(
        version(3u32.swap_bytes()),
        &["a big-endian GGUF file (version 3)"],
    );
    refused(Raw(b"FUGG".to_vec()).u32(3).open(), &["big-endian"]);
    refused(
        Raw(b"tjgg".to_vec()).u32(3).open(),
        &["GGML file, older than GGUF"],
    );
    refused(Raw(b"\x80\x02}q\0".to_vec()).open(), &["no GGUF file"]);
    refused(
        Raw::default().open(),
        &["the GGUF magic", "4 bytes are needed"],
    );
    assert!(version(2).is_ok());
    assert!(version(3).is_ok());
}

#[test]
fn values_that_are_not_what_their_type_says() {
    let file = Raw::gguf(0, 1)
        .string("general.name")
        .u32(8)
        .u64(2)
        .bytes(&[0xff, 0xfe])
        .data(64);
    refused(file.open(), &["`general.name`", "not UTF-8"]);
    let file = Raw::gguf(0, 1).string("flag").u32(7).bytes(&[2]).data(64);
    refused(file.open(), &["`flag`", "neither 0 nor 1"]);
    let file = Raw::gguf(0, 1).string("x").u32(13).data(64);
    refused(file.open(), &["the type of metadata `x`", "no type 13"]);
    let file = Raw::gguf(0, 1)
        .u64(2)
        .bytes(&[0xc3, 0x28])
        .u32(4)
        .u32(1)
        .data(64);
    refused(file.open(), &["metadata key 0", "not UTF-8"]);
}

#[test]
fn a_hostile_name_does_not_reach_the_terminal() {
    let name = "\u{1b}[2J\u{202e}".repeat(20);
    let file = Raw::gguf(1, 0).tensor(&name, &[0], F32, 0).data(64);
    let message = refused(file.open(), &["\\u{1b}[2J\\u{202e}"]);
    assert!(
        message.len() < 1500 && !message.contains(['\u{1b}', '\u{202e}']),
        "{message}"
    );
}

#[test]
fn typed_metadata_says_what_is_wrong() {
    let mut writer = small_llama();
    writer
        .i32("negative", -1)
        .u64("large", 1 << 40)
        .bool("flag", true)
        .str_array("names", &["a", "b"]);
    writer
        .f32_array("scores", &[0.5])
        .i32_array("types", &[-3, 7])
        .u32_array("ids", &[9]);
    let model = Checkpoint::from_bytes(writer.finish().unwrap()).unwrap();
    let metadata = model.metadata().unwrap();
    assert_eq!(metadata.u32("absent"), Ok(None));
    assert_eq!(metadata.u64("large"), Ok(Some(1 << 40)));
    assert_eq!(metadata.i64("negative"), Ok(Some(-1)));
    assert_eq!(metadata.str("general.architecture"), Ok(Some("llama")));
    assert_eq!(metadata.bool("flag"), Ok(Some(true)));
    assert_eq!(metadata.str_array("names"), Ok(Some(vec!["a", "b"])));
    assert_eq!(metadata.f32_array("scores"), Ok(Some(vec![0.5])));
    assert_eq!(metadata.i32_array("types"), Ok(Some(vec![-3, 7])));
    assert_eq!(metadata.u32_array("ids"), Ok(Some(vec![9])));
    let message = |error: foredraft_formats::FormatError| error.to_string();
    for (error, part) in [
        (
            message(metadata.u32("large").unwrap_err()),
            "`large` is 1099511627776",
        ),
        (
            message(metadata.u32("negative").unwrap_err()),
            "`negative` is -1",
        ),
        (message(metadata.u32("flag").unwrap_err()), "`flag` is true"),
        (
            message(metadata.bool("negative").unwrap_err()),
            "expected a truth value",
        ),
        (
            message(metadata.str("flag").unwrap_err()),
            "expected a string",
        ),
        (
            message(metadata.u32_array("types").unwrap_err()),
            "`types`[0] is -3",
        ),
        (
            message(metadata.str_array("scores").unwrap_err()),
            "an array (1 x f32)",
        ),
        (
            message(metadata.f32("negative").unwrap_err()),
            "expected a float",
        ),
        (
            message(metadata.str_array("flag").unwrap_err()),
            "expected an array of strings",
        ),
    ] {
        assert!(error.contains(part), "{error}");
    }
}
