//! Every type against the values that the `gguf` Python package computes.
#![allow(clippy::expect_used)]

use base64::Engine as _;
use foredraft_quant::{WeightType, decode};

fn bytes(value: &serde_json::Value) -> Vec<u8> {
    let text = value.as_str().expect("a base64 string");
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .expect("valid base64")
}

#[test]
fn every_type_decodes_to_the_bits_of_the_gguf_package() {
    let golden: serde_json::Value =
        serde_json::from_str(include_str!("data/dequantize.json")).expect("valid JSON");
    for kind in WeightType::ALL {
        let entry = &golden[kind.name()];
        assert_eq!(entry["block_elements"], kind.block_elements());
        assert_eq!(entry["block_bytes"], kind.block_bytes());
        let stored = bytes(&entry["bytes_base64"]);
        let expected = bytes(&entry["f32_le_base64"]);
        let expected: Vec<u32> = expected
            .as_chunks()
            .0
            .iter()
            .map(|b| u32::from_le_bytes(*b))
            .collect();
        assert!(!expected.is_empty());
        let mut weights = vec![0.0; expected.len()];
        decode(kind, &stored, &mut weights);
        for (i, (weight, expected)) in weights.iter().zip(expected).enumerate() {
            assert_eq!(
                weight.to_bits(),
                expected,
                "{kind}: weight {i} is {weight}, not {}",
                f32::from_bits(expected)
            );
        }
    }
}
