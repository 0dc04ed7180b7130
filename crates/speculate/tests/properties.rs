//! Properties that hold for every row of logits and every setting.

use foredraft_common::TokenId;
use foredraft_speculate::{AllowedTokens, Distribution, History, SamplingSettings, Transforms};
use proptest::prelude::*;

mod support;
use support::{Case, settings_to_test};

fn apply(case: &Case, allowed: &AllowedTokens, settings: &SamplingSettings) -> Distribution {
    let mut out = Distribution::one_hot(TokenId(0));
    let history = case.history();
    Transforms::new()
        .apply(&case.logits, settings, history.view(), allowed, &mut out)
        .expect("a distribution");
    out
}

/// Logits on a coarse grid, so that ties are common; some impossible, never all.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        8 => (-40i32..40).prop_map(|l| l as f32 * 0.25),
        1 => Just(f32::NEG_INFINITY),
    ];
    prop::collection::vec(logit, 1..300).prop_map(|mut logits| {
        logits[0] = logits[0].max(-10.0);
        logits
    })
}

fn case() -> impl Strategy<Value = Case> {
    let ids = || prop::collection::vec((0u32..320).prop_map(TokenId), 0..20);
    (logits(), ids(), ids()).prop_map(|(logits, prompt, output)| Case {
        logits,
        prompt,
        output,
    })
}

fn settings() -> impl Strategy<Value = SamplingSettings> {
    let penalties = (0.5f32..2.0, -1.0f32..1.0, -1.0f32..1.0);
    (
        0.05f32..3.0,
        0u32..320,
        0.0f32..=1.0,
        0.0f32..=1.0,
        penalties,
    )
        .prop_map(
            |(temperature, top_k, top_p, min_p, (repeat, frequency, presence))| SamplingSettings {
                temperature,
                top_k,
                top_p,
                min_p: min_p * min_p,
                repeat_penalty: repeat,
                frequency_penalty: frequency,
                presence_penalty: presence,
                ..SamplingSettings::unchanged()
            },
        )
}

fn is_subset(small: &Distribution, large: &Distribution) -> bool {
    small
        .support()
        .iter()
        .all(|&token| large.probability(token) > 0.0)
}

