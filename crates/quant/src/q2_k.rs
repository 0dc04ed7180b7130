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
