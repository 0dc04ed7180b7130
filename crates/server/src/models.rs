//! `/v1/models`: the one model that is served.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State as Shared};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::responses::ModelErrors;
use crate::state::{Model, State};

/// The models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    /// `list`.
    object: &'static str,
    /// One.
    data: Vec<ModelCard>,
}

/// A model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelCard {
    /// Its name.
    id: String,
    /// `model`.
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
    /// `foredraft`.
    owned_by: &'static str,
    /// Tokens of prompt and answer together.
    max_model_len: usize,
}

impl ModelCard {
    fn new(state: &State, model: &Model) -> Self {
        Self {
            id: state.options.name().to_owned(),
            object: "model",
            created: state.started,
            owned_by: "foredraft",
            max_model_len: model.context_tokens,
        }
    }
}

/// List the models
///
/// There is one.
#[utoipa::path(
    get,
    path = "/v1/models",
    tag = "Models",
    responses((status = 200, description = "The models", body = ModelList), ModelErrors)
)]
pub(crate) async fn list(Shared(state): Shared<Arc<State>>) -> Result<Json<ModelList>, ApiError> {
    let data = vec![ModelCard::new(&state, state.model()?)];
    Ok(Json(ModelList {
        object: "list",
        data,
    }))
}

/// Describe a model
///
/// By its name, or another that the server was started with.
#[utoipa::path(
    get,
    path = "/v1/models/{model}",
    tag = "Models",
    params(("model" = String, Path, description = "The name")),
    responses(
        (status = 200, description = "The model", body = ModelCard),
        (status = 400, description = "The name is no text", body = crate::error::ErrorBody),
        (status = 404, description = "It is not served here", body = crate::error::ErrorBody),
        ModelErrors
    )
)]
pub(crate) async fn one(
    Shared(state): Shared<Arc<State>>,
    name: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Json<ModelCard>, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid("model", error.body_text()))?;
    let model = state.model()?;
    state.check_name(Some(&name))?;
    Ok(Json(ModelCard::new(&state, model)))
}
