//! Activations as int8: one scale per 32, and the sums that minima multiply.

/// Activations that share one scale.
pub const ACTIVATION_BLOCK: usize = 32;

/// Codes that share one sum: the narrowest sub-block of any weight type.
pub const SUM_BLOCK: usize = 16;

/// Blocks whose largest magnitude is below this become zeros. (127 divided by it is still finite, and
/// nothing that a model computes is that small on purpose.)
const TINY: f32 = 1e-30;

/// Adding 1.5 * 2^23 to a small float rounds it to an integer, ties to even, and leaves that integer in the
/// low bits of the sum's fraction, in two's complement.
const ROUND: f32 = 12_582_912.0;

/// One row of quantized activations: the owner of what [`quantize_activations`] writes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ActivationRow {
    /// Codes, `[width]`, in -127..=127.
    pub codes: Vec<i8>,
    /// Scales, `[width / 32]`: activation = scale * code.
    pub scales: Vec<f32>,
    /// Sums of codes, `[width / 16]`.
    pub sums: Vec<i32>,
}

impl ActivationRow {
    /// Quantizes `x`, `[width]`.
    ///
    /// # Panics
    /// If the width is not a multiple of 32.
    pub fn quantize(x: &[f32]) -> Self {
        let mut row = Self {
            codes: vec![0; x.len()],
            scales: vec![0.0; x.len() / ACTIVATION_BLOCK],
            sums: vec![0; x.len() / SUM_BLOCK],
        };
        quantize_activations(x, &mut row.codes, &mut row.scales, &mut row.sums);
        row
    }
}

/// Quantizes a row of activations `x`, `[width]`, into `codes` `[width]`, `scales` `[width / 32]` and `sums`
/// of codes `[width / 16]`.
///
/// For each block of 32, with `amax` the largest magnitude:
///
/// ```text
///     amax not finite  scale = NaN, codes = 0: outputs become NaN, never a valid-looking token
///     amax < 1e-30     scale = 0,   codes = 0
///     otherwise        scale = amax / 127      code = round_ties_even(x * (127 / amax))
/// ```
///
/// where each division, and the product, is rounded once to f32. Codes lie in -127..=127 by themselves: 127 /
/// amax and the product err by at most 2^-24 of themselves each, so no product exceeds 127.00002.
///
/// Inlined always, so that a caller that enables wider instructions compiles it with them; only separate IEEE
/// operations occur, so the bits are the same on every path.
///
/// # Panics
/// If the width is not a multiple of 32 or the lengths of the outputs do not match it.
#[inline(always)]
pub fn quantize_activations(x: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
    assert!(
        x.len().is_multiple_of(ACTIVATION_BLOCK)
            && codes.len() == x.len()
            && scales.len() == x.len() / ACTIVATION_BLOCK
            && sums.len() == x.len() / SUM_BLOCK,
        "a row of {} activations into {} codes, {} scales, {} sums",
        x.len(),
        codes.len(),
        scales.len(),
        sums.len()
    );
    let blocks = x.as_chunks::<ACTIVATION_BLOCK>().0.iter();
    let codes = codes.as_chunks_mut::<ACTIVATION_BLOCK>().0;
    let sums = sums.as_chunks_mut::<{ ACTIVATION_BLOCK / SUM_BLOCK }>().0;
    for (((x, codes), scale), sums) in blocks.zip(codes).zip(scales).zip(sums) {
        *scale = quantize_block(x, codes);
        for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<SUM_BLOCK>().0) {
            *sum = codes.iter().map(|&code| i32::from(code)).sum();
        }
    }
}

/// Writes the codes of one block and returns its scale.
#[inline(always)]
fn quantize_block(x: &[f32; ACTIVATION_BLOCK], codes: &mut [i8; ACTIVATION_BLOCK]) -> f32 {
    // Magnitudes compare like their bits, and any NaN is greater than infinity.
    let mut amax = 0u32;
    for value in x {
        amax = amax.max(value.to_bits() & 0x7fff_ffff);
    }
    let amax = f32::from_bits(amax);
    if !amax.is_finite() || amax < TINY {
        *codes = [0; ACTIVATION_BLOCK];
        return if amax < TINY { 0.0 } else { f32::NAN };
    }
    let inverse = 127.0 / amax;
    for (code, value) in codes.iter_mut().zip(x) {
        *code = (value * inverse + ROUND).to_bits() as i8;
    }
    amax / 127.0
}
