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
