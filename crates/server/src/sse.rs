//! Answers as server-sent events: chunks of JSON, one for each piece of text, and `[DONE]`.
//!
//! An error that comes after the first chunk is an event with an `error`, in the shape of every other error, and ends the
//! stream. While there is nothing to tell, comments keep the connection from looking dead.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use foredraft_engine::{Completion, FinishReason};
use futures_util::stream;
use serde::Serialize;

use crate::answers::{Answers, Next};
use crate::error::{ApiError, ErrorBody};
use crate::listener::Emitted;
use crate::parameters::Common;
use crate::responses::{Head, Total};
use crate::speculation::SpeculationReport;
use crate::usage::Usage;

/// How long a stream may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Makes the choices of an endpoint's chunks.
pub(crate) trait Chunks: Send + 'static {
    /// What kind of object a chunk is.
    const OBJECT: &'static str;

    /// What answer number `index` begins with, if with anything.
    fn begin(&mut self, index: usize) -> Option<impl Serialize>;

    /// More of the answer's text, and the tokens that it came with.
    fn piece(&mut self, index: usize, text: &str, tokens: &[Emitted]) -> impl Serialize;

    /// The answer's end, and tokens that came without text.
    fn end(&mut self, index: usize, finish: FinishReason, tokens: &[Emitted]) -> impl Serialize;
}

/// A chunk: what a whole response is, for a part of one answer.
#[derive(Serialize)]
struct Chunk<'a, C> {
    #[serde(flatten)]
    head: &'a Head,
    choices: &'a [C],
    /// Where it was asked for: null, and in the last chunk the counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    /// In the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// In the last chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    speculation: Option<SpeculationReport>,
}

/// A response that streams these answers.
pub(crate) fn response(
    answers: Answers,
    chunks: impl Chunks,
    head: Head,
    common: Common,
) -> Response {
    let stream = Stream::new(answers, chunks, head, common);
    let events = stream::unfold(stream, async |mut stream| {
        let event = stream.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(event)), stream))
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        // Proxies (nginx) that would collect the answer let it through.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, Body::from_stream(events)).into_response()
}

/// A stream under way. Dropping it cancels what has not ended.
struct Stream<C> {
    /// None once all is told.
    answers: Option<Answers>,
    chunks: C,
    head: Head,
    common: Common,
    /// Of each answer that has ended.
    ended: Vec<Option<Completion>>,
    /// Made, not yet sent.
    events: VecDeque<String>,
}

impl<C: Chunks> Stream<C> {
    fn new(answers: Answers, chunks: C, head: Head, common: Common) -> Self {
        let mut ended = Vec::new();
        ended.resize_with(answers.count, || None);
        let mut stream = Self {
            answers: Some(answers),
            chunks,
            head: head.of(C::OBJECT),
            common,
            ended,
            events: VecDeque::new(),
        };
        for index in 0..stream.ended.len() {
            if let Some(choice) = stream.chunks.begin(index) {
                let event = chunk(&stream.head, &stream.common, &[choice], None);
                stream.events.push_back(event);
            }
        }
        stream
    }

    /// The next event.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let answers = self.answers.as_mut()?;
            match tokio::time::timeout(SILENCE, answers.next()).await {
                Err(_) => return Some(": nothing new\n\n".to_owned()),
                Ok(Ok((index, next))) => self.take(index, next),
                Ok(Err(error)) => self.fail(error),
            }
        }
    }

    fn take(&mut self, index: usize, next: Next) {
        let (completion, tokens) = match next {
            Next::Piece { text, tokens } => {
                let choice = self.chunks.piece(index, &text, &tokens);
                let event = chunk(&self.head, &self.common, &[choice], None);
                self.events.push_back(event);
                return;
            }
            Next::End { completion, tokens } => (completion, tokens),
        };
        let finish = completion.finish_reason;
        if let Some(place) = self.ended.get_mut(index) {
            *place = Some(*completion);
        }
        let mut total = self.total();
        let over = total.is_some();
        // With the usage, the totals come in a chunk of their own.
        let with_it = total.take_if(|_| !self.common.include_usage);
        let choice = self.chunks.end(index, finish, &tokens);
        let event = chunk(&self.head, &self.common, &[choice], with_it);
        self.events.push_back(event);
        if total.is_some() {
            let none: [(); 0] = [];
            let event = chunk(&self.head, &self.common, &none, total);
            self.events.push_back(event);
        }
        if over {
            self.finish();
        }
    }

    /// The totals, once all answers have ended.
    fn total(&mut self) -> Option<Total> {
        if self.ended.iter().any(Option::is_none) {
            return None;
        }
        let completions: Vec<Completion> = self.ended.iter_mut().filter_map(Option::take).collect();
        Some(Total::new(&self.common, &completions))
    }

    fn fail(&mut self, error: ApiError) {
        let error = ErrorBody {
            error: *error.detail,
        };
        self.events.push_back(event(&error));
        self.finish();
    }

    fn finish(&mut self) {
        self.events.push_back("data: [DONE]\n\n".to_owned());
        self.answers = None;
    }
}

fn chunk(head: &Head, common: &Common, choices: &[impl Serialize], total: Option<Total>) -> String {
    let (usage, seed, speculation) = match total {
        None => (None, None, None),
        Some(total) => (Some(total.usage), Some(total.seed), Some(total.speculation)),
    };
    event(&Chunk {
        head,
        choices,
        usage: common.include_usage.then_some(usage),
        seed,
        speculation,
    })
}

/// One event. JSON has no line breaks of its own, so it is one line.
fn event(value: &impl Serialize) -> String {
    // Nothing that is sent has keys that are no texts, the only way to fail.
    let json = serde_json::to_string(value).unwrap_or_default();
    format!("data: {json}\n\n")
}
