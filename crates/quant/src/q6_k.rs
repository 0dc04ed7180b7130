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
