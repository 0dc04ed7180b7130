//! Q6_K: 256 weights in 210 bytes, sub-blocks of 16, `w = (d * sc) * (c - 32)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..128 | bits 0..4 of `c`: element `128 h + 32 j + l` in byte `64 h + 32 (j % 2) + l`, in its low half for `j` < 2, else its high half (`h` < 2, `j` < 4, `l` < 32) |
//! | 128..192 | bits 4..6 of `c`: the same element in bits `2j..2j+2` of byte `32 h + l` |
//! | 192..208 | `sc`: i8 per sub-block |
//! | 208..210 | `d`: super-scale, f16 |

use crate::Unpacked;
use crate::fit::Symmetric;
use crate::float::f16_at;

const BYTES: usize = 210;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    let d = f16_at(block, 208);
    for (scale, &sc) in out.scales.iter_mut().zip(&block[192..208]) {
        *scale = d * f32::from(sc as i8);
    }
    out.mins.fill(0.0);
    let (low_bits, high_bits) = block[..192].split_at(128);
    for (i, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        let (h, j) = (i / 4, i % 4);
        let low_bits = &low_bits[64 * h + 32 * (j % 2)..];
        let bytes = low_bits.iter().zip(&high_bits[32 * h..]);
        for (code, (low, high)) in codes.iter_mut().zip(bytes) {
            let c = ((low >> (j / 2 * 4)) & 15) | (((high >> (2 * j)) & 3) << 4);
            *code = c as i8 - 32;
        }
    }
}

/// The inverse of [`unpack`] over [`Symmetric::fit`].
pub(crate) fn encode(values: &[f32; 256]) -> [u8; BYTES] {
    let fit = Symmetric::<16>::fit(values, 32, 128);
    let mut block = [0; BYTES];
    for (i, code) in fit.codes.iter().enumerate() {
        let c = (code + 32) as u8;
        let (h, j, l) = (i / 128, i / 32 % 4, i % 32);
        block[64 * h + 32 * (j % 2) + l] |= (c & 15) << (j / 2 * 4);
        block[128 + 32 * h + l] |= (c >> 4) << (2 * j);
    }
    for (byte, &scale) in block[192..208].iter_mut().zip(&fit.scales) {
        *byte = scale as i8 as u8;
    }
    block[208..].copy_from_slice(&fit.d.bytes);
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{HALF, assert_each_bit_belongs_to_one_code, block, encoded, unpacked};

    const KIND: WeightType = WeightType::Q6_K;

    #[test]
    fn fields_are_where_the_table_says() {
        let parts: [(usize, &[u8]); 6] = [
            (0, &[0xa5]),
            (32, &[0x7c]),
            (128, &[0b01_11_00_10]),
            (191, &[0b11_00_00_00]),
            (193, &[0x80, 0x7f]),
            (208, &HALF),
        ];
        let block = unpacked(KIND, &block(KIND, &parts));
        assert_eq!(block.scales[..4], [0.0, -64.0, 63.5, 0.0]);
        assert_eq!(block.mins, [0.0; 16]);
        let expected = [5 + 32 - 32, 12 - 32, 10 + 48 - 32, 7 + 16 - 32];
        assert_eq!([0, 32, 64, 96].map(|i| block.codes[i]), expected);
        assert_eq!((block.codes[255], block.codes[1]), (48 - 32, -32));
        assert_each_bit_belongs_to_one_code(KIND, 0..192);
    }

    #[test]
    fn extremes_get_the_codes_that_reach_furthest() {
        // Sub-block 0: step 128 (d = -1, sc = -128); sub-block 15: step 2 of the other sign.
        let weights = [
            (0, -4096.0),
            (1, 256.0),
            (2, 4096.0),
            (255, 64.0),
            (254, -5.0),
            (253, 3.8),
        ];
        let block = unpacked(KIND, &encoded(KIND, &weights));
        assert_eq!((block.scales[0], block.scales[15]), (128.0, -2.0));
        assert_eq!(block.codes[..4], [-32, 2, 31, 0]);
        assert_eq!(block.codes[252..], [0, -2, 2, -32]);
    }
}
