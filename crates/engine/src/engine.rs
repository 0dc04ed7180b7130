//! The engine: loading, and the loop over steps.

use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft_common::TokenId;
use foredraft_formats::Checkpoint;
use foredraft_model::kv::KvType;
use foredraft_model::{
    Backend, Batch, Executor, ExecutorOptions, ForwardError, LoadWatch, Memory, ModelError,
    PagePool, ProgramOptions, Slot, program_for,
};
use foredraft_speculate::{
    AllowedTokens, DistributionError, Drafter, SettingsError, TargetBuffers, TokenTree, Verdict,
};
use foredraft_text::{TextError, Tokenizer};

use crate::answer::{Answer, SEQUENCE};
use crate::budget::{self, BudgetError, Candidate};
use crate::drafting::Drafters;
use crate::output::Output;
use crate::request::{Completion, Event, FinishReason, Request};
use crate::sequence::Sequence;
use crate::step::OnEvent;

/// Why a model could not be loaded or a request not be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Not a model that this build runs.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It does not fit, or not with these settings.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The tokenizer has ids that the model has no embedding for.
    #[error(
        "the tokenizer has {tokens} tokens, the model only {embeddings} embeddings: they do not belong together"
    )]
    Vocabulary {
        /// Entries of the tokenizer.
        tokens: usize,
        /// Rows of the embedding table.
        embeddings: usize,
    },
    /// A sampling setting is out of its range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A text setting is wrong.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Nothing to continue.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// A prompt that leaves no room for an answer.
    #[error(
        "the prompt has {prompt} tokens, the context holds {context}: shorten the prompt or give a longer context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// The prompt's ids are not the model's.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// A tree larger than what was reserved.
    #[error(
        "a step of {asked} drafted tokens is beyond the {reserved} that were reserved when the model was loaded: ask for fewer, or reserve more (EngineOptions::max_draft_nodes)"
    )]
    DraftNodes {
        /// Asked for.
        asked: usize,
        /// Reserved.
        reserved: usize,
    },
    /// The model's logits are not numbers.
    #[error("the model gave no usable logits at position {position}: {source}")]
    Logits {
        /// Of the token to be emitted.
        position: usize,
        /// What was wrong.
        source: DistributionError,
    },
    /// The page pool is smaller than the context.
    #[error("the KV page pool is exhausted")]
    Pages,
}

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
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            context_tokens: None,
            memory_bytes: None,
            kv_type: KvType::F16,
            max_draft_nodes: 31,
        }
    }
}

/// A draft model that was loaded beside the engine's: the same backend, a share of the same budget, as long a context (or
/// its own, where that is shorter).
pub struct DraftModel {
    /// The model, compiled.
    pub executor: Box<dyn Executor>,
    /// What was reserved for it: pages for one sequence; passes of a prompt's chunk, or of a level of the largest tree.
    pub options: ExecutorOptions,
}

