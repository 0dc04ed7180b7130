//! Q4_0: 32 weights in 18 bytes, `w = d * (c - 8)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..18 | `c`: 4 bits; element `i` in the low half of byte `i`, element `i + 16` in its high half |

use crate::fit::{self, Stored};
use crate::float::f16_at;
use crate::{Unpacked, nibbles};

const BYTES: usize = 18;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = 0.0;
    for (code, c) in out.codes.iter_mut().zip(nibbles::split(&block[2..])) {
        *code = c as i8 - 8;
    }
}

/// The extreme value gets the code -8, the end that reaches furthest, so `d` has the opposite sign of it.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let d = Stored::nearest(fit::extreme(values) / -8.0);
    let codes = values.map(|v| (fit::code(v, d.value, -8, 7) + 8) as u8);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    block[2..].copy_from_slice(&nibbles::join(&codes));
    block
}
