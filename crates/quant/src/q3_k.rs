//! Q3_K: 256 weights in 110 bytes, sub-blocks of 16, `w = (d * (sc - 32)) * (c - 4)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..32 | bit 2 of `c`: element `128 h + 32 j + l` in bit `4 h + j` of byte `l` (`h` < 2, `j` < 4, `l` < 32) |
//! | 32..96 | bits 0..2 of `c`: the same element in bits `2j..2j+2` of byte `32 h + l` |
//! | 96..104 | bits 0..4 of `sc`: sub-block `s` < 8 in the low half of byte `s`, `s + 8` in its high half |
//! | 104..108 | bits 4..6 of `sc`: sub-block `s` in bits `2k..2k+2` of byte `s % 4`, `k = s / 4` |
//! | 108..110 | `d`: super-scale, f16 |

use crate::Unpacked;
use crate::fit::Symmetric;
use crate::float::f16_at;

const BYTES: usize = 110;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    let d = f16_at(block, 108);
    let sub_scales = sub_scales(&block[96..108]);
    for (scale, sc) in out.scales.iter_mut().zip(sub_scales) {
        *scale = d * f32::from(sc);
    }
    out.mins.fill(0.0);
    let (high_bits, low_bits) = block[..96].split_at(32);
    for (i, codes) in out.codes.chunks_exact_mut(32).enumerate() {
        let (h, j) = (i / 4, i % 4);
        let bytes = low_bits[32 * h..].iter().zip(high_bits);
        for (code, (low, high)) in codes.iter_mut().zip(bytes) {
            let c = ((low >> (2 * j)) & 3) | (((high >> i) & 1) << 2);
            *code = c as i8 - 4;
        }
    }
}

/// `sc - 32` of each sub-block, from bytes 96..108 of a block.
#[inline(always)]
pub(crate) fn sub_scales(bytes: &[u8]) -> [i8; 16] {
    std::array::from_fn(|s| {
        let low = (bytes[s % 8] >> (s / 8 * 4)) & 15;
        let high = (bytes[8 + s % 4] >> (s / 4 * 2)) & 3;
        (low | (high << 4)) as i8 - 32
    })
}

/// The inverse of [`unpack`] over [`Symmetric::fit`].
pub(crate) fn encode(values: &[f32; 256]) -> [u8; BYTES] {
    let fit = Symmetric::<16>::fit(values, 4, 32);
    let mut block = [0; BYTES];
    for (s, scale) in fit.scales.iter().enumerate() {
        let sc = (scale + 32) as u8;
        block[96 + s % 8] |= (sc & 15) << (s / 8 * 4);
        block[104 + s % 4] |= (sc >> 4) << (s / 4 * 2);
    }
    for (i, code) in fit.codes.iter().enumerate() {
        let c = (code + 4) as u8;
        let (h, j, l) = (i / 128, i / 32 % 4, i % 32);
        block[l] |= (c >> 2) << (4 * h + j);
        block[32 + 32 * h + l] |= (c & 3) << (2 * j);
    }
    block[108..].copy_from_slice(&fit.d.bytes);
    block
}

#[cfg(test)]
mod tests {
    use crate::WeightType;
    use crate::testing::{HALF, assert_each_bit_belongs_to_one_code, block, encoded, unpacked};

    const KIND: WeightType = WeightType::Q3_K;

    #[test]
    fn fields_are_where_the_table_says() {
        let parts: [(usize, &[u8]); 6] = [
            (16, &[0b0000_0010]),
            (31, &[0b1000_0000]),
            (32 + 16, &[0b01_00_11_10]),
            (96 + 1, &[0x53]),
            (104 + 1, &[0b00_10_00_01]),
            (108, &HALF),
        ];
        let block = unpacked(KIND, &block(KIND, &parts));
        // sc of sub-block 1: low 3, high 1; of 9: low 5, high 2; of all others 0.
        assert_eq!((block.scales[1], block.scales[9]), (0.5 * -13.0, 0.5 * 5.0));
        assert_eq!((block.scales[0], block.scales[5]), (-16.0, -16.0));
        assert_eq!(block.mins, [0.0; 16]);
        assert_eq!([16, 48, 80, 112].map(|i| block.codes[i]), [-2, 3, -4, -3]);
        assert_eq!((block.codes[255], block.codes[0]), (0, -4));
        assert_each_bit_belongs_to_one_code(KIND, 0..96);
    }

    #[test]
    fn extremes_get_the_codes_that_reach_furthest() {
        // Sub-block 0: step 32 (d = -1, sc = -32); sub-block 15: step 2 of the other sign.
        let weights = [
            (0, -128.0),
            (1, 64.0),
            (2, 128.0),
            (255, 8.0),
            (254, -4.2),
            (253, 2.0),
        ];
        let block = unpacked(KIND, &encoded(KIND, &weights));
        assert_eq!((block.scales[0], block.scales[15]), (32.0, -2.0));
        assert_eq!(block.codes[..4], [-4, 2, 3, 0]);
        assert_eq!(block.codes[252..], [0, -1, 2, -4]);
    }
}
