//! Bit equality: with a draft and without one the same tokens, the same text, the same log probabilities.

use std::collections::HashMap;
use std::ops::ControlFlow;

use foredraft::common::TokenId;
use foredraft::engine::{
    Completion, Engine, EngineOptions, Event, Request, Speculation, TreeShape,
};
use foredraft::model::Backend;
use foredraft::speculate::{SamplingSettings, Verify};
use foredraft::text::Special;

use super::drafts::{Drafts, Target};
use super::report::{Check, Kind};
use super::steps::Steps;
use crate::exit::Exit;
use crate::interrupt;
use crate::load::engine_error;

/// What is continued. The third is an edit of code, of which `lookup` finds most.
const PROMPTS: [&str; 3] = [
    "Once upon a time, there was a little girl named Lily. She liked to play",
    "One day Tom saw a dog. The dog was big. One day Tom saw a cat. The cat was small. One day",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\n# again\ndef add(a, b):\n",
];
/// Tokens of each answer.
pub(super) const TOKENS: usize = 200;
/// Alternatives whose log probabilities are compared too.
const LOGPROBS: usize = 3;

/// Shapes: name, and what it asks for.
const SHAPES: [(&str, TreeShape, Option<usize>); 6] = [
    ("chain 1", TreeShape::Chain, Some(1)),
    ("chain 3", TreeShape::Chain, Some(3)),
    ("chain 8", TreeShape::Chain, Some(8)),
    ("2x2", TreeShape::Grid { width: 2, depth: 2 }, None),
    ("3x3", TreeShape::Grid { width: 3, depth: 3 }, None),
    ("4x2", TreeShape::Grid { width: 4, depth: 2 }, None),
];
const TEMPERATURES: [f32; 3] = [0.0, 0.7, 1.3];
const VERIFY: [(&str, Verify); 2] = [("auto", Verify::Auto), ("coupled", Verify::Coupled)];

/// Numbers of values of a row's factors: drafts, shape, temperature, verifier, transforms, threads.
pub(super) fn factors(sets: usize, threads: usize) -> [usize; 6] {
    [
        sets,
        SHAPES.len(),
        TEMPERATURES.len(),
        VERIFY.len(),
        2,
        threads,
    ]
}

/// One setting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Number of the set of drafts.
    pub(super) set: usize,
    pub(super) shape: usize,
    pub(super) temperature: f32,
    pub(super) verify: (&'static str, Verify),
    pub(super) transforms: bool,
    /// Number among the thread counts.
    pub(super) threads: usize,
    pub(super) prompt: usize,
}

impl Row {
    /// From the values of [`factors`].
    pub(super) fn new(values: &[usize]) -> Self {
        let value = |factor: usize| values.get(factor).copied().unwrap_or(0);
        Self {
            set: value(0),
            shape: value(1),
            temperature: TEMPERATURES[value(2)],
            verify: VERIFY[value(3)],
            transforms: value(4) == 1,
            threads: value(5),
            prompt: values.iter().sum::<usize>() % PROMPTS.len(),
        }
    }

    fn name(&self, drafts: &str, threads: usize) -> String {
        let seed = if self.temperature > 0.0 {
            " seeded"
        } else {
            ""
        };
        let transforms = if self.transforms { "on" } else { "off" };
        format!(
            "{drafts}, {}, t {}{seed}, {}, transforms {transforms}, threads {threads}",
            SHAPES[self.shape].0, self.temperature, self.verify.0
        )
    }

    /// What is asked of the engine. The model may not end its text, for that would end the comparison.
    fn request(&self, target: &Target, tokens: usize, room: usize) -> Result<Request, Exit> {
        let tokenizer = &target.tokenizer;
        let mut prompt = tokenizer.encode_prompt(PROMPTS[self.prompt], Special::AsText)?;
        prompt.truncate(room);
        let ends = tokenizer.end_of_text_ids();
        let mut logit_bias: Vec<(TokenId, f32)> = ends.iter().map(|&id| (id, -100.0)).collect();
        let mut sampling = SamplingSettings {
            temperature: self.temperature,
            seed: Some(7),
            ..SamplingSettings::unchanged()
        };
        if self.transforms {
            let common = prompt.iter().filter(|id| !ends.contains(id)).min();
            logit_bias.extend(common.map(|&id| (id, 0.5)));
            sampling = SamplingSettings {
                repeat_penalty: 1.1,
                frequency_penalty: 0.2,
                presence_penalty: 0.1,
                top_k: 40,
                top_p: 0.95,
                min_p: 0.02,
                ..sampling
            };
        }
        sampling.logit_bias = logit_bias;
        let (_, tree, draft_max) = SHAPES[self.shape];
        Ok(Request {
            max_tokens: Some(tokens),
            logprobs: Some(LOGPROBS),
            speculation: Speculation {
                enabled: true,
                verify: self.verify.1,
                tree,
                draft_max,
            },
            ..Request::new(prompt, sampling)
        })
    }
}

/// What the rows run on.
pub(super) struct Bench<'a> {
    pub(super) target: &'a Target,
    pub(super) drafts: &'a Drafts,
    pub(super) options: &'a EngineOptions,
    /// Threads and the backend that has them, the fewest first.
    pub(super) backends: &'a [(usize, &'a dyn Backend)],
    /// Tokens of each answer.
    pub(super) tokens: usize,
}

