//! The engine: loading, and what it holds.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft_common::TokenId;
use foredraft_formats::Checkpoint;
use foredraft_model::{
    Backend, Batch, Executor, ExecutorOptions, LoadWatch, Memory, ProgramOptions, program_for,
};
use foredraft_speculate::{AllowedTokens, Drafter, TargetBuffers};
use foredraft_text::Tokenizer;

use crate::budget::{self, BudgetError, Candidate};
use crate::drafting::Drafters;
use crate::error::EngineError;
use crate::figures::{Costs, DrafterFigures, EngineFigures};
use crate::options::EngineOptions;
use crate::pages::Pages;
use crate::request::{Completion, Event, Request, RequestId};
use crate::scheduler::{PassLimits, Scheduler, Share, Want};
use crate::sequence::Sequence;
use crate::task::Task;

/// A draft model that was loaded beside the engine's: the same backend, a share of the same budget, as long a context (or
/// its own, where that is shorter).
pub struct DraftModel {
    /// The model, compiled.
    pub executor: Box<dyn Executor>,
    /// What was reserved for it: pages for as many sequences as the engine runs, or as many as fit; passes of a prompt's
    /// chunk, or of a level of the largest tree.
    pub options: ExecutorOptions,
}

/// A request that has ended: its answer, or why there is none.
pub type Finished = (RequestId, Result<Completion, EngineError>);

/// The model, and what is known of it.
pub(crate) struct Model {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) options: ExecutorOptions,
    pub(crate) max_draft_nodes: usize,
    pub(crate) allowed: AllowedTokens,
}

/// A loaded model that answers requests, several at a time.
///
/// [`Engine::submit`] takes a request, [`Engine::step`] advances all of them by one step. Nothing happens in between.
pub struct Engine {
    pub(crate) model: Model,
    pub(crate) pages: Pages,
    pub(crate) drafters: Drafters,
    pub(crate) max_sequences: usize,
    pub(crate) limits: PassLimits,
    pub(crate) next_id: u64,
    /// In the order in which they start.
    pub(crate) waiting: VecDeque<Task>,
    /// In the order of their age.
    pub(crate) running: Vec<Task>,
    /// Ended outside of a step.
    pub(crate) ended: Vec<Finished>,
    /// The text that passes are timed behind.
    pub(crate) timed: Sequence,
    pub(crate) figures: EngineFigures,
    pub(crate) costs: Costs,
    // What a step works with; kept for its memory.
    pub(crate) scheduler: Scheduler,
    pub(crate) wants: Vec<Want>,
    pub(crate) shares: Vec<Share>,
    pub(crate) target: TargetBuffers,
    pub(crate) batch: Batch,
}

impl Engine {
    /// Loads the model of a checkpoint. `watch` is told how far the weights are, and may end it.
    ///
    /// # Errors
    /// When the architecture is unknown, a tensor is missing or misshapen, the vocabulary does not belong to the
    /// model, the memory does not suffice, or `watch` ends it.
    pub fn load(
        checkpoint: &Checkpoint,
        tokenizer: Arc<Tokenizer>,
        backend: &dyn Backend,
        options: &EngineOptions,
        watch: LoadWatch<'_>,
    ) -> Result<Self, EngineError> {
        let loaded = Self::load_with_drafts(checkpoint, &[], tokenizer, backend, options, watch)?;
        Ok(loaded.0)
    }

