//! The kernels, one file each: plain Rust over fixed lanes, compiled for each [`CpuPath`](crate::CpuPath).

pub(crate) mod activations;
pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod rotate;