/// Runs all rows, in order of what has to be loaded for them.
///
/// # Errors
/// When a model does not load or answer; when interrupted. (A difference is no error but a failed check.)
pub(super) fn checks(bench: &Bench<'_>, rows: &[Row], steps: &Steps) -> Result<Vec<Check>, Exit> {
    let Some(&(_, first)) = bench.backends.first() else {
        return Ok(Vec::new());
    };
    let load = |set: &[usize], backend| {
        bench
            .drafts
            .engine(set, bench.target, backend, bench.options)
    };
    // Plain decoding, by one engine without drafts: what every row is compared with, whatever its threads.
    let mut plain = Plain {
        engine: load(&[], first)?,
        known: HashMap::new(),
    };
    let sets = bench.drafts.sets();
    let mut checks = Vec::new();
    for (set_number, set) in sets.iter().enumerate() {
        for (number, &(threads, backend)) in bench.backends.iter().enumerate() {
            let is_here = |row: &&Row| row.set == set_number && row.threads == number;
            let rows: Vec<&Row> = rows.iter().filter(is_here).collect();
            if rows.is_empty() {
                continue;
            }
            let mut engine = load(set, backend)?;
            for row in rows {
                let name = row.name(&bench.drafts.name(set), threads);
                checks.push(check(bench, row, name, &mut engine, &mut plain)?);
                steps.one();
            }
        }
    }
    Ok(checks)
}

/// The answers of plain decoding.
struct Plain {
    engine: Engine,
    known: HashMap<(usize, u32, bool), Completion>,
}

fn check(
    bench: &Bench<'_>,
    row: &Row,
    name: String,
    engine: &mut Engine,
    plain: &mut Plain,
) -> Result<Check, Exit> {
    let tokens = bench.tokens.min(engine.context_tokens().saturating_sub(2));
    let room = engine.context_tokens() - tokens;
    let request = row.request(bench.target, tokens, room)?;
    let key = (row.prompt, row.temperature.to_bits(), row.transforms);
    if !plain.known.contains_key(&key) {
        let request = Request {
            speculation: Speculation::off(),
            ..request.clone()
        };
        let (completion, _) = answer(&mut plain.engine, &request)?;
        plain.known.insert(key, completion);
    }
    let expected = &plain.known[&key];
    // Every row begins as `run` does: with nothing read.
    engine.forget();
    let (got, warning) = answer(engine, &request)?;
    let difference = match warning {
        Some(warning) => Some(format!("a drafter failed: {warning}")),
        None => difference(&got, expected),
    };
    let drafted = got.speculation.as_ref();
    Ok(Check {
        name,
        kind: Kind::Bits,
        passed: difference.is_none(),
        p_value: None,
        samples: got.tokens.len() as u64,
        drafted: drafted.map_or(0, |figures| figures.drafted as u64),
        accepted: drafted.map_or(0, |figures| figures.accepted as u64),
        repeated: false,
        difference,
    })
}

/// The answer, and the first warning on the way to it.
fn answer(engine: &mut Engine, request: &Request) -> Result<(Completion, Option<String>), Exit> {
    let mut warning = None;
    let completion = engine.generate(request, &mut |event| {
        if let Event::Warning(text) = event {
            warning.get_or_insert_with(|| text.to_owned());
        }
        match interrupt::requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    let completion = completion.map_err(engine_error)?;
    match interrupt::requested() {
        true => Err(Exit::Interrupted),
        false => Ok((completion, warning)),
    }
}

/// The first thing that is not the same, bit by bit.
fn difference(got: &Completion, plain: &Completion) -> Option<String> {
    let tokens = got.tokens.iter().zip(&plain.tokens);
    if let Some((at, (a, b))) = (1..).zip(tokens).find(|(_, (a, b))| a != b) {
        return Some(format!("token {at} is {a}, plain decoding says {b}"));
    }
    if got.tokens.len() != plain.tokens.len() || got.finish_reason != plain.finish_reason {
        return Some(format!(
            "it ends after {} tokens ({:?}), plain decoding after {} ({:?})",
            got.tokens.len(),
            got.finish_reason,
            plain.tokens.len(),
            plain.finish_reason
        ));
    }
    if got.text != plain.text {
        return Some("the tokens are the same, the text is not".to_owned());
    }
    let bits = |completion: &Completion| -> Vec<Vec<(u32, u32)>> {
        let of = |(token, at): (&TokenId, &foredraft::engine::TokenLogprob)| {
            let own = (token.0, at.log_probability.to_bits());
            let top = at.top.iter().map(|&(id, p)| (id.0, p.to_bits()));
            std::iter::once(own).chain(top).collect()
        };
        completion
            .tokens
            .iter()
            .zip(&completion.logprobs)
            .map(of)
            .collect()
    };
    let (a, b) = (bits(got), bits(plain));
    if a.len() != got.tokens.len() || b.len() != a.len() {
        return Some("a token has no log probability".to_owned());
    }
    let at = a.iter().zip(&b).position(|(a, b)| a != b)?;
    Some(format!("the log probabilities of token {} differ", at + 1))
}
