//! Errors in the shape that OpenAI's clients read: `{"error": {"message", "type", "param", "code"}}`.
//!
//! Every answer that is no success has this shape, those of unknown paths, wrong methods and panics included. The
//! message says what was wrong, where, and what to do.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use foredraft_engine::{EngineError, Refusal};
use foredraft_speculate::SettingsError;
use foredraft_text::TextError;
use serde::Serialize;
use utoipa::ToSchema;

/// Seconds after which a refused client may try again: a place in the queue is free within moments.
const RETRY_FULL_SECONDS: u64 = 1;
/// The same while the model is loading, or the server ends and another takes its place.
const RETRY_UNAVAILABLE_SECONDS: u64 = 5;

/// The body of every answer that is no success.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What went wrong.
    pub(crate) error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// For people.
    pub(crate) message: String,
    /// `invalid_request_error`, `rate_limit_error` or `server_error`.
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    /// The field that was wrong, as a path into the request: `messages[0].content`.
    #[schema(required)]
    pub(crate) param: Option<String>,
    /// For programs.
    #[schema(required)]
    pub(crate) code: Option<&'static str>,
}

/// An answer that is no success.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) detail: Box<ErrorDetail>,
    retry_after_seconds: Option<u64>,
    logged: bool,
}

impl ApiError {
    fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        Self {
            status,
            detail: Box::new(ErrorDetail {
                message: message.into(),
                kind,
                param: None,
                code,
            }),
            retry_after_seconds: None,
            logged: false,
        }
    }

    /// The log has it already.
    pub(crate) fn logged(mut self) -> Self {
        self.logged = true;
        self
    }

    /// Whether the log has it already.
    pub(crate) fn is_logged(&self) -> bool {
        self.logged
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Names the field that was wrong.
    pub(crate) fn at(mut self, param: impl Into<String>) -> Self {
        self.detail.param = Some(param.into());
        self
    }

    /// With a code for programs.
    pub(crate) fn code(mut self, code: &'static str) -> Self {
        self.detail.code = Some(code);
        self
    }

    /// 400: a request that cannot be understood as a whole.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, None, message)
    }

    /// 400: a field that is wrong.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad_request(message).at(param).code("invalid_value")
    }

    /// 400: a field that this version does not know how to serve.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::bad_request(message)
            .at(param)
            .code("unsupported_parameter")
    }

    /// 401: no key, or a wrong one.
    pub(crate) fn unauthorized(message: &str) -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            Some("invalid_api_key"),
            message.to_owned(),
        )
    }

    /// 404: a path that nothing is at.
    pub(crate) fn unknown_path(path: &str) -> Self {
        let message = format!("there is nothing at {path}; /openapi.json lists what there is");
        Self::new(StatusCode::NOT_FOUND, Some("unknown_url"), message)
    }

    /// 404: a model that is not served here.
    pub(crate) fn unknown_model(asked: &str, served: &str) -> Self {
        let message = format!("the model '{asked}' is not served here; this server has '{served}'");
        Self::new(StatusCode::NOT_FOUND, Some("model_not_found"), message).at("model")
    }

    /// 405: a method that a path does not have.
    pub(crate) fn method_not_allowed(method: &str, path: &str) -> Self {
        let message =
            format!("{path} does not answer {method}; the Allow header names what it does");
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            Some("method_not_allowed"),
            message,
        )
    }

    /// 408: a body that did not arrive in time.
    pub(crate) fn body_timeout(seconds: u64) -> Self {
        let message = format!("the request's body did not arrive within {seconds} s");
        Self::new(StatusCode::REQUEST_TIMEOUT, Some("body_timeout"), message)
    }

    /// 413: a body that is too long.
    pub(crate) fn body_too_large(limit_bytes: usize) -> Self {
        let message = format!(
            "the request's body is longer than {limit_bytes} bytes, the limit of this server (--max-body)"
        );
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            Some("request_too_large"),
            message,
        )
    }

    /// 415: a body that is not declared as JSON.
    pub(crate) fn not_json() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Some("unsupported_media_type"),
            "the body must be JSON: send the header Content-Type: application/json",
        )
    }

    /// 500: a panic, of which the log has the words.
    pub(crate) fn defect() -> Self {
        Self::internal("the server failed at this request; its log says more")
    }

    /// 500: a fault of this program.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Some("internal_error"),
            message,
        )
    }

    /// 503: the model is not there yet.
    pub(crate) fn loading() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            Some("model_loading"),
            "the model is still loading: try again in a moment, or wait until /ready says 200",
        )
        .retry_after(RETRY_UNAVAILABLE_SECONDS)
    }

    /// 503: the server ends.
    pub(crate) fn stopping() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            Some("shutting_down"),
            "the server is shutting down",
        )
        .retry_after(RETRY_UNAVAILABLE_SECONDS)
    }

    /// 503: the answer took longer than a request may take.
    pub(crate) fn answer_timeout(seconds: u64) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            Some("request_timeout"),
            format!(
                "the answer was not finished within {seconds} s, the limit of this server (--request-timeout): ask for fewer tokens, or stream"
            ),
        )
        .retry_after(RETRY_UNAVAILABLE_SECONDS)
    }

    /// 503, in a stream only: its reader was too slow.
    pub(crate) fn slow_reader(limit: usize) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            Some("slow_reader"),
            format!(
                "{limit} pieces of the answer waited to be read, the limit of this server (--stream-buffer): read faster"
            ),
        )
    }

    /// 400: a prompt that leaves no room for an answer.
    pub(crate) fn prompt_too_long(prompt: usize, context: usize) -> Self {
        Self::bad_request(format!(
            "This model's maximum context length is {context} tokens, prompt and answer together; the prompt has {prompt} tokens. Shorten the prompt."
        ))
        .code("context_length_exceeded")
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full { .. } => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                Some("queue_full"),
                refusal.to_string(),
            )
            .retry_after(RETRY_FULL_SECONDS),
            Refusal::Stopping => Self::stopping(),
        }
    }
}

