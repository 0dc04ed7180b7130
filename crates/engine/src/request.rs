//! What is asked of the engine and what it answers.

use foredraft_common::TokenId;
use foredraft_speculate::{SamplingSettings, TokenTree, Verdict};
use serde::Serialize;

use crate::speculation::{Speculation, SpeculationFigures};

/// A request in an engine, which numbers them in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One text to be continued.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tokens to continue, special ones included.
    pub prompt: Vec<TokenId>,
    /// How tokens are chosen. Without a seed one is drawn from the system and reported.
    pub sampling: SamplingSettings,
    /// Which of the `n` answers to one request this is; part of the key of its random numbers.
    pub choice: u32,
    /// The most tokens to emit; `None` is up to the end of the context.
    pub max_tokens: Option<usize>,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
    /// Report the log probability of every emitted token, and those of this many most probable ones beside it.
    pub logprobs: Option<usize>,
    /// How the engine's drafters are used.
    pub speculation: Speculation,
}

impl Request {
    /// A request for as many tokens as the context holds, without stop texts.
    pub fn new(prompt: Vec<TokenId>, sampling: SamplingSettings) -> Self {
        Self {
            prompt,
            sampling,
            choice: 0,
            max_tokens: None,
            stop: Vec::new(),
            logprobs: None,
            speculation: Speculation::default(),
        }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model said so.
    EndOfText,
    /// A stop text was found.
    StopString,
    /// As many tokens as asked for.
    MaxTokens,
    /// The context is full.
    Context,
    /// The caller did not want more.
    Cancelled,
}

/// How many tokens there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens whose keys and values were there when it began.
    pub cached_tokens: usize,
    /// Tokens emitted, an end-of-text token included.
    pub completion_tokens: usize,
}

/// Where the time went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Waiting for a place among the running sequences.
    pub queued_seconds: f64,
    /// From there to the end of the step that reads the prompt's end and gives the first tokens.
    pub prefill_seconds: f64,
    /// The steps after it.
    pub decode_seconds: f64,
    /// How many those are: forward passes after the prompt's. (What is computed again after a preemption is not counted.)
    pub steps: usize,
    /// Tokens that came out of the prompt's last pass: 1, or more where it carried a tree.
    pub first_tokens: usize,
    /// What those steps went to. A step serves all running sequences, so this is the time of the company.
    pub decode: Phases,
}

/// What steps spend their time on, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Phases {
    /// The drafters.
    pub draft_seconds: f64,
    /// The model's forward passes.
    pub forward_seconds: f64,
    /// The transforms, the draws and the tests that choose tokens.
    pub verify_seconds: f64,
    /// All else: text, the caller's events, pages, bookkeeping.
    pub other_seconds: f64,
}

impl std::ops::AddAssign for Phases {
    fn add_assign(&mut self, more: Self) {
        self.draft_seconds += more.draft_seconds;
        self.forward_seconds += more.forward_seconds;
        self.verify_seconds += more.verify_seconds;
        self.other_seconds += more.other_seconds;
    }
}

/// The log probability of an emitted token under the model's own distribution: before bias, penalties, temperature and
/// truncation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenLogprob {
    /// Of the token itself.
    pub log_probability: f32,
    /// Of the most probable tokens, as many as were asked for, the most probable first.
    pub top: Vec<(TokenId, f32)>,
}

/// A finished answer.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The text, ended by a stop text or the end of the answer.
    pub text: String,
    /// The tokens that were emitted.
    pub tokens: Vec<TokenId>,
    /// One for each token; empty unless asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The seed that keyed the random numbers.
    pub seed: u64,
    /// Tokens counted.
    pub usage: Usage,
    /// Time measured.
    pub timings: Timings,
    /// What speculation did; `None` where there was no drafter, or none was wanted.
    pub speculation: Option<SpeculationFigures>,
}

/// Where an emitted token came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenOrigin {
    /// Chosen by the model in a step without a draft.
    Plain,
    /// Drafted, and accepted.
    Accepted,
    /// Chosen by the model where it accepted none of the tokens drafted.
    Corrected,
    /// Chosen by the model after the last drafted token: one more than was drafted.
    Bonus,
}

/// A step that has been verified.
#[derive(Debug, Clone, Copy)]
pub struct StepReport<'a> {
    /// The tree, as it was drafted.
    pub tree: &'a TokenTree,
    /// What verification made of it.
    pub verdict: &'a Verdict,
    /// Tokens emitted: the accepted ones and one more, or fewer where the answer ended before.
    pub emitted: usize,
    /// Where its time went, up to here.
    pub phases: Phases,
}

/// What happens while an answer is made.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A part of the prompt has been read.
    Prefill {
        /// Tokens read, cached ones included.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// A token is emitted; the text that it completes follows, if any. (Text may be held back: it is then told with
    /// a later token.)
    Token {
        /// Which.
        token: TokenId,
        /// Where it came from.
        origin: TokenOrigin,
        /// Its log probability, where that was asked for.
        logprob: Option<&'a TokenLogprob>,
    },
    /// More text of the answer: whole characters, never part of a stop text.
    Text(&'a str),
    /// A step is over.
    Step(StepReport<'a>),
    /// Something went wrong that the answer does not suffer from: a drafter failed, and the request goes on without it.
    Warning(&'a str),
}
