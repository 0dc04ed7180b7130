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
///     acc = fma(sum_x, min_w   * scale_x, acc)      only for types with a minimum
/// ```
///
/// with every product of scales rounded once to f32. The integers convert to f32 exactly: they stay below
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
                acc = (sum_x as f32).mul_add(block.mins[s] * scale_x, acc);
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
