//! Why a model does not fit, and what would.

use foredraft_model::{LoadError, Memory};

/// Why the memory or the context cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    /// A context of no use.
    #[error("a context of {asked} tokens is too small: give at least {minimum}")]
    ContextTooSmall {
        /// Asked for.
        asked: usize,
        /// The least.
        minimum: usize,
    },
    /// A context beyond the model's.
    #[error(
        "a context of {asked} tokens is beyond what the model was made for: give at most {model}"
    )]
    ContextTooLong {
        /// Asked for.
        asked: usize,
        /// What the model was made for.
        model: usize,
    },
    /// More drafted nodes than a pass has rows for.
    #[error(
        "{asked} drafted tokens a step are beyond the limit of {limit}: ask for a smaller tree, or for fewer tokens of it"
    )]
    DraftNodes {
        /// Asked for.
        asked: usize,
        /// The most.
        limit: usize,
    },
    /// More sequences than a pass has rows for, or none.
    #[error("{asked} sequences at a time cannot be run: give a number from 1 to {limit}")]
    Sequences {
        /// Asked for.
        asked: usize,
        /// The most.
        limit: usize,
    },
    /// A step that would read nothing.
    #[error("prompts cannot be read in 0 rows a step: give at least 1")]
    PromptRows,
    /// Room for less than one sequence.
    #[error(
        "room for keys and values of {asked} tokens is less than one context of {context_tokens}: give at least that, or a shorter context"
    )]
    KvTokens {
        /// Asked for.
        asked: usize,
        /// Tokens of a sequence.
        context_tokens: usize,
    },
    /// Weights, keys and values do not fit.
    #[error(
        "{} needs {} ({}), the budget is {}: {remedy}", asked(*context_tokens, *sequences, *kv_tokens),
        size(target.total_bytes() + draft.total_bytes()), parts(target, draft), size(*budget_bytes)
    )]
    Memory {
        /// The context asked for.
        context_tokens: usize,
        /// Sequences at a time.
        sequences: usize,
        /// Positions of keys and values over all sequences.
        kv_tokens: usize,
        /// What the model needs for it.
        target: Memory,
        /// What the drafts need for it; zeros without any.
        draft: Memory,
        /// What there is.
        budget_bytes: u64,
        /// What would fit.
        remedy: String,
    },
    /// The model itself does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// What was to be reserved.
fn asked(context_tokens: usize, sequences: usize, kv_tokens: usize) -> String {
    let context = format!("a context of {context_tokens} tokens");
    match sequences {
        1 => context,
        _ => format!("{context} for {sequences} sequences, with KV of {kv_tokens} tokens in all,"),
    }
}

/// Bytes as people write them.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// What takes how much.
fn parts(target: &Memory, draft: &Memory) -> String {
    let of = |memory: &Memory| {
        let [weights, kv, scratch] =
            [memory.weights_bytes, memory.kv_bytes, memory.scratch_bytes].map(size);
        format!("weights {weights}, KV {kv}, scratch {scratch}")
    };
    match draft.total_bytes() {
        0 => of(target),
        _ => format!("model: {}; draft: {}", of(target), of(draft)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(size(17), "17 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(98_362_432), "93.8 MiB");
        assert_eq!(size(140_000_000_000), "130.4 GiB");
    }
}
