//! `/health`, `/ready` and `/metrics`: for those who watch over servers. The first two ask for no key.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::metrics;
use crate::responses::CommonErrors;
use crate::state::State;

/// How the server is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Status {
    /// `ok`.
    status: &'static str,
}

const OK: Json<Status> = Json(Status { status: "ok" });

/// Is the server alive?
///
/// It is from its start on, also while its model loads.
#[utoipa::path(
    get,
    path = "/health",
    tag = "Server",
    security(()),
    responses((status = 200, description = "It is", body = Status))
)]
pub(crate) async fn health() -> Json<Status> {
    OK
}

/// Does the server take requests?
///
/// It does once its model is loaded, until it shuts down.
#[utoipa::path(
    get,
    path = "/ready",
    tag = "Server",
    security(()),
    responses(
        (status = 200, description = "It does", body = Status),
        (status = 503, description = "The model is loading, or the server is shutting down", body = ErrorBody),
    )
)]
pub(crate) async fn ready(Shared(state): Shared<Arc<State>>) -> Result<Json<Status>, ApiError> {
    state.model().map(|_| OK)
}

/// Metrics
///
/// In the OpenMetrics text format that Prometheus reads.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "Server",
    responses(
        (status = 200, description = "The metrics", body = String, content_type = "application/openmetrics-text"),
        CommonErrors
    )
)]
pub(crate) async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    (kind, state.metrics.text())
}
