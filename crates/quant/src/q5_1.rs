//! Q5_1: 32 weights in 24 bytes, `w = d * c + m`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..4 | `m`: minimum, f16 |
//! | 4..8 | bit 4 of `c`: u32, little-endian; element `i` in bit `i` |
//! | 8..24 | bits 0..4 of `c`: element `i` in the low half of byte `i`, element `i + 16` in its high half |

use crate::fit::{self, Stored};
use crate::float::f16_at;
use crate::{Unpacked, nibbles};

const BYTES: usize = 24;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = f16_at(block, 2);
    let mut codes = nibbles::split(&block[8..]);
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    nibbles::add_fifth_bits(&mut codes, high);
    for (code, c) in out.codes.iter_mut().zip(codes) {
        *code = c as i8;
    }
}

/// The smallest value gets the code 0, the largest 31.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let (low, high) = fit::range(values);
    let d = Stored::nearest((high - low) / 31.0);
    let m = Stored::nearest(low);
    let codes = values.map(|v| fit::code(v - m.value, d.value, 0, 31) as u8);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    block[2..4].copy_from_slice(&m.bytes);
    block[4..8].copy_from_slice(&nibbles::fifth_bits(&codes).to_le_bytes());
    block[8..].copy_from_slice(&nibbles::join(&codes));
    block
}
