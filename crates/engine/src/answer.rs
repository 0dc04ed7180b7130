//! An answer while it is made: what its steps carry on from one to the next.

use std::time::Instant;

use foredraft_common::{Position, TokenId};
use foredraft_speculate::{
    AllowedTokens, DraftDraw, History, NoiseKey, SequenceId, SequenceView, Verifier, VerifyRule,
};
use foredraft_text::{TextError, Tokenizer};

use crate::output::Output;
use crate::request::{Completion, FinishReason, Phases, Request, Timings, TokenLogprob, Usage};
use crate::sequence::Sequence;
use crate::speculation::SpeculationFigures;

/// The engine's one sequence, as drafters know it: like its pages it outlives a request, so that a drafter too keeps what
/// a next prompt shares with it.
pub(crate) const SEQUENCE: SequenceId = SequenceId(0);

/// A request under way.
pub(crate) struct Answer<'a> {
    pub(crate) request: &'a Request,
    pub(crate) output: Output<'a>,
    /// The counts of prompt and output that penalties look at.
    pub(crate) history: History,
    pub(crate) verifier: Box<dyn Verifier + Send>,
    draw: DraftDraw,
    seed: u64,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) figures: Option<SpeculationFigures>,
    /// Tokens of the prompt that were in pages already.
    pub(crate) cached_tokens: usize,
    started: Instant,
    timings: Timings,
}

impl<'a> Answer<'a> {
    /// `drafters`: the names of those that may draft for it; without any it is decoded plainly.
    pub(crate) fn new(
        request: &'a Request,
        tokenizer: &'a Tokenizer,
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
            output: Output::new(tokenizer, request.stop.clone(), continues)?,
            history: History::new(&request.prompt),
            figures: (!drafters.is_empty())
                .then(|| SpeculationFigures::new(drafters, verifier.name())),
            verifier,
            draw: rule.draft_draw(greedy),
            seed: sampling.seed.unwrap_or_else(random_seed),
            tokens: Vec::new(),
            logprobs: Vec::new(),
            cached_tokens: 0,
            started: Instant::now(),
            timings: Timings::default(),
            request,
        })
    }

    /// Whether drafters may be asked.
    pub(crate) fn is_speculative(&self) -> bool {
        self.figures.is_some()
    }

    /// The key of the random numbers of the token at `position`.
    pub(crate) fn key(&self, position: usize) -> NoiseKey {
        NoiseKey {
            seed: self.seed,
            choice: self.request.choice,
            position: Position(position as u32),
        }
    }

    /// What drafters are told of the sequence.
    pub(crate) fn view<'v>(
        &'v self,
        sequence: &'v Sequence,
        allowed: &'v AllowedTokens,
    ) -> SequenceView<'v> {
        SequenceView {
            id: SEQUENCE,
            tokens: sequence.tokens(),
            history: &self.history,
            sampling: &self.request.sampling,
            allowed,
            key: self.key(sequence.tokens().len()),
            draw: self.draw,
        }
    }

    /// Counts the time of a step. The first is the one that reads the prompt's end.
    pub(crate) fn count(&mut self, phases: Phases) {
        let timings = &mut self.timings;
        if timings.first_tokens == 0 {
            timings.first_tokens = self.tokens.len();
            timings.prefill_seconds = self.started.elapsed().as_secs_f64();
        } else {
            timings.steps += 1;
            timings.decode += phases;
        }
    }

    pub(crate) fn finish(self, finish_reason: FinishReason) -> Completion {
        let elapsed = self.started.elapsed().as_secs_f64();
        let mut timings = self.timings;
        match timings.first_tokens {
            0 => timings.prefill_seconds = elapsed,
            _ => timings.decode_seconds = elapsed - timings.prefill_seconds,
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
