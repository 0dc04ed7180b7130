//! API keys. They are compared by their digests in constant time, each with all of them: how long a comparison takes
//! tells nothing of a key, not even its length.

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::error::ApiError;

/// Paths that ask for no key: those that probes ask, and that tell nothing.
const OPEN: [&str; 2] = ["/health", "/ready"];

/// The keys that requests may come with.
#[derive(Clone)]
pub(crate) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(crate) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| Sha256::digest(key).into()).collect())
    }

    /// Whether a request with these headers may be served.
    ///
    /// # Errors
    /// 401 when there are keys and it has none of them.
    fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let given = headers.get(header::AUTHORIZATION).and_then(bearer);
        let Some(given) = given else {
            return Err(ApiError::unauthorized(
                "no API key was given: send the header Authorization: Bearer KEY",
            ));
        };
        let given: [u8; 32] = Sha256::digest(given).into();
        let equal = |all, key: &[u8; 32]| all | key.ct_eq(&given);
        let known = self.0.iter().fold(Choice::from(0), equal);
        match bool::from(known) {
            true => Ok(()),
            false => Err(ApiError::unauthorized("the API key is wrong")),
        }
    }
}

/// The key in `Bearer KEY`.
fn bearer(value: &axum::http::HeaderValue) -> Option<&[u8]> {
    let (scheme, key) = value.as_bytes().split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| key.trim_ascii())
}

/// Lets through what has a key, or needs none.
pub(crate) async fn authorize(
    Shared(keys): Shared<Keys>,
    request: Request,
    next: Next,
) -> Response {
    if OPEN.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    match keys.check(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn check(keys: &[&str], header: Option<&'static str>) -> bool {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        let mut headers = HeaderMap::new();
        if let Some(header) = header {
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(header));
        }
        Keys::new(&keys).check(&headers).is_ok()
    }

    #[test]
    fn any_of_the_keys_is_right_and_nothing_else() {
        assert!(check(&[], None));
        assert!(check(&["a", "b"], Some("Bearer a")));
        assert!(check(&["a", "b"], Some("bearer  b ")));
        for wrong in ["Bearer ", "Bearer c", "Bearer ab", "Basic a", "a", "Bearer"] {
            assert!(!check(&["a", "b"], Some(wrong)), "{wrong}");
        }
        assert!(!check(&["a"], None));
    }
}
