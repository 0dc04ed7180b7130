//! Q5_0: 32 weights in 22 bytes, `w = d * (c - 16)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..6 | bit 4 of `c`: u32, little-endian; element `i` in bit `i` |
//! | 6..22 | bits 0..4 of `c`: element `i` in the low half of byte `i`, element `i + 16` in its high half |

use crate::fit::{self, Stored};
use crate::float::f16_at;
use crate::{Unpacked, nibbles};

const BYTES: usize = 22;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = 0.0;
    let mut codes = nibbles::split(&block[6..]);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    nibbles::add_fifth_bits(&mut codes, high);
    for (code, c) in out.codes.iter_mut().zip(codes) {
        *code = c as i8 - 16;
    }
}

/// The extreme value gets the code -16, the end that reaches furthest.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let d = Stored::nearest(fit::extreme(values) / -16.0);
    let codes = values.map(|v| (fit::code(v, d.value, -16, 15) + 16) as u8);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    block[2..6].copy_from_slice(&nibbles::fifth_bits(&codes).to_le_bytes());
    block[6..].copy_from_slice(&nibbles::join(&codes));
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{HALF, assert_each_bit_belongs_to_one_code, block, encoded, unpacked};

    const KIND: WeightType = WeightType::Q5_0;

    #[test]
    fn fields_are_where_the_table_says() {
        let high_bits = 0x8001_0000u32.to_le_bytes();
        let parts: [(usize, &[u8]); 3] = [(0, &HALF), (2, &high_bits), (6, &[0xf3])];
        let block = unpacked(KIND, &block(KIND, &parts));
        assert_eq!((block.scales[0], block.mins[0]), (0.5, 0.0));
        assert_eq!((block.codes[0], block.codes[16]), (3 - 16, 15 + 16 - 16));
        assert_eq!((block.codes[15], block.codes[31]), (-16, 0));
        assert_each_bit_belongs_to_one_code(KIND, 2..22);
    }

    #[test]
    fn the_extreme_gets_the_code_that_reaches_furthest() {
        // -8 = 0.5 * -16; +8 is out of reach by one step.
        let block = unpacked(KIND, &encoded(KIND, &[(3, -8.0), (20, 8.0), (31, 1.6)]));
        assert_eq!((block.scales[0], block.codes[3]), (0.5, -16));
        assert_eq!((block.codes[20], block.codes[31]), (15, 3));
    }
}
