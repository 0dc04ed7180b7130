//! exp, ln and silu by our own polynomials: the same operations in the same order on every path.
//!
//! Method of both: Cody and Waite's reduction to a short interval, then a polynomial in Horner form
//! (coefficients of exp: the Taylor terms to degree 7 on |r| <= ln 2 / 2; of ln: the odd terms of
//! 2 atanh(s)). Errors against f64: exp under 2 units in the last place, ln under 3; a test measures both.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// The upper bits of ln 2: few enough that `n * LN_2_HIGH` is exact for every exponent n.
const LN_2_HIGH: f32 = 0.693_359_4;
/// `ln 2 - LN_2_HIGH`.
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// Adding and subtracting 1.5 * 2^23 rounds a small float to the nearest integer, ties to even.
const ROUND: f32 = 12_582_912.0;
/// Below this e^x is less than the smallest normal float: the result is 0.
const EXP_MIN: f32 = -87.33;
/// Above this e^x overflows: the result is infinity.
const EXP_MAX: f32 = 88.72;

/// e^x. 0 below -87.33 (results that would be subnormal), infinity above 88.72; NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Bounds by comparison, not `clamp`: a NaN then passes through the arithmetic and stays one.
    let bounded = if x < EXP_MIN { EXP_MIN } else { x };
    let bounded = if bounded > EXP_MAX { EXP_MAX } else { bounded };
    let shifted = bounded * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    let e = (p * (r * r) + r) + 1.0;
    // 2^n in two factors, so that n = 128 (just under the overflow) needs no infinity on the way.
    // n as an integer is the low mantissa of the shifted value: a subtraction keeps its lane, which a saturating
    // conversion would not. For a NaN the factors are arbitrary and e is NaN.
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = n >> 1;
    let value = e * power_of_two(half) * power_of_two(n.wrapping_sub(half));
    let value = if x < EXP_MIN { 0.0 } else { value };
    if x > EXP_MAX { f32::INFINITY } else { value }
}

/// 2^n for -126 <= n <= 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm. -infinity at 0 (of either sign), NaN below 0 and for NaN, infinity at infinity.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // Subnormals are scaled up into the normal range first.
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    let offset = if tiny { 23 } else { 0 };
    // x = 2^n * m with m in [sqrt(1/2), sqrt(2)).
    let bits = scaled.to_bits() as i32;
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let n = (shifted >> 23) - offset;
    let m = f32::from_bits(((shifted & 0x007f_ffff) + 0x3f35_04f3) as u32);
    let n = n as f32;
    // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.1716; f = m - 1 is exact.
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let mut p = 2.0 / 9.0;
    p = p * z + 2.0 / 7.0;
    p = p * z + 2.0 / 5.0;
    p = p * z + 2.0 / 3.0;
    let series = p * z;
    // 2 s + s * series = f - s (f - series): keeps the leading term exact.
    let value = n * LN_2_HIGH + ((f - s * (f - series)) + n * LN_2_LOW);
    if x > 0.0 && x < f32::INFINITY {
        value
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else if x == f32::INFINITY {
        f32::INFINITY
    } else {
        f32::NAN
    }
}

/// The sigmoid-weighted linear unit: x / (1 + e^-x).
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance from the f64 value in units in the last place of its f32 rounding.
    fn error_in_ulps(got: f32, expected: f64) -> f64 {
        let rounded = (expected as f32).abs();
        let ulp = f64::from(f32::from_bits(rounded.to_bits() + 1)) - f64::from(rounded);
        (f64::from(got) - expected).abs() / ulp
    }

    #[test]
    fn exp_is_within_two_ulps_over_its_whole_range() {
        let mut worst = 0.0f64;
        for i in 0..2_000_000 {
            let x = -87.0 + 175.5 * (i as f32 / 2_000_000.0);
            worst = worst.max(error_in_ulps(exp(x), f64::from(x).exp()));
        }
        assert!(worst < 2.0, "worst error {worst} ulp");
    }

    #[test]
    fn ln_is_within_three_ulps_from_subnormals_to_the_largest() {
        let mut worst = 0.0f64;
        for bits in (1u32..0x7f80_0000).step_by(997) {
            let x = f32::from_bits(bits);
            if x == 1.0 {
                continue;
            }
            worst = worst.max(error_in_ulps(ln(x), f64::from(x).ln()));
        }
        assert!(worst < 3.0, "worst error {worst} ulp");
    }

    #[test]
    fn the_special_values() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(ln(1.0), 0.0);
        assert_eq!(ln(0.0), f32::NEG_INFINITY);
        assert_eq!(ln(f32::INFINITY), f32::INFINITY);
        assert!(ln(-1.0).is_nan() && ln(f32::NAN).is_nan());
        assert_eq!(silu(0.0), 0.0);
        assert!(silu(f32::NAN).is_nan());
        assert_eq!(silu(100.0), 100.0);
        assert_eq!(silu(-200.0), 0.0);
    }

    #[test]
    fn the_split_of_ln_2_is_exact_enough() {
        let sum = f64::from(LN_2_HIGH) + f64::from(LN_2_LOW);
        assert!((sum - std::f64::consts::LN_2).abs() < 1e-11);
        // Twelve significant bits: the product with any exponent (8 bits) is exact.
        assert_eq!(LN_2_HIGH.to_bits() & 0xfff, 0);
    }
}
