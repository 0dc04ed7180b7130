//! What a backend offers: it compiles a program with its weights, and runs batches.

use std::ops::ControlFlow;

use foredraft_common::TokenId;
use foredraft_formats::Checkpoint;

use crate::batch::{Batch, Slot};
use crate::kv::{KvType, PageId};
use crate::pages::PageCopy;
use crate::program::{Program, TapId};

/// Sizes that an executor reserves when it is made.
#[derive(Debug, Clone)]
pub struct ExecutorOptions {
    /// Positions a sequence may have: the length of rotary tables and score buffers.
    pub context_tokens: usize,
    /// Pages in the pool of each layer group, in the order of the program's groups.
    pub pages: Vec<usize>,
    /// Element type of pages and scratch.
    pub kv_type: KvType,
    /// Rows that one pass may have.
    pub max_rows: usize,
    /// Nodes that one step may have in flight, over all its passes.
    pub max_slots: usize,
    /// Rows of one pass whose logits may be asked for.
    pub max_outputs: usize,
}

/// Bytes that an executor holds or would hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Weights as they lie in memory.
    pub weights_bytes: u64,
    /// Of the weights, what every pass reads: all matrices of linear layers. (Of an embedding table that is not the
    /// output matrix too, a pass reads only its tokens' rows.)
    pub streamed_bytes: u64,
    /// The KV page pools. They are reserved, not touched: memory follows real lengths.
    pub kv_bytes: u64,
    /// Activations, logits, rotary tables and the nodes in flight.
    pub scratch_bytes: u64,
}

impl Memory {
    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        self.weights_bytes
            .saturating_add(self.kv_bytes)
            .saturating_add(self.scratch_bytes)
    }
}

/// Why a program could not be compiled with the weights of a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A tensor that the architecture needs is not in the file.
    #[error("tensor `{name}` is missing: the file is incomplete or of another architecture")]
    MissingTensor {
        /// Canonical name.
        name: String,
    },
    /// A tensor has another shape than the hyperparameters say.
    #[error(
        "tensor `{name}` is [{found_rows}, {found_width}], the model's settings need [{rows}, {width}]"
    )]
    Shape {
        /// Canonical name.
        name: String,
        /// Outputs in the file.
        found_rows: usize,
        /// Inputs in the file.
        found_width: usize,
        /// Outputs needed.
        rows: usize,
        /// Inputs needed.
        width: usize,
    },
    /// The system gave no memory.
    #[error("the system gave no {bytes} bytes of memory: {reason}")]
    NoMemory {
        /// How many.
        bytes: u64,
        /// What it said.
        reason: String,
    },
    /// Whoever watched the loading ended it.
    #[error("loading was interrupted")]
    Interrupted,
}

/// How far [`Backend::load`] has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of weights in their place.
    pub loaded_bytes: u64,
    /// Bytes of weights in all.
    pub total_bytes: u64,
}

/// Watches [`Backend::load`]: told at the start, at the end and now and then between, some tens of times, always by
/// the thread that loads; [`ControlFlow::Break`] ends the loading with [`LoadError::Interrupted`].
pub type LoadWatch<'a> = &'a mut dyn FnMut(LoadProgress) -> ControlFlow<()>;

/// The [`LoadWatch`] that looks at nothing: `&mut unwatched`.
pub fn unwatched(_: LoadProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Why a pass could not run. Each is a request beyond what was reserved; the executor is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// A token id beyond the embedding table.
    #[error("token id {token} is beyond the model's {vocabulary} embeddings")]
    Token {
        /// The id.
        token: TokenId,
        /// Rows of the embedding table.
        vocabulary: usize,
    },
    /// A position beyond the context.
    #[error("position {position} is beyond the context of {context_tokens} tokens")]
    Context {
        /// The position.
        position: usize,
        /// Reserved positions.
        context_tokens: usize,
    },
    /// More rows, outputs or nodes in flight than were reserved.
    #[error(
        "a pass with {rows} rows, {outputs} outputs and {slots} nodes in flight is larger than what was reserved"
    )]
    TooLarge {
        /// Rows of the pass.
        rows: usize,
        /// Rows whose logits were asked for.
        outputs: usize,
        /// Nodes of the step.
        slots: usize,
    },
    /// A page table that is too short or names a page that does not exist.
    #[error("a page table does not cover its {committed} committed tokens")]
    Pages {
        /// Tokens that the table should cover.
        committed: usize,
    },
}

