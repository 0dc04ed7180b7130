//! Where the time of passes goes, as worker 0 sees it: a clock is read twice a step.

use std::time::Instant;

use foredraft_model::{Op, Part, PartTime};

use super::Model;
use super::steps::Step;

/// Seconds of each part, in the order of [`Part::ALL`].
pub(super) struct Times([PartTime; Part::ALL.len()]);

impl Default for Times {
    fn default() -> Self {
        Self(Part::ALL.map(|part| PartTime {
            part,
            seconds: 0.0,
            waiting_seconds: 0.0,
        }))
    }
}

impl Times {
    pub(super) fn parts(&self) -> &[PartTime] {
        &self.0
    }

    /// Adds a step: begun, worked until, all met at.
    pub(super) fn add(&mut self, part: Part, begun: Instant, worked: Instant, met: Instant) {
        for time in self.0.iter_mut().filter(|time| time.part == part) {
            time.seconds += (worked - begun).as_secs_f64();
            time.waiting_seconds += (met - worked).as_secs_f64();
        }
    }
}

/// The part that a step belongs to.
pub(super) fn part_of(model: &Model, step: &Step) -> Part {
    let (Step::Quantized { outputs, .. } | Step::Single(Op::Linear { outputs, .. })) = step else {
        return match step {
            Step::Single(Op::RotateAndCache { .. } | Op::Attend { .. }) => Part::Attention,
            _ => Part::Other,
        };
    };
    if outputs.iter().any(|o| Some(o.out) == model.program.logits) {
        Part::Head
    } else {
        Part::Linear
    }
}
