//! What the encoders share: finding scales, rounding them as they are stored, and the nearest code.
//!
//! Every encoder works in the same three steps: choose the scales from the extremes of each sub-block,
//! round them to what the format stores, and only then take for each weight the code that is nearest
//! *under the stored scales*. (ggml divides by the scale before it is rounded; taking the stored one can
//! only lessen the error.) A value that is NaN or infinite makes its whole block NaN: such weights must
//! not turn into ordinary-looking ones.

/// A scale as a block stores it: rounded to f16.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    /// The two bytes in the file.
    pub(crate) bytes: [u8; 2],
    /// What they decode to.
    pub(crate) value: f32,
}

impl Stored {
    /// The nearest finite f16, ties to even: scales beyond the largest (65504) become that. NaN stays NaN.
    pub(crate) fn nearest(scale: f32) -> Self {
        // `clamp` keeps a NaN; adding 0 turns a negative zero into the plain one.
        let half = half::f16::from_f32(scale.clamp(-65504.0, 65504.0) + 0.0);
        Self {
            bytes: half.to_le_bytes(),
            value: half.to_f32(),
        }
    }
}

/// The value of the largest magnitude, with its sign (the first one of equals); NaN if any value is not finite.
pub(crate) fn extreme(values: &[f32]) -> f32 {
    let larger = |a: f32, &b: &f32| if b.abs() > a.abs() { b } else { a };
    if values.iter().all(|v| v.is_finite()) {
        values.iter().fold(0.0, larger)
    } else {
        f32::NAN
    }
}

