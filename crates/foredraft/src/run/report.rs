//! What is said about an answer when it is done.

use foredraft::common::TokenId;
use foredraft::engine::{Completion, FinishReason, SpeculationFigures, Timings, Usage};
use serde::Serialize;

use crate::output;

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
    speculation: Option<SpeculationReport<'a>>,
}

#[derive(Debug, Serialize)]
struct SpeculationReport<'a> {
    /// What drafted: several are joined by `+`.
    drafter: String,
    /// The rule by which drafts were accepted: `rejection`, `coupled` or `block`.
    verify: &'a str,
    /// Forward passes that chose tokens.
    steps: usize,
    /// Tokens that were drafted.
    drafted: usize,
    /// Of these, tokens that were emitted.
    accepted: usize,
    /// accepted / drafted; 0 when nothing was drafted.
    acceptance_rate: f64,
    /// Tokens for each of the steps; 1 is plain decoding.
    tokens_per_step: f64,
    /// For each depth from 1 on: of the steps that drafted so deep, the share that accepted as deep.
    accepted_by_depth: Vec<f64>,
}

impl<'a> SpeculationReport<'a> {
    fn new(figures: &'a SpeculationFigures) -> Self {
        Self {
            drafter: figures.drafters.join("+"),
            verify: figures.verify,
            steps: figures.steps,
            drafted: figures.drafted,
            accepted: figures.accepted,
            acceptance_rate: figures.acceptance_rate(),
            tokens_per_step: figures.tokens_per_step(),
            accepted_by_depth: figures.acceptance_by_depth(),
        }
    }
}

#[derive(Debug, Serialize)]
struct TimingsReport {
    /// From the request to the first tokens.
    prefill_s: f64,
    /// The steps after that.
    decode_s: f64,
    /// Their tokens, by `decode_s`; 0 when there are none.
    tokens_per_s: f64,
    /// Their number: forward passes after the prompt's.
    steps: usize,
    /// Of `decode_s`: drafting.
    draft_s: f64,
    /// The model's forward passes.
    forward_s: f64,
    /// Choosing tokens.
    verify_s: f64,
    /// All else.
    other_s: f64,
}

impl<'a> RunReport<'a> {
    pub(super) fn new(model: &'a str, completion: &'a Completion) -> Self {
        let phases = &completion.timings.decode;
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
                draft_s: phases.draft_seconds,
                forward_s: phases.forward_seconds,
                verify_s: phases.verify_seconds,
                other_s: phases.other_seconds,
            },
            speculation: completion.speculation.as_ref().map(SpeculationReport::new),
        }
    }
}

/// Tokens a second, after those that the prompt's last pass gave.
fn decode_rate(completion: &Completion) -> f64 {
    let Timings {
        first_tokens,
        decode_seconds,
        ..
    } = completion.timings;
    rate(completion.tokens.len() - first_tokens, decode_seconds)
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
    let (mut drafts, mut rule) = (String::new(), String::new());
    if let Some(figures) = &completion.speculation {
        drafts = format!(
            "; {}: {} of {} drafted accepted, {:.2} tokens a step",
            output::printable(&figures.drafters.join("+")),
            figures.accepted,
            figures.drafted,
            figures.tokens_per_step(),
        );
        // With a seed `auto` is `coupled`: another rule has to be named to repeat its text.
        if figures.verify != "coupled" {
            rule = format!(" with --verify {}", figures.verify);
        }
    }
    format!(
        "[prompt {} tokens, {:.1} tokens/s; answer {} tokens, {:.1} tokens/s{drafts}; seed {}{rule}{reason}]",
        usage.prompt_tokens,
        rate(read, completion.timings.prefill_seconds),
        usage.completion_tokens,
        decode_rate(completion),
        completion.seed,
    )
}
