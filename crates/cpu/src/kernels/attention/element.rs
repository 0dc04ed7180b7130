//! What a page's elements are, and how sixteen of them become lanes.

use foredraft_common::lanes::LANES;
use foredraft_quant::f16_to_f32;

use crate::simd::Simd;

/// An element type of keys and values.
pub(crate) trait Element: Copy {
    /// As it lies in a page.
    type Stored: bytemuck::Pod;
    /// Whether a position of a head has a scale that its elements are multiplied by.
    const SCALED: bool;

    /// Sixteen elements, before their scale.
    fn load<S: Simd>(simd: S, stored: &[Self::Stored; LANES]) -> S::Lanes;
    /// One element, before its scale.
    fn widen(stored: Self::Stored) -> f32;
}

/// IEEE halves.
#[derive(Clone, Copy)]
pub(crate) struct Half;

/// Signed bytes.
#[derive(Clone, Copy)]
pub(crate) struct Byte;

impl Element for Half {
    type Stored = u16;
    const SCALED: bool = false;

    #[inline(always)]
    fn load<S: Simd>(simd: S, stored: &[u16; LANES]) -> S::Lanes {
        simd.load_half(stored)
    }

    #[inline(always)]
    fn widen(stored: u16) -> f32 {
        f16_to_f32(stored)
    }
}

impl Element for Byte {
    type Stored = i8;
    const SCALED: bool = true;

    #[inline(always)]
    fn load<S: Simd>(simd: S, stored: &[i8; LANES]) -> S::Lanes {
        simd.load_byte(stored)
    }

    #[inline(always)]
    fn widen(stored: i8) -> f32 {
        f32::from(stored)
    }
}
