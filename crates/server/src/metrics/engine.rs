//! What the engine says of itself, asked when somebody looks. One line of [`show`] is one metric.

use std::fmt::Error;
use std::sync::{Arc, OnceLock, Weak};

use foredraft_engine::{DrafterFigures, ServiceFigures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::state::Model;

/// Asks the engine of the model, once there is one. It does not keep the model: the last request does.
#[derive(Default)]
pub(crate) struct EngineCollector(OnceLock<Weak<Model>>);

impl EngineCollector {
    pub(crate) fn set(&self, model: &Arc<Model>) {
        let _ = self.0.set(Arc::downgrade(model));
    }
}

impl std::fmt::Debug for EngineCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let model = self.0.get().and_then(Weak::upgrade);
        let figures = model.map(|model| model.service.figures());
        show(&figures.unwrap_or_default(), &mut Out(encoder))
    }
}

/// The engine's figures, each under its name.
fn show(figures: &ServiceFigures, out: &mut Out<'_>) -> Result<(), Error> {
    let ServiceFigures {
        waiting,
        running,
        engine,
    } = figures;
    let (pages, phases) = (&engine.pages, &engine.phases);
    // What answers hold and have filled the cache holds too: with it such a page has more than one holder.
    let held = (pages.used + pages.shared).saturating_sub(pages.cached);
    let used = ratio(held as f64, pages.total as f64);
    let bytes = engine.weight_bytes + engine.kv_bytes;
    for (name, help, value) in [
        (
            "vllm:num_requests_running",
            "Answers that are being made",
            *running as f64,
        ),
        (
            "vllm:num_requests_waiting",
            "Answers that wait for their turn",
            *waiting as f64,
        ),
        (
            "vllm:kv_cache_usage_perc",
            "Share of the KV pages that answers under way hold, 0 to 1",
            used,
        ),
        ("foredraft_kv_pages", "KV pages in all", pages.total as f64),
        (
            "foredraft_kv_pages_used",
            "KV pages that answers or the cache of past texts hold",
            pages.used as f64,
        ),
        (
            "foredraft_kv_pages_shared",
            "KV pages with more than one holder",
            pages.shared as f64,
        ),
        (
            "foredraft_kv_pages_cached",
            "KV pages that the cache of past texts holds",
            pages.cached as f64,
        ),
        (
            "foredraft_operations_per_byte",
            "Multiplications and additions of the linear layers for each byte of weights and KV read, since the start",
            ratio(engine.operations, bytes as f64),
        ),
        (
            "foredraft_bytes_per_step",
            "Bytes of weights and KV that a forward pass reads, on average since the start",
            ratio(bytes as f64, engine.passes as f64),
        ),
        (
            "foredraft_read_bytes_per_second",
            "Bytes of weights and KV over the seconds of the forward passes, since the start: beside the memory's bandwidth its share",
            ratio(bytes as f64, phases.forward_seconds),
        ),
        (
            "foredraft_tokens_per_step",
            "Tokens that a step emits for a sequence, on average since the start; plain decoding emits 1",
            ratio(engine.generated_tokens as f64, engine.sequence_steps as f64),
        ),
    ] {
        out.gauge(name, help, value)?;
    }
    for (name, help, value) in [
        (
            "vllm:num_preemptions",
            "Times that an answer gave up its KV pages and was put back",
            engine.preemptions,
        ),
        (
            "foredraft_kv_pages_evicted",
            "KV pages that the cache of past texts gave up",
            pages.evicted,
        ),
        (
            "foredraft_steps",
            "Forward passes of the model",
            engine.passes,
        ),
        ("foredraft_rows", "Rows of the forward passes", engine.rows),
        (
            "foredraft_prompt_rows",
            "Rows of prompts, and of texts that were computed again",
            engine.prompt_rows,
        ),
        (
            "foredraft_weight_bytes_read",
            "Bytes of weights that the forward passes read",
            engine.weight_bytes,
        ),
        (
            "foredraft_kv_bytes_read",
            "Bytes of keys and values that the forward passes read",
            engine.kv_bytes,
        ),
    ] {
        out.counter(name, help, value as f64)?;
    }
    for (name, help, value) in [
        (
            "foredraft_draft_seconds",
            "Time of the drafters",
            phases.draft_seconds,
        ),
        (
            "foredraft_forward_seconds",
            "Time of the forward passes",
            phases.forward_seconds,
        ),
        (
            "foredraft_verify_seconds",
            "Time of choosing tokens",
            phases.verify_seconds,
        ),
        (
            "foredraft_other_seconds",
            "Time of everything else in a step",
            phases.other_seconds,
        ),
    ] {
        out.counter(name, help, value)?;
    }
    let drafters = || engine.drafters.iter();
    let by_depth = |counts: fn(&DrafterFigures) -> &[u64]| {
        drafters().flat_map(move |drafter| {
            let counts = counts(drafter).iter().enumerate();
            counts.map(move |(depth, &count)| (drafter.name.as_str(), Some(depth), count))
        })
    };
    out.by_drafter(
        "foredraft_drafted",
        "Tokens that each drafter drafted, by position from 0",
        by_depth(|drafter| &drafter.drafted),
    )?;
    out.by_drafter(
        "foredraft_accepted",
        "Of these, tokens that were emitted",
        by_depth(|drafter| &drafter.accepted),
    )?;
    out.by_drafter(
        "foredraft_draft_prefix_queries",
        "Tokens of texts that each drafter had to read when it began with them",
        drafters().map(|drafter| (drafter.name.as_str(), None, drafter.prompt_tokens)),
    )?;
    out.by_drafter(
        "foredraft_draft_prefix_hits",
        "Of these, tokens whose keys and values it had already",
        drafters().map(|drafter| (drafter.name.as_str(), None, drafter.cached_prompt_tokens)),
    )
}

/// 0 where nothing was counted yet.
fn ratio(value: f64, of: f64) -> f64 {
    if of > 0.0 { value / of } else { 0.0 }
}

struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    /// A value that goes up and down.
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let gauge = ConstGauge::new(value);
        let kind = gauge.metric_type();
        gauge.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    /// A value that only grows.
    fn counter(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let counter = ConstCounter::new(value);
        let kind = counter.metric_type();
        counter.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    /// Counts of drafters, some by position.
    fn by_drafter<'d>(
        &mut self,
        name: &str,
        help: &str,
        counts: impl Iterator<Item = (&'d str, Option<usize>, u64)>,
    ) -> Result<(), Error> {
        let mut encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (drafter, position, count) in counts {
            let drafter = ("drafter", drafter);
            let counter = ConstCounter::new(count);
            match position {
                Some(position) => {
                    let labels = [drafter, ("position", &position.to_string())];
                    counter.encode(encoder.encode_family(&labels)?)?;
                }
                None => counter.encode(encoder.encode_family(&[drafter])?)?,
            }
        }
        Ok(())
    }
}
