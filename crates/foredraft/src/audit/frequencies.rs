//! Whether texts of three tokens have the frequencies that the model's own probabilities say.
//!
//! Three questions of every setting, each with a p-value: the first token; the second, given the likeliest first ones; the
//! triple. The cells of each test are chosen by probability alone, never by what was drawn.

use std::collections::{HashMap, HashSet};

use foredraft::common::TokenId;
use foredraft::speculate::statistics::{
    MINIMUM_EXPECTATION, StatisticsError, chi_square_test, regularised_gamma_q,
};
use foredraft::speculate::{AllowedTokens, Distribution, History, SamplingSettings, Transforms};

use super::memo::Memo;
use crate::exit::Exit;

/// Tokens of a text.
pub(super) const LENGTH: usize = 3;
/// First tokens whose followers are tested.
const FIRST_TOKENS: usize = 4;

/// How often each text was drawn.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: HashMap<[TokenId; LENGTH], u64>,
    pub(super) draws: u64,
}

impl Tally {
    pub(super) fn add(&mut self, text: [TokenId; LENGTH]) {
        *self.counts.entry(text).or_default() += 1;
        self.draws += 1;
    }

    /// Of the texts that begin with `path`, how often each token follows; `[vocabulary]`.
    fn followers(&self, path: &[TokenId], vocabulary: usize) -> Vec<u64> {
        let mut followers = vec![0; vocabulary];
        for (text, count) in &self.counts {
            if let Some([next, ..]) = text.strip_prefix(path) {
                followers[next.index()] += count;
            }
        }
        followers
    }
}

/// The probabilities of the target itself, under the settings of a request: its logits and the transforms, no step.
pub(super) struct Exact<'a> {
    pub(super) memo: &'a Memo,
    pub(super) prompt: &'a [TokenId],
    pub(super) sampling: &'a SamplingSettings,
    pub(super) allowed: &'a AllowedTokens,
    pub(super) history: History,
    pub(super) transforms: Transforms,
}

impl<'a> Exact<'a> {
    pub(super) fn new(
        memo: &'a Memo,
        prompt: &'a [TokenId],
        sampling: &'a SamplingSettings,
        allowed: &'a AllowedTokens,
    ) -> Self {
        Self {
            memo,
            prompt,
            sampling,
            allowed,
            history: History::new(prompt),
            transforms: Transforms::new(),
        }
    }

    /// The distribution of the token after prompt and `path`.
    ///
    /// # Errors
    /// When the model cannot be run or gives no usable logits.
    pub(super) fn after(&mut self, path: &[TokenId]) -> Result<Distribution, Exit> {
        let context = [self.prompt, path].concat();
        let logits = self.memo.logits(&context).map_err(Exit::failed)?;
        let mut p = Distribution::one_hot(TokenId(0));
        let history = self.history.with_path(path);
        let applied = self
            .transforms
            .apply(&logits, self.sampling, history, self.allowed, &mut p);
        applied.map_err(Exit::failed)?;
        Ok(p)
    }
}

/// What a question was answered with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Answer {
    pub(super) question: &'static str,
    pub(super) p_value: f64,
    /// Texts that it is about.
    pub(super) samples: u64,
}

/// Puts the three questions.
///
/// # Errors
/// When the model cannot be run.
pub(super) fn judge(tally: &Tally, exact: &mut Exact<'_>) -> Result<[Answer; 3], Exit> {
    let draws = tally.draws;
    let first = exact.after(&[])?;
    let vocabulary = exact.allowed.vocabulary_len();
    let one = single(&tally.followers(&[], vocabulary), &first, draws)?;
    let mut likeliest: Vec<(TokenId, f32)> = first.iter().collect();
    likeliest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    // Independent tests, given how often each first token came: statistics and degrees of freedom add up.
    let (mut statistic, mut degrees, mut samples) = (0.0, 0, 0);
    for (token, _) in likeliest.into_iter().take(FIRST_TOKENS) {
        let p = exact.after(&[token])?;
        let followers = tally.followers(&[token], vocabulary);
        let count: u64 = followers.iter().sum();
        let test = single(&followers, &p, count)?;
        statistic += test.0;
        degrees += test.1;
        samples += count;
    }
    let triples = triples(tally, exact, &first)?;
    let answer = |question, (statistic, degrees): (f64, usize), samples| Answer {
        question,
        p_value: tail(statistic, degrees),
        samples,
    };
    Ok([
        answer("token 1", one, draws),
        answer("token 2 after the likeliest", (statistic, degrees), samples),
        answer("tokens 1 to 3", triples, draws),
    ])
}

