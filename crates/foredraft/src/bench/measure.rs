//! The measurements of a round: each is taken once a round, so that what is compared runs side by side.

use std::ops::ControlFlow;

use foredraft::common::TokenId;
use foredraft::cpu::{CpuBackend, Reader};
use foredraft::engine::{Engine, Request};
use foredraft::model::{Part, PartTime};
use foredraft::speculate::SamplingSettings;

use super::report::{BenchReport, ForwardReport, PartReport, PlainReport, PrefillReport, Spread};
use crate::exit::Exit;
use crate::load::engine_error;

/// Context of the passes of the curve.
const CURVE_CONTEXT: usize = 256;
/// Rows of the curve's longest pass.
const CURVE_ROWS: usize = 32;
/// Passes of each length in a round.
const UNCOUNTED_PASSES: usize = 3;
const COUNTED_PASSES: usize = 7;
/// Tokens of the prompt.
const PREFILL_TOKENS: usize = 512;
/// Context at which decoding begins.
const DECODE_CONTEXT: usize = 32;

/// A model under measurement.
pub(super) struct Bench {
    engine: Engine,
    reader: Reader,
    threads: usize,
    path: &'static str,
    pages: &'static str,
    tokens: usize,
    /// Bytes that a pass reads.
    streamed_bytes: u64,
    read_seconds: Vec<f64>,
    decode_rates: Vec<f64>,
    prefill_rates: Vec<f64>,
    /// Seconds of passes of `rows = index + 1`.
    passes: Vec<Vec<f64>>,
    /// For passes of so many rows, what each part took in each round.
    parts: [(usize, Vec<Vec<PartTime>>); 2],
    /// Shortened where the context is short.
    prefill_tokens: usize,
    curve_context: usize,
}

impl Bench {
    /// Answers of `tokens` tokens; passes of the curve after `after`.
    pub(super) fn new(
        engine: Engine,
        backend: CpuBackend,
        tokens: usize,
        after: Option<usize>,
    ) -> Result<Self, Exit> {
        let context = engine.context_tokens();
        if context < DECODE_CONTEXT + CURVE_ROWS + 2 {
            return Err(Exit::input(anyhow::anyhow!(
                "a context of {context} tokens is too short to measure in: give a longer --context"
            )));
        }
        let most = context - CURVE_ROWS - 1;
        if let Some(after) = after.filter(|after| *after > most) {
            return Err(Exit::input(anyhow::anyhow!(
                "--after {after} leaves no room for the {CURVE_ROWS} rows of the curve in a context of {context} tokens: give at most {most}, or a longer --context"
            )));
        }
        let streamed_bytes = engine.memory().streamed_bytes;
        let reader = backend
            .reader(streamed_bytes as usize)
            .map_err(Exit::failed)?;
        Ok(Self {
            reader,
            threads: backend.threads(),
            path: backend.path().name(),
            pages: backend.pages_for(engine.memory().weights_bytes).name(),
            tokens: tokens.min(context - DECODE_CONTEXT - 1),
            streamed_bytes,
            read_seconds: Vec::new(),
            decode_rates: Vec::new(),
            prefill_rates: Vec::new(),
            passes: vec![Vec::new(); CURVE_ROWS],
            parts: [1, 8].map(|rows| (rows, Vec::new())),
            prefill_tokens: PREFILL_TOKENS.min(context - 1),
            curve_context: after.unwrap_or(CURVE_CONTEXT.min(most)),
            engine,
        })
    }

    /// One of everything; the passes of the curve, which take longest, only where it is wanted.
    pub(super) fn round(&mut self, curve: bool) -> Result<(), Exit> {
        for _ in 0..5 {
            self.read_seconds.push(self.reader.read());
        }
        self.engine.forget();
        let completion = self.generate(DECODE_CONTEXT, self.tokens)?;
        let decoded = completion.usage.completion_tokens.saturating_sub(1) as f64;
        self.decode_rates
            .push(decoded / completion.timings.decode_seconds);
        self.engine.forget();
        let completion = self.generate(self.prefill_tokens, 1)?;
        self.prefill_rates
            .push(self.prefill_tokens as f64 / completion.timings.prefill_seconds);
        if curve {
            self.curve()?;
        }
        for _ in 0..5 {
            self.read_seconds.push(self.reader.read());
        }
        Ok(())
    }

