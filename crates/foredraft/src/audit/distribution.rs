//! Equality in distribution: without a seed of the user's, the text is drawn from the model's own distribution.
//!
//! The engine itself draws: its step, its verifiers, its drafters, a seed for each text; only the network's logits come out
//! of a memo. What they are held against needs none of these: the target's logits and the transforms.

use std::ops::ControlFlow;

use foredraft::common::TokenId;
use foredraft::engine::{Engine, Event, Request, Speculation, TreeShape};
use foredraft::speculate::statistics::holm;
use foredraft::speculate::{AllowedTokens, SamplingSettings, Verify};
use foredraft::text::{Special, Tokenizer};

use super::bits::Bench;
use super::frequencies::{Answer, Exact, LENGTH, Tally, judge};
use super::memo::MemoBackend;
use super::report::{Check, Kind};
use super::steps::Steps;
use crate::exit::Exit;
use crate::interrupt;
use crate::load::engine_error;

/// Texts drawn for each setting.
pub(super) const DRAWS: u64 = 20_000;
/// How many times as many are drawn when a check is repeated, and the seeds that those begin with.
const MORE: u64 = 4;
const OTHER_SEEDS: u64 = 1 << 32;
/// The chance that any check of a correct run fails at first, by Holm's correction.
const ALPHA: f64 = 1e-3;
/// Vocabularies beyond this are tried among their likeliest tokens only, for else nearly every text would be new.
pub(super) const SMALL_VOCABULARY: usize = 4096;
/// How many those are.
pub(super) const LIKELIEST: u32 = 8;
/// What is continued: `lookup` finds its end before.
const PROMPT: &str = "Tom had a red ball. Lily had a big dog. Tom had a";

/// Verifier and shape.
const RULES: [(&str, Verify, TreeShape, Option<usize>); 3] = [
    (
        "rejection, chain 3",
        Verify::Rejection,
        TreeShape::Chain,
        Some(3),
    ),
    (
        "rejection, 2x2",
        Verify::Rejection,
        TreeShape::Grid { width: 2, depth: 2 },
        None,
    ),
    ("block, chain 4", Verify::Block, TreeShape::Chain, Some(4)),
];
const TEMPERATURES: [f32; 3] = [0.7, 1.0, 1.5];
const TRANSFORMS: [&str; 5] = ["none", "top-k", "top-p", "min-p", "penalties"];

/// Numbers of values of a row's factors: drafts, rule, temperature, transform.
pub(super) fn factors(sets: usize) -> [usize; 4] {
    [sets, RULES.len(), TEMPERATURES.len(), TRANSFORMS.len()]
}

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    set: usize,
    rule: usize,
    temperature: usize,
    transform: usize,
}

impl Row {
    /// From the values of [`factors`].
    pub(super) fn new(values: &[usize]) -> Self {
        let value = |factor: usize| values.get(factor).copied().unwrap_or(0);
        Self {
            set: value(0),
            rule: value(1),
            temperature: value(2),
            transform: value(3),
        }
    }

    fn name(&self, drafts: &str) -> String {
        let (rule, ..) = RULES[self.rule];
        let (t, transform) = (TEMPERATURES[self.temperature], TRANSFORMS[self.transform]);
        format!("{drafts}, {rule}, t {t}, {transform}")
    }

    /// The sampling settings; the model may not end its text.
    fn sampling(&self, tokenizer: &Tokenizer) -> SamplingSettings {
        let ends = tokenizer.end_of_text_ids().iter();
        let mut sampling = SamplingSettings {
            temperature: TEMPERATURES[self.temperature],
            logit_bias: ends.map(|&id| (id, -100.0)).collect(),
            ..SamplingSettings::unchanged()
        };
        match TRANSFORMS[self.transform] {
            "top-k" => sampling.top_k = 20,
            "top-p" => sampling.top_p = 0.9,
            "min-p" => sampling.min_p = 0.05,
            "penalties" => {
                sampling.repeat_penalty = 1.2;
                sampling.frequency_penalty = 0.5;
                sampling.presence_penalty = 0.3;
            }
            _ => {}
        }
        if tokenizer.vocabulary_len() > SMALL_VOCABULARY {
            sampling.top_k = LIKELIEST;
        }
        sampling
    }
}

/// Runs all rows; checks that fail are repeated once, and only the repetition counts.
///
/// # Errors
/// When a model does not load or answer; when interrupted. (A wrong frequency is no error but a failed check.)
pub(super) fn checks(
    bench: &Bench<'_>,
    rows: &[Row],
    draws: u64,
    steps: &Steps,
) -> Result<Vec<Check>, Exit> {
    let mut checks = Vec::new();
    for (row, of_row) in measure(bench, rows, 0..draws, steps)? {
        checks.extend(of_row.map(|check| (row, check)));
    }
    decide(checks.iter_mut().map(|(_, check)| check).collect());
    let mut failing: Vec<Row> = Vec::new();
    for (row, check) in &checks {
        if !check.passed && !failing.contains(row) {
            failing.push(*row);
        }
    }
    if !failing.is_empty() {
        let seeds = OTHER_SEEDS..OTHER_SEEDS + MORE * draws;
        let again: Vec<Check> = measure(bench, &failing, seeds, steps)?
            .into_iter()
            .flat_map(|(_, of_row)| of_row)
            .collect();
        for (_, check) in checks.iter_mut().filter(|(_, check)| !check.passed) {
            if let Some(new) = again.iter().find(|new| new.name == check.name) {
                *check = Check {
                    repeated: true,
                    ..new.clone()
                };
            }
        }
        decide(checks.iter_mut().map(|(_, check)| check).collect());
    }
    Ok(checks.into_iter().map(|(_, check)| check).collect())
}

