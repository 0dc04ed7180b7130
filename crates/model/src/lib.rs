//! Architectures, written once over the [`Backend`] trait.
//!
//! A model is a [`Program`]: a short list of operations over named buffers that a plain function emits
//! once, at load ([`program_for`]). A backend compiles the program with the weights of a checkpoint
//! into an [`Executor`]; the executor runs it over a [`Batch`].
//!
//! ```text
//! ModelConfig --program_for--> Program --Backend::load (+ weights)--> Executor --forward(Batch)--> logits, taps
//!                                                                             --commit(accepted nodes)--> KV pages
//! ```
//!
//! A batch is a forest: its rows are nodes of one or more sequences, each with a parent. A row attends to
//! the committed context of its sequence (in [KV pages](kv)) and to its own ancestors in flight (in the
//! step's scratch) and to nothing else. Plain decoding is a forest of one node, a prompt's chunk a path.
//!
//! Sequences with an equal beginning hold the same [pages](PageTables), and a [cache](PrefixCache) keeps those of texts of
//! the past for texts to come; who writes behind what it shares of a page gets a copy first.
//!
//! Invariants, tested at the backends:
//! - a row's results never depend on how many rows are in the pass, nor on which;
//! - a page never holds an uncommitted token: the scratch is forgotten when a step ends;
//! - kernels never see requests, and nothing here knows of sampling.

mod architecture;
mod backend;
mod batch;
mod decoder;
pub mod kv;
mod pages;
mod prefix;
mod program;
mod rope;

pub use architecture::{ModelError, ProgramOptions, program_for};
pub use backend::{
    Backend, Commit, Executor, ExecutorOptions, ForwardError, LoadError, LoadProgress, LoadWatch,
    Memory, Part, PartTime, TapHandle, unwatched,
};
pub use batch::{Batch, Row, SequenceIndex, Slot};
pub use pages::{PageCopy, PagePool, PageTables};
pub use prefix::{PrefixCache, PrefixFigures};
pub use program::{
    BufferId, BufferSpec, KvLayer, MatrixId, MatrixSpec, Op, Program, Projection, RopeId, RowSet,
    TapId, TapPoint, VectorId, VectorSpec,
};
pub use rope::RopeTable;
