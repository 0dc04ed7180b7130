//! Against values computed elsewhere: by the `gguf` Python package, and by `data/make_golden.py` in exact
//! rational arithmetic.
#![allow(clippy::expect_used)]

use base64::Engine as _;
use foredraft_quant::{ActivationRow, WeightType, decode, dot, dot_f32, encode};
use serde_json::Value;

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("a base64 string");
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .expect("valid base64")
}

fn floats(value: &Value) -> Vec<f32> {
    let bytes = bytes(value);
    let words = bytes.as_chunks().0.iter();
    words.map(|b| f32::from_le_bytes(*b)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn dequantize() -> Value {
    serde_json::from_str(include_str!("data/dequantize.json")).expect("valid JSON")
}

#[test]
fn every_type_decodes_to_the_bits_of_the_gguf_package() {
    let golden = dequantize();
    for kind in WeightType::ALL {
        let entry = &golden[kind.name()];
        assert_eq!(entry["block_elements"], kind.block_elements());
        assert_eq!(entry["block_bytes"], kind.block_bytes());
        let expected = floats(&entry["f32_le_base64"]);
        assert!(!expected.is_empty());
        let mut weights = vec![0.0; expected.len()];
        decode(kind, &bytes(&entry["bytes_base64"]), &mut weights);
        for (i, (weight, expected)) in weights.iter().zip(expected).enumerate() {
            assert_eq!(
                weight.to_bits(),
                expected.to_bits(),
                "{kind}: weight {i} is {weight}, not {expected}",
            );
        }
    }
}

#[test]
fn activations_and_dot_products_have_the_bits_of_exact_arithmetic_in_the_stated_order() {
    let weights = dequantize();
    let golden: Value = serde_json::from_str(include_str!("data/dot.json")).expect("valid JSON");
    let x = floats(&golden["x"]);
    let row = ActivationRow::quantize(&x);
    let codes: Vec<u8> = row.codes.iter().map(|c| c.to_le_bytes()[0]).collect();
    assert_eq!(codes, bytes(&golden["codes"]));
    assert_eq!(bits(&row.scales), bits(&floats(&golden["scales"])));
    let sums: Vec<u8> = row.sums.iter().flat_map(|s| s.to_le_bytes()).collect();
    assert_eq!(sums, bytes(&golden["sums"]));

    for kind in WeightType::ALL {
        let entry = &weights[kind.name()];
        let stored = bytes(&entry["bytes_base64"]);
        let elements = stored.len() / kind.block_bytes() * kind.block_elements();
        let got = if kind.is_quantized() {
            dot(kind, &stored, &ActivationRow::quantize(&x[..elements]))
        } else {
            dot_f32(kind, &stored, &x[..elements])
        };
        let expected = golden["dot"][kind.name()].as_u64().expect("a number");
        assert_eq!(u64::from(got.to_bits()), expected, "{kind}: {got}");
    }
}

#[test]
fn legacy_types_encode_with_the_scales_of_ggml_and_no_more_error() {
    let golden: Value = serde_json::from_str(include_str!("data/encode.json")).expect("valid JSON");
    let values = floats(&golden["values"]);
    let squared_error = |kind: WeightType, block: &[u8], values: &[f32]| -> f64 {
        let mut decoded = [0.0; 32];
        decode(kind, block, &mut decoded);
        let pairs = decoded.iter().zip(values);
        pairs
            .map(|(d, v)| (f64::from(*d) - f64::from(*v)).powi(2))
            .sum()
    };
    use WeightType::*;
    for (kind, scale_bytes) in [(Q4_0, 2), (Q4_1, 4), (Q5_0, 2), (Q5_1, 4), (Q8_0, 2)] {
        let mut ours = Vec::new();
        encode(kind, &values, &mut ours);
        let reference = bytes(&golden[kind.name()]);
        assert_eq!(ours.len(), reference.len());
        let size = kind.block_bytes();
        let blocks = ours.chunks_exact(size).zip(reference.chunks_exact(size));
        for ((ours, reference), values) in blocks.zip(values.chunks_exact(32)) {
            assert_eq!(ours[..scale_bytes], reference[..scale_bytes], "{kind}");
            let (ours, reference) = (
                squared_error(kind, ours, values),
                squared_error(kind, reference, values),
            );
            assert!(
                ours <= reference * 1.000_001,
                "{kind}: {ours} > {reference}"
            );
        }
    }
}

/// The data, the measure (root of the summed squares, over n) and the limits of llama.cpp's
/// tests/test-quantize-fns.cpp: 0.0075 for 2 bits, 0.004 for 3, 0.002 for the rest.
#[test]
fn every_encoder_stays_below_the_error_that_ggml_allows_its_own() {
    let values: Vec<f32> = (0..4096).map(|i| 0.1 + 2.0 * (i as f32).cos()).collect();
    for kind in WeightType::ALL {
        let mut stored = Vec::new();
        encode(kind, &values, &mut stored);
        let mut decoded = vec![0.0; values.len()];
        decode(kind, &stored, &mut decoded);
        let pairs = values.iter().zip(&decoded);
        let squares: f64 = pairs.map(|(v, d)| f64::from(v - d).powi(2)).sum();
        let error = squares.sqrt() / values.len() as f64;
        let limit = match kind {
            WeightType::Q2_K => 0.0075,
            WeightType::Q3_K => 0.0040,
            _ => 0.0020,
        };
        assert!(error < limit, "{kind}: error {error} of {limit}");
    }
}
