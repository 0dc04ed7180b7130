//! The CPU backend: programs run by a pool of threads that walk them together.
//!
//! One pass is one parallel region. Every thread walks the program's operations in order, takes its share
//! of each, and meets the others at a barrier before an operation that reads what they wrote.
//!
//! Invariants:
//! - every float is computed by one lane in one fixed order, whatever the number of rows, the thread that
//!   computes it, the tile it is in and the instruction set (design: `quant`'s scalar twin states the order);
//! - kernels never see requests: a row, its context and its ancestors are all they know;
//! - a pass allocates nothing.
//!
//! Most kernels are written once, over 16 lanes, and compiled for each [`CpuPath`]; the quantized linear layers are
//! written for each by hand. `unsafe` is confined to those, to the places that share buffers between threads, and to
//! the calls into code compiled for an instruction set that was detected.

mod backend;
mod executor;
mod kernels;
mod kv;
mod packing;
mod pages;
mod path;
mod pool;
mod processors;
mod reader;
mod shared;
mod simd;
mod sizes;
mod storage;
mod weights;

pub use backend::{CpuBackend, CpuError};
pub use path::CpuPath;
pub use processors::{available_processors, available_threads};
pub use reader::Reader;
pub use storage::PageKind;
