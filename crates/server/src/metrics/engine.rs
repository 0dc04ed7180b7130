//! What the engine says of itself, asked when somebody looks. [`show`] is the whole mapping: a line for each figure.

use std::fmt::Error;
use std::sync::{Arc, OnceLock, Weak};

use foredraft_engine::{DrafterFigures, EngineFigures, ServiceFigures};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
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
        let (figures, bandwidth) = match model {
            Some(model) => (model.service.figures(), model.bandwidth_bytes_per_s),
            None => (ServiceFigures::default(), None),
        };
        show(&figures, bandwidth, &mut Out(encoder))
    }
}

type Labels = [(&'static str, String); 1];

/// The figures, each under its name. (The format appends `_total` to the names of counters.)
#[rustfmt::skip] // a line for each figure
fn show(figures: &ServiceFigures, bandwidth: Option<f64>, out: &mut Out<'_>) -> Result<(), Error> {
    let EngineFigures { pages, phases, drafters, .. } = &figures.engine;
    let engine = &figures.engine;
    out.gauge("vllm:num_requests_running", "Answers that are being made", figures.running as f64)?;
    out.gauge("vllm:num_requests_waiting", "Answers that wait for their turn", figures.waiting as f64)?;
    out.counter("vllm:prompt_tokens", "Tokens of prompts", engine.prompt_tokens)?;
    out.counter("vllm:generation_tokens", "Tokens of answers", engine.generated_tokens)?;
    out.counter("vllm:num_preemptions", "Times that an answer gave up its KV pages, to be computed again", engine.preemptions)?;

    out.gauge("vllm:kv_cache_usage_perc", "Share of the KV pages that is in use, 0 to 1, texts that are kept included", ratio(pages.used as f64, pages.total as f64))?;
    out.gauges("foredraft_kv_pages", "KV pages: all; in use; held more than once; kept for texts to come", [
        (label("state", "total"), pages.total as f64),
        (label("state", "used"), pages.used as f64),
        (label("state", "shared"), pages.shared as f64),
        (label("state", "cached"), pages.cached as f64),
    ])?;
    out.counter("foredraft_kv_pages_evicted", "KV pages of past texts that were given up to make room", pages.evicted)?;
    out.counter("vllm:prefix_cache_queries", "Tokens of prompts that were looked for in the prefix cache", engine.prompt_tokens)?;
    out.counter("vllm:prefix_cache_hits", "Tokens of prompts whose keys and values were there already", engine.cached_prompt_tokens)?;

    let sum = |of: fn(&DrafterFigures) -> &Vec<u64>| drafters.iter().flat_map(of).sum::<u64>();
    out.counter("vllm:spec_decode_num_drafts", "Steps of single answers that verified drafts", engine.drafting_steps)?;
    out.counter("vllm:spec_decode_num_draft_tokens", "Tokens drafted", sum(|d| &d.drafted))?;
    out.counter("vllm:spec_decode_num_accepted_tokens", "Drafted tokens that were emitted", sum(|d| &d.accepted))?;
    out.counters("vllm:spec_decode_num_accepted_tokens_per_pos", "Drafted tokens that were emitted, by position from 0", by_position(drafters))?;
    out.counters("foredraft_drafted", "Tokens drafted, by drafter and position from 0", by_drafter(drafters, |d| &d.drafted))?;
    out.counters("foredraft_accepted", "Drafted tokens that were emitted, by drafter and position from 0", by_drafter(drafters, |d| &d.accepted))?;
    let of_drafter = |of: fn(&DrafterFigures) -> u64| drafters.iter().map(move |d| (label("drafter", &d.name), of(d)));
    out.counters("foredraft_drafter_prompt_tokens", "Tokens of prompts that a drafter had to read", of_drafter(|d| d.prompt_tokens))?;
    out.counters("foredraft_drafter_prompt_tokens_cached", "Of these, tokens whose keys and values it had already", of_drafter(|d| d.cached_prompt_tokens))?;

    out.counter("foredraft_passes", "Forward passes of the model", engine.passes)?;
    out.counter("foredraft_rows", "Rows of these passes", engine.rows)?;
    out.counter("foredraft_prompt_rows", "Of these, rows of prompts", engine.prompt_rows)?;
    out.counter("foredraft_sequence_steps", "Steps of single answers that emitted tokens", engine.sequence_steps)?;
    out.counter("foredraft_weight_bytes_read", "Bytes of weights that the passes read", engine.weight_bytes)?;
    out.counter("foredraft_kv_bytes_read", "Bytes of keys and values that the passes read", engine.kv_bytes)?;
    out.counter("foredraft_operations", "Multiplications and additions of the linear layers", engine.operations)?;
    out.counters("foredraft_step_seconds", "Seconds of the steps, by what they went to", [
        (label("phase", "draft"), phases.draft_seconds),
        (label("phase", "forward"), phases.forward_seconds),
        (label("phase", "verify"), phases.verify_seconds),
        (label("phase", "other"), phases.other_seconds),
    ])?;

    // Quotients since the start; over other times they are quotients of the counters' rates.
    let bytes = (engine.weight_bytes + engine.kv_bytes) as f64;
    out.gauge("foredraft_tokens_per_step", "Tokens of a step of a single answer; 1 for plain decoding", ratio(engine.generated_tokens as f64, engine.sequence_steps as f64))?;
    out.gauge("foredraft_bytes_per_pass", "Bytes that a pass reads", ratio(bytes, engine.passes as f64))?;
    out.gauge("foredraft_operations_per_byte", "Operations for each byte that is read", ratio(engine.operations, bytes))?;
    if let Some(bandwidth) = bandwidth {
        out.gauge("foredraft_bandwidth_bytes_per_second", "What repeated reads of memory reached when the server started", bandwidth)?;
        out.gauge("foredraft_bandwidth_share", "Of that, what the passes read; above 1, weights come out of a cache", ratio(bytes, phases.forward_seconds * bandwidth))?;
    }
    Ok(())
}

fn label(name: &'static str, value: &str) -> Labels {
    [(name, value.to_owned())]
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Accepted tokens of all drafters by position.
fn by_position(drafters: &[DrafterFigures]) -> impl Iterator<Item = (Labels, u64)> {
    let positions = drafters.iter().map(|drafter| drafter.accepted.len()).max();
    (0..positions.unwrap_or(0)).map(|position| {
        let at_it = drafters.iter().filter_map(|d| d.accepted.get(position));
        (label("position", &position.to_string()), at_it.sum())
    })
}

/// Counts of each drafter by position.
fn by_drafter(
    drafters: &[DrafterFigures],
    of: fn(&DrafterFigures) -> &Vec<u64>,
) -> impl Iterator<Item = ([(&'static str, String); 2], u64)> {
    drafters.iter().flat_map(move |drafter| {
        let counts = of(drafter).iter().enumerate();
        counts.map(|(position, &count)| {
            let labels = [
                ("drafter", drafter.name.clone()),
                ("position", position.to_string()),
            ];
            (labels, count)
        })
    })
}

/// Writes metrics.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    /// A value that goes up and down.
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let gauge = ConstGauge::new(value);
        let kind = gauge.metric_type();
        gauge.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    /// A value that only grows.
    fn counter<N>(&mut self, name: &str, help: &str, value: N) -> Result<(), Error>
    where
        ConstCounter<N>: EncodeMetric,
    {
        let counter = ConstCounter::new(value);
        let kind = counter.metric_type();
        counter.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }

    /// Values of one name under several labels.
    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (impl EncodeLabelSet, f64)>,
    ) -> Result<(), Error> {
        let values = values
            .into_iter()
            .map(|(labels, v)| (labels, ConstGauge::new(v)));
        self.family(name, help, values)
    }

    /// Values of one name under several labels, which only grow.
    fn counters<N>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (impl EncodeLabelSet, N)>,
    ) -> Result<(), Error>
    where
        ConstCounter<N>: EncodeMetric,
    {
        let values = values
            .into_iter()
            .map(|(labels, v)| (labels, ConstCounter::new(v)));
        self.family(name, help, values)
    }

    fn family<M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (impl EncodeLabelSet, M)>,
    ) -> Result<(), Error> {
        let mut values = values.peekable();
        // A name without a value would be no metric.
        let Some((_, first)) = values.peek() else {
            return Ok(());
        };
        let kind = first.metric_type();
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            value.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
