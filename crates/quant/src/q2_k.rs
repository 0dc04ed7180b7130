//! Q2_K: 256 weights in 84 bytes, sub-blocks of 16, `w = (d * sc) * c - dmin * m`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..16 | per sub-block: `sc` in the low half, `m` in the high half |
//! | 16..80 | `c`: 2 bits; element `128 h + 32 j + l` in bits `2j..2j+2` of byte `32 h + l` (`h` < 2, `j` < 4, `l` < 32) |
//! | 80..82 | `d`: super-scale, f16 |
//! | 82..84 | `dmin`: super-scale of the minima, f16 |

use crate::Unpacked;
use crate::fit::Affine;
use crate::float::f16_at;

const BYTES: usize = 84;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for (s, byte) in block[..16].iter().enumerate() {
        out.scales[s] = d * f32::from(byte & 15);
        out.mins[s] = -(dmin * f32::from(byte >> 4));
    }
    for (i, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        let (h, j) = (i / 4, i % 4);
        for (code, byte) in codes.iter_mut().zip(&block[16 + 32 * h..]) {
            *code = ((byte >> (2 * j)) & 3) as i8;
        }
    }
}

/// The inverse of [`unpack`] over [`Affine::fit`].
pub(crate) fn encode(values: &[f32; 256]) -> [u8; BYTES] {
    let fit = Affine::<16>::fit(values, 3, 15);
    let mut block = [0; BYTES];
    for (s, byte) in block[..16].iter_mut().enumerate() {
        *byte = fit.scales[s] | (fit.mins[s] << 4);
    }
    for (i, c) in fit.codes.iter().enumerate() {
        let (h, j, l) = (i / 128, i / 32 % 4, i % 32);
        block[16 + 32 * h + l] |= c << (2 * j);
    }
    block[80..82].copy_from_slice(&fit.d.bytes);
    block[82..].copy_from_slice(&fit.dmin.bytes);
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{
        HALF, TWO, assert_each_bit_belongs_to_one_code, block, encoded, unpacked,
    };

    const KIND: WeightType = WeightType::Q2_K;

    #[test]
    fn fields_are_where_the_table_says() {
        let parts: [(usize, &[u8]); 6] = [
            (1, &[0x53]),
            (15, &[0x1f]),
            (16 + 16, &[0b01_00_11_10]),
            (16 + 63, &[0b11_00_00_00]),
            (80, &HALF),
            (82, &TWO),
        ];
        let block = unpacked(KIND, &block(KIND, &parts));
        assert_eq!((block.scales[1], block.mins[1]), (0.5 * 3.0, -2.0 * 5.0));
        assert_eq!((block.scales[15], block.mins[15]), (0.5 * 15.0, -2.0));
        assert_eq!([16, 48, 80, 112].map(|i| block.codes[i]), [2, 3, 0, 1]);
        assert_eq!(block.codes[255], 3);
        assert_each_bit_belongs_to_one_code(KIND, 16..80);
    }

    #[test]
    fn each_sub_block_spans_its_own_range() {
        // Sub-block 0: -15 to 30, 3 steps of 15 (the largest: d = 1); sub-block 15: -4 to 8, 3 of 4.
        let weights = [(0, -15.0), (1, 30.0), (255, 8.0), (254, -4.0), (253, 3.0)];
        let block = unpacked(KIND, &encoded(KIND, &weights));
        assert_eq!((block.scales[0], block.mins[0]), (15.0, -15.0));
        assert_eq!((block.scales[15], block.mins[15]), (4.0, -4.0));
        assert_eq!(block.codes[..3], [0, 3, 1]);
        assert_eq!(block.codes[252..], [1, 2, 0, 3]);
    }
}
