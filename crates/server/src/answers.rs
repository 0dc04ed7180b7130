//! The answers to one request, from the engine's queue to their ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use foredraft_engine::{Completion, FinishReason, Request, Ticket};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::error::ApiError;
use crate::listener::{AnswerListener, Emitted, Message, Outlet};
use crate::record::Record;
use crate::state::{Model, Stage, State};

/// Answers under way. Dropping them cancels what has not ended: that is how a client that leaves is noticed.
pub(crate) struct Answers {
    messages: mpsc::UnboundedReceiver<(usize, Message)>,
    waiting: Arc<AtomicUsize>,
    most_waiting: usize,
    stage: watch::Receiver<Stage>,
    deadline: Instant,
    request_timeout: Duration,
    /// How many answers there are.
    pub(crate) count: usize,
    /// Held, not read: dropping one cancels its answer.
    _tickets: Vec<Ticket>,
    record: Record,
}

/// What happens next to an answer.
#[derive(Debug)]
pub(crate) enum Next {
    /// More of it.
    Piece {
        /// Whole characters.
        text: String,
        /// The tokens since the last piece.
        tokens: Vec<Emitted>,
    },
    /// Its end.
    End {
        /// The whole answer.
        completion: Box<Completion>,
        /// Tokens after the last piece.
        tokens: Vec<Emitted>,
    },
}

impl Answers {
    /// Queues all requests, or none.
    ///
    /// # Errors
    /// 429 when the queue has no room for all of them, 503 when the service is stopping.
    pub(crate) fn submit(
        state: &Arc<State>,
        model: &Model,
        requests: Vec<Request>,
        stream: bool,
        mut record: Record,
    ) -> Result<Self, ApiError> {
        let limits = &state.options.limits;
        let (sender, messages) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let outlet = Outlet {
            messages: sender,
            stream,
            waiting: Arc::clone(&waiting),
            most_waiting: limits.stream_buffer,
            metrics: Arc::clone(&state.metrics),
            received: record.received(),
        };
        let count = requests.len();
        let submit = |(choice, request)| {
            let listener = AnswerListener::new(choice, outlet.clone());
            model.service.submit(request, Box::new(listener))
        };
        // At a refusal the tickets of those before it are dropped, and cancel them.
        let tickets = requests.into_iter().enumerate().map(submit);
        let tickets = tickets.collect::<Result<Vec<_>, _>>()?;
        record.submitted(count);
        Ok(Self {
            messages,
            waiting,
            most_waiting: limits.stream_buffer,
            stage: state.stage.subscribe(),
            deadline: Instant::from_std(record.received()) + limits.request_timeout,
            request_timeout: limits.request_timeout,
            count,
            _tickets: tickets,
            record,
        })
    }

    /// What happens next, and to which answer.
    ///
    /// # Errors
    /// When an answer fails, takes too long, is read too slowly, or the server's time to end has come. The request is over
    /// then.
    pub(crate) async fn next(&mut self) -> Result<(usize, Next), ApiError> {
        self.wait().await.map_err(|error| {
            self.record.failed(&error);
            error.logged()
        })
    }

    async fn wait(&mut self) -> Result<(usize, Next), ApiError> {
        loop {
            let (choice, message) = self.message().await?;
            let (result, tokens, first_token) = match message {
                Message::Warning(warning) => {
                    self.record.warn(&warning);
                    continue;
                }
                Message::Piece { text, tokens } => {
                    self.waiting.fetch_sub(1, Ordering::AcqRel);
                    return Ok((choice, Next::Piece { text, tokens }));
                }
                Message::End {
                    overflowed: true, ..
                } => return Err(ApiError::slow_reader(self.most_waiting)),
                Message::End {
                    result,
                    tokens,
                    first_token,
                    ..
                } => (result, tokens, first_token),
            };
            let completion = Box::new((*result).map_err(ApiError::from)?);
            if completion.finish_reason == FinishReason::Cancelled {
                return Err(ApiError::internal("the answer was cancelled"));
            }
            self.record.finished(&completion, first_token);
            return Ok((choice, Next::End { completion, tokens }));
        }
    }

    /// What a listener says next, unless the request's time is over before.
    async fn message(&mut self) -> Result<(usize, Message), ApiError> {
        let ending = self.stage.wait_for(|stage| *stage == Stage::Ending);
        tokio::select! {
            biased;
            // Before the messages: an answer that never pauses must end in time too.
            _ = ending => Err(ApiError::stopping()),
            () = tokio::time::sleep_until(self.deadline) => {
                Err(ApiError::answer_timeout(self.request_timeout.as_secs()))
            }
            // None: the engine's thread is gone, and took the listeners with it.
            message = self.messages.recv() => {
                message.ok_or_else(|| ApiError::internal("the engine has stopped"))
            }
        }
    }

    /// Waits for all answers, in the order of their requests.
    ///
    /// # Errors
    /// As [`Answers::next`]: one that fails ends all.
    pub(crate) async fn all(mut self) -> Result<Vec<Completion>, ApiError> {
        let mut ended: Vec<Option<Completion>> = Vec::new();
        ended.resize_with(self.count, || None);
        for _ in 0..self.count {
            loop {
                let (choice, next) = self.next().await?;
                if let Next::End { completion, .. } = next {
                    if let Some(place) = ended.get_mut(choice) {
                        *place = Some(*completion);
                    }
                    break;
                }
            }
        }
        Ok(ended.into_iter().flatten().collect())
    }
}
