//! IQ4_NL: 32 weights in 18 bytes, `w = d * TABLE[c]`: 4-bit codes into a table of unequal steps, finer
//! near zero where weights are dense.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..18 | `c`: 4 bits; element `i` in the low half of byte `i`, element `i + 16` in its high half |

use crate::fit::{self, Stored};
use crate::float::f16_at;
use crate::{Unpacked, nibbles};

const BYTES: usize = 18;

/// What the codes stand for (ggml's `kvalues_iq4nl`), in increasing order.
pub const TABLE: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

/// The unpacked codes are the table's values, so that kernels see plain int8 weights.
#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = 0.0;
    for (code, c) in out.codes.iter_mut().zip(nibbles::split(&block[2..])) {
        *code = TABLE[usize::from(c)];
    }
}

/// The extreme value gets -127, the end that reaches furthest.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let d = Stored::nearest(fit::extreme(values) / -127.0);
    let codes = values.map(|v| nearest(if d.value == 0.0 { 0.0 } else { v / d.value }));
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    block[2..].copy_from_slice(&nibbles::join(&codes));
    block
}

/// The code whose value is nearest to `target`; the lower one of two equally near. (NaN: 0.)
fn nearest(target: f32) -> u8 {
    let passed = |pair: &&[i8]| target > (f32::from(pair[0]) + f32::from(pair[1])) / 2.0;
    TABLE.windows(2).take_while(passed).count() as u8
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{HALF, assert_each_bit_belongs_to_one_code, block, encoded, unpacked};

    const KIND: WeightType = WeightType::IQ4_NL;

    #[test]
    fn fields_are_where_the_table_says() {
        let block = unpacked(
            KIND,
            &block(KIND, &[(0, &HALF), (2, &[0xf0]), (17, &[0x87])]),
        );
        assert_eq!((block.scales[0], block.mins[0]), (0.5, 0.0));
        assert_eq!((block.codes[0], block.codes[16]), (-127, 113));
        assert_eq!((block.codes[15], block.codes[31]), (-10, 1));
        assert_each_bit_belongs_to_one_code(KIND, 2..18);
    }

    #[test]
    fn values_get_the_nearest_entry_of_the_table() {
        let weights = [
            (0, -63.5),
            (1, 63.5),
            (2, 0.5 * 45.6),
            (3, 0.5 * 45.4),
            (4, -0.5 * 16.0),
        ];
        let block = unpacked(KIND, &encoded(KIND, &weights));
        assert_eq!(block.scales[0], 0.5);
        // 45.5 lies halfway between 38 and 53, -16 between -22 and -10.
        assert_eq!(block.codes[..5], [-127, 113, 53, 38, -22]);
        assert_eq!(block.codes[5], 1);
    }
}