    /// Loads the model of a checkpoint and the models that shall draft for it, within one memory budget. Whether a draft's
    /// vocabulary is the model's is for the caller to check.
    ///
    /// # Errors
    /// As [`Engine::load`], for any of the models.
    pub fn load_with_drafts(
        checkpoint: &Checkpoint,
        drafts: &[&Checkpoint],
        tokenizer: Arc<Tokenizer>,
        backend: &dyn Backend,
        options: &EngineOptions,
        watch: LoadWatch<'_>,
    ) -> Result<(Self, Vec<DraftModel>), EngineError> {
        let candidate = |weights| -> Result<Candidate<'_>, EngineError> {
            let program = program_for(weights, &ProgramOptions::default())?;
            Ok(Candidate { program, weights })
        };
        let target = candidate(checkpoint)?;
        let (tokens, embeddings) = (tokenizer.vocabulary_len(), target.program.vocabulary);
        if tokens > embeddings {
            return Err(EngineError::Vocabulary { tokens, embeddings });
        }
        let drafts = drafts.iter().map(|weights| candidate(weights));
        let drafts = drafts.collect::<Result<Vec<_>, _>>()?;
        let plan = budget::plan(backend, &target, &drafts, options)?;
        let mut load = |candidate: Candidate<'_>, options: &ExecutorOptions| {
            let Candidate { program, weights } = candidate;
            let loaded = backend.load(program, weights, options, watch);
            loaded.map_err(BudgetError::from)
        };
        let executor = load(target, &plan.target)?;
        let mut draft_models = Vec::new();
        for (draft, options) in drafts.into_iter().zip(plan.drafts) {
            let executor = load(draft, &options)?;
            draft_models.push(DraftModel { executor, options });
        }
        let engine = Self::new(tokenizer, executor, plan.target, options);
        Ok((engine, draft_models))
    }

    fn new(
        tokenizer: Arc<Tokenizer>,
        executor: Box<dyn Executor>,
        reserved: ExecutorOptions,
        options: &EngineOptions,
    ) -> Self {
        let tokens = tokenizer.vocabulary_len();
        let mut allowed = AllowedTokens::all(tokens);
        for id in (0..tokens as u32)
            .map(TokenId)
            .filter(|id| !tokenizer.can_emit(*id))
        {
            allowed.ban(id);
        }
        let streamed_bytes = executor.memory().streamed_bytes;
        let limits = PassLimits {
            rows: reserved.max_rows,
            outputs: reserved.max_outputs,
            prompt_rows: options.prompt_rows,
        };
        // What the budget has seen to.
        debug_assert!(limits.serves(options.max_sequences, options.max_draft_nodes));
        Self {
            pages: Pages::new(&reserved.pages),
            timed: Sequence::new(Vec::new(), reserved.pages.len()),
            costs: Costs::new(executor.program(), reserved.kv_type, streamed_bytes),
            model: Model {
                tokenizer,
                executor,
                options: reserved,
                max_draft_nodes: options.max_draft_nodes,
                allowed,
            },
            drafters: Drafters::default(),
            max_sequences: options.max_sequences,
            limits,
            next_id: 0,
            waiting: VecDeque::new(),
            running: Vec::new(),
            ended: Vec::new(),
            figures: EngineFigures::default(),
            scheduler: Scheduler::default(),
            wants: Vec::new(),
            shares: Vec::new(),
            target: TargetBuffers::new(),
            batch: Batch::new(),
        }
    }

    /// Sets who drafts from now on, in the order in which they are asked: drafters whose children are deterministic
    /// (`lookup`) before those that sample. The number of a drafter in this list is the `source` of its nodes, for the
    /// figures. No request may be waiting or running.
    pub fn set_drafters(&mut self, drafters: Vec<Box<dyn Drafter + Send>>) {
        debug_assert!(
            self.is_idle(),
            "requests know the drafters that they began with"
        );
        self.drafters = Drafters::new(drafters);
        let figures = |name: &str| DrafterFigures {
            name: name.to_owned(),
            ..DrafterFigures::default()
        };
        self.figures.drafters = self.drafters.names().map(figures).collect();
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.model.tokenizer
    }

    /// Tokens of prompt and answer together.
    pub fn context_tokens(&self) -> usize {
        self.model.options.context_tokens
    }

    /// Positions of keys and values that there is room for, over all sequences.
    pub fn kv_tokens(&self) -> usize {
        self.pages.smallest_pool() * foredraft_model::kv::PAGE_POSITIONS
    }

    /// The most sequences that run at a time.
    pub fn max_sequences(&self) -> usize {
        self.max_sequences
    }

    /// What the model takes.
    pub fn memory(&self) -> Memory {
        self.model.executor.memory()
    }

    /// KV pages that are in use, over all layer groups: those of running sequences, and of texts that are kept in case a
    /// prompt begins with them.
    pub fn pages_in_use(&self) -> usize {
        self.pages.used()
    }

    /// What it has done so far, and its pages at this moment.
    pub fn figures(&self) -> EngineFigures {
        let mut figures = self.figures.clone();
        figures.pages = self.pages.figures();
        for (drafter, kept) in figures.drafters.iter_mut().zip(self.drafters.kept_tokens()) {
            drafter.prompt_tokens = kept.asked;
            drafter.cached_prompt_tokens = kept.found;
        }
        figures
    }

    /// Forgets the texts of the past: the next prompt is read from its first token on.
    pub fn forget(&mut self) {
        self.pages.release(&mut self.timed, false);
        self.pages.clear();
        self.drafters.clear();
    }

    /// Answers a request. `on_event` hears of progress and text, and may end the answer. For an engine that has nothing else to
    /// do: requests that were submitted before go on beside it, but nobody hears of them.
    ///
    /// # Errors
    /// When the request cannot be served; the engine stays usable.
    pub fn generate(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Completion, EngineError> {
        let id = self.submit(request.clone())?;
        let mut finished = Vec::new();
        loop {
            let mut hear = |of, event: Event<'_>| match of == id {
                true => on_event(event),
                false => ControlFlow::Continue(()),
            };
            self.step(&mut hear, &mut finished);
            for (ended, result) in finished.drain(..) {
                if ended == id {
                    return result;
                }
            }
        }
    }
}
