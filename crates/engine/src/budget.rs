//! One memory budget: what a model takes, and the longest context that fits.

use foredraft_formats::Checkpoint;
use foredraft_model::kv::{KvType, PAGE_POSITIONS, pages_for};
use foredraft_model::{Backend, ExecutorOptions, LoadError, Memory, Program};

/// Rows of one pass: a prompt is read in chunks of at most this many tokens.
pub(crate) const CHUNK_ROWS: usize = 256;
/// Rows of one pass whose logits may be asked for.
const MAX_OUTPUTS: usize = 32;

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
    /// Weights, keys and values do not fit.
    #[error(
        "a context of {context_tokens} tokens needs {} (weights {}, KV {}, scratch {}), the budget is {}: {remedy}",
        size(memory.total_bytes()), size(memory.weights_bytes), size(memory.kv_bytes), size(memory.scratch_bytes),
        size(*budget_bytes)
    )]
    Memory {
        /// The context asked for.
        context_tokens: usize,
        /// What it needs.
        memory: Memory,
        /// What there is.
        budget_bytes: u64,
        /// What would fit.
        remedy: String,
    },
    /// The model itself does not load.
    #[error(transparent)]
    Load(#[from] LoadError),
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

/// What an executor reserves for one sequence of `context_tokens` positions.
fn options(program: &Program, context_tokens: usize) -> ExecutorOptions {
    ExecutorOptions {
        context_tokens,
        pages: vec![pages_for(context_tokens); program.kv_groups.len()],
        kv_type: KvType::F16,
        max_rows: CHUNK_ROWS,
        max_slots: CHUNK_ROWS,
        max_outputs: MAX_OUTPUTS,
    }
}

/// Decides the context: the one asked for, or the model's own, or the longest that fits.
pub(crate) fn plan(
    backend: &dyn Backend,
    program: &Program,
    weights: &Checkpoint,
    asked: Option<usize>,
    budget_bytes: Option<u64>,
) -> Result<ExecutorOptions, BudgetError> {
    let model = program.context_tokens;
    match asked {
        Some(asked) if asked > model => return Err(BudgetError::ContextTooLong { asked, model }),
        Some(asked) if asked < 2 => return Err(BudgetError::ContextTooSmall { asked, minimum: 2 }),
        _ => {}
    }
    let wanted = asked.unwrap_or(model);
    let needs = |context: usize| backend.memory(program, weights, &options(program, context));
    let memory = needs(wanted)?;
    let Some(budget_bytes) = budget_bytes.filter(|budget| memory.total_bytes() > *budget) else {
        return Ok(options(program, wanted));
    };
    // The longest that fits, in whole pages: memory grows with the context.
    let (mut fits, mut too_long) = (0, wanted.div_ceil(PAGE_POSITIONS));
    while too_long - fits > 1 {
        let middle = (fits + too_long) / 2;
        if needs(middle * PAGE_POSITIONS)?.total_bytes() <= budget_bytes {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    let longest = fits * PAGE_POSITIONS;
    if asked.is_none() && longest >= MINIMUM_CONTEXT.min(model) {
        return Ok(options(program, longest));
    }
    let remedy = if longest > 0 {
        format!("a context of {longest} tokens would fit")
    } else {
        format!(
            "not even a short context fits beside the weights; use a smaller quantization, or a budget of {}",
            // Rounded up: what is advised must suffice.
            size(needs(PAGE_POSITIONS)?.total_bytes() + (1 << 20))
        )
    };
    Err(BudgetError::Memory {
        context_tokens: wanted,
        memory,
        budget_bytes,
        remedy,
    })
}

/// A context that is chosen for the user is never shorter than this.
const MINIMUM_CONTEXT: usize = 512;

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
