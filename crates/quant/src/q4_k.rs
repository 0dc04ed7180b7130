//! Q4_K: 256 weights in 144 bytes, sub-blocks of 32, `w = (d * sc) * c - dmin * m`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: super-scale, f16 |
//! | 2..4 | `dmin`: super-scale of the minima, f16 |
//! | 4..16 | `sc` and `m`: 6 bits each, as in `k_scales.rs` |
//! | 16..144 | `c`: 4 bits; element `64 j + l` in the low half of byte `32 j + l`, element `64 j + 32 + l` in its high half (`j` < 4, `l` < 32) |

use crate::fit::Affine;
use crate::float::f16_at;
use crate::{Unpacked, k_scales};

const BYTES: usize = 144;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, mins) = k_scales::unpack(&block[4..16]);
    for s in 0..8 {
        out.scales[s] = d * f32::from(scales[s]);
        out.mins[s] = -(dmin * f32::from(mins[s]));
    }
    for (s, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        let (j, shift) = (s / 2, s % 2 * 4);
        for (code, byte) in codes.iter_mut().zip(&block[16 + 32 * j..]) {
            *code = ((byte >> shift) & 15) as i8;
        }
    }
}

/// The inverse of [`unpack`] over [`Affine::fit`].
pub(crate) fn encode(values: &[f32; 256]) -> [u8; BYTES] {
    let fit = Affine::<8>::fit(values, 15, 63);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&fit.d.bytes);
    block[2..4].copy_from_slice(&fit.dmin.bytes);
    block[4..16].copy_from_slice(&k_scales::pack(&fit.scales, &fit.mins));
    for (i, c) in fit.codes.iter().enumerate() {
        let (s, l) = (i / 32, i % 32);
        block[16 + 32 * (s / 2) + l] |= c << (s % 2 * 4);
    }
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{
        HALF, TWO, assert_each_bit_belongs_to_one_code, block, encoded, unpacked,
    };

    const KIND: WeightType = WeightType::Q4_K;

    #[test]
    fn fields_are_where_the_table_says() {
        // Sub-block 1: sc = 3, m = 7; sub-block 6: sc = 0b01_0010, m = 0b10_0011.
        let scales = [0, 3, 0b01_000000, 0, 0, 7, 0b10_000000, 0, 0, 0, 0x32, 0];
        let parts: [(usize, &[u8]); 5] = [
            (0, &HALF),
            (2, &TWO),
            (4, &scales),
            (16 + 32, &[0xa5]),
            (143, &[0xc3]),
        ];
        let block = unpacked(KIND, &block(KIND, &parts));
        assert_eq!((block.scales[1], block.mins[1]), (0.5 * 3.0, -2.0 * 7.0));
        assert_eq!((block.scales[6], block.mins[6]), (0.5 * 18.0, -2.0 * 35.0));
        assert_eq!((block.codes[64], block.codes[96]), (5, 10));
        assert_eq!((block.codes[223], block.codes[255]), (3, 12));
        assert_each_bit_belongs_to_one_code(KIND, 16..144);
    }

    #[test]
    fn each_sub_block_spans_its_own_range() {
        // Sub-block 0: -63 to 882, 15 steps of 63 (the largest: d = 1); sub-block 7: -5 to 25, 15 of 2.
        let weights = [(0, -63.0), (1, 882.0), (255, 25.0), (254, -5.0), (253, 3.0)];
        let block = unpacked(KIND, &encoded(KIND, &weights));
        assert_eq!((block.scales[0], block.mins[0]), (63.0, -63.0));
        assert_eq!((block.scales[7], block.mins[7]), (2.0, -5.0));
        assert_eq!(block.codes[..3], [0, 15, 1]);
        assert_eq!(block.codes[253..256], [4, 0, 15]);
    }
}
