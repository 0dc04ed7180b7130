//! F32, F16 and BF16: weights stored as little-endian floats, blocks of one element.
//!
//! | type | bytes | layout |
//! | --- | --- | --- |
//! | F32 | 4 | IEEE binary32 |
//! | F16 | 2 | IEEE binary16: sign, 5 bits of exponent, 10 of fraction |
//! | BF16 | 2 | the upper half of a binary32 |

/// The value of the IEEE binary16 number with these bits: exact, subnormals, infinities and NaN
/// (made quiet, its payload kept) included.
///
/// Written without a branch so that it vectorises in any instruction set: the magnitude is moved into
/// an f32's exponent and fraction and rescaled by 2^112, the difference of the two exponent biases.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    const RESCALE: f32 = f32::from_bits((127 + 112) << 23);
    const QUIET: u32 = 1 << 22;
    let bits = u32::from(bits);
    let sign = (bits & 0x8000) << 16;
    let shifted = (bits & 0x7fff) << 13;
    let finite = (f32::from_bits(shifted) * RESCALE).to_bits();
    let fraction = shifted & 0x007f_ffff;
    let special = 0x7f80_0000 | fraction | if fraction != 0 { QUIET } else { 0 };
    let magnitude = if bits & 0x7c00 == 0x7c00 {
        special
    } else {
        finite
    };
    f32::from_bits(sign | magnitude)
}

/// The value of the bfloat16 number with these bits: exact, bit patterns of NaN kept.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The f16 at byte `at` of a block.
#[inline(always)]
pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]]))
}

/// F32: little-endian bytes to the value.
#[inline(always)]
pub(crate) fn f32_weight(bytes: &[u8; 4]) -> f32 {
    f32::from_le_bytes(*bytes)
}

/// F16: little-endian bytes to the value.
#[inline(always)]
pub(crate) fn f16_weight(bytes: &[u8; 2]) -> f32 {
    f16_to_f32(u16::from_le_bytes(*bytes))
}

/// BF16: little-endian bytes to the value.
#[inline(always)]
pub(crate) fn bf16_weight(bytes: &[u8; 2]) -> f32 {
    bf16_to_f32(u16::from_le_bytes(*bytes))
}

/// Appends `values` as F32.
pub(crate) fn encode_f32(values: &[f32], out: &mut Vec<u8>) {
    out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
}

/// Appends `values` as F16, each rounded to nearest, ties to even; beyond 65504 + half a step: infinity.
pub(crate) fn encode_f16(values: &[f32], out: &mut Vec<u8>) {
    out.extend(
        values
            .iter()
            .flat_map(|&v| half::f16::from_f32(v).to_le_bytes()),
    );
}

/// Appends `values` as BF16, each rounded to nearest, ties to even.
pub(crate) fn encode_bf16(values: &[f32], out: &mut Vec<u8>) {
    out.extend(
        values
            .iter()
            .flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_has_the_value_that_the_half_crate_gives() {
        for bits in 0..=u16::MAX {
            let expected = half::f16::from_bits(bits).to_f32_const();
            assert_eq!(
                f16_to_f32(bits).to_bits(),
                expected.to_bits(),
                "f16 bits {bits:#06x}"
            );
        }
    }

    #[test]
    fn landmarks_of_f16() {
        assert_eq!(f16_to_f32(0x3c00), 1.0);
        assert_eq!(f16_to_f32(0x0001), 2f32.powi(-24));
        assert_eq!(f16_to_f32(0x7bff), 65504.0);
        assert_eq!(f16_to_f32(0xfc00), f32::NEG_INFINITY);
        assert_eq!(f16_to_f32(0x8000).to_bits(), (-0.0f32).to_bits());
    }

    #[test]
    fn f16_and_bf16_round_to_nearest_with_ties_to_even() {
        let mut f16 = Vec::new();
        // 1 + 2^-11 lies halfway between 1 and 1 + 2^-10; 1 + 3 * 2^-11 between the next two.
        let half_step = 2f32.powi(-11);
        encode_f16(&[1.0 + half_step, 1.0 + 3.0 * half_step, 65520.0], &mut f16);
        assert_eq!(f16, [0x00, 0x3c, 0x02, 0x3c, 0x00, 0x7c]);
        let mut bf16 = Vec::new();
        let half_step = 2f32.powi(-8);
        encode_bf16(
            &[1.0 + half_step, 1.0 + 3.0 * half_step, f32::NAN],
            &mut bf16,
        );
        assert_eq!(bf16[..4], [0x80, 0x3f, 0x82, 0x3f]);
        assert!(bf16_weight(&[bf16[4], bf16[5]]).is_nan());
    }
}