#[test]
fn every_setting_agrees_with_the_reference() {
    let case = Case::vocabulary_512();
    for (name, settings) in settings_to_test() {
        let distribution = case.distribution(&settings);
        let reference = case.reference(&settings);
        for (id, &expected) in reference.iter().enumerate() {
            let got = f64::from(distribution.probability(TokenId(id as u32)));
            // exp gives 0 where e^x would be subnormal in f32, so that no probability is.
            assert_eq!(got > 0.0, expected > 1e-37, "{name}: token {id}");
            let expected = if expected > 1e-37 { expected } else { 0.0 };
            assert!(
                (got - expected).abs() <= 2e-6 * expected,
                "{name}: token {id}: {got}, not {expected}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_distribution_keeps_its_invariants(case in case(), settings in settings()) {
        let d = apply(&case, &AllowedTokens::all(case.logits.len()), &settings);
        prop_assert!(!d.support().is_empty());
        prop_assert!(d.support().windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert!(d.probabilities().iter().all(|&p| p > 0.0 && p <= 1.0));
        prop_assert!((d.sum() - 1.0).abs() < f64::from(f32::EPSILON), "sum {}", d.sum());
        let best = d.iter().map(|(_, p)| p).fold(0.0, f32::max);
        prop_assert_eq!(d.max_probability(), best);
        prop_assert_eq!(d.iter().find(|&(_, p)| p == best).map(|(t, _)| t), Some(d.argmax()));
        for (token, p) in d.iter() {
            prop_assert!(case.logits[token.index()] > f32::NEG_INFINITY);
            prop_assert_eq!(d.probability(token), p);
        }
    }

    #[test]
    fn truncating_harder_never_adds_a_token(
        case in case(),
        settings in settings(),
        k in 1u32..320,
        p in 0.0f32..=1.0,
        m in 0.0f32..=1.0,
    ) {
        let allowed = AllowedTokens::all(case.logits.len());
        let loose = apply(&case, &allowed, &settings);
        let old_k = if settings.top_k == 0 { u32::MAX } else { settings.top_k };
        for tight in [
            SamplingSettings { top_k: k.min(old_k), ..settings.clone() },
            SamplingSettings { top_p: p.min(settings.top_p), ..settings.clone() },
            SamplingSettings { min_p: m.max(settings.min_p), ..settings.clone() },
        ] {
            prop_assert!(is_subset(&apply(&case, &allowed, &tight), &loose));
        }
        let greedy = SamplingSettings { temperature: 0.0, ..settings };
        prop_assert!(is_subset(&apply(&case, &allowed, &greedy), &loose));
    }

    #[test]
    fn a_kept_token_is_never_less_probable_than_a_dropped_one(case in case(), settings in settings()) {
        // Penalties off, so that the raw logits give the order.
        let settings = SamplingSettings {
            repeat_penalty: 1.0, frequency_penalty: 0.0, presence_penalty: 0.0, ..settings
        };
        let d = apply(&case, &AllowedTokens::all(case.logits.len()), &settings);
        let place = |id: u32| (-case.logits[id as usize], id);
        let kept = |id: &u32| d.probability(TokenId(*id)) > 0.0;
        let ids = 0..case.logits.len() as u32;
        let last_kept = ids.clone().filter(kept).map(place).max_by(|a, b| a.partial_cmp(b).expect("no NaN"));
        let first_dropped = ids.filter(|id| !kept(id)).map(place).min_by(|a, b| a.partial_cmp(b).expect("no NaN"));
        if let (Some(kept), Some(dropped)) = (last_kept, first_dropped) {
            prop_assert!(kept < dropped, "{kept:?} kept, {dropped:?} dropped");
        }
    }

    /// A banned token might as well not exist: the others get what they would get without it.
    #[test]
    fn a_mask_is_honoured_before_everything_else(
        case in case(),
        settings in settings(),
        banned in prop::collection::vec(1u32..300, 0..40),
        junk in prop::sample::select(vec![f32::NAN, f32::INFINITY, 1e30, -1e30]),
        padding in 0usize..70,
    ) {
        let mut allowed = AllowedTokens::all(case.logits.len());
        let mut masked = case.logits.clone();
        let mut spoiled = case.logits.clone();
        for &id in banned.iter().filter(|&&id| (id as usize) < case.logits.len()) {
            allowed.ban(TokenId(id));
            masked[id as usize] = f32::NEG_INFINITY;
            spoiled[id as usize] = junk;
        }
        spoiled.resize(case.logits.len() + padding, junk);
        let everything = AllowedTokens::all(masked.len());
        let expected = apply(&Case { logits: masked, ..case_like(&case) }, &everything, &settings);
        let got = apply(&Case { logits: spoiled, ..case_like(&case) }, &allowed, &settings);
        prop_assert_eq!(got, expected);
    }

    /// Buffers used before, for rows of other sizes and other settings, leave no trace.
    #[test]
    fn a_used_workspace_gives_the_same_bits(cases in prop::collection::vec((case(), settings()), 1..5)) {
        let mut transforms = Transforms::new();
        let mut out = Distribution::one_hot(TokenId(0));
        for (case, settings) in &cases {
            let allowed = AllowedTokens::all(case.logits.len());
            let history: History = case.history();
            transforms.apply(&case.logits, settings, history.view(), &allowed, &mut out).expect("valid");
            prop_assert_eq!(&out, &apply(case, &allowed, settings));
        }
    }
}

fn case_like(case: &Case) -> Case {
    Case {
        logits: Vec::new(),
        prompt: case.prompt.clone(),
        output: case.output.clone(),
    }
}
