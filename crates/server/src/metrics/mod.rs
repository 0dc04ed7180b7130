//! Prometheus metrics, in the OpenMetrics text format.
//!
//! A metric that vLLM has too carries vLLM's name, `vllm:` and all, so that the dashboards made for it work; what only this
//! server has begins with `foredraft_`. What requests did is counted here, as they go; what the engine does is asked of
//! it when somebody looks (`engine.rs`).

mod engine;

use std::sync::Arc;

use foredraft_engine::Completion;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::state::Model;
use engine::EngineCollector;

/// The content type of the format.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets, in seconds: vLLM's.
const FIRST_TOKEN_SECONDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_SECONDS: [f64; 21] = [
    0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0,
];
const REQUEST_SECONDS: [f64; 18] = [
    0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 240.0,
    480.0,
];
/// The same in tokens.
const TOKENS: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FinishLabel {
    finished_reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: u16,
}

/// What requests did, counted since the start.
pub(crate) struct Metrics {
    registry: Registry,
    engine: Arc<EngineCollector>,
    /// From a request to the first token of an answer.
    pub(crate) time_to_first_token: Histogram,
    /// Between the tokens of an answer.
    pub(crate) inter_token_latency: Histogram,
    /// From a request to the end of its last answer.
    pub(crate) end_to_end: Histogram,
    time_per_output_token: Histogram,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    finished: Family<FinishLabel, Counter>,
    responses: Family<StatusLabel, Counter>,
}

impl Metrics {
    /// For a model of this name, which becomes a label of every metric.
    pub(crate) fn new(model_name: &str) -> Self {
        let mut registry = Registry::default();
        let label = ("model_name".into(), model_name.to_owned().into());
        let all = registry.sub_registry_with_label(label);
        let engine = Arc::new(EngineCollector::default());
        all.register_collector(Box::new(Arc::clone(&engine)));
        Self {
            engine,
            time_to_first_token: seconds(
                all,
                "vllm:time_to_first_token",
                "From a request to the first token of an answer",
                &FIRST_TOKEN_SECONDS,
            ),
            inter_token_latency: seconds(
                all,
                "vllm:inter_token_latency",
                "Between the tokens of an answer; tokens of one step share its time",
                &TOKEN_SECONDS,
            ),
            end_to_end: seconds(
                all,
                "vllm:e2e_request_latency",
                "From a request to the end of its last answer",
                &REQUEST_SECONDS,
            ),
            time_per_output_token: seconds(
                all,
                "vllm:request_time_per_output_token",
                "Of each answer the mean time of a token after the first",
                &TOKEN_SECONDS,
            ),
            request_prompt_tokens: register(
                all,
                "vllm:request_prompt_tokens",
                "Tokens of the prompt of each answer",
                Histogram::new(TOKENS),
            ),
            request_generation_tokens: register(
                all,
                "vllm:request_generation_tokens",
                "Tokens of each answer",
                Histogram::new(TOKENS),
            ),
            finished: register(
                all,
                "vllm:request_success",
                "Answers by how they ended: stop, length, abort (the client left), error",
                Family::default(),
            ),
            responses: register(
                all,
                "foredraft_http_responses",
                "Responses by status",
                Family::default(),
            ),
            registry,
        }
    }

    /// An answer has ended by itself.
    pub(crate) fn answer_finished(&self, completion: &Completion, finished_reason: &'static str) {
        self.answer_cut(finished_reason);
        let usage = &completion.usage;
        let (prompt, said) = (usage.prompt_tokens, usage.completion_tokens);
        self.request_prompt_tokens.observe(prompt as f64);
        self.request_generation_tokens.observe(said as f64);
    }

    /// An answer has ended; of one that was cut nothing else is known.
    pub(crate) fn answer_cut(&self, finished_reason: &'static str) {
        let label = FinishLabel { finished_reason };
        self.finished.get_or_create(&label).inc();
    }

    /// The tokens of an answer after the first took so long.
    pub(crate) fn answer_pace(&self, seconds: f64, tokens: usize) {
        if tokens > 0 {
            self.time_per_output_token.observe(seconds / tokens as f64);
        }
    }

    /// A response was sent (or began to be).
    pub(crate) fn response(&self, status: u16) {
        self.responses.get_or_create(&StatusLabel { status }).inc();
    }

    /// From now on the engine's own figures are shown too.
    pub(crate) fn set_model(&self, model: &Arc<Model>) {
        self.engine.set(model);
    }

    /// All of them as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail; were it to, what is there is shown.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// A histogram of times; the format appends `_seconds` to the name.
fn seconds(registry: &mut Registry, name: &str, help: &str, bounds: &[f64]) -> Histogram {
    let histogram = Histogram::new(bounds.iter().copied());
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}
