//! `/tokenize` and `/detokenize`: texts and tokens, as the model reads them.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State as Shared;
use axum::http::Request;
use foredraft_common::TokenId;
use foredraft_text::{Detokenizer, Special, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::blocking::blocking;
use crate::body;
use crate::chat::{ChatParameters, MessageSchema};
use crate::error::ApiError;
use crate::prompt::check_ids;
use crate::responses::BodyErrors;
use crate::state::{Model, State};

/// A text, or a conversation.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct TokenizeRequest {
    /// The model.
    model: Option<String>,
    /// A text; names of special tokens in it are special.
    prompt: Option<String>,
    /// A conversation, through the model's chat template.
    #[schema(value_type = Option<Vec<MessageSchema>>, min_items = 1)]
    messages: Option<Value>,
    /// Begin a text with the token that the model wants there, if any. Default true.
    add_special_tokens: Option<bool>,
    /// Name the tokens too.
    return_token_strs: Option<bool>,
}

/// Tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenizeResponse {
    /// How many.
    count: usize,
    /// How many the context holds.
    max_model_len: usize,
    /// Their ids.
    tokens: Vec<u32>,
    /// Their names, where they were asked for.
    #[schema(required)]
    token_strs: Option<Vec<String>>,
}

/// Tokens.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DetokenizeRequest {
    /// The model.
    model: Option<String>,
    /// Their ids.
    tokens: Vec<u32>,
}

/// A text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DetokenizeResponse {
    /// The text.
    prompt: String,
}

/// Split a text into tokens
///
/// The tokens that the model would read for a text or a conversation.
#[utoipa::path(
    post,
    path = "/tokenize",
    tag = "Tokens",
    request_body = TokenizeRequest,
    responses((status = 200, description = "The tokens", body = TokenizeResponse), BodyErrors)
)]
pub(crate) async fn tokenize(
    Shared(state): Shared<Arc<State>>,
    request: Request<Body>,
) -> Result<Json<TokenizeResponse>, ApiError> {
    let model = Arc::clone(state.model()?);
    let bytes = body::read(request, &state.options.limits).await?;
    blocking(move || tokens(&bytes, &state, &model).map(Json)).await?
}

fn tokens(bytes: &[u8], state: &State, model: &Model) -> Result<TokenizeResponse, ApiError> {
    let body = body::object(bytes)?;
    let request: TokenizeRequest = body::fields(&body)?;
    state.check_name(request.model.as_deref())?;
    let tokenizer = &model.tokenizer;
    let prefixed = request.add_special_tokens.unwrap_or(true);
    let tokens = match (request.prompt, request.messages) {
        (Some(text), None) if prefixed => tokenizer.encode_prompt(&text, Special::Parse)?,
        (Some(text), None) => tokenizer.encode(&text, Special::Parse)?,
        (None, Some(_)) => {
            let chat: ChatParameters = body::fields(&body)?;
            tokenizer.encode_chat(&chat.conversation()?)?
        }
        _ => {
            return Err(ApiError::invalid(
                "prompt",
                "give either a prompt or messages",
            ));
        }
    };
    let names = request.return_token_strs.unwrap_or(false);
    let name = |id: &TokenId| tokenizer.token_text(*id).to_owned();
    Ok(TokenizeResponse {
        count: tokens.len(),
        max_model_len: model.context_tokens,
        token_strs: names.then(|| tokens.iter().map(name).collect()),
        tokens: tokens.iter().map(|id| id.0).collect(),
    })
}

/// Join tokens to a text
///
/// The text of tokens; control tokens are no text, so that the tokens of a text give the text.
#[utoipa::path(
    post,
    path = "/detokenize",
    tag = "Tokens",
    request_body = DetokenizeRequest,
    responses((status = 200, description = "The text", body = DetokenizeResponse), BodyErrors)
)]
pub(crate) async fn detokenize(
    Shared(state): Shared<Arc<State>>,
    request: Request<Body>,
) -> Result<Json<DetokenizeResponse>, ApiError> {
    let model = Arc::clone(state.model()?);
    let bytes = body::read(request, &state.options.limits).await?;
    let join = move || {
        let request: DetokenizeRequest = body::fields(&body::object(&bytes)?)?;
        state.check_name(request.model.as_deref())?;
        let tokens: Vec<TokenId> = request.tokens.into_iter().map(TokenId).collect();
        check_ids(&tokens, &model, "tokens")?;
        let prompt = text(&model.tokenizer, &tokens);
        Ok(Json(DetokenizeResponse { prompt }))
    };
    blocking(join).await?
}

/// The text of tokens from its beginning; control tokens are left out.
pub(crate) fn text(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer);
    let mut text = String::new();
    for &token in tokens {
        text.push_str(detokenizer.push(token));
    }
    text + &detokenizer.finish()
}
