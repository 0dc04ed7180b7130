//! What all routes share: the options, the model once it is loaded, how far the server is with stopping, the counts.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use foredraft_engine::Service;
use foredraft_text::Tokenizer;
use tokio::sync::watch;

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::options::ServerOptions;

/// A loaded model, as a server needs it.
pub struct Model {
    /// Answers requests.
    pub service: Service,
    /// Its vocabulary and chat template.
    pub tokenizer: Arc<Tokenizer>,
    /// Tokens of prompt and answer together.
    pub context_tokens: usize,
    /// The most tokens that a request may have drafted in a step.
    pub max_draft_nodes: usize,
    /// What reading memory reached, in bytes a second, where it was measured: a gauge beside what the passes reach.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Names the weights and settings that an answer's bits depend on: `system_fingerprint`.
    pub fingerprint: String,
}

/// How far the server is with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Requests are taken.
    Serving,
    /// No more requests are taken; those under way go on.
    Draining,
    /// Those that are still under way end now, with an error.
    Ending,
}

/// What all routes share.
pub(crate) struct State {
    pub(crate) options: ServerOptions,
    model: OnceLock<Arc<Model>>,
    pub(crate) stage: watch::Sender<Stage>,
    pub(crate) metrics: Arc<Metrics>,
    /// Requests that have asked, or are about to ask, the engine for answers.
    pub(crate) in_flight: watch::Sender<usize>,
    /// When the server started, in seconds since 1970: the creation time of the model that it lists.
    pub(crate) started: u64,
}

impl State {
    pub(crate) fn new(options: ServerOptions) -> Self {
        let model = OnceLock::new();
        Self {
            metrics: Arc::new(Metrics::new(options.name())),
            options,
            model,
            stage: watch::Sender::new(Stage::Serving),
            in_flight: watch::Sender::new(0),
            started: unix_seconds(),
        }
    }

    /// From now on requests are answered.
    pub(crate) fn set_model(&self, model: Model) {
        let model = Arc::new(model);
        self.metrics.set_model(&model);
        // A second model would be a mistake of the program; the first stays.
        let _ = self.model.set(model);
    }

    /// The model, for a new request.
    ///
    /// # Errors
    /// 503 when it is not loaded, or the server is stopping.
    pub(crate) fn model(&self) -> Result<&Arc<Model>, ApiError> {
        if *self.stage.borrow() != Stage::Serving {
            return Err(ApiError::stopping());
        }
        self.model.get().ok_or_else(ApiError::loading)
    }

    /// Checks the name that a request asks for; no name is this model's.
    ///
    /// # Errors
    /// 404 for another one.
    pub(crate) fn check_name(&self, asked: Option<&str>) -> Result<(), ApiError> {
        match asked {
            Some(asked) if !self.options.names.iter().any(|name| name == asked) => {
                let shown: String = asked.chars().take(200).collect();
                Err(ApiError::unknown_model(&shown, self.options.name()))
            }
            _ => Ok(()),
        }
    }
}

/// The time, in seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}
