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
    /// Something that the answer does not suffer from.
    Warning(String),
    /// Its end.
    End {
        /// The whole answer, or why there is none.
        result: Box<Result<Completion, EngineError>>,
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
        self.send(Message::Piece { text, tokens });
        ControlFlow::Continue(())
    }

    /// Where nobody hears it any more, the ticket is dropped too, and ends the answer.
    fn send(&self, message: Message) {
        let _ = self.messages.send((self.choice, message));
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
            // The log is written elsewhere: stderr may be slow.
            Event::Warning(warning) => self.send(Message::Warning(warning.to_owned())),
            Event::Prefill { .. } => {}
        }
        ControlFlow::Continue(())
    }

    fn end(self: Box<Self>, result: Result<Completion, EngineError>) {
        let message = Message::End {
            result: Box::new(result),
            tokens: self.tokens,
            overflowed: self.overflowed,
            first_token: self.first_token,
        };
        let _ = self.messages.send((self.choice, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foredraft_engine::TokenOrigin;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    fn listener(stream: bool) -> (AnswerListener, UnboundedReceiver<(usize, Message)>) {
        let (messages, receiver) = unbounded_channel();
        let outlet = Outlet {
            messages,
            stream,
            waiting: Arc::default(),
            most_waiting: 2,
            metrics: Arc::new(Metrics::new("m")),
            received: Instant::now(),
        };
        (AnswerListener::new(3, outlet), receiver)
    }

    fn say(listener: &mut AnswerListener, token: u32, text: &str) -> ControlFlow<()> {
        let token = Event::Token {
            token: TokenId(token),
            origin: TokenOrigin::Plain,
            logprob: None,
        };
        assert!(listener.event(token).is_continue());
        match text {
            "" => ControlFlow::Continue(()),
            text => listener.event(Event::Text(text)),
        }
    }

    #[test]
    fn tokens_come_with_the_text_that_they_complete() {
        let (mut listener, mut receiver) = listener(true);
        assert!(say(&mut listener, 1, "").is_continue());
        assert!(say(&mut listener, 2, "é").is_continue());
        let Ok((3, Message::Piece { text, tokens })) = receiver.try_recv() else {
            panic!("no piece")
        };
        let ids: Vec<u32> = tokens.iter().map(|emitted| emitted.token.0).collect();
        assert_eq!((text.as_str(), ids.as_slice()), ("é", &[1, 2][..]));
        assert!(say(&mut listener, 9, "").is_continue());
        Box::new(listener).end(Err(EngineError::EmptyPrompt));
        let Ok((3, Message::End { tokens, .. })) = receiver.try_recv() else {
            panic!("no end")
        };
        assert_eq!(tokens.len(), 1);
    }

    #[test]
    fn too_many_unread_pieces_end_the_answer() {
        let (mut listener, mut receiver) = listener(true);
        assert!(say(&mut listener, 1, "a").is_continue());
        assert!(say(&mut listener, 2, "b").is_continue());
        assert!(say(&mut listener, 3, "c").is_break());
        Box::new(listener).end(Err(EngineError::EmptyPrompt));
        let mut last = None;
        while let Ok(message) = receiver.try_recv() {
            last = Some(message);
        }
        let overflowed = |message| match message {
            Some((_, Message::End { overflowed, .. })) => overflowed,
            _ => panic!("no end"),
        };
        assert!(overflowed(last));
    }

    #[test]
    fn an_answer_that_is_not_streamed_sends_its_end_alone() {
        let (mut listener, mut receiver) = listener(false);
        for token in 0..10 {
            assert!(say(&mut listener, token, "a").is_continue());
        }
        assert!(receiver.try_recv().is_err());
        Box::new(listener).end(Err(EngineError::EmptyPrompt));
        assert!(receiver.try_recv().is_ok());
    }
}
