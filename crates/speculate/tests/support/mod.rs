//! An independent reading of the transforms, in f64 and without any cleverness: what the crate is tested against.
//! It shares no code with it: a full sort for each truncation, one normalisation after each step, std's exp.

#![allow(dead_code)] // each test file uses a part

use foredraft_common::TokenId;
use foredraft_speculate::{AllowedTokens, Distribution, History, SamplingSettings, Transforms};

/// A row of logits with the history it follows.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) logits: Vec<f32>,
    pub(crate) prompt: Vec<TokenId>,
    pub(crate) output: Vec<TokenId>,
}

pub(crate) fn tokens(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|&id| TokenId(id)).collect()
}

impl Case {
    /// 512 logits with the spread of a language model's: a few large ones, a long tail. The history holds
    /// both likely and unlikely tokens, some in the prompt alone, some several times.
    pub(crate) fn vocabulary_512() -> Self {
        // A permutation of 0..512, so that likely tokens lie anywhere (181 is odd).
        let rank = |id: u32| (id * 181 + 77) % 512;
        let logit = |id: u32| 3.0 - 1.1 * ((rank(id) + 1) as f32).ln();
        let at_rank = |r: u32| (0..512).find(|&id| rank(id) == r).expect("a permutation");
        let ids = |ranks: &[u32]| tokens(&ranks.iter().map(|&r| at_rank(r)).collect::<Vec<_>>());
        Self {
            logits: (0..512).map(logit).collect(),
            prompt: ids(&[0, 3, 3, 7, 40, 200]),
            output: ids(&[1, 3, 1, 12, 1, 300]),
        }
    }

    /// The history with prompt and output told apart.
    pub(crate) fn history(&self) -> History {
        let mut history = History::new(&self.prompt);
        self.output.iter().for_each(|&token| history.push(token));
        history
    }

    /// What the crate computes.
    pub(crate) fn distribution(&self, settings: &SamplingSettings) -> Distribution {
        let allowed = AllowedTokens::all(self.logits.len());
        let history = self.history();
        let mut out = Distribution::one_hot(TokenId(0));
        Transforms::new()
            .apply(&self.logits, settings, history.view(), &allowed, &mut out)
            .expect("a distribution");
        out
    }

    /// What it should be, `[vocabulary]`.
    pub(crate) fn reference(&self, settings: &SamplingSettings) -> Vec<f64> {
        let logits = self.penalised(settings);
        if settings.temperature == 0.0 {
            let best = sorted(&logits)[0];
            return (0..logits.len())
                .map(|id| if id == best { 1.0 } else { 0.0 })
                .collect();
        }
        let temperature = f64::from(settings.temperature);
        let mut p = normalised(
            &logits
                .iter()
                .map(|l| (l / temperature).exp())
                .collect::<Vec<_>>(),
        );
        if settings.top_k > 0 {
            let dropped: Vec<usize> = sorted(&p)
                .into_iter()
                .skip(settings.top_k as usize)
                .collect();
            dropped.into_iter().for_each(|id| p[id] = 0.0);
            p = normalised(&p);
        }
        if settings.top_p < 1.0 {
            let mut before = 0.0;
            let order = sorted(&p);
            for (place, id) in order.into_iter().enumerate() {
                let mass = p[id];
                if place > 0 && before >= f64::from(settings.top_p) {
                    p[id] = 0.0;
                }
                before += mass;
            }
            p = normalised(&p);
        }
        let largest = p.iter().cloned().fold(0.0, f64::max);
        p.iter_mut()
            .filter(|p| **p < f64::from(settings.min_p) * largest)
            .for_each(|p| *p = 0.0);
        normalised(&p)
    }

    fn penalised(&self, settings: &SamplingSettings) -> Vec<f64> {
        let times = |list: &[TokenId], id: usize| list.iter().filter(|t| t.index() == id).count();
        let mut logits: Vec<f64> = self.logits.iter().map(|&l| f64::from(l)).collect();
        for &(token, bias) in &settings.logit_bias {
            logits[token.index()] += f64::from(bias);
        }
        for (id, logit) in logits.iter_mut().enumerate() {
            let (prompt, output) = (times(&self.prompt, id), times(&self.output, id));
            if prompt + output > 0 && *logit > 0.0 {
                *logit /= f64::from(settings.repeat_penalty);
            } else if prompt + output > 0 {
                *logit *= f64::from(settings.repeat_penalty);
            }
            *logit -= f64::from(settings.frequency_penalty) * output as f64;
            if output > 0 {
                *logit -= f64::from(settings.presence_penalty);
            }
        }
        logits
    }
}

/// The indices, largest value first, the lowest index first among equals.
fn sorted(values: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    order
}

fn normalised(weights: &[f64]) -> Vec<f64> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// Every setting alone, and combinations: (name, settings).
pub(crate) fn settings_to_test() -> Vec<(&'static str, SamplingSettings)> {
    type Change = fn(&mut SamplingSettings);
    let changes: Vec<(&str, Change)> = vec![
        ("unchanged", |_| {}),
        ("temperature 0.5", |s| s.temperature = 0.5),
        ("temperature 1.5", |s| s.temperature = 1.5),
        ("temperature 5", |s| s.temperature = 5.0),
        ("top-k 1", |s| s.top_k = 1),
        ("top-k 40", |s| s.top_k = 40),
        ("top-k 511", |s| s.top_k = 511),
        ("top-p 0.5", |s| s.top_p = 0.5),
        ("top-p 0.95", |s| s.top_p = 0.95),
        ("min-p 0.05", |s| s.min_p = 0.05),
        ("min-p 0.005", |s| s.min_p = 0.005),
        ("repeat penalty 1.3", |s| s.repeat_penalty = 1.3),
        ("repeat penalty 0.8", |s| s.repeat_penalty = 0.8),
        ("frequency penalty 0.5", |s| s.frequency_penalty = 0.5),
        ("frequency penalty -0.5", |s| s.frequency_penalty = -0.5),
        ("presence penalty 1", |s| s.presence_penalty = 1.0),
        ("presence penalty -1", |s| s.presence_penalty = -1.0),
        ("bias", |s| {
            s.logit_bias = vec![
                (TokenId(0), 3.0),
                (TokenId(255), -100.0),
                (TokenId(511), 2.0),
            ];
        }),
        ("the defaults", |s| *s = SamplingSettings::default()),
        ("temperature 0.5, top-k 40", |s| {
            (s.temperature, s.top_k) = (0.5, 40)
        }),
        ("temperature 1.5, top-p 0.9", |s| {
            (s.temperature, s.top_p) = (1.5, 0.9)
        }),
        ("temperature 1.5, min-p 0.02", |s| {
            (s.temperature, s.min_p) = (1.5, 0.02)
        }),
        ("all penalties", |s| {
            (s.repeat_penalty, s.frequency_penalty, s.presence_penalty) = (1.2, 0.3, 0.4);
        }),
        ("everything", |s| {
            *s = SamplingSettings {
                temperature: 1.3,
                top_k: 100,
                top_p: 0.9,
                min_p: 0.01,
                ..s.clone()
            };
            (s.repeat_penalty, s.frequency_penalty, s.presence_penalty) = (1.1, 0.2, 0.3);
            s.logit_bias = vec![(TokenId(1), 4.0), (TokenId(2), 3.5)];
        }),
    ];
    let build = |(name, change): (&'static str, Change)| {
        let mut settings = SamplingSettings::unchanged();
        change(&mut settings);
        settings.validate_for(512).expect("valid settings");
        (name, settings)
    };
    changes.into_iter().map(build).collect()
}
