//! What is asked of a model at load.

use foredraft_model::kv::KvType;

/// What is asked of a model at load.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Tokens of prompt and answer together; `None`: the model's own context, or what fits.
    pub context_tokens: Option<usize>,
    /// Bytes that weights, KV and scratch of the model and its drafts may take; `None`: no limit.
    pub memory_bytes: Option<u64>,
    /// Element type of keys and values.
    pub kv_type: KvType,
    /// The most nodes that a request may have drafted in a step.
    pub max_draft_nodes: usize,
    /// The most sequences that run at a time; further requests wait.
    pub max_sequences: usize,
    /// Positions of keys and values over all sequences, at least one context; `None`: 4096 for each sequence and at least one
    /// context, or what fits. Sequences take what they need of it, and what ended stays in it as long as there is room.
    pub kv_tokens: Option<usize>,
    /// The most tokens of prompts that a step reads while other sequences decode: a running answer is delayed by them.
    pub prompt_rows: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            context_tokens: None,
            memory_bytes: None,
            kv_type: KvType::F16,
            max_draft_nodes: 31,
            max_sequences: 1,
            kv_tokens: None,
            // As long as about one more pass on a CPU: a pass of one row is bound by memory, one of 64 by arithmetic.
            prompt_rows: 64,
        }
    }
}
