//! One memory budget for the model, its drafts and all sequences: what they take, and what fits.

mod error;

use foredraft_drafters::{DraftSizes, executor_options};
use foredraft_formats::Checkpoint;
use foredraft_model::kv::{KvType, PAGE_POSITIONS, pages_for};
use foredraft_model::{Backend, ExecutorOptions, LoadError, Memory, Program};

use crate::options::EngineOptions;
use crate::speculation::DEFAULT_DRAFT_NODES;
pub use error::{BudgetError, size};

/// Rows of one pass: a prompt is read in chunks of at most this many tokens.
pub(crate) const CHUNK_ROWS: usize = 256;
/// Rows of one pass whose logits may be asked for, at least: what the curve T(M) is measured with.
const LEAST_OUTPUTS: usize = 32;
/// Sequences at a time, at most: a pass has room for each of them and for a prompt and a tree beside them.
const MOST_SEQUENCES: usize = CHUNK_ROWS / 2;

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
#[derive(Clone, Copy)]
struct Models<'a> {
    backend: &'a dyn Backend,
    target: &'a Candidate<'a>,
    drafts: &'a [Candidate<'a>],
    kv_type: KvType,
    max_draft_nodes: usize,
    sequences: usize,
}

/// Room for keys and values.
#[derive(Clone, Copy)]
struct Room {
    /// Positions of one sequence.
    context_tokens: usize,
    /// Pages over all sequences.
    pages: usize,
}

impl Room {
    /// Of one context.
    fn of_one(context_tokens: usize) -> Self {
        Self {
            context_tokens,
            pages: pages_for(context_tokens),
        }
    }
}

impl<'a> Models<'a> {
    /// What is reserved: for each draft as many pages as for the target, as far as its context reaches.
    fn plan(&self, room: Room) -> Plan {
        let Room {
            context_tokens,
            pages,
        } = room;
        // A pass gives the logits of every root, and of the nodes of usual trees, or of one that is as large as may be.
        let usual = self.sequences * (1 + DEFAULT_DRAFT_NODES.min(self.max_draft_nodes));
        let outputs = usual.max(self.sequences + self.max_draft_nodes);
        let target = ExecutorOptions {
            context_tokens,
            pages: vec![pages; self.target.program.kv_groups.len()],
            kv_type: self.kv_type,
            max_rows: CHUNK_ROWS,
            max_slots: CHUNK_ROWS,
            max_outputs: outputs.clamp(LEAST_OUTPUTS, CHUNK_ROWS),
        };
        let sizes = DraftSizes {
            context_tokens,
            sequences: self.sequences,
            draft_max: self.max_draft_nodes,
            kv_type: self.kv_type,
        };
        let of_draft = |draft: &Candidate<'_>| {
            let mut options = executor_options(&draft.program, &sizes);
            // The same texts, each with a last page of its own.
            let most = pages.saturating_add(self.sequences);
            for reserved in &mut options.pages {
                *reserved = (*reserved).min(most);
            }
            options
        };
        Plan {
            target,
            drafts: self.drafts.iter().map(of_draft).collect(),
        }
    }

    /// What the target and the drafts take.
    fn needs(&self, room: Room) -> Result<(Memory, Memory), LoadError> {
        let plan = self.plan(room);
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

    fn bytes(&self, room: Room) -> Result<u64, LoadError> {
        let (target, draft) = self.needs(room)?;
        Ok(target.total_bytes().saturating_add(draft.total_bytes()))
    }

    /// The longest context in whole pages, below `too_long`, of which one fits; 0 when none does.
    fn longest(&self, too_long: usize, budget_bytes: u64) -> Result<usize, LoadError> {
        let fits = |pages| {
            let room = Room::of_one(pages * PAGE_POSITIONS);
            Ok(self.bytes(room)? <= budget_bytes)
        };
        Ok(most(0, too_long.div_ceil(PAGE_POSITIONS), fits)? * PAGE_POSITIONS)
    }

    /// The most pages, of at least one context and fewer than `room` has, that fit.
    fn most_pages(&self, room: Room, budget_bytes: u64) -> Result<usize, LoadError> {
        let fits = |pages| Ok(self.bytes(Room { pages, ..room })? <= budget_bytes);
        most(pages_for(room.context_tokens), room.pages, fits)
    }

    /// What would fit into the budget where `room` does not.
    fn remedy(&self, room: Room, budget_bytes: u64) -> Result<String, LoadError> {
        let mut fitting = Vec::new();
        let (context, one) = (room.context_tokens, Room::of_one(room.context_tokens));
        if self.bytes(one)? <= budget_bytes {
            let tokens = self.most_pages(room, budget_bytes)? * PAGE_POSITIONS;
            fitting.push(format!("KV of {tokens} tokens"));
        } else if let longest @ 1.. = self.longest(context, budget_bytes)? {
            fitting.push(format!("a context of {longest} tokens"));
        }
        let single = Models {
            sequences: 1,
            ..*self
        };
        if self.sequences > 1 && single.bytes(one)? <= budget_bytes {
            fitting.push("one sequence at a time".to_owned());
        }
        let in_8_bits = Models {
            kv_type: KvType::Q8,
            ..*self
        };
        if self.kv_type != KvType::Q8 && in_8_bits.bytes(room)? <= budget_bytes {
            fitting.push("keys and values in 8 bits (--kv q8)".to_owned());
        }
        let alone = Models {
            drafts: &[],
            ..*self
        };
        if !self.drafts.is_empty() {
            if alone.bytes(room)? <= budget_bytes {
                fitting.push("the model without its draft".to_owned());
            } else if let context @ 1.. = alone.longest(context, budget_bytes)? {
                fitting.push(format!("a context of {context} tokens without the draft"));
            }
        }
        if !fitting.is_empty() {
            return Ok(format!("{} would fit", fitting.join(", or ")));
        }
        Ok(format!(
            "not even a short context fits beside the weights; use a smaller quantization, or a budget of {}",
            // Rounded up: what is advised must suffice.
            size(single.bytes(Room::of_one(PAGE_POSITIONS))? + (1 << 20))
        ))
    }

    fn too_much(&self, room: Room, budget_bytes: u64) -> Result<BudgetError, LoadError> {
        let (target, draft) = self.needs(room)?;
        Ok(BudgetError::Memory {
            context_tokens: room.context_tokens,
            sequences: self.sequences,
            kv_tokens: room.pages * PAGE_POSITIONS,
            target,
            draft,
            budget_bytes,
            remedy: self.remedy(room, budget_bytes)?,
        })
    }
}

