//! An answer while it is made: what its steps carry on from one to the next.

use std::sync::Arc;
use std::time::Instant;

use foredraft_common::{Position, TokenId};
use foredraft_speculate::{
    AllowedTokens, DraftDraw, History, NoiseKey, SequenceId, SequenceView, Verifier, VerifyRule,
};
use foredraft_text::{TextError, Tokenizer};

use crate::output::Output;
use crate::request::{Completion, FinishReason, Phases, Request, Timings, TokenLogprob, Usage};
use crate::speculation::SpeculationFigures;

/// A request under way. Nothing in it is keyed by anything but positions, so it may be interrupted between any two steps.
pub(crate) struct Answer {
    pub(crate) request: Arc<Request>,
    pub(crate) output: Output,
    /// The counts of prompt and output that penalties look at.
    pub(crate) history: History,
    pub(crate) verifier: Box<dyn Verifier + Send>,
    draw: DraftDraw,
    seed: u64,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) figures: Option<SpeculationFigures>,
    /// Its trees do not depend on the company: what is drafted is drafted whole. Other rules emit the same whatever is.
    pub(crate) whole_trees: bool,
    /// Tokens of the prompt that were in pages when it began.
    pub(crate) cached_tokens: usize,
    /// When it came; when it got a place.
    came: Instant,
    started: Option<Instant>,
    timings: Timings,
}

impl Answer {
    /// `drafters`: the names of those that may draft for it; without any it is decoded plainly.
    pub(crate) fn new(
        request: Arc<Request>,
        tokenizer: &Arc<Tokenizer>,
        drafters: Vec<String>,
    ) -> Result<Self, TextError> {
        let sampling = &request.sampling;
        let greedy = sampling.temperature == 0.0;
        // Without drafts every rule is a draw from the model's distribution: the one that a seed repeats.
        let rule = match drafters.is_empty() {
            true => VerifyRule::Coupled,
            false => {
                let verify = request.speculation.verify;
                verify.resolve(sampling.seed.is_some(), greedy)
            }
        };
        let verifier = rule.verifier();
        let continues = request.prompt.iter().any(|id| !tokenizer.is_special(*id));
        Ok(Self {
            output: Output::new(Arc::clone(tokenizer), request.stop.clone(), continues)?,
            history: History::new(&request.prompt),
            figures: (!drafters.is_empty())
                .then(|| SpeculationFigures::new(drafters, verifier.name())),
            verifier,
            draw: rule.draft_draw(greedy),
            seed: sampling.seed.unwrap_or_else(random_seed),
            tokens: Vec::new(),
            logprobs: Vec::new(),
            whole_trees: rule != VerifyRule::Coupled && !greedy,
            cached_tokens: 0,
            came: Instant::now(),
            started: None,
            timings: Timings::default(),
            request,
        })
    }

    /// Whether drafters may be asked.
    pub(crate) fn is_speculative(&self) -> bool {
        self.figures.is_some()
    }

    /// Whether the prompt is to be read and nothing to be emitted.
    pub(crate) fn only_reads(&self) -> bool {
        self.request.max_tokens == Some(0)
    }

    /// Tokens that may still be emitted when the sequence has `len` of at most `context`.
    pub(crate) fn remaining(&self, len: usize, context: usize) -> usize {
        let asked = self.request.max_tokens.unwrap_or(usize::MAX);
        context
            .saturating_sub(len)
            .min(asked.saturating_sub(self.tokens.len()))
    }

    /// The key of the random numbers of the token at `position`.
    pub(crate) fn key(&self, position: usize) -> NoiseKey {
        NoiseKey {
            seed: self.seed,
            choice: self.request.choice,
            position: Position(position as u32),
        }
    }

    /// What drafters are told of its sequence, which has `tokens`.
    pub(crate) fn view<'v>(
        &'v self,
        id: SequenceId,
        tokens: &'v [TokenId],
        allowed: &'v AllowedTokens,
    ) -> SequenceView<'v> {
        SequenceView {
            id,
            tokens,
            history: &self.history,
            sampling: &self.request.sampling,
            allowed,
            key: self.key(tokens.len()),
            draw: self.draw,
        }
    }

    /// It has got a place, with `cached_tokens` of its text in pages. Whether it is for the first time.
    pub(crate) fn start(&mut self, cached_tokens: usize) -> bool {
        if self.started.is_some() {
            return false;
        }
        let now = Instant::now();
        self.started = Some(now);
        self.cached_tokens = cached_tokens;
        self.timings.queued_seconds = (now - self.came).as_secs_f64();
        true
    }

    fn seconds(&self) -> f64 {
        let started = self.started.map(|started| started.elapsed().as_secs_f64());
        started.unwrap_or(0.0)
    }

    /// Counts a step that emitted. The first is the one that reads the prompt's end.
    pub(crate) fn count(&mut self, phases: Phases) {
        let seconds = self.seconds();
        let timings = &mut self.timings;
        if timings.first_tokens == 0 {
            timings.first_tokens = self.tokens.len();
            timings.prefill_seconds = seconds;
        } else {
            timings.steps += 1;
            timings.decode += phases;
        }
    }

    pub(crate) fn finish(self, finish_reason: FinishReason) -> Completion {
        let seconds = self.seconds();
        let mut timings = self.timings;
        match timings.first_tokens {
            0 => timings.prefill_seconds = seconds,
            _ => timings.decode_seconds = seconds - timings.prefill_seconds,
        }
        Completion {
            text: self.output.into_text(),
            usage: Usage {
                prompt_tokens: self.request.prompt.len(),
                cached_tokens: self.cached_tokens,
                completion_tokens: self.tokens.len(),
            },
            tokens: self.tokens,
            logprobs: self.logprobs,
            finish_reason,
            seed: self.seed,
            timings,
            speculation: self.figures,
        }
    }
}

/// A seed from the system: the standard library's hash keys are drawn from its entropy. 53 bits, so that it
/// survives JSON readers that know only f64.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish() >> 11
}
