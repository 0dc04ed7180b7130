//! What every other crate agrees on.
//!
//! Two things live here and nothing else: the identifiers that cross crate borders ([`TokenId`],
//! [`Position`]), and the arithmetic whose bits must be equal on every machine, path and thread
//! count ([`exp`], [`ln`], [`silu`], and the fixed lane reductions of [`lanes`]).
//!
//! The functions are written with separate IEEE multiplications and additions, never a fused
//! multiply-add: so the compiler may vectorise them with whatever the caller's instruction set
//! offers, and the result keeps its bits. (Kernels that want a fused operation say `mul_add`.)

mod ids;
pub mod lanes;
mod transcendental;

pub use ids::{Position, TokenId};
pub use transcendental::{exp, ln, silu};
