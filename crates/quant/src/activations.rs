//! Activations as int8: one scale per 32, and the sums that minima multiply.

/// Activations that share one scale.
pub const ACTIVATION_BLOCK: usize = 32;

/// Codes that share one sum: the narrowest sub-block of any weight type.
pub const SUM_BLOCK: usize = 16;

/// Blocks whose largest magnitude is below this become zeros. (127 divided by it is still finite, and
/// nothing that a model computes is that small on purpose.)
pub const TINY_ACTIVATION: f32 = 1e-30;

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
    let blocks = x.as_chunks().0.iter();
    let blocks = blocks.zip(codes.as_chunks_mut().0).zip(scales);
    for ((x, codes), scale) in blocks {
        *scale = quantize_block(x, codes);
    }
    // In a loop of its own: compilers vectorise the two apart better than together.
    for (sum, codes) in sums.iter_mut().zip(codes.as_chunks::<SUM_BLOCK>().0) {
        *sum = codes.iter().map(|&code| i32::from(code)).sum();
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
    if !amax.is_finite() || amax < TINY_ACTIVATION {
        *codes = [0; ACTIVATION_BLOCK];
        return if amax < TINY_ACTIVATION {
            0.0
        } else {
            f32::NAN
        };
    }
    let inverse = 127.0 / amax;
    for (code, value) in codes.iter_mut().zip(x) {
        *code = (value * inverse + ROUND).to_bits() as i8;
    }
    amax / 127.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One block that is 0 but for its first values.
    fn block(values: &[f32]) -> ActivationRow {
        let mut x = [0.0; ACTIVATION_BLOCK];
        x[..values.len()].copy_from_slice(values);
        ActivationRow::quantize(&x)
    }

    #[test]
    fn scale_codes_and_sums_of_a_block_by_hand() {
        // Scale 2 and inverse 0.5 are exact; 1, 3 and 5 are ties.
        let mut x = [0.0; ACTIVATION_BLOCK];
        x[..6].copy_from_slice(&[1.0, 3.0, 5.0, -1.0, -3.0, 254.0]);
        x[16..18].copy_from_slice(&[-254.0, 8.2]);
        let row = ActivationRow::quantize(&x);
        assert_eq!(row.scales, [2.0]);
        assert_eq!(row.codes[..6], [0, 2, 2, 0, -2, 127]);
        assert_eq!(row.codes[16..18], [-127, 4]);
        assert_eq!(row.sums, [129, -123]);
    }

    #[test]
    fn each_block_of_32_has_its_own_scale() {
        let mut x = vec![1.0; 64];
        x[40] = 127.0;
        let row = ActivationRow::quantize(&x);
        assert_eq!(row.scales, [1.0 / 127.0, 1.0]);
        assert_eq!((row.codes[0], row.codes[32], row.codes[40]), (127, 1, 127));
        assert_eq!(row.sums, [16 * 127, 16 * 127, 15 + 127, 16]);
    }

    #[test]
    fn what_is_not_finite_makes_the_scale_nan_and_the_codes_zero() {
        let payload = f32::from_bits(0xffff_ffff);
        for bad in [f32::NAN, payload, f32::INFINITY, f32::NEG_INFINITY] {
            let row = block(&[1.0, bad, -3.0]);
            assert!(row.scales[0].is_nan());
            assert_eq!((row.codes, row.sums), (vec![0; 32], vec![0; 2]));
        }
    }

    #[test]
    fn blocks_below_the_threshold_are_zero_and_those_at_it_are_not() {
        for tiny in [0.0, -0.0, f32::from_bits(1), -TINY_ACTIVATION.next_down()] {
            let row = block(&[tiny]);
            assert_eq!((row.scales[0].to_bits(), row.codes[0]), (0, 0));
        }
        let row = block(&[-TINY_ACTIVATION, TINY_ACTIVATION / 127.0]);
        assert_eq!(row.scales[0], TINY_ACTIVATION / 127.0);
        assert_eq!(row.codes[..2], [-127, 1]);
    }

    #[test]
    fn the_largest_finite_values_do_not_overflow() {
        let row = block(&[f32::MAX, f32::MIN, f32::MAX / 2.0]);
        assert_eq!(row.codes[..3], [127, -127, 64]);
        assert!(row.scales[0].is_finite());
    }

    /// The proof that no clamp is needed, for every fraction that the largest magnitude can have.
    #[test]
    fn the_largest_magnitude_always_gets_127() {
        for bits in 0x3f80_0000u32..0x4000_0000 {
            let amax = f32::from_bits(bits);
            let product = amax * (127.0 / amax);
            assert!((126.5..127.5).contains(&product), "{amax}: {product}");
        }
    }

    #[test]
    #[should_panic(expected = "a row of 48 activations")]
    fn a_width_that_is_not_whole_blocks_is_refused() {
        quantize_activations(&[0.0; 48], &mut [0; 48], &mut [0.0; 1], &mut [0; 3]);
    }
}
