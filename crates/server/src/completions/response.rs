//! What a completion is answered: one object, or the chunks of a stream.

use std::sync::Arc;

use foredraft_engine::{Completion as Answer, FinishReason};
use serde::Serialize;
use utoipa::ToSchema;

use crate::listener::Emitted;
use crate::logprobs::{self, CompletionLogprobs};
use crate::parameters::Common;
use crate::record::finish_name;
use crate::responses::{Head, Total};
use crate::sse::Chunks;
use crate::state::Model;

/// The answers to prompts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Completion {
    #[serde(flatten)]
    head: Head,
    /// The answers.
    choices: Vec<CompletionChoice>,
    #[serde(flatten)]
    total: Total,
}

/// One of the answers, or a part of it.
#[derive(Debug, Serialize, ToSchema)]
struct CompletionChoice {
    /// Which.
    index: usize,
    /// What the model says.
    text: String,
    /// Where they were asked for.
    #[schema(required)]
    logprobs: Option<CompletionLogprobs>,
    /// `stop` or `length`; null in a part.
    #[schema(required)]
    finish_reason: Option<&'static str>,
}

impl Completion {
    /// `echoed`: what each answer begins with.
    pub(super) fn new(
        head: Head,
        model: &Model,
        common: &Common,
        echoed: Vec<String>,
        answers: &[Answer],
    ) -> Self {
        let tokenizer = &model.tokenizer;
        let logprobs = |answer: &Answer| {
            CompletionLogprobs::new(tokenizer, &logprobs::emitted(answer), &mut 0)
        };
        let choices = answers.iter().zip(echoed).enumerate();
        let choices = choices.map(|(index, (answer, echo))| CompletionChoice {
            index,
            text: echo + &answer.text,
            logprobs: common.wants_logprobs().then(|| logprobs(answer)),
            finish_reason: Some(finish_name(answer.finish_reason)),
        });
        Self {
            head,
            choices: choices.collect(),
            total: Total::new(common, answers),
        }
    }
}

/// Makes the choices of a stream's chunks.
pub(super) struct CompletionChunks {
    model: Arc<Model>,
    wants_logprobs: bool,
    /// What each answer begins with.
    echoed: Vec<String>,
    /// Characters of each answer so far.
    offsets: Vec<usize>,
}

impl CompletionChunks {
    pub(super) fn new(model: Arc<Model>, wants_logprobs: bool, echoed: Vec<String>) -> Self {
        Self {
            model,
            wants_logprobs,
            offsets: vec![0; echoed.len()],
            echoed,
        }
    }

    fn logprobs(&mut self, index: usize, tokens: &[Emitted]) -> Option<CompletionLogprobs> {
        let offset = self.offsets.get_mut(index)?;
        let wanted = self.wants_logprobs && !tokens.is_empty();
        wanted.then(|| CompletionLogprobs::new(&self.model.tokenizer, tokens, offset))
    }
}

impl Chunks for CompletionChunks {
    const OBJECT: &'static str = "text_completion";

    fn begin(&mut self, index: usize) -> Option<impl Serialize> {
        let echo = self.echoed.get_mut(index).map(std::mem::take)?;
        (!echo.is_empty()).then_some(CompletionChoice {
            index,
            text: echo,
            logprobs: None,
            finish_reason: None,
        })
    }

    fn piece(&mut self, index: usize, text: &str, tokens: &[Emitted]) -> impl Serialize {
        CompletionChoice {
            index,
            text: text.to_owned(),
            logprobs: self.logprobs(index, tokens),
            finish_reason: None,
        }
    }

    fn end(&mut self, index: usize, finish: FinishReason, tokens: &[Emitted]) -> impl Serialize {
        CompletionChoice {
            index,
            text: String::new(),
            logprobs: self.logprobs(index, tokens),
            finish_reason: Some(finish_name(finish)),
        }
    }
}
