//! Every sampling setting counts with a draft as it does without (the case "Penalties and other settings").

mod common;

use common::drafters::{Sampling, Scripted};
use common::{answer, engine, greedy, prompt};
use foredraft_common::TokenId;
use foredraft_engine::{Engine, Request, Speculation, TreeShape};
use foredraft_speculate::{Drafter, SamplingSettings, Verify};

const SHAPES: [TreeShape; 2] = [TreeShape::Chain, TreeShape::Grid { width: 3, depth: 2 }];

/// A text of its own for every seed.
fn unchanged() -> SamplingSettings {
    SamplingSettings {
        temperature: 1.0,
        seed: Some(21),
        ..SamplingSettings::unchanged()
    }
}

/// Each setting alone.
fn one_at_a_time(base: &SamplingSettings) -> Vec<(&'static str, SamplingSettings)> {
    let with = |name, change: fn(&mut SamplingSettings)| {
        let mut settings = base.clone();
        change(&mut settings);
        (name, settings)
    };
    vec![
        with("temperature", |s| s.temperature = 0.5),
        with("repeat_penalty", |s| s.repeat_penalty = 1.3),
        with("presence_penalty", |s| s.presence_penalty = 1.0),
        with("frequency_penalty", |s| s.frequency_penalty = 0.7),
        with("top_k", |s| s.top_k = 4),
        with("top_p", |s| s.top_p = 0.6),
        with("min_p", |s| s.min_p = 0.2),
        with("logit_bias", |s| s.logit_bias = vec![(TokenId(261), -5.0)]),
    ]
}

fn request(sampling: SamplingSettings) -> Request {
    Request {
        sampling,
        ..greedy(prompt("One day, a girl named Lily"), 100)
    }
}

/// What is said with this drafter in every shape is what is said without one.
fn assert_counts(
    engine: &mut Engine,
    request: &Request,
    expected: &[TokenId],
    verify: Verify,
    drafter: impl Fn(&[TokenId]) -> Box<dyn Drafter + Send>,
    what: &str,
) {
    let text = [&request.prompt, expected].concat();
    for tree in SHAPES {
        engine.set_drafters(vec![drafter(&text)]);
        let speculation = Speculation {
            verify,
            tree,
            ..Speculation::default()
        };
        let request = Request {
            speculation,
            ..request.clone()
        };
        let got = answer(engine, &request);
        assert_eq!(got.tokens, expected, "{what} under {verify:?}, {tree:?}");
        let figures = got.speculation.expect("speculated");
        assert!(figures.accepted > 20, "{what}: {figures:?}");
    }
    engine.set_drafters(Vec::new());
}

#[test]
fn penalties_and_settings_each_count_with_a_seed() {
    let mut engine = engine();
    let without = answer(&mut engine, &request(unchanged())).tokens;
    for (name, sampling) in one_at_a_time(&unchanged()) {
        let request = request(sampling);
        let plain = answer(&mut engine, &request).tokens;
        assert_ne!(plain, without, "{name} makes a difference");
        let scripted =
            |text: &[TokenId]| -> Box<dyn Drafter + Send> { Box::new(Scripted::new(&[text], 6)) };
        assert_counts(&mut engine, &request, &plain, Verify::Auto, scripted, name);
    }
}

/// `rejection` and `block` draw for themselves. With settings that leave one token at each position there is one text, whoever
/// draws: the settings are seen in it.
#[test]
fn penalties_and_settings_each_count_under_rules_that_draw() {
    let mut engine = engine();
    let one = SamplingSettings {
        top_k: 1,
        ..unchanged()
    };
    let without = answer(&mut engine, &request(one.clone())).tokens;
    // Each of these alone leaves the most probable token.
    let truncations = [
        SamplingSettings {
            top_p: 1e-6,
            ..unchanged()
        },
        SamplingSettings {
            min_p: 1.0,
            ..unchanged()
        },
    ];
    let truncations = truncations.map(|sampling| ("a truncation", sampling));
    let penalties = one_at_a_time(&one);
    // The others do nothing where one token is left.
    let penalties = penalties
        .into_iter()
        .filter(|(name, _)| name.contains("penalty") || *name == "logit_bias");
    for (name, sampling) in truncations.into_iter().chain(penalties) {
        let request = request(sampling);
        let plain = answer(&mut engine, &request).tokens;
        let is_truncation = name == "a truncation";
        assert_eq!(plain == without, is_truncation, "{name} does what it does");
        for verify in [Verify::Rejection, Verify::Block] {
            let sampling =
                |text: &[TokenId]| -> Box<dyn Drafter + Send> { Box::new(Sampling(text.to_vec())) };
            assert_counts(&mut engine, &request, &plain, verify, sampling, name);
        }
    }
}
