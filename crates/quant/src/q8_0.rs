//! Q8_0: 32 weights in 34 bytes, `w = d * c`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`: scale, f16 |
//! | 2..34 | `c`: i8, in element order |

use crate::Unpacked;
use crate::fit::{self, Stored};
use crate::float::f16_at;

const BYTES: usize = 34;

#[inline(always)]
pub(crate) fn unpack(block: &[u8; BYTES], out: &mut Unpacked) {
    out.scales[0] = f16_at(block, 0);
    out.mins[0] = 0.0;
    for (code, &c) in out.codes.iter_mut().zip(&block[2..]) {
        *code = c as i8;
    }
}

/// The extreme value gets the code 127 or -127; the file may hold -128, this never writes it.
pub(crate) fn encode(values: &[f32; 32]) -> [u8; BYTES] {
    let d = Stored::nearest(fit::extreme(values).abs() / 127.0);
    let mut block = [0; BYTES];
    block[..2].copy_from_slice(&d.bytes);
    for (byte, v) in block[2..].iter_mut().zip(values) {
        *byte = fit::code(*v, d.value, -127, 127) as i8 as u8;
    }
    block
}
