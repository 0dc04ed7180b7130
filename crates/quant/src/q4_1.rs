//! Q4_1: 32 weights in 20 bytes, `w = d * c + m`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..4 | `m`: minimum, f16 |
//! | 4..20 | `c`: 4 bits; element `i` in the low half of byte `i`, element `i + 16` in its high half |

use crate::fit::{self, Stored};
use crate::float::f16_at;
use crate::{Unpacked, nibbles};

const BYTES: usize = 20;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = f16_at(block, 2);
    for (code, c) in out.codes.iter_mut().zip(nibbles::split(&block[4..])) {
        *code = c as i8;
    }
}

/// The smallest value gets the code 0, the largest 15.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let (low, high) = fit::range(values);
    let d = Stored::nearest((high - low) / 15.0);
    let m = Stored::nearest(low);
    let codes = values.map(|v| fit::code(v - m.value, d.value, 0, 15) as u8);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    block[2..4].copy_from_slice(&m.bytes);
    block[4..].copy_from_slice(&nibbles::join(&codes));
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{
        HALF, TWO, assert_each_bit_belongs_to_one_code, block, encoded, unpacked,
    };

    const KIND: WeightType = WeightType::Q4_1;

    #[test]
    fn fields_are_where_the_table_says() {
        let parts: [(usize, &[u8]); 4] = [(0, &HALF), (2, &TWO), (4, &[0xf0]), (19, &[0x9a])];
        let block = unpacked(KIND, &block(KIND, &parts));
        assert_eq!((block.scales[0], block.mins[0]), (0.5, 2.0));
        assert_eq!((block.codes[0], block.codes[16]), (0, 15));
        assert_eq!((block.codes[15], block.codes[31]), (10, 9));
        assert_each_bit_belongs_to_one_code(KIND, 4..20);
    }

    #[test]
    fn codes_span_the_smallest_to_the_largest() {
        // From -2 to 5.5 in 15 steps of 0.5.
        let block = unpacked(KIND, &encoded(KIND, &[(0, -2.0), (31, 5.5), (7, 1.3)]));
        assert_eq!((block.scales[0], block.mins[0]), (0.5, -2.0));
        assert_eq!((block.codes[0], block.codes[31]), (0, 15));
        assert_eq!((block.codes[7], block.codes[1]), (7, 4));
    }
}
