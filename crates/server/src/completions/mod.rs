//! `/v1/completions`: texts, continued by the model, or filled in before a suffix.

mod infill;
mod prompt;
mod response;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::answers::Answers;
use crate::blocking::blocking;
use crate::body;
use crate::error::ApiError;
use crate::logprobs::MAX_TOP;
use crate::parameters::{Common, Parameters, refuse_later};
use crate::prompt::{check, check_choices};
use crate::record::Record;
use crate::request_id::RequestId;
use crate::responses::{GenerationErrors, Head};
use crate::sse;
use crate::state::{Model, State};
use prompt::{Prompt, ReadPrompt};
use response::{Completion, CompletionChunks};

/// OpenAI's default for the tokens of a completion.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Fields of a completion, beside those that chats have too.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CompletionParameters {
    /// What to continue.
    prompt: Prompt,
    /// What follows after the answer; for models that were trained to fill in.
    suffix: Option<String>,
    /// Begin each answer with its prompt.
    echo: Option<bool>,
    /// Tell the log probability of every token, and those of this many of the likeliest in its place.
    #[schema(minimum = 0, maximum = 20)]
    logprobs: Option<u32>,
    /// As many as `n`: all answers are returned.
    #[schema(minimum = 1)]
    best_of: Option<u32>,
}

/// The fields of a request. For the description only: the parts are read one by one, which keeps the names of fields in errors.
#[derive(Deserialize, ToSchema)]
#[allow(dead_code)]
struct CompletionRequest {
    #[serde(flatten)]
    own: CompletionParameters,
    #[serde(flatten)]
    shared: Parameters,
}

impl CompletionParameters {
    /// # Errors
    /// 400 for what this version does not do.
    fn check(&self, n: u32) -> Result<(), ApiError> {
        if let Some(top) = self.logprobs {
            if top > MAX_TOP {
                let message = format!("logprobs is {top}; it must lie between 0 and {MAX_TOP}");
                return Err(ApiError::invalid("logprobs", message));
            }
            if self.echo == Some(true) {
                let message = "log probabilities of prompts are not in this version: leave out echo or logprobs";
                return Err(ApiError::unsupported("echo", message));
            }
        }
        match self.best_of {
            Some(best) if best != n => {
                let message = format!(
                    "best_of is {best} and n is {n}: this server returns all answers that it makes, so give n alone"
                );
                Err(ApiError::unsupported("best_of", message))
            }
            _ => Ok(()),
        }
    }
}

/// Continue texts
///
/// The model continues each prompt, `n` times; the answers to the first prompt come first. With `stream` the answers come
/// as server-sent events of chunks, the last of which is `[DONE]`.
#[utoipa::path(
    post,
    path = "/v1/completions",
    tag = "Answers",
    request_body = CompletionRequest,
    responses(
        (status = 200, description = "The answers", content(
            (Completion = "application/json"),
            // Of events no schema can say more than that they come.
            (serde_json::Value = "text/event-stream"),
        )),
        GenerationErrors
    )
)]
pub(crate) async fn completions(
    Shared(state): Shared<Arc<State>>,
    Extension(id): Extension<RequestId>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let record = Record::new(&state, id.to_string());
    let model = Arc::clone(state.model()?);
    let bytes = body::read(request, &state.options.limits).await?;
    let (own_state, own_model) = (Arc::clone(&state), Arc::clone(&model));
    let read = blocking(move || read(&bytes, &own_state, &own_model)).await?;
    let (common, prompts) = read?;
    let mut requests = Vec::new();
    let mut echoed = Vec::new();
    for prompt in prompts {
        requests.extend(common.requests(prompt.tokens));
        echoed.resize(requests.len(), prompt.echo);
    }
    let answers = Answers::submit(&state, &model, requests, common.stream, record)?;
    let head = Head::new("text_completion", "cmpl", &id, &state, &model);
    if common.stream {
        let chunks = CompletionChunks::new(model, common.wants_logprobs(), echoed);
        return Ok(sse::response(answers, chunks, head, common));
    }
    let completions = answers.all().await?;
    let response = Completion::new(head, &model, &common, echoed, &completions);
    Ok(Json(response).into_response())
}

/// What a request asks for, and its prompts.
///
/// # Errors
/// 400, naming the field; 404 for another model.
fn read(bytes: &[u8], state: &State, model: &Model) -> Result<(Common, Vec<ReadPrompt>), ApiError> {
    let body = body::object(bytes)?;
    refuse_later(&body)?;
    let shared: Parameters = body::fields(&body)?;
    let own: CompletionParameters = body::fields(&body)?;
    drop(body);
    state.check_name(shared.model.as_deref())?;
    let defaults = &state.options.defaults;
    let max_tokens = shared.max_tokens().or(defaults.max_tokens);
    let max_tokens = Some(max_tokens.unwrap_or(DEFAULT_MAX_TOKENS));
    let logprobs = own.logprobs.map(|top| top as usize);
    let common = shared.resolve(defaults, model, max_tokens, logprobs)?;
    own.check(common.n)?;
    let choices = own.prompt.len().saturating_mul(common.n as usize);
    check_choices(choices, &state.options.limits)?;
    let echo = own.echo.unwrap_or(false);
    let prompts = own.prompt.read(own.suffix.as_deref(), echo, model)?;
    for prompt in &prompts {
        check(&prompt.tokens, model, "prompt")?;
    }
    Ok((common, prompts))
}
