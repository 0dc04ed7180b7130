//! Hostile safetensors files.
#![allow(clippy::unwrap_used)]

mod common;

use common::{hf_config, refused, safetensors};
use foredraft_formats::{Checkpoint, FormatError};

fn open(json: &str, data: usize) -> Result<Checkpoint, FormatError> {
    Checkpoint::from_safetensors(&hf_config(""), vec![safetensors(json, data)])
}

/// A header with one tensor `w`.
fn one(dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#"{{"w": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": {offsets}}}}}"#)
}

#[test]
fn a_header_length_past_the_file() {
    let with_length = |length: u64| {
        let mut bytes = safetensors("{}", 100);
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        Checkpoint::from_safetensors(&hf_config(""), vec![bytes])
    };
    refused(
        with_length(103),
        &["the header", "103 bytes are needed", "102 are left"],
    );
    refused(with_length(100_000_000), &["100000000 bytes are needed"]);
    refused(
        with_length(100_000_001),
        &["header's length", "the limit is 100000000"],
    );
    refused(with_length(u64::MAX), &["header's length"]);
    let short = Checkpoint::from_safetensors(&hf_config(""), vec![vec![0; 7]]);
    refused(short, &["header's length", "8 bytes are needed"]);
}

#[test]
fn a_dimension_product_that_wraps_2_to_the_64() {
    let shape = "[4294967296, 4294967296]";
    refused(
        open(&one("F32", shape, "[0, 0]"), 64),
        &["tensor `w`", "product of its dimensions"],
    );
    refused(
        open(&one("F32", "[2147483648, 4294967296]", "[0, 0]"), 64),
        &["tensor `w`", "overflows"],
    );
}

#[test]
fn more_than_four_dimensions() {
    refused(
        open(&one("F32", "[1, 1, 1, 1, 1]", "[0, 4]"), 4),
        &["tensor `w`", "5 dimensions"],
    );
    let many = format!("[{}1]", "1, ".repeat(100_000));
    refused(
        open(&one("F32", &many, "[0, 4]"), 4),
        &["tensor `w`", "100001 dimensions"],
    );
}

#[test]
fn a_zero_dimension() {
    refused(
        open(&one("F32", "[0, 4]", "[0, 0]"), 0),
        &["tensor `w`", "dimension 0 is zero"],
    );
}

#[test]
fn a_scalar_is_a_vector_of_one() {
    let model = open(&one("F32", "[]", "[0, 4]"), 4).unwrap();
    assert_eq!(model.tensor("w").unwrap().shape.dims(), [1]);
}

#[test]
fn tensors_that_overlap() {
    let two = |from: usize| {
        format!(
            r#"{{"a": {{"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
                 "b": {{"dtype": "F32", "shape": [4], "data_offsets": [{from}, {}]}}}}"#,
            from + 16
        )
    };
    refused(open(&two(8), 32), &["tensor `b`", "overlap those of `a`"]);
    refused(open(&two(0), 32), &["overlap"]);
    assert_eq!(open(&two(16), 32).unwrap().tensors().count(), 2);
}

#[test]
fn tensors_that_end_past_the_file() {
    refused(
        open(&one("F32", "[4]", "[0, 16]"), 15),
        &["tensor `w`", "16 bytes are needed", "15 are left"],
    );
    refused(
        open(&one("F32", "[4]", "[1000, 1016]"), 16),
        &["tensor `w`", "0 are left"],
    );
    let last = u64::MAX;
    refused(
        open(&one("F32", "[4]", &format!("[{}, {last}]", last - 16)), 16),
        &["tensor `w`"],
    );
}

#[test]
fn bytes_that_belong_to_no_tensor() {
    refused(
        open(&one("F32", "[4]", "[4, 20]"), 20),
        &["tensor `w`", "4 bytes before it"],
    );
    refused(
        open(&one("F32", "[4]", "[0, 16]"), 17),
        &["the end of the file", "1 bytes after"],
    );
    refused(open("{}", 5), &["the end of the file", "5 bytes after"]);
}

#[test]
fn offsets_that_contradict_the_shape() {
    for offsets in ["[0, 12]", "[0, 20]", "[16, 0]", "[16, 16]"] {
        refused(
            open(&one("F32", "[4]", offsets), 64),
            &["tensor `w`", "data_offsets", "takes 16 bytes"],
        );
    }
    for (offsets, problem) in [
        ("[0]", "not a pair"),
        ("[0, 16, 16]", "not a pair"),
        ("[-1, 15]", "invalid value"),
        ("[0.0, 16.0]", "invalid type"),
        ("\"0\"", "an array of numbers"),
    ] {
        refused(
            open(&one("F32", "[4]", offsets), 64),
            &["the header", problem],
        );
    }
}

#[test]
fn an_unsupported_type_is_refused_by_name() {
    for dtype in ["F8_E4M3", "F4", "U16", "C64", "Q4_0", ""] {
        refused(
            open(&one(dtype, "[4]", "[0, 16]"), 16),
            &["tensor `w`: dtype", &format!("`{dtype}`")],
        );
    }
    let json = one("I64", "[2]", "[0, 16]");
    assert_eq!(
        open(&json, 16).unwrap().raw_tensor("w").unwrap().data.len(),
        16
    );
    let weight = json.replace("\"w\"", "\"model.norm.weight\"");
    refused(
        open(&weight, 16),
        &["tensor `output_norm.weight`: type", "I64"],
    );
}

#[test]
fn names_that_occur_twice() {
    let json = r#"{"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                   "w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}"#;
    refused(open(json, 8), &["tensor `w`", "twice"]);
    // Two names that mean the same.
    let json = r#"{"model.norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                   "output_norm.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}"#;
    refused(open(json, 8), &["tensor `output_norm.weight`", "twice"]);
    let json = r#"{"w": {"dtype": "F32", "dtype": "F16", "shape": [1], "data_offsets": [0, 4]}}"#;
    refused(open(json, 4), &["tensor `w`", "dtype occurs twice"]);
}

#[test]
fn headers_that_are_no_table() {
    for json in [
        "",
        "[]",
        "null",
        "{",
        "{} x",
        r#"{"w": 1}"#,
        r#"{"w": {"dtype": "F32"}}"#,
        "{\"w\": {}}",
    ] {
        refused(open(json, 64), &["the header"]);
    }
    let deep = format!("{{\"w\": {}", "[".repeat(1 << 20));
    refused(open(&deep, 64), &["the header"]);
    let mut bytes = safetensors("{\"\u{e9}\": 1}", 0);
    bytes[10] = 0xff;
    refused(
        Checkpoint::from_safetensors(&hf_config(""), vec![bytes]),
        &["not UTF-8"],
    );
    // Unknown members and spaces around are the format's right.
    let json = r#"  {"__metadata__": {"format": "pt", "x": [1]}, "w": {"new": {}, "dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}  "#;
    assert_eq!(open(json, 4).unwrap().tensors().count(), 1);
}
