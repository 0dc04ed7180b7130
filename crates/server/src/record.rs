//! One line of the log for a request, and its place in the counts; written when it is over, however it ends.

use std::sync::Arc;
use std::time::Instant;

use foredraft_engine::{Completion, FinishReason};

use crate::error::ApiError;
use crate::state::State;

/// A request that asks the engine for answers.
pub(crate) struct Record {
    state: Arc<State>,
    /// As the response names it.
    id: String,
    received: Instant,
    answers: usize,
    ended: usize,
    prompt_tokens: usize,
    cached_tokens: usize,
    completion_tokens: usize,
    drafted: usize,
    accepted: usize,
    first_token: Option<Instant>,
    /// Of the last answer that ended; of the request, where it failed.
    finish: Option<&'static str>,
    error: Option<String>,
}

/// The reason in OpenAI's words: a text that ended by itself, or one that was cut.
pub(crate) fn finish_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::EndOfText | FinishReason::StopString => "stop",
        FinishReason::MaxTokens | FinishReason::Context => "length",
        FinishReason::Cancelled => "abort",
    }
}

impl Record {
    /// A request with this id that comes now.
    pub(crate) fn new(state: &Arc<State>, id: String) -> Self {
        state.in_flight.send_modify(|count| *count += 1);
        Self {
            state: Arc::clone(state),
            id,
            received: Instant::now(),
            answers: 0,
            ended: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            completion_tokens: 0,
            drafted: 0,
            accepted: 0,
            first_token: None,
            finish: None,
            error: None,
        }
    }

    /// When it came.
    pub(crate) fn received(&self) -> Instant {
        self.received
    }

    /// The engine has taken it.
    pub(crate) fn submitted(&mut self, answers: usize) {
        self.answers = answers;
    }

    /// An answer has ended.
    pub(crate) fn finished(&mut self, completion: &Completion, first_token: Option<Instant>) {
        self.ended += 1;
        let usage = &completion.usage;
        self.prompt_tokens += usage.prompt_tokens;
        self.cached_tokens += usage.cached_tokens;
        self.completion_tokens += usage.completion_tokens;
        if let Some(figures) = &completion.speculation {
            self.drafted += figures.drafted;
            self.accepted += figures.accepted;
        }
        self.first_token = match (self.first_token, first_token) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let finish = finish_name(completion.finish_reason);
        self.finish = Some(finish);
        let metrics = &self.state.metrics;
        metrics.answer_finished(completion, finish);
        if let Some(first) = first_token {
            let tokens = completion.tokens.len().saturating_sub(1);
            metrics.answer_pace(first.elapsed().as_secs_f64(), tokens);
        }
    }

    /// Something went wrong that the answers do not suffer from.
    pub(crate) fn warn(&self, warning: &str) {
        tracing::warn!(id = self.id, "{warning}");
    }

    /// The request has failed.
    pub(crate) fn failed(&mut self, error: &ApiError) {
        self.error = Some(error.detail.message.clone());
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.state.in_flight.send_modify(|count| *count -= 1);
        if self.answers == 0 {
            // Refused before it reached the engine: the refusal is logged where it is sent.
            return;
        }
        let metrics = &self.state.metrics;
        let seconds = self.received.elapsed().as_secs_f64();
        let finish = if self.ended == self.answers {
            metrics.end_to_end.observe(seconds);
            self.finish.unwrap_or_default()
        } else {
            let finish = match self.error {
                Some(_) => "error",
                None => "abort",
            };
            (self.ended..self.answers).for_each(|_| metrics.answer_cut(finish));
            finish
        };
        let first_token = self.first_token.map(|first| first - self.received);
        tracing::info!(
            id = self.id,
            answers = self.answers,
            prompt_tokens = self.prompt_tokens,
            cached_tokens = self.cached_tokens,
            completion_tokens = self.completion_tokens,
            drafted = self.drafted,
            accepted = self.accepted,
            first_token_s = first_token.map(|time| round(time.as_secs_f64())),
            total_s = round(seconds),
            finish,
            error = self.error,
            "request"
        );
    }
}

/// To microseconds: what a log needs.
fn round(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