    /// Passes of each length, and the parts of some.
    fn curve(&mut self) -> Result<(), Exit> {
        for rows in 1..=CURVE_ROWS {
            // A step follows steps of its kind: the first passes put caches and clocks into that state, uncounted.
            for pass in 0..UNCOUNTED_PASSES + COUNTED_PASSES {
                let seconds = self.engine.time_pass(self.curve_context, rows);
                let seconds = seconds.map_err(engine_error)?;
                if pass >= UNCOUNTED_PASSES {
                    self.passes[rows - 1].push(seconds);
                }
            }
        }
        for (rows, rounds) in &mut self.parts {
            let parts = self
                .engine
                .time_parts(self.curve_context, *rows, COUNTED_PASSES);
            rounds.push(parts.map_err(engine_error)?);
        }
        Ok(())
    }

    /// Decodes greedily; text must not end before its length.
    fn generate(
        &mut self,
        prompt: usize,
        tokens: usize,
    ) -> Result<foredraft::engine::Completion, Exit> {
        let tokenizer = self.engine.tokenizer();
        let vocabulary = tokenizer.vocabulary_len();
        let ends = tokenizer.end_of_text_ids();
        let sampling = SamplingSettings {
            logit_bias: ends.iter().map(|id| (*id, -100.0)).collect(),
            ..SamplingSettings::greedy()
        };
        let prompt = (0..prompt)
            .map(|i| TokenId((i * 31 % vocabulary) as u32))
            .collect();
        let request = Request {
            max_tokens: Some(tokens),
            ..Request::new(prompt, sampling)
        };
        let result = self
            .engine
            .generate(&request, &mut |_| ControlFlow::Continue(()));
        result.map_err(engine_error)
    }

    /// Medians and spread of all rounds.
    pub(super) fn report(&self, model: &str) -> BenchReport {
        let best_read = self
            .read_seconds
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let bandwidth = self.streamed_bytes as f64 / best_read;
        let decode = Spread::of(&self.decode_rates);
        let one = Spread::of(&self.passes[0]);
        BenchReport {
            model: model.to_owned(),
            threads: self.threads,
            cpu_path: self.path,
            pages: self.pages,
            bandwidth_bytes_per_s: bandwidth,
            weight_bytes: self.streamed_bytes,
            plain: PlainReport {
                tokens: self.tokens,
                tokens_per_s: decode,
                bandwidth_share: self.streamed_bytes as f64 * decode.median / bandwidth,
            },
            prefill: PrefillReport {
                tokens: self.prefill_tokens,
                tokens_per_s: Spread::of(&self.prefill_rates),
            },
            forward: self
                .passes
                .iter()
                .enumerate()
                .filter(|(_, seconds)| !seconds.is_empty())
                .map(|(index, seconds)| {
                    let seconds = Spread::of(seconds);
                    ForwardReport {
                        rows: index + 1,
                        context: self.curve_context,
                        seconds,
                        ratio: seconds.median / one.median,
                    }
                })
                .collect(),
            parts: self
                .parts
                .iter()
                .filter(|(_, rounds)| !rounds.is_empty())
                .flat_map(part_reports)
                .collect(),
            drafts: Vec::new(),
        }
    }
}

/// The medians over the rounds of what each part of a pass took.
fn part_reports((rows, rounds): &(usize, Vec<Vec<PartTime>>)) -> Vec<PartReport> {
    let median = |part: Part, of: fn(&PartTime) -> f64| {
        let of_part = |times: &Vec<PartTime>| times.iter().find(|t| t.part == part).map(of);
        Spread::of(&rounds.iter().filter_map(of_part).collect::<Vec<f64>>()).median
    };
    let report = |part: Part| PartReport {
        rows: *rows,
        part: part.name(),
        seconds: median(part, |time| time.seconds),
        waiting_seconds: median(part, |time| time.waiting_seconds),
    };
    Part::ALL.map(report).to_vec()
}
