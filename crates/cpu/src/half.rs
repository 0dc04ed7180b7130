//! Half precision to single, without branches, so that the compiler can keep it in lanes.

/// The f32 value of an IEEE half, exactly; NaN stays NaN.
#[inline(always)]
pub(crate) fn half_to_float(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let sign = (bits & 0x8000) << 16;
    let magnitude = bits & 0x7fff;
    // Normal: the exponent moves from bias 15 to 127. Infinity and NaN: to the top exponent.
    let shifted = magnitude << 13;
    let normal = shifted + ((127 - 15) << 23);
    let special = shifted | 0x7f80_0000;
    // Subnormal: the mantissa behind the exponent of 2^-14, less 2^-14 (exact).
    let subnormal = (f32::from_bits(0x3880_0000 + shifted) - f32::from_bits(0x3880_0000)).to_bits();
    let value = if magnitude < 0x0400 {
        subnormal
    } else {
        normal
    };
    let value = if magnitude >= 0x7c00 { special } else { value };
    f32::from_bits(sign | value)
}

/// The f32 value of a bfloat16, exactly.
#[inline(always)]
pub(crate) fn bfloat_to_float(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_converts_as_the_half_crate_says() {
        for bits in 0..=u16::MAX {
            let (got, expected) = (half_to_float(bits), half::f16::from_bits(bits).to_f32());
            if expected.is_nan() {
                assert!(got.is_nan(), "{bits:#06x}");
            } else {
                assert_eq!(got.to_bits(), expected.to_bits(), "{bits:#06x}");
            }
        }
    }

    #[test]
    fn every_bfloat_converts_as_the_half_crate_says() {
        for bits in 0..=u16::MAX {
            let (got, expected) = (bfloat_to_float(bits), half::bf16::from_bits(bits).to_f32());
            assert!(got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()));
        }
    }
}
