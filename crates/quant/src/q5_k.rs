//! Q5_K: 256 weights in 176 bytes, sub-blocks of 32, `w = (d * sc) * c - dmin * m`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: super-scale, f16 |
//! | 2..4 | `dmin`: super-scale of the minima, f16 |
//! | 4..16 | `sc` and `m`: 6 bits each, as in `k_scales.rs` |
//! | 16..48 | bit 4 of `c`: element `32 s + l` in bit `s` of byte `l` (`s` < 8, `l` < 32) |
//! | 48..176 | bits 0..4 of `c`: element `64 j + l` in the low half of byte `32 j + l`, element `64 j + 32 + l` in its high half (`j` < 4, `l` < 32) |

use crate::fit::Affine;
use crate::float::f16_at;
use crate::{Unpacked, k_scales};

const BYTES: usize = 176;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, mins) = k_scales::unpack(&block[4..16]);
    for s in 0..8 {
        out.scales[s] = d * f32::from(scales[s]);
        out.mins[s] = -(dmin * f32::from(mins[s]));
    }
    let (high_bits, low_bits) = block[16..].split_at(32);
    for (s, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        let (j, shift) = (s / 2, s % 2 * 4);
        let bytes = low_bits[32 * j..].iter().zip(high_bits);
        for (code, (low, high)) in codes.iter_mut().zip(bytes) {
            *code = (((low >> shift) & 15) | (((high >> s) & 1) << 4)) as i8;
        }
    }
}

/// The inverse of [`unpack`] over [`Affine::fit`].
pub(crate) fn encode(values: &[f32; 256]) -> [u8; BYTES] {
    let fit = Affine::<8>::fit(values, 31, 63);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&fit.d.bytes);
    block[2..4].copy_from_slice(&fit.dmin.bytes);
    block[4..16].copy_from_slice(&k_scales::pack(&fit.scales, &fit.mins));
    for (i, c) in fit.codes.iter().enumerate() {
        let (s, l) = (i / 32, i % 32);
        block[16 + l] |= (c >> 4) << s;
        block[48 + 32 * (s / 2) + l] |= (c & 15) << (s % 2 * 4);
    }
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{
        HALF, TWO, assert_each_bit_belongs_to_one_code, block, encoded, unpacked,
    };

    const KIND: WeightType = WeightType::Q5_K;

    #[test]
    fn fields_are_where_the_table_says() {
        let scales = [0, 3, 0b01_000000, 0, 0, 7, 0b10_000000, 0, 0, 0, 0x32, 0];
        let parts: [(usize, &[u8]); 6] = [
            (0, &HALF),
            (2, &TWO),
            (4, &scales),
            (16, &[0b0000_1000]),
            (47, &[0b1000_0000]),
            (48 + 32, &[0xa5]),
        ];
        let block = unpacked(KIND, &block(KIND, &parts));
        assert_eq!((block.scales[1], block.mins[1]), (0.5 * 3.0, -2.0 * 7.0));
        assert_eq!((block.scales[6], block.mins[6]), (0.5 * 18.0, -2.0 * 35.0));
        assert_eq!((block.codes[64], block.codes[96]), (5, 10 + 16));
        assert_eq!((block.codes[223], block.codes[255]), (0, 16));
        assert_each_bit_belongs_to_one_code(KIND, 16..176);
    }

    #[test]
    fn each_sub_block_spans_its_own_range() {
        // Sub-block 0: -63 to 1890, 31 steps of 63 (the largest: d = 1); sub-block 7: -5 to 57, 31 of 2.
        let weights = [
            (0, -63.0),
            (1, 1890.0),
            (255, 57.0),
            (254, -5.0),
            (253, 3.0),
        ];
        let block = unpacked(KIND, &encoded(KIND, &weights));
        assert_eq!((block.scales[0], block.mins[0]), (63.0, -63.0));
        assert_eq!((block.scales[7], block.mins[7]), (2.0, -5.0));
        assert_eq!(block.codes[..3], [0, 31, 1]);
        assert_eq!(block.codes[253..256], [4, 0, 31]);
    }
}