/// The smallest and the largest value; NaN for both if any value is not finite.
pub(crate) fn range(values: &[f32]) -> (f32, f32) {
    if !values.iter().all(|v| v.is_finite()) {
        return (f32::NAN, f32::NAN);
    }
    let low = values.iter().copied().fold(f32::INFINITY, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    (low, high)
}

/// The integer in `low..=high` nearest to `value / scale`; the one nearest to 0 when the scale is 0 or NaN.
pub(crate) fn code(value: f32, scale: f32, low: i32, high: i32) -> i32 {
    let quotient = if scale == 0.0 { 0.0 } else { value / scale };
    // The cast saturates, and makes 0 of a NaN.
    (quotient.round_ties_even() as i32).clamp(low, high)
}

/// Expresses the scales of sub-blocks as a stored super-scale times integers in `low..=high`: the scale of
/// the largest magnitude gets `limit`, the end of that range that reaches furthest.
fn super_scale<const N: usize>(
    scales: &[f32; N],
    limit: i32,
    low: i32,
    high: i32,
) -> (Stored, [i32; N]) {
    let stored = Stored::nearest(extreme(scales) / limit as f32);
    (stored, scales.map(|s| code(s, stored.value, low, high)))
}

/// 256 weights as `N` sub-blocks with `w = (d * scales[s]) * codes[i]`: what Q3_K and Q6_K store.
pub(crate) struct Symmetric<const N: usize> {
    pub(crate) d: Stored,
    pub(crate) scales: [i32; N],
    pub(crate) codes: [i32; 256],
}

impl<const N: usize> Symmetric<N> {
    /// Codes in `-reach..reach`, sub-scales in `-scale_reach..scale_reach`. The extreme value of each
    /// sub-block gets the code `-reach`, the extreme sub-scale `-scale_reach`.
    pub(crate) fn fit(values: &[f32; 256], reach: i32, scale_reach: i32) -> Self {
        let width = 256 / N;
        let steps: [f32; N] =
            std::array::from_fn(|s| extreme(&values[s * width..][..width]) / -reach as f32);
        let (d, scales) = super_scale(&steps, -scale_reach, -scale_reach, scale_reach - 1);
        let codes = std::array::from_fn(|i| {
            let scale = d.value * scales[i / width] as f32;
            code(values[i], scale, -reach, reach - 1)
        });
        Self { d, scales, codes }
    }
}

/// 256 weights as `N` sub-blocks with `w = (d * scales[s]) * codes[i] - dmin * mins[s]`, all integers
/// unsigned: what Q2_K, Q4_K and Q5_K store.
pub(crate) struct Affine<const N: usize> {
    pub(crate) d: Stored,
    pub(crate) dmin: Stored,
    pub(crate) scales: [u8; N],
    pub(crate) mins: [u8; N],
    pub(crate) codes: [u8; 256],
}

impl<const N: usize> Affine<N> {
    /// Codes in `0..=top`, sub-scales and minima in `0..=scale_top`. Each sub-block spans its smallest value
    /// (0 if that is positive: the formats have no positive minimum) to its largest.
    pub(crate) fn fit(values: &[f32; 256], top: u8, scale_top: u8) -> Self {
        let (top, scale_top) = (i32::from(top), i32::from(scale_top));
        let width = 256 / N;
        let (mut steps, mut depths) = ([0.0; N], [0.0; N]);
        for (s, sub_block) in values.chunks_exact(width).enumerate() {
            let (low, high) = range(sub_block);
            let low = low.min(0.0);
            // Divided first: the difference of two large values could overflow. The step is never negative,
            // and NaN if a value was not finite (which makes `d`, and so the whole block, NaN).
            steps[s] = high / top as f32 - low / top as f32;
            depths[s] = -low;
        }
        let (d, scales) = super_scale(&steps, scale_top, 0, scale_top);
        let (dmin, mins) = super_scale(&depths, scale_top, 0, scale_top);
        let codes = std::array::from_fn(|i| {
            let s = i / width;
            let (scale, depth) = (d.value * scales[s] as f32, dmin.value * mins[s] as f32);
            code(values[i] + depth, scale, 0, top) as u8
        });
        Self {
            d,
            dmin,
            scales: scales.map(|sc| sc as u8),
            mins: mins.map(|m| m as u8),
            codes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extreme_keeps_its_sign_and_the_first_of_equals_wins() {
        assert_eq!(extreme(&[1.0, -3.0, 3.0, 2.0]), -3.0);
        assert_eq!(extreme(&[]), 0.0);
        assert!(extreme(&[1.0, f32::NAN, 2.0]).is_nan());
        assert!(extreme(&[1.0, f32::NEG_INFINITY]).is_nan());
    }

    #[test]
    fn stored_scales_are_the_nearest_f16_and_finite() {
        // 1 + 2^-11 is a tie between 1 and 1 + 2^-10.
        assert_eq!(Stored::nearest(1.0 + 2f32.powi(-11)).value, 1.0);
        assert_eq!(Stored::nearest(-1e30).value, -65504.0);
        assert_eq!(Stored::nearest(f32::INFINITY).bytes, [0xff, 0x7b]);
        assert_eq!(Stored::nearest(-0.0).bytes, [0, 0]);
        assert!(Stored::nearest(f32::NAN).value.is_nan());
    }

    #[test]
    fn codes_are_nearest_and_bounded() {
        assert_eq!(code(2.6, 1.0, -8, 7), 3);
        assert_eq!(code(-2.6, -1.0, -8, 7), 3);
        assert_eq!(code(1e30, 1e-30, -8, 7), 7);
        assert_eq!(code(-9.0, 1.0, -8, 7), -8);
        assert_eq!(code(5.0, 0.0, -8, 7), 0);
        assert_eq!(code(5.0, f32::NAN, -8, 7), 0);
    }

    #[test]
    fn sub_blocks_without_a_negative_value_start_at_zero() {
        let fit = Affine::<8>::fit(&[7.5; 256], 15, 63);
        assert_eq!((fit.mins, fit.dmin.value), ([0; 8], 0.0));
        assert_eq!((fit.scales, fit.codes), ([63; 8], [15; 256]));
    }
}
