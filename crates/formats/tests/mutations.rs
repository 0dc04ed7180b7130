//! Files that were valid once: cut short, or with bits flipped. They open or are refused; nothing else.
#![allow(clippy::unwrap_used)]

mod common;

use common::{hf_config, safetensors, stories_gguf, stories_hf, use_all};
use foredraft_formats::Checkpoint;
use foredraft_formats::safetensors::Header;
use proptest::prelude::*;

/// Where the tensors of stories260K begin, as the gguf Python package reports it.
const STORIES_HEADER: usize = 14_304;
/// The length of the header of its safetensors twin, with the length field.
const STORIES_HF_HEADER: usize = 8 + 4848;

/// splitmix64: a different number for every call, the same in every run.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn gguf_truncated_at_every_length_of_its_header() {
    let bytes = std::fs::read(stories_gguf()).unwrap();
    for length in 0..=STORIES_HEADER {
        let error = Checkpoint::from_bytes(bytes[..length].to_vec())
            .expect_err("cut short")
            .to_string();
        assert!(
            error.starts_with("(bytes in memory): "),
            "{length}: {error}"
        );
    }
    for missing in [1, 32, 4096, 1_000_000] {
        let cut = bytes[..bytes.len() - missing].to_vec();
        let error = Checkpoint::from_bytes(cut)
            .expect_err("cut short")
            .to_string();
        assert!(
            error.contains("tensor ") && error.contains("truncated"),
            "{error}"
        );
    }
}

#[test]
fn safetensors_truncated_at_every_length_of_its_header() {
    let bytes = std::fs::read(stories_hf().join("model.safetensors")).unwrap();
    for length in 0..=STORIES_HF_HEADER {
        Header::parse(&bytes[..length]).expect_err("cut short");
    }
    Header::parse(&bytes[..bytes.len() - 1]).expect_err("cut short");
    assert_eq!(Header::parse(&bytes).unwrap().len(), 47);
}

#[test]
fn gguf_with_flipped_bits_opens_or_is_refused() {
    let mut bytes = std::fs::read(stories_gguf()).unwrap();
    let mut state = 1;
    let mut opened = 0;
    for _ in 0..1500 {
        let flips = 1 + next(&mut state) % 3;
        let places: Vec<(usize, u8)> = (0..flips)
            .map(|_| {
                (
                    next(&mut state) as usize % STORIES_HEADER,
                    1 << (next(&mut state) % 8),
                )
            })
            .collect();
        places.iter().for_each(|&(place, bit)| bytes[place] ^= bit);
        if let Ok(model) = Checkpoint::from_bytes(bytes.clone()) {
            opened += 1;
            let _ = model.config().map_err(|error| error.to_string());
            if opened % 16 == 0 {
                use_all(&model);
            }
        }
        places
            .iter()
            .rev()
            .for_each(|&(place, bit)| bytes[place] ^= bit);
    }
    // Most of the header is the text of 512 tokens, where a flipped bit only changes a name.
    assert!((100..1500).contains(&opened), "{opened} of 1500 opened");
}

#[test]
fn safetensors_with_flipped_bits_opens_or_is_refused() {
    let mut bytes = std::fs::read(stories_hf().join("model.safetensors")).unwrap();
    let config = std::fs::read_to_string(stories_hf().join("config.json")).unwrap();
    let mut state = 2;
    for round in 0..1500 {
        let (place, bit) = (
            next(&mut state) as usize % STORIES_HF_HEADER,
            1 << (next(&mut state) % 8),
        );
        bytes[place] ^= bit;
        if Header::parse(&bytes).is_ok() && round % 16 == 0 {
            use_all(&Checkpoint::from_safetensors(&config, vec![bytes.clone()]).unwrap());
        }
        bytes[place] ^= bit;
    }
}

/// Headers that are nearly right: now and then an unknown type, too many dimensions, a gap, an
/// overlap, a wrong length or a name that was there before.
fn near_header() -> impl Strategy<Value = (String, usize)> {
    let dtype = prop::sample::select(vec![
        ("F32", 4),
        ("BF16", 2),
        ("I64", 8),
        ("U8", 1),
        ("F8_E4M3", 1),
    ]);
    let dims = prop::collection::vec(prop::sample::select(vec![1i64, 2, 2, 3, 3, 0]), 0..6);
    let mostly_zero = || prop::sample::select(vec![0i64, 0, 0, 0, 0, 1, -1, 4]);
    let tensor = ("[a-h]", dtype, dims, mostly_zero(), mostly_zero());
    prop::collection::vec(tensor, 0..5).prop_map(|tensors| {
        let mut end = 0;
        let lines = tensors.into_iter().map(|(name, (dtype, size), dims, gap, excess)| {
            let start = end + gap;
            end = start + size * dims.iter().product::<i64>() + excess;
            format!(r#""{name}": {{"dtype": "{dtype}", "shape": {dims:?}, "data_offsets": [{start}, {end}]}}"#)
        });
        let lines: Vec<String> = lines.collect();
        (format!("{{{}}}", lines.join(", ")), end.clamp(0, 1000) as usize)
    })
}

/// The same, with offsets that follow from the shapes, so that many are accepted.
fn consistent_header() -> impl Strategy<Value = (String, usize)> {
    let tensor = (
        prop::sample::select(vec![("F32", 4), ("BF16", 2), ("U8", 1)]),
        prop::collection::vec(1usize..4, 1..5),
    );
    prop::collection::vec(tensor, 1..5).prop_map(|tensors| {
        let mut end = 0;
        let lines: Vec<String> = tensors
            .iter()
            .enumerate()
            .map(|(index, ((dtype, size), dims))| {
                let start = end;
                end += size * dims.iter().product::<usize>();
                format!(r#""t{index}": {{"dtype": "{dtype}", "shape": {dims:?}, "data_offsets": [{start}, {end}]}}"#)
            })
            .collect();
        (format!("{{{}}}", lines.join(", ")), end)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn any_bytes_open_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = Checkpoint::from_bytes([b"GGUF\x03\0\0\0", &bytes[..]].concat());
        let _ = Checkpoint::from_bytes(bytes.clone());
        let _ = Header::parse(&bytes);
        let _ = foredraft_formats::ModelConfig::from_hf_json(&String::from_utf8_lossy(&bytes));
    }

    /// The official reader is the reference.
    #[test]
    fn headers_are_read_as_the_official_crate_reads_them((json, data) in consistent_header()) {
        let bytes = safetensors(&json, data);
        let theirs = ::safetensors::SafeTensors::deserialize(&bytes).expect("a consistent header");
        let ours = Header::parse(&bytes).expect("a consistent header");
        prop_assert_eq!(ours.len(), theirs.len());
        for (name, element, shape, range) in ours.iter() {
            let view = theirs.tensor(name).expect("a tensor of this name");
            prop_assert_eq!(shape.dims(), view.shape());
            prop_assert_eq!(element.name(), view.dtype().to_string());
            prop_assert_eq!(bytes[range].as_ptr(), view.data().as_ptr());
        }
    }

    #[test]
    fn what_the_official_crate_refuses_is_refused(json in near_header(), slack in prop::sample::select(vec![0usize, 0, 0, 4])) {
        let (json, data) = json;
        let bytes = safetensors(&json, data + slack);
        if let Ok(model) = Checkpoint::from_safetensors(&hf_config(""), vec![bytes.clone()]) {
            use_all(&model);
            prop_assert!(::safetensors::SafeTensors::deserialize(&bytes).is_ok());
        }
    }
}