impl From<SettingsError> for ApiError {
    fn from(error: SettingsError) -> Self {
        // The API calls one field by another name.
        let name = |field: &'static str| match field {
            "repeat_penalty" => "repetition_penalty",
            field => field,
        };
        match error {
            SettingsError::OutOfRange {
                field,
                value,
                minimum,
                maximum,
            } => {
                let field = name(field);
                let error = SettingsError::OutOfRange {
                    field,
                    value,
                    minimum,
                    maximum,
                };
                Self::invalid(field, error.to_string())
            }
            SettingsError::BiasOutOfRange { .. }
            | SettingsError::RepeatedBias { .. }
            | SettingsError::BiasBeyondVocabulary { .. } => {
                Self::invalid("logit_bias", error.to_string())
            }
        }
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        match error {
            // The crate's own message speaks of the command line.
            TextError::NoTemplate => Self::bad_request(
                "this model has no chat template, so it knows no messages: use /v1/completions",
            )
            .at("messages")
            .code("no_chat_template"),
            TextError::StopString(_) => Self::invalid("stop", error.to_string()),
            // What a template or a vocabulary cannot do with a request, the request asked for.
            error => Self::bad_request(error.to_string()),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Settings(error) => error.into(),
            EngineError::Text(error) => error.into(),
            EngineError::EmptyPrompt => Self::invalid("prompt", error.to_string()),
            EngineError::PromptTooLong { prompt, context } => {
                Self::prompt_too_long(prompt, context)
            }
            EngineError::DraftNodes { asked, reserved } => Self::invalid(
                "speculation.draft_max",
                format!(
                    "a step of {asked} drafted tokens is more than the {reserved} that this server has room for (--draft-max)"
                ),
            ),
            // What a panic said is for the log.
            EngineError::Panicked { message } => {
                tracing::error!("an answer panicked: {message}");
                Self::defect()
            }
            error => Self::internal(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = Box::clone(&self.detail);
        let mut response = (self.status, Json(ErrorBody { error: *error })).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // For the log.
        response.extensions_mut().insert(self);
        response
    }
}