/// The accepted path of a sequence, to be copied from the scratch into its pages.
#[derive(Debug, Clone, Copy)]
pub struct Commit<'a> {
    /// The accepted nodes in order.
    pub slots: &'a [Slot],
    /// Tokens committed before; the first node goes to this position.
    pub committed: usize,
    /// The sequence's pages in each layer group, covering the new positions too.
    pub tables: &'a [Vec<PageId>],
}

/// The hidden states that one pass kept at one tap: opaque, owned by the backend, valid until the next pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapHandle {
    /// Which tap.
    pub tap: TapId,
    /// The pass that filled it.
    pub pass: u64,
}

/// A part of a pass, for reports of where its time goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The linear layers of the layers.
    Linear,
    /// Heads rotated and written to the scratch, attention.
    Attention,
    /// The output matrix.
    Head,
    /// Everything else: embeddings, norms by themselves, copies.
    Other,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 4] = [Part::Linear, Part::Attention, Part::Head, Part::Other];

    /// What it is called in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Linear => "linear layers",
            Part::Attention => "attention",
            Part::Head => "output matrix",
            Part::Other => "other",
        }
    }
}

/// What a part of the passes took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartTime {
    /// Which part.
    pub part: Part,
    /// Seconds of work.
    pub seconds: f64,
    /// Seconds of waiting for the other threads after it.
    pub waiting_seconds: f64,
}

/// Compiles programs.
pub trait Backend {
    /// A short name, for example `cpu`.
    fn name(&self) -> &str;

    /// Bytes that [`Backend::load`] would take, computed without loading.
    ///
    /// # Errors
    /// As [`Backend::load`].
    fn memory(
        &self,
        program: &Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
    ) -> Result<Memory, LoadError>;

    /// Compiles `program` with the weights of a checkpoint.
    ///
    /// # Errors
    /// When a tensor is missing or has another shape than the program needs, the system gives no memory, or `watch`
    /// ends it.
    fn load(
        &self,
        program: Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
        watch: LoadWatch<'_>,
    ) -> Result<Box<dyn Executor>, LoadError>;
}

/// A compiled program with its weights, KV page pools and scratch.
pub trait Executor: Send {
    /// The program that it runs.
    fn program(&self) -> &Program;

    /// Runs one pass. Keys and values of the rows go to their slots of the scratch; pages are only read.
    ///
    /// # Errors
    /// When the batch asks for more than was reserved; nothing has been computed then.
    fn forward(&mut self, batch: &Batch) -> Result<(), ForwardError>;

    /// The logits of output `index` of the last pass, `[vocabulary]`.
    ///
    /// # Panics
    /// When the last pass had no such output.
    fn logits(&self, index: usize) -> &[f32];

    /// Copies accepted nodes from the scratch into pages.
    ///
    /// # Panics
    /// When a table does not cover the new positions: a defect of the caller.
    fn commit(&mut self, commit: Commit<'_>);

    /// Copies whole pages, in this order: see [`PageTables::reserve`](crate::PageTables::reserve).
    ///
    /// # Panics
    /// When there is no such group or page: a defect of the caller.
    fn copy_pages(&mut self, copies: &[PageCopy]);

    /// The hidden states that the last pass kept.
    fn tap(&self, tap: TapId) -> TapHandle;

    /// Reads row `row` of a tap, `[width]`; `None` when a later pass has replaced it or the row was not in it.
    fn read_tap(&self, handle: TapHandle, row: usize) -> Option<&[f32]>;

    /// Times each part of the passes to come; see [`Executor::part_times`].
    fn time_parts(&mut self, on: bool) {
        let _ = on;
    }

    /// Seconds that the passes since [`Executor::time_parts`] spent in each part, as one thread saw it; nothing from a backend
    /// that cannot tell.
    fn part_times(&self) -> &[PartTime] {
        &[]
    }

    /// What it holds.
    fn memory(&self) -> Memory;
}