/// The largest number from `fits` on and below `too_many` that `does` fit; more never do where fewer do not.
fn most(
    mut fits: usize,
    mut too_many: usize,
    does: impl Fn(usize) -> Result<bool, LoadError>,
) -> Result<usize, LoadError> {
    while too_many.saturating_sub(fits) > 1 {
        let middle = fits + (too_many - fits) / 2;
        if does(middle)? {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    Ok(fits)
}

/// Decides the context: the one asked for, or the model's own, or the longest that fits. Then the room for keys and values:
/// what is asked for, or a context for each sequence, or what fits.
pub(crate) fn plan(
    backend: &dyn Backend,
    target: &Candidate<'_>,
    drafts: &[Candidate<'_>],
    options: &EngineOptions,
) -> Result<Plan, BudgetError> {
    check(target.program.context_tokens, options)?;
    let models = Models {
        backend,
        target,
        drafts,
        kv_type: options.kv_type,
        max_draft_nodes: options.max_draft_nodes,
        sequences: options.max_sequences,
    };
    let budget_bytes = options.memory_bytes.unwrap_or(u64::MAX);
    let context_tokens = context(&models, options, budget_bytes)?;
    let one = pages_for(context_tokens);
    let pages = match options.kv_tokens {
        Some(asked) => pages_for(asked).max(one),
        None => {
            let usual = pages_for(context_tokens.min(USUAL_TOKENS));
            one.max(usual.saturating_mul(options.max_sequences))
        }
    };
    let room = Room {
        context_tokens,
        pages,
    };
    if models.bytes(room)? <= budget_bytes {
        return Ok(models.plan(room));
    }
    if options.kv_tokens.is_some() {
        return Err(models.too_much(room, budget_bytes)?);
    }
    let pages = models.most_pages(room, budget_bytes)?;
    Ok(models.plan(Room { pages, ..room }))
}

/// The context, of which at least one fits.
fn context(
    models: &Models<'_>,
    options: &EngineOptions,
    budget_bytes: u64,
) -> Result<usize, BudgetError> {
    let model = models.target.program.context_tokens;
    let most = options.kv_tokens.unwrap_or(usize::MAX).min(model);
    let wanted = options.context_tokens.unwrap_or(most);
    let one = Room::of_one(wanted);
    if models.bytes(one)? <= budget_bytes {
        return Ok(wanted);
    }
    let longest = models.longest(wanted, budget_bytes)?;
    if options.context_tokens.is_none() && longest >= MINIMUM_CONTEXT.min(model) {
        return Ok(longest);
    }
    Err(models.too_much(one, budget_bytes)?)
}

/// Checks what needs no arithmetic.
fn check(model: usize, options: &EngineOptions) -> Result<(), BudgetError> {
    const LEAST_CONTEXT: usize = 2;
    let &EngineOptions {
        context_tokens,
        kv_tokens,
        max_draft_nodes,
        max_sequences,
        prompt_rows,
        ..
    } = options;
    if let Some(asked) = context_tokens.filter(|&asked| asked > model) {
        return Err(BudgetError::ContextTooLong { asked, model });
    }
    if let Some(asked) = context_tokens.filter(|&asked| asked < LEAST_CONTEXT) {
        let minimum = LEAST_CONTEXT;
        return Err(BudgetError::ContextTooSmall { asked, minimum });
    }
    if let Some(asked) = kv_tokens {
        let context_tokens = context_tokens.unwrap_or(LEAST_CONTEXT);
        if asked < context_tokens {
            return Err(BudgetError::KvTokens {
                asked,
                context_tokens,
            });
        }
    }
    if !(1..=MOST_SEQUENCES).contains(&max_sequences) {
        let (asked, limit) = (max_sequences, MOST_SEQUENCES);
        return Err(BudgetError::Sequences { asked, limit });
    }
    let limit = CHUNK_ROWS - max_sequences;
    if max_draft_nodes > limit {
        let asked = max_draft_nodes;
        return Err(BudgetError::DraftNodes { asked, limit });
    }
    match prompt_rows {
        0 => Err(BudgetError::PromptRows),
        _ => Ok(()),
    }
}

/// Tokens of a sequence that room is kept for where nobody says how much: what ended stays in it as long as there is room, and
/// a machine has other uses for its memory.
const USUAL_TOKENS: usize = 4096;

/// A context that is chosen for the user is never shorter than this.
const MINIMUM_CONTEXT: usize = 512;
