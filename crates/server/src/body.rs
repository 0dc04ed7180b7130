//! Reading a request's body: bounded in bytes and in time, declared as JSON, and told what is wrong with it by field.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;
use crate::options::Limits;

/// The bytes of a body that says it is JSON.
///
/// # Errors
/// 415 when it does not say so, 413 when it is too long, 408 when it does not arrive in time, 400 when it breaks off.
pub(crate) async fn read(request: Request<Body>, limits: &Limits) -> Result<Vec<u8>, ApiError> {
    if !is_json(request.headers()) {
        return Err(ApiError::not_json());
    }
    let limit = limits.body_bytes;
    let declared = request.headers().get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit as u64) {
        return Err(ApiError::body_too_large(limit));
    }
    bytes(request.into_body(), limit, limits.read_timeout).await
}

/// The JSON object that a body is. As values it takes up to some thirty times the memory of its bytes, so this is done where the
/// number of threads bounds how many there are ([`blocking`](crate::blocking::blocking)).
///
/// # Errors
/// 400 when it is none.
pub(crate) fn object(bytes: &[u8]) -> Result<Value, ApiError> {
    match serde_json::from_slice(bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(ApiError::bad_request("the body must be a JSON object")),
        Err(error) => Err(ApiError::bad_request(format!(
            "the body is not JSON: {error}"
        ))),
    }
}

async fn bytes(body: Body, limit: usize, timeout: Duration) -> Result<Vec<u8>, ApiError> {
    let collected = tokio::time::timeout(timeout, Limited::new(body, limit).collect());
    match collected.await {
        Err(_) => Err(ApiError::body_timeout(timeout.as_secs())),
        Ok(Ok(body)) => Ok(body.to_bytes().into()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(ApiError::body_too_large(limit)),
        Ok(Err(error)) => Err(ApiError::bad_request(format!(
            "the body broke off: {error}"
        ))),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let Some(kind) = kind else { return false };
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// The fields of `T` in the body; others are left to others.
///
/// # Errors
/// 400, naming the field.
pub(crate) fn fields<T: DeserializeOwned>(body: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let problem = error.into_inner();
        match path.as_str() {
            "." => ApiError::bad_request(problem.to_string()).code("invalid_value"),
            path => ApiError::invalid(path, format!("{path}: {problem}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    struct Some {
        list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        number: u32,
    }

    #[test]
    fn an_error_names_the_field() {
        let error = fields::<Some>(&json!({"list": [{"number": 1}, {"number": -1}]}));
        let error = error.expect_err("negative").detail;
        assert_eq!(error.param.as_deref(), Some("list[1].number"));
        assert!(error.message.contains("-1"), "{}", error.message);
        let error = fields::<Some>(&json!({"other": 1})).expect_err("missing");
        assert!(error.detail.message.contains("`list`"));
        let good: Some = fields(&json!({"list": [{"number": 1}], "x": 1})).expect("good");
        assert_eq!(good.list[0].number, 1);
    }

    #[test]
    fn json_is_declared() {
        let kind = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            is_json(&headers)
        };
        assert!(kind("application/json") && kind("Application/JSON; charset=utf-8"));
        assert!(kind("application/vnd.api+json"));
        assert!(!kind("text/plain") && !kind("application/x-www-form-urlencoded"));
        assert!(!is_json(&HeaderMap::new()));
    }
}
