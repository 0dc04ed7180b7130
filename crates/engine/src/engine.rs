//! The loop: schedule, run, postprocess.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use foredraft_common::{Position, TokenId};
use foredraft_formats::Checkpoint;
use foredraft_model::{
    Backend, Batch, Commit, Executor, ExecutorOptions, ForwardError, LoadWatch, Memory, ModelError,
    PagePool, ProgramOptions, Slot, program_for,
};
use foredraft_speculate::{
    AllowedTokens, Distribution, DistributionError, History, NoiseKey, SettingsError, Transforms,
    sample,
};
use foredraft_text::{TextError, Tokenizer};

use crate::budget::{self, BudgetError};
use crate::output::Output;
use crate::request::{Completion, Event, FinishReason, Request, Timings, Usage};
use crate::sequence::Sequence;

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
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// Tokens of prompt and answer together; `None`: the model's own context, or what fits.
    pub context_tokens: Option<usize>,
    /// Bytes that weights, KV and scratch may take; `None`: no limit.
    pub memory_bytes: Option<u64>,
}

/// A loaded model that answers requests, one at a time.
pub struct Engine {
    tokenizer: Arc<Tokenizer>,
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) options: ExecutorOptions,
    pub(crate) pools: Vec<PagePool>,
    allowed: AllowedTokens,
    /// The last sequence: a next request keeps what they share.
    pub(crate) sequence: Sequence,
    pub(crate) batch: Batch,
    pub(crate) slots: Vec<Slot>,
    transforms: Transforms,
    distribution: Distribution,
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
        let program = program_for(checkpoint, &ProgramOptions::default())?;
        let (tokens, embeddings) = (tokenizer.vocabulary_len(), program.vocabulary);
        if tokens > embeddings {
            return Err(EngineError::Vocabulary { tokens, embeddings });
        }
        let options = budget::plan(
            backend,
            &program,
            checkpoint,
            options.context_tokens,
            options.memory_bytes,
        )?;
        let mut allowed = AllowedTokens::all(tokens);
        for id in (0..tokens as u32)
            .map(TokenId)
            .filter(|id| !tokenizer.can_emit(*id))
        {
            allowed.ban(id);
        }
        let executor = backend
            .load(program, checkpoint, &options, watch)
            .map_err(BudgetError::from)?;
        Ok(Self {
            pools: options
                .pages
                .iter()
                .map(|pages| PagePool::new(*pages))
                .collect(),
            sequence: Sequence::new(options.pages.len()),
            tokenizer,
            executor,
            options,
            allowed,
            batch: Batch::new(),
            slots: Vec::new(),
            transforms: Transforms::new(),
            distribution: Distribution::one_hot(TokenId(0)),
        })
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
        let seed = match request.sampling.seed {
            Some(seed) => seed,
            None => random_seed(),
        };
        let tokenizer = Arc::clone(&self.tokenizer);
        let continues = request.prompt.iter().any(|id| !tokenizer.is_special(*id));
        let mut output = Output::new(&tokenizer, request.stop.clone(), continues)?;
        let mut history = History::new(&request.prompt);
        self.sequence.restart(&request.prompt, &mut self.pools);
        let cached_tokens = self.sequence.committed();
        let started = Instant::now();
        let prefilled = self.prefill(request.prompt.len(), on_event)?;
        let mut timings = Timings {
            prefill_seconds: started.elapsed().as_secs_f64(),
            ..Timings::default()
        };
        let first_token = Instant::now();
        let mut tokens = Vec::new();
        let finish_reason = if prefilled.is_break() {
            FinishReason::Cancelled
        } else if request.max_tokens == Some(0) {
            FinishReason::MaxTokens
        } else {
            loop {
                let token = self.choose(request, seed, &history)?;
                tokens.push(token);
                history.push(token);
                self.sequence.push(token);
                if let Some(reason) = self.emit(request, token, tokens.len(), &mut output, on_event)
                {
                    break reason;
                }
                self.step()?;
                timings.steps += 1;
            }
        };
        timings.decode_seconds = first_token.elapsed().as_secs_f64();
        let finish_reason = flush(&mut output, &tokenizer, finish_reason, on_event);
        Ok(Completion {
            text: output.into_text(),
            usage: Usage {
                prompt_tokens: request.prompt.len(),
                cached_tokens,
                completion_tokens: tokens.len(),
            },
            tokens,
            finish_reason,
            seed,
            timings,
        })
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
        let vocabulary = self.executor.program().vocabulary;
        match request.prompt.iter().find(|id| id.index() >= vocabulary) {
            Some(&token) => Err(ForwardError::Token { token, vocabulary }.into()),
            None => Ok(()),
        }
    }

    /// Reads the prompt chunk by chunk.
    pub(crate) fn prefill(
        &mut self,
        total: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, EngineError> {
        while !self.sequence.pending().is_empty() {
            self.step()?;
            let done = self.sequence.committed();
            if on_event(Event::Prefill { done, total }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Schedules pending tokens, runs them, and commits them: a path of nodes that were all decided before. The
    /// logits of the last pending token are output 0 of the pass that reads it.
    fn step(&mut self) -> Result<(), EngineError> {
        let count = self.sequence.pending().len().min(self.options.max_rows);
        let is_last = count == self.sequence.pending().len();
        self.batch.clear();
        self.slots.clear();
        let tables = self.sequence.tables().iter().map(Vec::as_slice);
        let index = self.batch.add_sequence(self.sequence.committed(), tables);
        for (i, &token) in self.sequence.pending()[..count].iter().enumerate() {
            let parent = self.slots.last().copied();
            let wants_logits = is_last && i + 1 == count;
            self.slots
                .push(self.batch.push(index, token, parent, wants_logits));
        }
        self.executor.forward(&self.batch)?;
        if !self.sequence.reserve(count, &mut self.pools) {
            return Err(EngineError::Pages);
        }
        self.executor.commit(Commit {
            slots: &self.slots,
            committed: self.sequence.committed(),
            tables: self.sequence.tables(),
        });
        self.sequence.commit(count);
        Ok(())
    }

    /// Draws the next token from the logits of the last pass.
    fn choose(
        &mut self,
        request: &Request,
        seed: u64,
        history: &History,
    ) -> Result<TokenId, EngineError> {
        let position = self.sequence.tokens().len();
        self.transforms
            .apply(
                self.executor.logits(0),
                &request.sampling,
                history.view(),
                &self.allowed,
                &mut self.distribution,
            )
            .map_err(|source| EngineError::Logits { position, source })?;
        let noise = NoiseKey {
            seed,
            choice: request.choice,
            position: Position(position as u32),
        };
        Ok(sample(&self.distribution, &noise))
    }

    /// Emits a token; tells why the answer ends with it, if it does.
    fn emit(
        &self,
        request: &Request,
        token: TokenId,
        count: usize,
        output: &mut Output<'_>,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Option<FinishReason> {
        if self.tokenizer.is_end_of_text(token) {
            return Some(FinishReason::EndOfText);
        }
        let stopped = output.push(token);
        let fresh = output.fresh();
        let cancelled = !fresh.is_empty() && on_event(Event::Text(fresh)).is_break();
        if stopped {
            Some(FinishReason::StopString)
        } else if cancelled {
            Some(FinishReason::Cancelled)
        } else if request.max_tokens.is_some_and(|max| count >= max) {
            Some(FinishReason::MaxTokens)
        } else if self.sequence.tokens().len() >= self.options.context_tokens {
            Some(FinishReason::Context)
        } else {
            None
        }
    }
}

/// Releases the text that was held back; a stop text may be found in it still.
fn flush<'a>(
    output: &mut Output<'a>,
    tokenizer: &'a Tokenizer,
    reason: FinishReason,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
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

/// A seed from the system: the standard library's hash keys are drawn from its entropy. 53 bits, so that it
/// survives JSON readers that know only f64.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() >> 11
}
