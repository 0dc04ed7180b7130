//! What is asked of the engine and what it answers.

use foredraft_common::TokenId;
use foredraft_speculate::SamplingSettings;
use serde::Serialize;

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
    /// Of these, tokens whose keys and values were still there.
    pub cached_tokens: usize,
    /// Tokens emitted, an end-of-text token included.
    pub completion_tokens: usize,
}

/// Where the time went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Timings {
    /// From the request to the first token.
    pub prefill_seconds: f64,
    /// From the first token to the last.
    pub decode_seconds: f64,
    /// Forward passes after the prompt's.
    pub steps: usize,
}

/// A finished answer.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The text, ended by a stop text or the end of the answer.
    pub text: String,
    /// The tokens that were emitted.
    pub tokens: Vec<TokenId>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The seed that keyed the random numbers.
    pub seed: u64,
    /// Tokens counted.
    pub usage: Usage,
    /// Time measured.
    pub timings: Timings,
}

/// What happens while an answer is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A part of the prompt has been read.
    Prefill {
        /// Tokens read, cached ones included.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// More text of the answer: whole characters, never part of a stop text.
    Text(&'a str),
}
