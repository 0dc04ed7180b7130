//! What the engine says of itself, asked when somebody looks. One line of [`show`] is one metric.

use std::fmt::Error;
use std::sync::{Arc, OnceLock, Weak};

use foredraft_engine::ServiceFigures;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
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
    out.gauge(
        "vllm:num_requests_running",
        "Answers that are being made",
        figures.running as f64,
    )?;
    out.gauge(
        "vllm:num_requests_waiting",
        "Answers that wait for their turn",
        figures.waiting as f64,
    )
}

struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    /// A value that goes up and down.
    fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let gauge = ConstGauge::new(value);
        let kind = gauge.metric_type();
        gauge.encode(self.0.encode_descriptor(name, help, None, kind)?)
    }
}
