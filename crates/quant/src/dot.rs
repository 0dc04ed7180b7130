//! The scalar twins of the linear layers: the one order of operations that every kernel keeps.

use crate::WeightType;
use crate::activations::{ACTIVATION_BLOCK, ActivationRow, SUM_BLOCK};
use crate::float;
use crate::unpack::{Unpacked, unpack};

/// One output of a quantized linear layer: the dot product of a row of weights, as stored, with a row of
/// quantized activations.
///
/// Sub-blocks (16 or 32 weights) in order; in each, the integer dot product is exact, and then
///
/// ```text
///     acc = fma(dot,   scale_w * scale_x, acc)
///     acc = fma(min_w, sum_x   * scale_x, acc)      only for types with a minimum
/// ```
///
/// with every product rounded once to f32. (The second line's product belongs to the activations alone, so a kernel
/// computes it once for all outputs.) The integers convert to f32 exactly: they stay below
/// 32 * 128 * 127 < 2^24.
///
/// # Panics
/// If `kind` is a float type, or `row` is not exactly the blocks of `x`.
pub fn dot(kind: WeightType, row: &[u8], x: &ActivationRow) -> f32 {
    assert_eq!(
        kind.row_bytes(x.codes.len()),
        Some(row.len()),
        "bytes of a {kind} row of {} weights",
        x.codes.len()
    );
    let width = kind.sub_block();
    let mut block = Unpacked::ZERO;
    let mut acc = 0.0f32;
    let mut k = 0;
    for bytes in row.chunks_exact(kind.block_bytes()) {
        let elements = unpack(kind, bytes, &mut block);
        for (s, w) in block.codes[..elements].chunks_exact(width).enumerate() {
            let pairs = w.iter().zip(&x.codes[k..k + width]);
            let dot: i32 = pairs.map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
            let scale_x = x.scales[k / ACTIVATION_BLOCK];
            acc = (dot as f32).mul_add(block.scales[s] * scale_x, acc);
            if kind.has_min() {
                let sum_x: i32 = x.sums[k / SUM_BLOCK..(k + width) / SUM_BLOCK].iter().sum();
                acc = block.mins[s].mul_add(sum_x as f32 * scale_x, acc);
            }
            k += width;
        }
    }
    acc
}

/// One output of a linear layer with F32, F16 or BF16 weights: one chain of fused multiply-adds over
/// `x`, `[width]`, in order, starting at 0.
///
/// # Panics
/// If `kind` is a quantized type, or `row` does not hold `x.len()` weights.
pub fn dot_f32(kind: WeightType, row: &[u8], x: &[f32]) -> f32 {
    assert_eq!(
        kind.row_bytes(x.len()),
        Some(row.len()),
        "bytes of a {kind} row of {} weights",
        x.len()
    );
    match kind {
        WeightType::F32 => chain(row, x, float::f32_weight),
        WeightType::F16 => chain(row, x, float::f16_weight),
        WeightType::BF16 => chain(row, x, float::bf16_weight),
        quantized => panic!("{quantized} weights multiply quantized activations: use `dot`"),
    }
}

fn chain<const N: usize>(row: &[u8], x: &[f32], weight: fn(&[u8; N]) -> f32) -> f32 {
    let weights = row.as_chunks().0.iter();
    weights
        .zip(x)
        .fold(0.0, |acc, (w, x)| weight(w).mul_add(*x, acc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;

    fn encoded(kind: WeightType, values: &[f32]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(kind, values, &mut out);
        out
    }

    #[test]
    fn a_block_without_a_minimum_by_hand() {
        // Codes 127, -3, 0, ..; scale 0.5. Activations: codes 127, 4, 0, ..; scale 2.
        let mut w = [0.0; 32];
        w[..2].copy_from_slice(&[63.5, -1.5]);
        let mut x = [0.0; 32];
        x[..2].copy_from_slice(&[254.0, 8.0]);
        let row = encoded(WeightType::Q8_0, &w);
        let got = dot(WeightType::Q8_0, &row, &ActivationRow::quantize(&x));
        assert_eq!(got, (127.0 * 127.0 - 3.0 * 4.0) * (0.5 * 2.0));
    }

    #[test]
    fn a_minimum_multiplies_the_sum_of_the_codes() {
        // Weights from -2 in steps of 0.5: codes 0, 15, 4, 4, ..; activations 127, 1, 0, .. and one 3.
        let mut w = [0.0; 32];
        w[..2].copy_from_slice(&[-2.0, 5.5]);
        let mut x = [0.0; 32];
        (x[0], x[1], x[31]) = (127.0, 1.0, 3.0);
        let row = encoded(WeightType::Q4_1, &w);
        let got = dot(WeightType::Q4_1, &row, &ActivationRow::quantize(&x));
        let codes = 15.0 + 4.0 * 3.0;
        assert_eq!(got, codes * 0.5 + 131.0 * -2.0);
    }

    #[test]
    fn an_empty_row_gives_zero() {
        let empty = ActivationRow::default();
        for kind in WeightType::ALL {
            if kind.is_quantized() {
                assert_eq!(dot(kind, &[], &empty).to_bits(), 0);
            } else {
                assert_eq!(dot_f32(kind, &[], &[]).to_bits(), 0);
            }
        }
    }

    #[test]
    #[should_panic(expected = "bytes of a Q4_0 row of 64 weights")]
    fn a_row_of_another_width_is_refused() {
        let x = ActivationRow::quantize(&[1.0; 64]);
        dot(WeightType::Q4_0, &[0; 18], &x);
    }
}
