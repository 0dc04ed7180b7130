//! Q8_0: 32 weights in 34 bytes, `w = d * c`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..34 | `c`: i8, in element order |

use crate::Unpacked;
use crate::fit::{self, Stored};
use crate::float::f16_at;

const BYTES: usize = 34;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = 0.0;
    for (code, &c) in out.codes.iter_mut().zip(&block[2..]) {
        *code = c as i8;
    }
}

/// The extreme value gets the code 127 or -127; the file may hold -128, this never writes it.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let d = Stored::nearest(fit::extreme(values).abs() / 127.0);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    for (byte, v) in block[2..].iter_mut().zip(values) {
        *byte = fit::code(*v, d.value, -127, 127) as i8 as u8;
    }
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{HALF, assert_each_bit_belongs_to_one_code, block, encoded, unpacked};

    const KIND: WeightType = WeightType::Q8_0;

    #[test]
    fn fields_are_where_the_table_says() {
        let block = unpacked(
            KIND,
            &block(KIND, &[(0, &HALF), (2, &[0x80]), (33, &[0x7f])]),
        );
        assert_eq!((block.scales[0], block.mins[0]), (0.5, 0.0));
        assert_eq!((block.codes[0], block.codes[31]), (-128, 127));
        assert_each_bit_belongs_to_one_code(KIND, 2..34);
    }

    #[test]
    fn the_extreme_gets_127_of_its_sign() {
        let block = unpacked(KIND, &encoded(KIND, &[(0, -63.5), (30, 63.5), (31, 1.3)]));
        assert_eq!((block.scales[0], block.codes[0]), (0.5, -127));
        assert_eq!((block.codes[30], block.codes[31]), (127, 3));
    }

    #[test]
    fn a_scale_too_small_for_f16_gives_zeros() {
        let block = unpacked(KIND, &encoded(KIND, &[(0, 1e-7)]));
        assert_eq!((block.scales[0], block.codes[0]), (0.0, 0));
    }
}
