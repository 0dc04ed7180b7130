//! What the engine's thread does for a request: it counts, and passes on what the client is waiting for.
//!
//! Nothing here waits: messages go into a channel without a bound, and whoever leaves more than `stream_buffer` of
//! them lying is cancelled instead of being waited for.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use foredraft_common::TokenId;
use foredraft_engine::{Completion, EngineError, Event, Listener, TokenLogprob};
use tokio::sync::mpsc::UnboundedSender;

use crate::metrics::Metrics;

/// An emitted token.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    pub(crate) token: TokenId,
    /// Where it was asked for.
    pub(crate) logprob: Option<TokenLogprob>,
}

/// What a client hears of an answer.
#[derive(Debug)]
pub(crate) enum Message {
    /// More of it; only for streams.
    Piece {
        /// Whole characters.
        text: String,
        /// The tokens since the last piece.
        tokens: Vec<Emitted>,
    },
    /// Its end.
    End {
        /// The whole answer, or why there is none.
        result: Result<Completion, EngineError>,
        /// Tokens after the last piece.
        tokens: Vec<Emitted>,
        /// It was cancelled because too many pieces waited to be read.
        overflowed: bool,
        /// When its first token was chosen.
        first_token: Option<Instant>,
    },
}

/// The listener of one answer.
pub(crate) struct AnswerListener {
    /// Which of the answers to the request.
    choice: usize,
    messages: UnboundedSender<(usize, Message)>,
    /// Whether pieces are wanted.
    stream: bool,
    /// Pieces of the whole request that wait to be read, and how many may.
    waiting: Arc<AtomicUsize>,
    most_waiting: usize,
    overflowed: bool,
    metrics: Arc<Metrics>,
    received: Instant,
    first_token: Option<Instant>,
    last_step: Option<Instant>,
    tokens: Vec<Emitted>,
}

/// Where the listeners of a request report to.
#[derive(Clone)]
pub(crate) struct Outlet {
    pub(crate) messages: UnboundedSender<(usize, Message)>,
    pub(crate) stream: bool,
    pub(crate) waiting: Arc<AtomicUsize>,
    pub(crate) most_waiting: usize,
    pub(crate) metrics: Arc<Metrics>,
    /// When the request came.
    pub(crate) received: Instant,
}

impl AnswerListener {
    pub(crate) fn new(choice: usize, outlet: Outlet) -> Self {
        let Outlet {
            messages,
            stream,
            waiting,
            most_waiting,
            metrics,
            received,
        } = outlet;
        Self {
            choice,
            messages,
            stream,
            waiting,
            most_waiting,
            overflowed: false,
            metrics,
            received,
            first_token: None,
            last_step: None,
            tokens: Vec::new(),
        }
    }

    fn token(&mut self, token: TokenId, logprob: Option<&TokenLogprob>) {
        if self.first_token.is_none() {
            let now = Instant::now();
            self.first_token = Some(now);
            let seconds = (now - self.received).as_secs_f64();
            self.metrics.time_to_first_token.observe(seconds);
        }
        if self.stream {
            let logprob = logprob.cloned();
            self.tokens.push(Emitted { token, logprob });
        }
    }

    fn piece(&mut self, text: &str) -> ControlFlow<()> {
        if !self.stream {
            return ControlFlow::Continue(());
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.most_waiting {
            self.overflowed = true;
            return ControlFlow::Break(());
        }
        let text = text.to_owned();
        let tokens = std::mem::take(&mut self.tokens);
        // Nobody is there any more: the ticket is dropped too, and ends the answer.
        let _ = self
            .messages
            .send((self.choice, Message::Piece { text, tokens }));
        ControlFlow::Continue(())
    }

    /// Tokens of a step come together: each counts as an equal part of the time since the step before.
    fn step(&mut self, emitted: usize) {
        let now = Instant::now();
        if let Some(last) = self.last_step.replace(now) {
            let seconds = (now - last).as_secs_f64() / emitted.max(1) as f64;
            (0..emitted).for_each(|_| self.metrics.inter_token_latency.observe(seconds));
        }
    }
}

impl Listener for AnswerListener {
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Token { token, logprob, .. } => self.token(token, logprob),
            Event::Text(text) => return self.piece(text),
            Event::Step(report) => self.step(report.emitted),
            Event::Warning(warning) => tracing::warn!("{warning}"),
            Event::Prefill { .. } => {}
        }
        ControlFlow::Continue(())
    }

    fn end(self: Box<Self>, result: Result<Completion, EngineError>) {
        let message = Message::End {
            result,
            tokens: self.tokens,
            overflowed: self.overflowed,
            first_token: self.first_token,
        };
        let _ = self.messages.send((self.choice, message));
    }
}
