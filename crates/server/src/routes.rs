//! Which path leads where, what every request passes on its way, and the description of it all (`/openapi.json`).
//!
//! ```text
//! connection -> request id -> panics caught -> API key -> route
//! ```

use std::any::Any;
use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::OpenApi as Description;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Keys, authorize};
use crate::error::{ApiError, ErrorBody};
use crate::request_id::RequestId;
use crate::responses::CommonErrors;
use crate::state::State;
use crate::{chat, completions, health, models, tokenize};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Foredraft",
        description = "An OpenAI-compatible server for one model. Unknown fields of requests are ignored."
    ),
    components(schemas(ErrorBody)),
    security(("api_key" = [])),
    modifiers(&ApiKey)
)]
struct Api;

struct ApiKey;

impl Modify for ApiKey {
    fn modify(&self, description: &mut Description) {
        let components = description.components.get_or_insert_default();
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("api_key", scheme);
    }
}

/// The description of this server
///
/// In OpenAPI's format.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "Server",
    responses((status = 200, description = "The description", body = Object), CommonErrors)
)]
async fn openapi(Extension(description): Extension<Arc<Description>>) -> Json<Description> {
    Json(Description::clone(&description))
}

/// All routes, and what they are.
fn parts() -> (Router<Arc<State>>, Description) {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(chat::chat_completions))
        .routes(routes!(completions::completions))
        .routes(routes!(models::list))
        .routes(routes!(models::one))
        .routes(routes!(tokenize::tokenize))
        .routes(routes!(tokenize::detokenize))
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .routes(routes!(openapi))
        .split_for_parts()
}

/// The whole service.
pub(crate) fn router(state: &Arc<State>) -> Router {
    let (router, description) = parts();
    guarded(router, description, state)
}

/// With what every request passes on its way.
fn guarded(router: Router<Arc<State>>, description: Description, state: &Arc<State>) -> Router {
    let keys = Keys::new(&state.options.api_keys);
    router
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(keys, authorize))
        .layer(Extension(Arc::new(description)))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(Arc::clone(state), named))
        .with_state(Arc::clone(state))
}

async fn nothing_here(uri: Uri) -> ApiError {
    ApiError::unknown_path(uri.path())
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::method_not_allowed(method.as_str(), uri.path())
}

/// A panic ends one request and nothing else. What it said is in the log, not in the response.
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!("a request panicked: {}", text.unwrap_or("(no text)"));
    ApiError::defect().into_response()
}

/// Names the request, counts its response, and logs it. (What the engine was asked is logged when it is over: `record.rs`.)
async fn named(Shared(state): Shared<Arc<State>>, mut request: Request, next: Next) -> Response {
    let id = RequestId::new();
    request.extensions_mut().insert(id);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    let status = response.status();
    let name = id.to_string();
    if let Ok(value) = HeaderValue::from_str(&name) {
        let header = HeaderName::from_static("x-request-id");
        response.headers_mut().insert(header, value);
    }
    state.metrics.response(status.as_u16());
    log(&name, &method, &path, status, response.extensions().get());
    response
}

fn log(id: &str, method: &Method, path: &str, status: StatusCode, error: Option<&ApiError>) {
    let status = status.as_u16();
    match error {
        Some(error) if !error.is_logged() => {
            let error = &error.detail.message;
            tracing::info!(id, %method, path, status, error, "refused");
        }
        _ => tracing::debug!(id, %method, path, status, "response"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Defaults, Limits, ServerOptions};
    use axum::body::Body;
    use tower::ServiceExt;

    /// A request that panics is answered in the shape of every error, and the next one is served.
    #[tokio::test]
    async fn a_panic_ends_one_request() {
        let state = Arc::new(State::new(ServerOptions {
            address: ([127, 0, 0, 1], 0).into(),
            names: vec!["m".into()],
            api_keys: Vec::new(),
            limits: Limits::default(),
            defaults: Defaults::default(),
        }));
        let (router, description) = parts();
        let broken = || async { panic!("a secret") as &'static str };
        let router = router.route("/broken", axum::routing::get(broken));
        let router = guarded(router, description, &state);
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).expect("a request");
            let response = router.clone().oneshot(request).await.expect("a response");
            let status = response.status();
            assert!(response.headers().contains_key("x-request-id"));
            let body = axum::body::to_bytes(response.into_body(), 1 << 20).await;
            (
                status,
                String::from_utf8(body.expect("a body").into()).expect("text"),
            )
        };
        let (status, body) = ask("/broken").await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(
            body.contains("\"internal_error\"") && !body.contains("secret"),
            "{body}"
        );
        assert_eq!(ask("/health").await.0, StatusCode::OK);
        assert_eq!(ask("/ready").await.0, StatusCode::SERVICE_UNAVAILABLE);
    }

    /// Every operation says what else than success can come, and no status twice.
    #[test]
    fn the_description_is_complete() {
        let (_, description) = parts();
        let description = serde_json::to_value(&description).expect("JSON");
        let paths = description["paths"].as_object().expect("paths");
        assert_eq!(paths.len(), 10);
        for (path, operations) in paths {
            for operation in operations.as_object().expect("operations").values() {
                let responses = operation["responses"].as_object().expect("responses");
                assert!(responses.contains_key("200"), "{path}");
                let open = operation["security"][0]
                    .as_object()
                    .is_some_and(|s| s.is_empty());
                assert_eq!(responses.contains_key("401"), !open, "{path}");
            }
        }
        let statuses = paths["/v1/chat/completions"]["post"]["responses"].as_object();
        let statuses: Vec<&str> = statuses
            .expect("responses")
            .keys()
            .map(String::as_str)
            .collect();
        let expected = [
            "200", "400", "401", "404", "408", "413", "415", "429", "500", "503",
        ];
        assert_eq!(statuses, expected);
        // Every reference leads somewhere.
        let text = description.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().expect("a name");
            assert!(
                !description["components"]["schemas"][name].is_null(),
                "{name}"
            );
        }
    }
}
