//! From the bytes of a block to the integers and scales that kernels compute with.

use crate::WeightType;
use crate::{iq4_nl, q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

/// Weights that an [`Unpacked`] has room for: the largest block.
pub const UNPACK: usize = 256;

/// One block of weights in its integer form: `weight = scale * code + min`.
///
/// With `n` weights in the block and sub-blocks of `b` = [`WeightType::sub_block`] weights, sub-block
/// `s < n / b` covers `codes[s * b..][..b]`, `scales[s]` and `mins[s]`. What lies beyond is left as it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpacked {
    /// Signed codes with the zero point already subtracted for types without a minimum; unsigned codes
    /// (0 and up) for types with one ([`WeightType::has_min`]).
    pub codes: [i8; UNPACK],
    /// The exact scale of each sub-block: f16 super-scale times integer sub-scale.
    pub scales: [f32; UNPACK / 16],
    /// The exact addend of each sub-block, sign included: `+m` for Q4_1 and Q5_1, `-(dmin * m)` for
    /// Q2_K, Q4_K and Q5_K, 0 for types without a minimum.
    pub mins: [f32; UNPACK / 16],
}

impl Unpacked {
    /// An empty block to unpack into.
    pub const ZERO: Self = Self {
        codes: [0; UNPACK],
        scales: [0.0; UNPACK / 16],
        mins: [0.0; UNPACK / 16],
    };
}

impl Default for Unpacked {
    fn default() -> Self {
        Self::ZERO
    }
}

/// Unpacks one block of a quantized type and returns how many weights it holds (32 or 256).
///
/// Any bytes unpack; nothing in them is trusted.
///
/// # Panics
/// If `block` is not [`WeightType::block_bytes`] long, or if `kind` is a float type
/// ([`WeightType::is_quantized`] is false), which has no integer form.
#[inline]
pub fn unpack(kind: WeightType, block: &[u8], out: &mut Unpacked) -> usize {
    use WeightType::*;
    match kind {
        F32 | F16 | BF16 => panic!("{kind} weights have no integer form"),
        Q4_0 => q4_0::unpack(whole(kind, block), out),
        Q4_1 => q4_1::unpack(whole(kind, block), out),
        Q5_0 => q5_0::unpack(whole(kind, block), out),
        Q5_1 => q5_1::unpack(whole(kind, block), out),
        Q8_0 => q8_0::unpack(whole(kind, block), out),
        Q2_K => q2_k::unpack(whole(kind, block), out),
        Q3_K => q3_k::unpack(whole(kind, block), out),
        Q4_K => q4_k::unpack(whole(kind, block), out),
        Q5_K => q5_k::unpack(whole(kind, block), out),
        Q6_K => q6_k::unpack(whole(kind, block), out),
        IQ4_NL => iq4_nl::unpack(whole(kind, block), out),
    }
    kind.block_elements()
}

/// The block as an array of its exact size.
#[inline(always)]
fn whole<const BYTES: usize>(kind: WeightType, block: &[u8]) -> &[u8; BYTES] {
    match block.try_into() {
        Ok(block) => block,
        Err(_) => panic!("a {kind} block has {BYTES} bytes, got {}", block.len()),
    }
}