fn tail(statistic: f64, degrees: usize) -> f64 {
    match degrees {
        _ if statistic.is_infinite() => 0.0,
        0 => 1.0,
        n => regularised_gamma_q(n as f64 / 2.0, statistic / 2.0),
    }
}

/// The chi-square statistic of dense counts against a distribution, and its degrees of freedom.
fn single(observed: &[u64], p: &Distribution, draws: u64) -> Result<(f64, usize), Exit> {
    let mut expected = vec![0.0; observed.len()];
    let scale = draws as f64 / p.sum();
    for (token, probability) in p.iter() {
        expected[token.index()] = scale * f64::from(probability);
    }
    chi_square(observed, &expected)
}

fn chi_square(observed: &[u64], expected: &[f64]) -> Result<(f64, usize), Exit> {
    let test = chi_square_test(observed, expected);
    let test = test.map_err(|error: StatisticsError| Exit::failed(error))?;
    Ok((test.statistic, test.degrees_of_freedom))
}

/// All triples that are expected often enough are cells; the others are one more.
fn triples(
    tally: &Tally,
    exact: &mut Exact<'_>,
    first: &Distribution,
) -> Result<(f64, usize), Exit> {
    let draws = tally.draws as f64;
    let is_cell = |p: f64| p * draws >= MINIMUM_EXPECTATION;
    let (mut observed, mut expected) = (Vec::new(), Vec::new());
    let mut cells = HashSet::new();
    // A triple is no more probable than its beginning.
    for (a, p_a) in likely(first, 1.0, is_cell) {
        for (b, p_b) in likely(&exact.after(&[a])?, p_a, is_cell) {
            for (c, p_c) in likely(&exact.after(&[a, b])?, p_b, is_cell) {
                let text = [a, b, c];
                cells.insert(text);
                observed.push(tally.counts.get(&text).copied().unwrap_or(0));
                expected.push(p_c * draws);
            }
        }
    }
    for text in tally.counts.keys().filter(|text| !cells.contains(*text)) {
        if !is_possible(exact, text)? {
            return Ok((f64::INFINITY, observed.len()));
        }
    }
    observed.push(tally.draws - observed.iter().sum::<u64>());
    let rest = draws - expected.iter().sum::<f64>();
    // f32 probabilities do not sum to 1 exactly: what is left of nothing is nothing.
    let is_rounding = rest < 1e-6 * draws && observed.last() == Some(&0);
    expected.push(if is_rounding {
        0.0
    } else {
        rest.max(1e-6 * draws)
    });
    chi_square(&observed, &expected)
}

/// Of the tokens after a beginning of probability `before` those with which it still may be a cell.
fn likely(p: &Distribution, before: f64, is_cell: impl Fn(f64) -> bool) -> Vec<(TokenId, f64)> {
    let sum = p.sum();
    let all = p.iter();
    let joint = all.map(|(token, p)| (token, before * f64::from(p) / sum));
    joint.filter(|&(_, p)| is_cell(p)).collect()
}

/// Whether each token of a text may follow those before it.
fn is_possible(exact: &mut Exact<'_>, text: &[TokenId; LENGTH]) -> Result<bool, Exit> {
    for (length, &token) in text.iter().enumerate() {
        if exact.after(&text[..length])?.probability(token) == 0.0 {
            return Ok(false);
        }
    }
    Ok(true)
}
