//! Whole rows of any type: bytes to f32 and back.

use crate::WeightType;
use crate::unpack::{Unpacked, unpack};
use crate::{float, iq4_nl, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

/// Decodes whole blocks to f32: exactly the values of ggml and its `gguf` Python package.
///
/// At most one rounding occurs, where a minimum is added: products of scale and code are exact (11 bits of
/// the f16, at most 7 of the sub-scale and 5 of the code; -128 and -32 are powers of two).
///
/// # Panics
/// If `bytes` is not exactly the blocks of `out.len()` weights ([`WeightType::row_bytes`]).
pub fn decode(kind: WeightType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        kind.row_bytes(out.len()),
        Some(bytes.len()),
        "bytes of {} weights of type {kind}",
        out.len()
    );
    match kind {
        WeightType::F32 => decode_floats(bytes, out, float::f32_weight),
        WeightType::F16 => decode_floats(bytes, out, float::f16_weight),
        WeightType::BF16 => decode_floats(bytes, out, float::bf16_weight),
        quantized => decode_blocks(quantized, bytes, out),
    }
}

fn decode_floats<const N: usize>(bytes: &[u8], out: &mut [f32], weight: fn(&[u8; N]) -> f32) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *value = weight(bytes);
    }
}

fn decode_blocks(kind: WeightType, bytes: &[u8], out: &mut [f32]) {
    let mut block = Unpacked::ZERO;
    let blocks = bytes.chunks_exact(kind.block_bytes());
    for (bytes, out) in blocks.zip(out.chunks_exact_mut(kind.block_elements())) {
        unpack(kind, bytes, &mut block);
        let codes = block.codes.chunks_exact(kind.sub_block());
        let scales = block.scales.iter().zip(&block.mins);
        for ((out, codes), (scale, min)) in out
            .chunks_exact_mut(kind.sub_block())
            .zip(codes)
            .zip(scales)
        {
            for (value, &code) in out.iter_mut().zip(codes) {
                let product = scale * f32::from(code);
                // Without a minimum nothing is added, not even 0: that would lose the sign of -0.
                *value = if kind.has_min() {
                    product + min
                } else {
                    product
                };
            }
        }
    }
}

/// Appends `values` to `out`, encoded as whole blocks of `kind`. Deterministic.
///
/// Floats round to nearest, ties to even. Quantized types take their scales from the extremes of each
/// (sub-)block and then the nearest code. In a quantized block, a value that is not finite makes every
/// weight of the block NaN, and scales beyond the largest f16 are cut to it.
///
/// # Panics
/// If `values` is not a whole number of blocks.
pub fn encode(kind: WeightType, values: &[f32], out: &mut Vec<u8>) {
    use WeightType::*;
    assert!(
        values.len().is_multiple_of(kind.block_elements()),
        "{} values are not whole {kind} blocks of {}",
        values.len(),
        kind.block_elements()
    );
    match kind {
        F32 => float::encode_f32(values, out),
        F16 => float::encode_f16(values, out),
        BF16 => float::encode_bf16(values, out),
        Q4_0 => encode_blocks(values, out, q4_0::encode),
        Q4_1 => encode_blocks(values, out, q4_1::encode),
        Q5_0 => encode_blocks(values, out, q5_0::encode),
        Q5_1 => encode_blocks(values, out, q5_1::encode),
        Q8_0 => encode_blocks(values, out, q8_0::encode),
        Q2_K => encode_blocks(values, out, q2_k::encode),
        Q3_K => encode_blocks(values, out, q3_k::encode),
        Q4_K => encode_blocks(values, out, q4_k::encode),
        Q5_K => encode_blocks(values, out, q5_k::encode),
        Q6_K => encode_blocks(values, out, q6_k::encode),
        IQ4_NL => encode_blocks(values, out, iq4_nl::encode),
    }
}

fn encode_blocks<const N: usize, const BYTES: usize>(
    values: &[f32],
    out: &mut Vec<u8>,
    encode: fn(&[f32; N]) -> [u8; BYTES],
) {
    for block in values.as_chunks().0 {
        out.extend_from_slice(&encode(block));
    }
}
