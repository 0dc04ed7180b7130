//! What a draft must reserve.

use foredraft_model::kv::{KvType, pages_for};
use foredraft_model::{ExecutorOptions, Program};

/// Rows of one pass: a prompt is caught up with in chunks of at most this many tokens.
const CHUNK_ROWS: usize = 256;
/// Rows of one pass whose logits may be asked for, or one for each sequence if those are more: a level of chains is one
/// pass, a wider level takes several.
const MAX_OUTPUTS: usize = 32;

/// What a draft is asked to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftSizes {
    /// Tokens of a sequence of the target, prompt and answer together. A draft made for fewer drafts up to its own end.
    pub context_tokens: usize,
    /// Sequences at a time.
    pub sequences: usize,
    /// Nodes of a tree.
    pub draft_max: usize,
    /// Element type of its pages.
    pub kv_type: KvType,
}

/// What the executor of a draft reserves; `Backend::memory` tells the bytes of it.
pub fn executor_options(program: &Program, sizes: &DraftSizes) -> ExecutorOptions {
    let context_tokens = sizes.context_tokens.min(program.context_tokens);
    let nodes = sizes.sequences.saturating_mul(sizes.draft_max);
    let pages = sizes.sequences.saturating_mul(pages_for(context_tokens));
    ExecutorOptions {
        context_tokens,
        pages: vec![pages; program.kv_groups.len()],
        kv_type: sizes.kv_type,
        max_rows: CHUNK_ROWS,
        max_slots: nodes.max(CHUNK_ROWS),
        max_outputs: nodes.clamp(1, MAX_OUTPUTS.max(sizes.sequences)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foredraft_model::{ProgramOptions, program_for};
    use foredraft_testing::stories260k;

    #[test]
    fn one_pass_has_room_for_a_node_of_every_sequence() {
        let program = program_for(&stories260k(), &ProgramOptions::default()).expect("a program");
        let of = |sequences, draft_max| {
            let sizes = DraftSizes {
                context_tokens: 100,
                sequences,
                draft_max,
                kv_type: KvType::F16,
            };
            let options = executor_options(&program, &sizes);
            (options.max_outputs, options.max_slots, options.pages)
        };
        // 100 tokens are seven pages.
        assert_eq!(of(1, 4), (4, 256, vec![7]));
        assert_eq!(of(16, 8), (32, 256, vec![7 * 16]));
        assert_eq!(of(48, 8), (48, 48 * 8, vec![7 * 48]));
    }
}
