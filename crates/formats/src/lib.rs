//! GGUF and safetensors files: mapped, checked, typed.
//!
//! A [`Checkpoint`] is one opened model, whichever of the two formats it came in. It answers three
//! questions, in the same words for both: what the hyperparameters are ([`ModelConfig`]), where the
//! bytes of a weight are ([`Tensor`], under GGUF's canonical names), and where the vocabulary is
//! ([`VocabularySource`]).
//!
//! ```no_run
//! use foredraft_formats::Checkpoint;
//!
//! let model = Checkpoint::open("model.gguf".as_ref())?;
//! let config = model.config()?;
//! let query = model.tensor_of_shape("blk.0.attn_q.weight", &[config.heads * config.head_dim, config.width])?;
//! println!("{} layers, q of layer 0 is {} {}", config.layers, query.shape, query.kind);
//! # Ok::<(), foredraft_formats::FormatError>(())
//! ```
//!
//! # Untrusted bytes
//!
//! A model file comes from a stranger. So no field is used before it is checked, and a check that
//! fails names the file, the field and the remedy ([`FormatError`]). The rules, which the tests attack:
//!
//! - A count is compared with the bytes that are left in the file before anything is allocated for
//!   it: a file of n bytes never makes a parser claim more than a small multiple of n.
//! - Sizes are multiplied with checks; a tensor's bytes lie inside its file, whole rows of whole
//!   blocks, and overlap no other tensor's.
//! - Names that occur twice are an error, never a choice.
//! - What is understood but not implemented is refused by its name, never approximated.
//! - Nothing here panics on any input. Weights are mapped, not read: opening touches headers only.
//!
//! `unsafe` occurs in `mmap.rs` alone.

#![cfg_attr(test, allow(clippy::unwrap_used))] // a test that cannot go on should stop

mod checkpoint;
mod config;
mod element;
mod error;
mod gguf;
mod hf;
mod limits;
mod metadata;
mod mmap;
pub mod safetensors;
mod shape;
mod storage;
mod tensor;
mod value;
pub mod write;

pub use checkpoint::{Checkpoint, VocabularySource};
pub use config::{ModelConfig, RopeConfig, RopeLayout, RopeScaling};
pub use element::ElementType;
pub use error::FormatError;
pub use metadata::Metadata;
pub use shape::{Shape, ShapeError};
pub use tensor::{RawTensor, Tensor};
pub use value::{Array, Value, ValueType};
