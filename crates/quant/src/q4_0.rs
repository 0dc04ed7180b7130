//! Q4_0: 32 weights in 18 bytes, `w = d * (c - 8)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..18 | `c`: 4 bits; element `i` in the low half of byte `i`, element `i + 16` in its high half |

use crate::fit::{self, Stored};
use crate::float::f16_at;
use crate::{Unpacked, nibbles};

const BYTES: usize = 18;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = 0.0;
    for (code, c) in out.codes.iter_mut().zip(nibbles::split(&block[2..])) {
        *code = c as i8 - 8;
    }
}

/// The extreme value gets the code -8, the end that reaches furthest, so `d` has the opposite sign of it.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let d = Stored::nearest(fit::extreme(values) / -8.0);
    let codes = values.map(|v| (fit::code(v, d.value, -8, 7) + 8) as u8);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    block[2..].copy_from_slice(&nibbles::join(&codes));
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{HALF, assert_each_bit_belongs_to_one_code, block, encoded, unpacked};

    const KIND: WeightType = WeightType::Q4_0;

    #[test]
    fn fields_are_where_the_table_says() {
        let block = unpacked(
            KIND,
            &block(KIND, &[(0, &HALF), (2, &[0xf0]), (17, &[0x9a])]),
        );
        assert_eq!((block.scales[0], block.mins[0]), (0.5, 0.0));
        assert_eq!((block.codes[0], block.codes[16]), (-8, 7));
        assert_eq!((block.codes[15], block.codes[31]), (2, 1));
        assert_each_bit_belongs_to_one_code(KIND, 2..18);
    }

    #[test]
    fn the_extreme_gets_the_code_that_reaches_furthest() {
        // -4 = 0.5 * -8; with +4 the scale turns negative, and -4 is out of reach by one step.
        let low = unpacked(KIND, &encoded(KIND, &[(3, -4.0), (20, 1.6)]));
        assert_eq!((low.scales[0], low.codes[3], low.codes[20]), (0.5, -8, 3));
        let high = unpacked(KIND, &encoded(KIND, &[(3, 4.0), (20, -4.0), (21, 1.6)]));
        assert_eq!((high.scales[0], high.codes[3]), (-0.5, -8));
        assert_eq!((high.codes[20], high.codes[21]), (7, -3));
    }
}
