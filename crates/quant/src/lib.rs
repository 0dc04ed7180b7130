//! Block formats of weights, and the integer arithmetic that every kernel computes with.
//!
//! A quantized row of weights is a sequence of *blocks* of 32 or 256 weights. Inside a block, each
//! *sub-block* of 16 or 32 weights shares one scale and, for some types, one offset:
//!
//! ```text
//!     weight = scale * code + min          code: a small integer
//! ```
//!
//! The file formats (`q4_0.rs`, `q6_k.rs`, ...) differ only in how they squeeze codes, scales and
//! minima into bytes. [`unpack`] undoes that, exactly: its [`Unpacked`] form holds integer codes and
//! f32 values that are exact products of what the file stores. Everything else stands on it:
//!
//! - [`decode`] gives the weights as f32, bit for bit those of ggml and its `gguf` Python package;
//! - [`encode`] writes the formats (for tests, and for heads that are trained here);
//! - [`quantize_activations`] turns a row of activations into int8 codes with a scale per 32;
//! - [`pack_panel`] lays 16 rows side by side, as kernels stream them;
//! - [`dot`] and [`dot_f32`] are the *scalar twins*: they state, in a dozen lines, the one order of
//!   operations that every kernel must reproduce to the bit, whatever its tile shape, number of rows,
//!   threads or instruction set.
//!
//! # Invariants
//!
//! - Pure: no threads, no files, no `unsafe`, no state. The same bytes give the same bits everywhere.
//! - Scales and minima in [`Unpacked`] are exact: an f16 (11 significant bits) times an integer of at
//!   most 8 bits fits the 24 bits of an f32. No rounded product is ever stored. (The product with a code
//!   fits as well, so that a decoded weight is rounded at most once: when a minimum is added.)
//! - Bytes of a block are never trusted for anything but arithmetic: every bit pattern unpacks without
//!   a panic, and a scale that is NaN or infinite makes outputs NaN or infinite, nothing worse. Lengths
//!   of slices are the caller's promise; each function says what it asserts.

mod activations;
mod codec;
mod dot;
mod fit;
mod float;
mod ggml;
mod iq4_nl;
mod k_scales;
mod nibbles;
mod panel;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod types;
mod unpack;

#[cfg(test)]
mod testing;

pub use activations::{
    ACTIVATION_BLOCK, ActivationRow, SUM_BLOCK, TINY_ACTIVATION, quantize_activations,
};
pub use codec::{decode, encode};
pub use dot::{dot, dot_f32};
pub use float::{bf16_to_f32, f16_to_f32};
pub use ggml::ggml_type_name;
pub use iq4_nl::TABLE as IQ4_NL_TABLE;
pub use panel::{
    CodeKind, LINE_BYTES, PANEL_BLOCK, PANEL_ROWS, PanelLayout, SUPER_BLOCK, ScaleKind,
    decode_panel_row, pack_panel, panel_codes, panel_scale, signed_code,
};
pub use types::WeightType;
pub use unpack::{UNPACK, Unpacked, unpack};