/// Holm over the run.
fn decide(mut checks: Vec<&mut Check>) {
    let p_values: Vec<f64> = checks.iter().filter_map(|check| check.p_value).collect();
    for (check, adjusted) in checks.iter_mut().zip(holm(&p_values)) {
        check.passed = adjusted >= ALPHA;
        check.difference = (!check.passed)
            .then(|| "the frequencies are not those of the model's own distribution".to_owned());
    }
}

/// Draws with each of the seeds and judges, row by row, in order of what has to be loaded.
fn measure(
    bench: &Bench<'_>,
    rows: &[Row],
    seeds: std::ops::Range<u64>,
    steps: &Steps,
) -> Result<Vec<(Row, [Check; 3])>, Exit> {
    let Some(&(_, backend)) = bench.backends.first() else {
        return Ok(Vec::new());
    };
    let tokenizer = &*bench.target.tokenizer;
    let prompt = tokenizer.encode_prompt(PROMPT, Special::AsText)?;
    let allowed = allowed(tokenizer);
    let mut results = Vec::new();
    for (number, set) in bench.drafts.sets().iter().enumerate() {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.set == number).collect();
        if rows.is_empty() {
            continue;
        }
        let memo = MemoBackend::new(backend);
        let mut engine = bench
            .drafts
            .engine(set, bench.target, &memo, bench.options)?;
        let memos = memo.memos();
        for row in rows {
            let sampling = row.sampling(tokenizer);
            let mut drawn = Drawn::new(row, prompt.clone(), sampling.clone());
            for seed in seeds.clone() {
                drawn.draw(&mut engine, seed)?;
            }
            let Some(target) = memos.first() else {
                continue;
            };
            let mut exact = Exact::new(target, &prompt, &sampling, &allowed);
            let answers = judge(&drawn.tally, &mut exact)?;
            let name = row.name(&bench.drafts.name(set));
            results.push((*row, answers.map(|answer| drawn.check(&name, answer))));
            steps.one();
        }
    }
    Ok(results)
}

/// The tokens that the vocabulary allows to be emitted.
pub(super) fn allowed(tokenizer: &Tokenizer) -> AllowedTokens {
    let tokens = tokenizer.vocabulary_len();
    let mut allowed = AllowedTokens::all(tokens);
    let banned = (0..tokens as u32).map(TokenId);
    for id in banned.filter(|&id| !tokenizer.can_emit(id)) {
        allowed.ban(id);
    }
    allowed
}

/// The texts of a row.
struct Drawn {
    request: Request,
    tally: Tally,
    drafted: u64,
    accepted: u64,
    warning: Option<String>,
}

impl Drawn {
    fn new(row: &Row, prompt: Vec<TokenId>, sampling: SamplingSettings) -> Self {
        let (_, verify, tree, draft_max) = RULES[row.rule];
        let speculation = Speculation {
            enabled: true,
            verify,
            tree,
            draft_max,
        };
        Self {
            request: Request {
                speculation,
                ..Request::new(prompt, sampling)
            },
            tally: Tally::default(),
            drafted: 0,
            accepted: 0,
            warning: None,
        }
    }

    /// Draws one text: an answer that is not wanted any more after its third token.
    fn draw(&mut self, engine: &mut Engine, seed: u64) -> Result<(), Exit> {
        self.request.sampling.seed = Some(seed);
        let mut text = [TokenId(0); LENGTH];
        let mut length = 0;
        let warning = &mut self.warning;
        let completion = engine.generate(&self.request, &mut |event| {
            match event {
                Event::Token { token, .. } if length < LENGTH => {
                    text[length] = token;
                    length += 1;
                }
                Event::Warning(told) => *warning = Some(told.to_owned()),
                _ => {}
            }
            match length == LENGTH || interrupt::requested() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let completion = completion.map_err(engine_error)?;
        if interrupt::requested() {
            return Err(Exit::Interrupted);
        }
        if let Some(warning) = &self.warning {
            return Err(Exit::Failed(anyhow::anyhow!(
                "a drafter failed in the audit: {warning}"
            )));
        }
        if length < LENGTH {
            return Err(Exit::input(anyhow::anyhow!(
                "the context ends within the audit's texts: give a longer --context"
            )));
        }
        if let Some(figures) = &completion.speculation {
            self.drafted += figures.drafted as u64;
            self.accepted += figures.accepted as u64;
        }
        self.tally.add(text);
        Ok(())
    }

    fn check(&self, name: &str, answer: Answer) -> Check {
        Check {
            name: format!("{name}: {}", answer.question),
            kind: Kind::Distribution,
            passed: false,
            p_value: Some(answer.p_value),
            samples: answer.samples,
            drafted: self.drafted,
            accepted: self.accepted,
            repeated: false,
            difference: None,
        }
    }
}
