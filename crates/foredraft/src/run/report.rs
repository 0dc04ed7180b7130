//! What is said about an answer when it is done.

use foredraft::common::TokenId;
use foredraft::engine::{Completion, FinishReason, Usage};
use serde::Serialize;

/// The JSON of `run`.
#[derive(Debug, Serialize)]
pub(super) struct RunReport<'a> {
    /// As it was named on the command line.
    model: &'a str,
    /// The answer.
    text: &'a str,
    /// The ids of the tokens that were emitted.
    tokens: &'a [TokenId],
    /// `end_of_text`, `stop_string`, `max_tokens`, `context` or `cancelled`.
    finish_reason: FinishReason,
    /// The seed that keyed the random numbers; with it the same command gives the same text.
    seed: u64,
    /// Tokens of prompt and answer.
    usage: Usage,
    /// Seconds and rates.
    timings: TimingsReport,
    /// What drafting did; null when nothing was drafted.
    speculation: Option<()>,
}

#[derive(Debug, Serialize)]
struct TimingsReport {
    /// From the request to the first token.
    prefill_s: f64,
    /// From the first token to the last.
    decode_s: f64,
    /// Tokens after the first, by `decode_s`; 0 when there is none.
    tokens_per_s: f64,
    /// Forward passes after the prompt's.
    steps: usize,
}

impl<'a> RunReport<'a> {
    pub(super) fn new(model: &'a str, completion: &'a Completion) -> Self {
        Self {
            model,
            text: &completion.text,
            tokens: &completion.tokens,
            finish_reason: completion.finish_reason,
            seed: completion.seed,
            usage: completion.usage,
            timings: TimingsReport {
                prefill_s: completion.timings.prefill_seconds,
                decode_s: completion.timings.decode_seconds,
                tokens_per_s: decode_rate(completion),
                steps: completion.timings.steps,
            },
            speculation: None,
        }
    }
}

/// Tokens a second after the first.
fn decode_rate(completion: &Completion) -> f64 {
    let tokens = completion.usage.completion_tokens.saturating_sub(1);
    rate(tokens, completion.timings.decode_seconds)
}

fn rate(tokens: usize, seconds: f64) -> f64 {
    if tokens == 0 || seconds <= 0.0 {
        0.0
    } else {
        tokens as f64 / seconds
    }
}

/// One line for people.
pub(super) fn summary(completion: &Completion) -> String {
    let usage = &completion.usage;
    let read = usage.prompt_tokens - usage.cached_tokens;
    let reason = match completion.finish_reason {
        FinishReason::EndOfText => "",
        FinishReason::StopString => "; ended at a stop text",
        FinishReason::MaxTokens => "; ended at --max-tokens",
        FinishReason::Context => "; ended because the context is full",
        FinishReason::Cancelled => "; interrupted",
    };
    format!(
        "[prompt {} tokens, {:.1} tokens/s; answer {} tokens, {:.1} tokens/s; seed {}{reason}]",
        usage.prompt_tokens,
        rate(read, completion.timings.prefill_seconds),
        usage.completion_tokens,
        decode_rate(completion),
        completion.seed,
    )
}
