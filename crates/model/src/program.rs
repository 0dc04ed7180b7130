//! The program of a model: operations over named buffers.
//!
//! Every operation works on all rows of a [`Batch`](crate::Batch) at once, row by row: the result of
//! a row is a function of that row (and, for attention, of its context and ancestors) alone.

use crate::kv::KvGroup;
use crate::rope::RopeTable;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The id as an index.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A buffer of activations, an index into [`Program::buffers`].
    BufferId
}
id! {
    /// A weight matrix, an index into [`Program::matrices`].
    MatrixId
}
id! {
    /// A vector of f32 weights (a norm, a bias), an index into [`Program::vectors`].
    VectorId
}
id! {
    /// A rotary table, an index into [`Program::ropes`].
    RopeId
}
id! {
    /// A hidden state to be kept, an index into [`Program::taps`].
    TapId
}

/// Which rows of a batch a buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSet {
    /// All rows of the pass.
    All,
    /// Only the rows whose logits were asked for, in the order of the batch.
    Outputs,
}

/// A buffer of f32 activations, `[rows, width]`, row-major.
#[derive(Debug, Clone)]
pub struct BufferSpec {
    /// What it holds, for traces.
    pub name: &'static str,
    /// Values in a row.
    pub width: usize,
    /// The rows it holds.
    pub rows: RowSet,
}

/// A weight matrix, `[rows = outputs, width = inputs]`, row-major, of the type its file gives.
#[derive(Debug, Clone)]
pub struct MatrixSpec {
    /// The tensor's canonical name.
    pub name: String,
    /// Outputs.
    pub rows: usize,
    /// Inputs.
    pub width: usize,
}

/// A weight vector, kept in f32.
#[derive(Debug, Clone)]
pub struct VectorSpec {
    /// The tensor's canonical name.
    pub name: String,
    /// Values.
    pub len: usize,
}

/// One output of a [`Op::Linear`].
#[derive(Debug, Clone)]
pub struct Projection {
    /// `[outputs, inputs]`.
    pub weight: MatrixId,
    /// Added after the product.
    pub bias: Option<VectorId>,
    /// Where the result goes, `[rows, outputs]`.
    pub out: BufferId,
    /// Whether the result is added to what `out` holds (a residual connection) or replaces it.
    pub accumulate: bool,
}

/// The place of a layer's keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayer {
    /// Index into [`Program::kv_groups`].
    pub group: usize,
    /// Index of the layer within its group.
    pub layer: usize,
}

/// A point of the model whose hidden state can be kept for a draft head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapPoint {
    /// The residual stream at the input of this layer; `layers` names the output of the last one.
    LayerInput(usize),
    /// The hidden state after the final norm: what the output matrix reads.
    Final,
}

/// One operation. Shapes are `[rows, width]`; a row is independent of every other unless said.
#[derive(Debug, Clone)]
pub enum Op {
    /// `out[r] = table[token of r]`.
    Embed {
        /// `[vocabulary, width]`.
        table: MatrixId,
        /// `[rows, width]`.
        out: BufferId,
    },
    /// `out = x / sqrt(mean(x^2) + eps) * weight` (RMSNorm, Zhang and Sennrich 2019).
    RmsNorm {
        /// `[rows, width]`.
        input: BufferId,
        /// `[width]`.
        weight: VectorId,
        /// Added to the mean square.
        eps: f32,
        /// `[rows, width]`.
        out: BufferId,
    },
    /// `out = x * weight^T (+ bias)` for several weights that read the same input.
    Linear {
        /// `[rows, inputs]`.
        input: BufferId,
        /// One or more outputs.
        outputs: Vec<Projection>,
    },
    /// Normalises (if weights are given) and rotates the heads of query and key, then writes key and
    /// value, rounded to the page's type, to the row's slot in the scratch.
    RotateAndCache {
        /// `[rows, heads * head_dim]`, rotated in place.
        query: BufferId,
        /// `[rows, kv_heads * head_dim]`.
        key: BufferId,
        /// `[rows, kv_heads * head_dim]`.
        value: BufferId,
        /// RMSNorm over each head of the query, `[head_dim]`.
        query_norm: Option<VectorId>,
        /// RMSNorm over each head of the key, `[head_dim]`.
        key_norm: Option<VectorId>,
        /// Of these norms.
        eps: f32,
        /// The rotation.
        rope: RopeId,
        /// Where key and value go.
        layer: KvLayer,
    },
    /// Scaled dot-product attention of each row over its context and its ancestors in flight,
    /// itself included; query heads share the KV heads in equal runs.
    Attend {
        /// `[rows, heads * head_dim]`.
        query: BufferId,
        /// Whose keys and values.
        layer: KvLayer,
        /// Multiplies the scores: 1 / sqrt(head_dim).
        scale: f32,
        /// `[rows, heads * head_dim]`.
        out: BufferId,
    },
    /// `gate = silu(gate) * up` (SwiGLU, Shazeer 2002.05202).
    SiluProduct {
        /// `[rows, width]`, replaced.
        gate: BufferId,
        /// `[rows, width]`.
        up: BufferId,
    },
    /// Keeps the rows of a buffer until the next pass.
    Tap {
        /// `[rows, width]`.
        input: BufferId,
        /// Under which name.
        tap: TapId,
    },
    /// Copies the rows whose logits are asked for.
    Gather {
        /// [`RowSet::All`].
        input: BufferId,
        /// [`RowSet::Outputs`].
        out: BufferId,
    },
}

/// A model, ready to be compiled by a backend.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The operations in order; the last writes [`Program::logits`].
    pub ops: Vec<Op>,
    /// The buffers they work on.
    pub buffers: Vec<BufferSpec>,
    /// The matrices they read.
    pub matrices: Vec<MatrixSpec>,
    /// The vectors they read.
    pub vectors: Vec<VectorSpec>,
    /// The rotary tables they read.
    pub ropes: Vec<RopeTable>,
    /// Layers that share a page layout. A Llama has one group.
    pub kv_groups: Vec<KvGroup>,
    /// The hidden states that are kept.
    pub taps: Vec<TapPoint>,
    /// Where the logits end up, `[outputs, vocabulary]`.
    pub logits: Option<BufferId>,
    /// Entries in the embedding table: ids at or beyond it are refused.
    pub vocabulary: usize,
    /// Positions that the model was made for.
    pub context_tokens: usize,
}

impl Program {
    pub(crate) fn buffer(&mut self, name: &'static str, width: usize, rows: RowSet) -> BufferId {
        self.buffers.push(BufferSpec { name, width, rows });
        BufferId(self.buffers.len() as u32 - 1)
    }

    /// Declares a matrix, or finds it when it was declared before (tied embeddings).
    pub(crate) fn matrix(&mut self, name: String, rows: usize, width: usize) -> MatrixId {
        if let Some(i) = self.matrices.iter().position(|m| m.name == name) {
            return MatrixId(i as u32);
        }
        self.matrices.push(MatrixSpec { name, rows, width });
        MatrixId(self.matrices.len() as u32 - 1)
    }

    pub(crate) fn vector(&mut self, name: String, len: usize) -> VectorId {
        self.vectors.push(VectorSpec { name, len });
        VectorId(self.vectors.len() as u32 - 1)
    }

    /// The width of the logits' row, also the ids a sampler may see.
    pub fn logits_width(&self) -> usize {
        self.logits.map_or(0, |b| self.buffers[b.index()].width)
    }
}