/// A loaded model that answers requests, one at a time.
pub struct Engine {
    tokenizer: Arc<Tokenizer>,
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) options: ExecutorOptions,
    max_draft_nodes: usize,
    pub(crate) pools: Vec<PagePool>,
    pub(crate) allowed: AllowedTokens,
    /// The last sequence: a next request keeps what they share.
    pub(crate) sequence: Sequence,
    pub(crate) drafters: Drafters,
    /// Of each sequence of a step its tree, and what became of it.
    pub(crate) trees: [TokenTree; 1],
    pub(crate) verdicts: [Verdict; 1],
    pub(crate) target: TargetBuffers,
    pub(crate) batch: Batch,
    /// The slots of pending tokens; then of all that is to be committed.
    pub(crate) slots: Vec<Slot>,
    /// Of each node of the tree its slot, if it is in the pass, and its output.
    pub(crate) node_slots: Vec<Option<Slot>>,
    pub(crate) outputs: Vec<usize>,
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
        let max_draft_nodes = options.max_draft_nodes;
        let engine = Self::new(tokenizer, executor, plan.target, max_draft_nodes);
        Ok((engine, draft_models))
    }

    fn new(
        tokenizer: Arc<Tokenizer>,
        executor: Box<dyn Executor>,
        options: ExecutorOptions,
        max_draft_nodes: usize,
    ) -> Self {
        let tokens = tokenizer.vocabulary_len();
        let mut allowed = AllowedTokens::all(tokens);
        for id in (0..tokens as u32)
            .map(TokenId)
            .filter(|id| !tokenizer.can_emit(*id))
        {
            allowed.ban(id);
        }
        Self {
            pools: options
                .pages
                .iter()
                .map(|pages| PagePool::new(*pages))
                .collect(),
            sequence: Sequence::new(options.pages.len()),
            tokenizer,
            executor,
            options,
            max_draft_nodes,
            allowed,
            drafters: Drafters::default(),
            trees: [TokenTree::new(TokenId(0))],
            verdicts: [Verdict::new()],
            target: TargetBuffers::new(),
            batch: Batch::new(),
            slots: Vec::new(),
            node_slots: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Sets who drafts from now on, in the order in which they are asked: drafters whose children are deterministic
    /// (`lookup`) before those that sample.
    pub fn set_drafters(&mut self, drafters: Vec<Box<dyn Drafter + Send>>) {
        self.drafters = Drafters::new(drafters);
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Tokens of prompt and answer together.
    pub fn context_tokens(&self) -> usize {
        self.options.context_tokens
    }

    /// What the model takes.
    pub fn memory(&self) -> Memory {
        self.executor.memory()
    }

    /// KV pages that are in use, over all layer groups: those of the last sequence.
    pub fn pages_in_use(&self) -> usize {
        self.pools.iter().map(PagePool::used).sum()
    }

    /// Answers a request. `on_event` hears of progress and text, and may end the answer.
    ///
    /// # Errors
    /// When the request cannot be served; the engine stays usable.
    pub fn generate(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Completion, EngineError> {
        self.admit(request)?;
        let tokenizer = Arc::clone(&self.tokenizer);
        let result = self.answer(request, &tokenizer, on_event);
        if result.is_err() {
            // Drafters were not told how the last step ended.
            self.drafters.forget(SEQUENCE);
        }
        result
    }

    fn answer(
        &mut self,
        request: &Request,
        tokenizer: &Tokenizer,
        on_event: OnEvent<'_>,
    ) -> Result<Completion, EngineError> {
        let drafters = match request.speculation.nodes() {
            0 => Vec::new(),
            _ => self.drafters.names(),
        };
        let mut answer = Answer::new(request, tokenizer, drafters)?;
        self.drafters.restart();
        self.sequence.restart(&request.prompt, &mut self.pools);
        answer.cached_tokens = self.sequence.committed();
        let finish = if self.prefill(self.options.max_rows, on_event)?.is_break() {
            FinishReason::Cancelled
        } else if request.max_tokens == Some(0) {
            match self.prefill(0, on_event)? {
                ControlFlow::Continue(()) => FinishReason::MaxTokens,
                ControlFlow::Break(()) => FinishReason::Cancelled,
            }
        } else {
            loop {
                if let Some(finish) = self.step(&mut answer, on_event)? {
                    break finish;
                }
            }
        };
        let finish = flush(&mut answer.output, tokenizer, finish, on_event);
        Ok(answer.finish(finish))
    }

    /// Checks a request before anything is changed.
    fn admit(&self, request: &Request) -> Result<(), EngineError> {
        request
            .sampling
            .validate_for(self.tokenizer.vocabulary_len())?;
        let (prompt, context) = (request.prompt.len(), self.options.context_tokens);
        if prompt == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt >= context {
            return Err(EngineError::PromptTooLong { prompt, context });
        }
        let (asked, reserved) = (request.speculation.nodes(), self.max_draft_nodes);
        if asked > reserved && !self.drafters.is_empty() {
            return Err(EngineError::DraftNodes { asked, reserved });
        }
        let vocabulary = self.executor.program().vocabulary;
        match request.prompt.iter().find(|id| id.index() >= vocabulary) {
            Some(&token) => Err(ForwardError::Token { token, vocabulary }.into()),
            None => Ok(()),
        }
    }

    /// Reads the prompt chunk by chunk until at most `rest` of its tokens are left.
    pub(crate) fn prefill(
        &mut self,
        rest: usize,
        on_event: OnEvent<'_>,
    ) -> Result<ControlFlow<()>, EngineError> {
        let total = self.sequence.tokens().len();
        while self.sequence.pending().len() > rest {
            self.read_chunk()?;
            let done = self.sequence.committed();
            if on_event(Event::Prefill { done, total }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Runs pending tokens, as many as a pass takes, and commits them: a path of nodes that were all decided before.
    fn read_chunk(&mut self) -> Result<(), EngineError> {
        let count = self.sequence.pending().len().min(self.options.max_rows);
        self.batch.clear();
        self.slots.clear();
        let tables = self.sequence.tables().iter().map(Vec::as_slice);
        let index = self.batch.add_sequence(self.sequence.committed(), tables);
        for &token in &self.sequence.pending()[..count] {
            let parent = self.slots.last().copied();
            self.slots
                .push(self.batch.push(index, token, parent, false));
        }
        self.executor.forward(&self.batch)?;
        self.commit()
    }
}

/// Releases the text that was held back; a stop text may be found in it still.
fn flush<'a>(
    output: &mut Output<'a>,
    tokenizer: &'a Tokenizer,
    reason: FinishReason,
    on_event: OnEvent<'_>,
) -> FinishReason {
    let stopped = output.finish(tokenizer);
    let fresh = output.fresh();
    if !fresh.is_empty() {
        // The answer is over: whether more is wanted does not matter.
        let _ = on_event(Event::Text(fresh));
    }
    if stopped {
        FinishReason::StopString
    } else {
        reason
    }
}
