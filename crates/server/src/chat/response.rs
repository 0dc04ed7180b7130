//! What a chat is answered: one object, or the chunks of a stream.

use std::sync::Arc;

use foredraft_engine::{Completion, FinishReason};
use serde::Serialize;
use utoipa::ToSchema;

use crate::listener::Emitted;
use crate::logprobs::{self, ChatLogprobs};
use crate::parameters::Common;
use crate::record::finish_name;
use crate::responses::{Head, Total};
use crate::sse::Chunks;
use crate::state::Model;

/// The answer to a chat.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChatCompletion {
    #[serde(flatten)]
    head: Head,
    /// The answers.
    choices: Vec<ChatChoice>,
    #[serde(flatten)]
    total: Total,
}

/// One of the answers.
#[derive(Debug, Serialize, ToSchema)]
struct ChatChoice {
    /// Which.
    index: usize,
    /// What the model says.
    message: ChatMessage,
    /// Where they were asked for.
    #[schema(required)]
    logprobs: Option<ChatLogprobs>,
    /// `stop` or `length`.
    finish_reason: &'static str,
}

/// What the model says.
#[derive(Debug, Serialize, ToSchema)]
struct ChatMessage {
    /// `assistant`.
    role: &'static str,
    /// The text.
    content: String,
    /// Always null.
    #[schema(value_type = Option<String>, required)]
    refusal: (),
}

impl ChatCompletion {
    pub(super) fn new(
        head: Head,
        model: &Model,
        common: &Common,
        completions: &[Completion],
    ) -> Self {
        let tokenizer = &model.tokenizer;
        let logprobs =
            |answer: &Completion| ChatLogprobs::new(tokenizer, &logprobs::emitted(answer));
        let choice = |(index, answer): (usize, &Completion)| ChatChoice {
            index,
            message: ChatMessage {
                role: "assistant",
                content: answer.text.clone(),
                refusal: (),
            },
            logprobs: common.wants_logprobs().then(|| logprobs(answer)),
            finish_reason: finish_name(answer.finish_reason),
        };
        Self {
            head,
            choices: completions.iter().enumerate().map(choice).collect(),
            total: Total::new(common, completions),
        }
    }
}

/// A choice of a chunk.
#[derive(Debug, Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Debug, Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

/// Makes the choices of a stream's chunks.
pub(super) struct ChatChunks {
    model: Arc<Model>,
    wants_logprobs: bool,
}

impl ChatChunks {
    pub(super) fn new(model: Arc<Model>, wants_logprobs: bool) -> Self {
        Self {
            model,
            wants_logprobs,
        }
    }

    fn logprobs(&self, tokens: &[Emitted]) -> Option<ChatLogprobs> {
        let wanted = self.wants_logprobs && !tokens.is_empty();
        wanted.then(|| ChatLogprobs::new(&self.model.tokenizer, tokens))
    }
}

impl Chunks for ChatChunks {
    const OBJECT: &'static str = "chat.completion.chunk";

    fn begin(&mut self, index: usize) -> Option<impl Serialize> {
        let delta = Delta {
            role: Some("assistant"),
            content: Some(""),
        };
        Some(ChunkChoice {
            index,
            delta,
            logprobs: None,
            finish_reason: None,
        })
    }

    fn piece(&mut self, index: usize, text: &str, tokens: &[Emitted]) -> impl Serialize {
        ChunkChoice {
            index,
            delta: Delta {
                content: Some(text),
                ..Delta::default()
            },
            logprobs: self.logprobs(tokens),
            finish_reason: None,
        }
    }

    fn end(&mut self, index: usize, finish: FinishReason, tokens: &[Emitted]) -> impl Serialize {
        ChunkChoice {
            index,
            delta: Delta::default(),
            logprobs: self.logprobs(tokens),
            finish_reason: Some(finish_name(finish)),
        }
    }
}
