//! Foredraft: exact speculative decoding on your own machine, as a library.
//!
//! Decoding one token of a language model reads every weight once, and the arithmetic units idle
//! while it does. Something cheap may therefore *draft* a few tokens, and the real model checks all
//! of them in one pass; what it accepts was free. Foredraft does this without changing the text: a
//! wrong draft costs time, never correctness.
//!
//! This crate is the door to the others, for programs that embed the engine:
//!
//! | module | holds |
//! | --- | --- |
//! | [`models`] | naming a model, and having its file here: aliases, paths, the hub, the store |
//! | [`pull`] | fetching a file: resumed, checked by sha256, put in place in one step |
//! | [`formats`] | what is in a file: GGUF, safetensors and `config.json` |
//! | [`text`] | tokenizers, chat templates, incremental text, stop strings |
//! | [`speculate`] | sampling, token trees, verification |
//! | [`model`] | architectures as programs over a backend |
//! | [`cpu`] | the backend that computes on the CPU |
//! | [`drafters`] | drafters that run networks |
//! | [`engine`] | sequences and the decoding loop |
//! | [`server`] | the engine over HTTP, in OpenAI's interface |
//!
//! The `foredraft` binary is a thin layer of commands over the same modules.

pub use foredraft_common as common;
pub use foredraft_cpu as cpu;
pub use foredraft_drafters as drafters;
pub use foredraft_engine as engine;
pub use foredraft_formats as formats;
pub use foredraft_model as model;
pub use foredraft_quant as quant;
pub use foredraft_server as server;
pub use foredraft_speculate as speculate;
pub use foredraft_text as text;

pub mod models;
pub mod pull;
