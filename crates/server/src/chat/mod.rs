//! `/v1/chat/completions`: a conversation, continued by the model.

mod messages;
mod response;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use foredraft_common::TokenId;
use foredraft_text::ChatRequest;
use serde::Deserialize;
use serde_json::{Map, Value};
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
pub(crate) use messages::MessageSchema;
use response::{ChatChunks, ChatCompletion};

/// Fields of a chat, beside those that completions have too.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct ChatParameters {
    /// The conversation.
    #[schema(value_type = Vec<MessageSchema>, min_items = 1)]
    messages: Value,
    /// The most tokens of an answer; `max_tokens` is its older name. Default: as many as the context holds.
    #[schema(minimum = 1)]
    max_completion_tokens: Option<usize>,
    /// Tell the log probability of every token.
    logprobs: Option<bool>,
    /// And of this many of the likeliest tokens in its place.
    #[schema(minimum = 0, maximum = 20)]
    top_logprobs: Option<u32>,
    /// More variables for the model's chat template, such as `enable_thinking`.
    chat_template_kwargs: Option<Map<String, Value>>,
    /// The form of the answer: `{"type": "text"}`; others come in a later version.
    #[schema(value_type = Option<ResponseFormat>)]
    #[serde(rename = "response_format")]
    _response_format: Option<Value>,
}

/// The form of an answer.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // for the description only
pub(crate) struct ResponseFormat {
    /// `text`.
    #[schema(pattern = "^text$")]
    r#type: String,
}

/// The fields of a request. For the description only: the parts are read one by one, which keeps the names of fields in errors.
#[derive(Deserialize, ToSchema)]
#[allow(dead_code)]
struct ChatCompletionRequest {
    #[serde(flatten)]
    own: ChatParameters,
    #[serde(flatten)]
    shared: Parameters,
}

impl ChatParameters {
    fn logprobs(&self) -> Result<Option<usize>, ApiError> {
        let top = self.top_logprobs;
        match (self.logprobs.unwrap_or(false), top) {
            (false, Some(1..)) => Err(ApiError::invalid(
                "top_logprobs",
                "top_logprobs needs logprobs: set logprobs to true",
            )),
            (false, _) => Ok(None),
            (true, top) => match top.unwrap_or(0) {
                top @ 0..=MAX_TOP => Ok(Some(top as usize)),
                top => Err(ApiError::invalid(
                    "top_logprobs",
                    format!("top_logprobs is {top}; it must lie between 0 and {MAX_TOP}"),
                )),
            },
        }
    }

    /// What the chat template is rendered with.
    ///
    /// # Errors
    /// 400, naming the message that is none.
    pub(crate) fn conversation(&self) -> Result<ChatRequest, ApiError> {
        Ok(ChatRequest {
            extra: self.chat_template_kwargs.clone().unwrap_or_default(),
            ..ChatRequest::new(messages::read(&self.messages)?)
        })
    }
}

/// Answer a conversation
///
/// The model continues the conversation, `n` times. With `stream` the answer comes as server-sent events of chunks, the last
/// of which is `[DONE]`.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    tag = "Answers",
    request_body = ChatCompletionRequest,
    responses(
        (status = 200, description = "The answer", content(
            (ChatCompletion = "application/json"),
            // Of events no schema can say more than that they come.
            (serde_json::Value = "text/event-stream"),
        )),
        GenerationErrors
    )
)]
pub(crate) async fn chat_completions(
    Shared(state): Shared<Arc<State>>,
    Extension(id): Extension<RequestId>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let record = Record::new(&state, id.to_string());
    let model = Arc::clone(state.model()?);
    let bytes = body::read(request, &state.options.limits).await?;
    let (own_state, own_model) = (Arc::clone(&state), Arc::clone(&model));
    let read = blocking(move || read(&bytes, &own_state, &own_model)).await?;
    let (common, prompt) = read?;
    let requests = common.requests(prompt).collect();
    let answers = Answers::submit(&state, &model, requests, common.stream, record)?;
    let head = Head::new("chat.completion", "chatcmpl", &id, &state, &model);
    if common.stream {
        let chunks = ChatChunks::new(model, common.wants_logprobs());
        return Ok(sse::response(answers, chunks, head, common));
    }
    let completions = answers.all().await?;
    let response = ChatCompletion::new(head, &model, &common, &completions);
    Ok(Json(response).into_response())
}

/// What a request asks for, and the tokens of its prompt.
///
/// # Errors
/// 400, naming the field; 404 for another model.
fn read(bytes: &[u8], state: &State, model: &Model) -> Result<(Common, Vec<TokenId>), ApiError> {
    let body = body::object(bytes)?;
    refuse_later(&body)?;
    let shared: Parameters = body::fields(&body)?;
    let own: ChatParameters = body::fields(&body)?;
    drop(body);
    state.check_name(shared.model.as_deref())?;
    let asked = own.max_completion_tokens.or(shared.max_tokens());
    if asked == Some(0) {
        return Err(ApiError::invalid(
            "max_completion_tokens",
            "max_completion_tokens is 0; an answer has at least 1 token",
        ));
    }
    let defaults = &state.options.defaults;
    let max_tokens = asked.or(defaults.max_tokens);
    let common = shared.resolve(defaults, model, max_tokens, own.logprobs()?)?;
    check_choices(common.n as usize, &state.options.limits)?;
    let prompt = model.tokenizer.encode_chat(&own.conversation()?)?;
    check(&prompt, model, "messages")?;
    Ok((common, prompt))
}
