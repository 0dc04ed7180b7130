//! One memory budget: what a model takes, and the longest context that fits.

use foredraft_drafters::{DraftSizes, executor_options};
use foredraft_formats::Checkpoint;
use foredraft_model::kv::{KvType, PAGE_POSITIONS, pages_for};
use foredraft_model::{Backend, ExecutorOptions, LoadError, Memory, Program};

use crate::engine::EngineOptions;

/// Rows of one pass: a prompt is read in chunks of at most this many tokens.
pub(crate) const CHUNK_ROWS: usize = 256;
/// Rows of one pass whose logits may be asked for, at least: what the curve T(M) is measured with.
const LEAST_OUTPUTS: usize = 32;

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
    /// Weights, keys and values do not fit.
    #[error(
        "a context of {context_tokens} tokens needs {} ({}), the budget is {}: {remedy}",
        size(target.total_bytes() + draft.total_bytes()), parts(target, draft), size(*budget_bytes)
    )]
    Memory {
        /// The context asked for.
        context_tokens: usize,
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

/// A model that is to be loaded.
pub(crate) struct Candidate<'a> {
    pub(crate) program: Program,
    pub(crate) weights: &'a Checkpoint,
}

/// What the executors of a model and its drafts reserve.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) target: ExecutorOptions,
    pub(crate) drafts: Vec<ExecutorOptions>,
}

/// All that shares the budget.
struct Models<'a> {
    backend: &'a dyn Backend,
    target: &'a Candidate<'a>,
    drafts: &'a [Candidate<'a>],
    kv_type: KvType,
    max_draft_nodes: usize,
}

impl<'a> Models<'a> {
    /// Room for one sequence of `context_tokens` positions: for each model, or for as many as a draft was made for.
    fn plan(&self, context_tokens: usize) -> Plan {
        let target = ExecutorOptions {
            context_tokens,
            pages: vec![pages_for(context_tokens); self.target.program.kv_groups.len()],
            kv_type: self.kv_type,
            max_rows: CHUNK_ROWS,
            max_slots: CHUNK_ROWS,
            // One pass gives the logits of the root and of every node.
            max_outputs: (self.max_draft_nodes + 1).max(LEAST_OUTPUTS),
        };
        let sizes = DraftSizes {
            context_tokens,
            sequences: 1,
            draft_max: self.max_draft_nodes,
            kv_type: self.kv_type,
        };
        let drafts = self.drafts.iter();
        Plan {
            target,
            drafts: drafts
                .map(|draft| executor_options(&draft.program, &sizes))
                .collect(),
        }
    }

    /// What the target and the drafts take.
    fn needs(&self, context_tokens: usize) -> Result<(Memory, Memory), LoadError> {
        let plan = self.plan(context_tokens);
        let of = |candidate: &Candidate<'_>, options: &ExecutorOptions| {
            self.backend
                .memory(&candidate.program, candidate.weights, options)
        };
        let target = of(self.target, &plan.target)?;
        let mut draft = Memory::default();
        for (candidate, options) in self.drafts.iter().zip(&plan.drafts) {
            let more = of(candidate, options)?;
            draft.weights_bytes += more.weights_bytes;
            draft.streamed_bytes += more.streamed_bytes;
            draft.kv_bytes += more.kv_bytes;
            draft.scratch_bytes += more.scratch_bytes;
        }
        Ok((target, draft))
    }

    fn bytes(&self, context_tokens: usize) -> Result<u64, LoadError> {
        let (target, draft) = self.needs(context_tokens)?;
        Ok(target.total_bytes().saturating_add(draft.total_bytes()))
    }

    /// The longest context in whole pages, below `too_long`, that fits; 0 when none does.
    fn longest(&self, too_long: usize, budget_bytes: u64) -> Result<usize, LoadError> {
        // Memory grows with the context.
        let (mut fits, mut too_long) = (0, too_long.div_ceil(PAGE_POSITIONS));
        while too_long - fits > 1 {
            let middle = (fits + too_long) / 2;
            if self.bytes(middle * PAGE_POSITIONS)? <= budget_bytes {
                fits = middle;
            } else {
                too_long = middle;
            }
        }
        Ok(fits * PAGE_POSITIONS)
    }

    /// What would fit into the budget where a context of `wanted` tokens does not and one of `longest` does.
    fn remedy(
        &self,
        wanted: usize,
        longest: usize,
        budget_bytes: u64,
    ) -> Result<String, LoadError> {
        let mut fitting = Vec::new();
        if longest > 0 {
            fitting.push(format!("a context of {longest} tokens"));
        }
        let in_8_bits = Models {
            kv_type: KvType::Q8,
            ..*self
        };
        if self.kv_type != KvType::Q8 && in_8_bits.bytes(wanted)? <= budget_bytes {
            fitting.push("keys and values in 8 bits (--kv q8)".to_owned());
        }
        let alone = Models {
            drafts: &[],
            ..*self
        };
        if !self.drafts.is_empty() {
            if alone.bytes(wanted)? <= budget_bytes {
                fitting.push("the model without its draft".to_owned());
            } else if let context @ 1.. = alone.longest(wanted, budget_bytes)? {
                fitting.push(format!("a context of {context} tokens without the draft"));
            }
        }
        if !fitting.is_empty() {
            return Ok(format!("{} would fit", fitting.join(", or ")));
        }
        Ok(format!(
            "not even a short context fits beside the weights; use a smaller quantization, or a budget of {}",
            // Rounded up: what is advised must suffice.
            size(self.bytes(PAGE_POSITIONS)? + (1 << 20))
        ))
    }
}

/// Decides the context: the one asked for, or the model's own, or the longest that fits.
pub(crate) fn plan(
    backend: &dyn Backend,
    target: &Candidate<'_>,
    drafts: &[Candidate<'_>],
    options: &EngineOptions,
) -> Result<Plan, BudgetError> {
    let model = target.program.context_tokens;
    let asked = options.context_tokens;
    match asked {
        Some(asked) if asked > model => return Err(BudgetError::ContextTooLong { asked, model }),
        Some(asked) if asked < 2 => return Err(BudgetError::ContextTooSmall { asked, minimum: 2 }),
        _ => {}
    }
    let max_draft_nodes = options.max_draft_nodes;
    if max_draft_nodes >= CHUNK_ROWS {
        let (asked, limit) = (max_draft_nodes, CHUNK_ROWS - 1);
        return Err(BudgetError::DraftNodes { asked, limit });
    }
    let models = Models {
        backend,
        target,
        drafts,
        kv_type: options.kv_type,
        max_draft_nodes,
    };
    let wanted = asked.unwrap_or(model);
    let needed = models.bytes(wanted)?;
    let Some(budget_bytes) = options.memory_bytes.filter(|budget| needed > *budget) else {
        return Ok(models.plan(wanted));
    };
    let longest = models.longest(wanted, budget_bytes)?;
    if asked.is_none() && longest >= MINIMUM_CONTEXT.min(model) {
        return Ok(models.plan(longest));
    }
    let (target, draft) = models.needs(wanted)?;
    Err(BudgetError::Memory {
        context_tokens: wanted,
        target,
        draft,
        budget_bytes,
        remedy: models.remedy(wanted, longest, budget_bytes)?,
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
