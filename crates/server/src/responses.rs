//! What all responses have in common: their head, their totals, and the ways in which a request can be refused.

use std::collections::BTreeMap;

use foredraft_engine::Completion;
use serde::Serialize;
use utoipa::openapi::{
    ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Type,
};
use utoipa::{IntoResponses, ToSchema};

use crate::parameters::Common;
use crate::request_id::RequestId;
use crate::speculation::SpeculationReport;
use crate::state::{Model, State, unix_seconds};
use crate::usage::Usage;

/// What a response begins with.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Head {
    /// Names the request.
    id: String,
    /// What kind of object this is.
    object: &'static str,
    /// In seconds since 1970.
    created: u64,
    /// The model's own name.
    model: String,
    /// Names the weights and settings: where it is equal, the same seed gives the same text.
    system_fingerprint: String,
}

impl Head {
    /// Of an object of this kind, whose ids begin with `prefix`.
    pub(crate) fn new(
        object: &'static str,
        prefix: &str,
        id: &RequestId,
        state: &State,
        model: &Model,
    ) -> Self {
        Self {
            id: format!("{prefix}-{id}"),
            object,
            created: unix_seconds(),
            model: state.options.name().to_owned(),
            system_fingerprint: model.fingerprint.clone(),
        }
    }

    /// The same, of another kind of object.
    pub(crate) fn of(self, object: &'static str) -> Self {
        Self { object, ..self }
    }
}

/// What is known when all answers have ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Total {
    /// Tokens counted.
    pub(crate) usage: Usage,
    /// The seed of all answers: given with the next request, it repeats them. (With drafts, an answer that had no seed is
    /// repeated with `speculation.verify` set to the rule that it tells.)
    pub(crate) seed: u64,
    /// What drafting did.
    pub(crate) speculation: SpeculationReport,
}

impl Total {
    /// Of these answers, in order.
    pub(crate) fn new(common: &Common, completions: &[Completion]) -> Self {
        Self {
            usage: Usage::new(completions, common.n),
            seed: common.seed,
            speculation: SpeculationReport::new(completions),
        }
    }
}

type Responses = BTreeMap<String, RefOr<Response>>;

/// What any request to a path that asks for a key can be answered.
pub(crate) struct CommonErrors;

impl IntoResponses for CommonErrors {
    fn responses() -> Responses {
        errors(&[
            (401, "No API key was given, or a wrong one"),
            (500, "A fault of the server"),
        ])
    }
}

/// What a request about the model can be answered besides.
pub(crate) struct ModelErrors;

impl IntoResponses for ModelErrors {
    fn responses() -> Responses {
        let mut all = CommonErrors::responses();
        all.extend(errors(&[(
            503,
            "The model is loading, or the server is shutting down",
        )]));
        all
    }
}

/// What a request with a body can be answered besides.
pub(crate) struct BodyErrors;

impl IntoResponses for BodyErrors {
    fn responses() -> Responses {
        let mut all = CommonErrors::responses();
        all.extend(errors(&[
            (400, "The request cannot be served as it is"),
            (404, "The model is not served here"),
            (408, "The body did not arrive in time"),
            (413, "The body is too long"),
            (415, "The body is not declared as JSON"),
            (503, "The model is loading, or the server is shutting down"),
        ]));
        all
    }
}

/// What a request for answers can be answered besides.
pub(crate) struct GenerationErrors;

impl IntoResponses for GenerationErrors {
    fn responses() -> Responses {
        let mut all = BodyErrors::responses();
        all.extend(errors(&[
            (429, "The queue is full"),
            (
                503,
                "The model is loading, the server is shutting down, or the answer took too long",
            ),
        ]));
        all
    }
}

fn errors(statuses: &[(u16, &str)]) -> Responses {
    let response = |&(status, description): &(u16, &str)| {
        let schema = Ref::from_schema_name("ErrorBody");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let mut response = ResponseBuilder::new()
            .description(description)
            .content("application/json", content);
        if let 429 | 503 = status {
            let seconds = ObjectBuilder::new().schema_type(Type::Integer);
            let header = HeaderBuilder::new()
                .schema(Some(seconds))
                .description(Some("Seconds after which another try makes sense"));
            response = response.header("Retry-After", header.build());
        }
        (status.to_string(), RefOr::T(response.build()))
    };
    statuses.iter().map(response).collect()
}
