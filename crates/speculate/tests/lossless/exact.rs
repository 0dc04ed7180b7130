//! The enumerated law of a step is the target's own.

use foredraft_common::TokenId;
use foredraft_speculate::{Block, Coupled, Rejection, Replacement, Verifier};
use proptest::prelude::*;

use crate::enumerate::{Grow, Law, by_plan, draw_sampled, law};
use crate::model::{Model, Plan, SHAPES, Shape, distribution, share};
use crate::reference::{Fault, Reference};

const TOLERANCE: f64 = 1e-6;

/// The largest difference between the law of the next `horizon` tokens, when plain decoding goes on after the step, and
/// the target's; and that of the first token alone.
pub(crate) fn differences(model: &Model, law: &Law, horizon: usize) -> (f64, f64) {
    let of_emitted = |sequence: &[TokenId]| -> f64 {
        let mass = |corrected| {
            law.get(&(sequence.to_vec(), corrected))
                .copied()
                .unwrap_or(0.0)
        };
        mass(false) + mass(true)
    };
    let mut joint = 0f64;
    let mut sequence = vec![TokenId(0); horizon];
    for number in 0..model.vocabulary.pow(horizon as u32) {
        for (place, token) in sequence.iter_mut().enumerate() {
            *token = TokenId(number / model.vocabulary.pow(place as u32) % model.vocabulary);
        }
        // Plain decoding from token j on, from the last one backwards: p(x_j | ..) p(x_{j+1} | ..) ...
        let mut rest = 1.0;
        let mut got = 0.0;
        for end in (0..horizon).rev() {
            got += of_emitted(&sequence[..end + 1]) * rest;
            rest *= model.p(&sequence[..end], sequence[end]);
        }
        joint = joint.max((got - rest).abs());
    }
    let first = |token: TokenId| -> f64 {
        let starts = law.iter().filter(|((emitted, _), _)| emitted[0] == token);
        starts.map(|(_, mass)| mass).sum()
    };
    let of_first = model
        .tokens()
        .map(|token| (first(token) - model.p(&[], token)).abs());
    (joint, of_first.fold(0.0, f64::max))
}

#[track_caller]
fn assert_lossless(model: &Model, plan: Plan, verifier: &mut dyn Verifier) {
    let law = law(model, &by_plan(model, plan), verifier);
    let total: f64 = law.values().sum();
    assert!((total - 1.0).abs() < TOLERANCE, "the law sums to {total}");
    let (joint, first) = differences(model, &law, plan.depth as usize + 1);
    assert!(
        joint < TOLERANCE && first < TOLERANCE,
        "{} of seed {} shape {:?} with {plan:?}: the joint law differs by {joint:e}, the first token's by {first:e}",
        verifier.name(),
        model.seed,
        model.shape,
    );
}

fn shape() -> impl Strategy<Value = Option<Shape>> {
    prop_oneof![
        2 => Just(None),
        3 => prop::sample::select(SHAPES.to_vec()).prop_map(Some),
    ]
}

fn replacement() -> impl Strategy<Value = Replacement> {
    prop_oneof![Just(Replacement::With), Just(Replacement::Without)]
}

/// Plans of one kind, from plain decoding on.
fn plan(
    depth: std::ops::RangeInclusive<u32>,
    deterministic: std::ops::RangeInclusive<usize>,
    sampled: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Plan> {
    (depth, deterministic, sampled, replacement(), any::<bool>()).prop_map(
        |(depth, deterministic, sampled, replacement, ragged)| Plan {
            depth,
            deterministic,
            sampled,
            replacement,
            ragged,
        },
    )
}

/// A chain: at each node one child at most, sampled or not as the context says.
fn chain_of_both(model: &Model, depth: u32) -> Grow<'_> {
    Box::new(move |tree, node, path, choose| {
        let kind = (model.noise(path, 903) * 9.0) as u32;
        if path.len() as u32 >= depth || kind == 0 {
            return;
        }
        let one = Plan::sampled(depth, 1, Replacement::With);
        match kind {
            1..5 => one.push_deterministic(model, tree, node, path, 1),
            _ => draw_sampled(
                tree,
                node,
                &model.pair(path).q,
                Replacement::With,
                1,
                choose,
            ),
        }
    })
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn chains_are_lossless(seed: u64, shape in shape(), plan in plan(0..=3, 0..=0, 0..=1)) {
        let model = Model::new(seed, 4, shape);
        assert_lossless(&model, plan, &mut Rejection::new());
        assert_lossless(&model, plan, &mut Block::new());
    }

    #[test]
    fn chains_of_deterministic_and_sampled_tokens_are_lossless(seed: u64, shape in shape()) {
        let model = Model::new(seed, 3, shape);
        for verifier in [&mut Rejection::new() as &mut dyn Verifier, &mut Block::new()] {
            let law = law(&model, &chain_of_both(&model, 4), verifier);
            let (joint, first) = differences(&model, &law, 5);
            prop_assert!(joint < TOLERANCE && first < TOLERANCE, "{}: {joint:e}, {first:e}", verifier.name());
        }
    }
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn chains_of_four_are_lossless(seed: u64, shape in shape()) {
        let model = Model::new(seed, 3, shape);
        let plan = Plan::sampled(4, 1, Replacement::With);
        assert_lossless(&model, plan, &mut Rejection::new());
        assert_lossless(&model, plan, &mut Block::new());
    }

    #[test]
    fn trees_are_lossless(seed: u64, shape in shape(), plan in plan(1..=2, 0..=0, 2..=3)) {
        assert_lossless(&Model::new(seed, 3, shape), plan, &mut Rejection::new());
    }

    #[test]
    fn one_level_of_three_children_is_lossless(seed: u64, shape in shape(), plan in plan(1..=1, 0..=2, 3..=3)) {
        assert_lossless(&Model::new(seed, 5, shape), plan, &mut Rejection::new());
    }

    #[test]
    fn mixtures_are_lossless(seed: u64, shape in shape(), plan in plan(1..=2, 1..=2, 0..=2)) {
        assert_lossless(&Model::new(seed, 4, shape), plan, &mut Rejection::new());
    }

    #[test]
    fn coupled_is_lossless_on_any_tree(seed: u64, shape in shape(), plan in plan(0..=2, 0..=2, 0..=2)) {
        assert_lossless(&Model::new(seed, 3, shape), plan, &mut Coupled);
    }

    #[test]
    fn the_second_reading_is_lossless_too(seed: u64, shape in shape(), plan in plan(0..=2, 0..=1, 0..=2)) {
        assert_lossless(&Model::new(seed, 3, shape), plan, &mut Reference::new(Fault::None));
    }
}

/// The largest trees of the contract: three levels of two children.
#[test]
fn trees_of_three_by_two_are_lossless() {
    for (seed, shape) in [
        (1, None),
        (2, Some(Shape::Smooth)),
        (3, Some(Shape::Sparse)),
    ] {
        for replacement in [Replacement::With, Replacement::Without] {
            let plan = Plan::sampled(3, 2, replacement);
            assert_lossless(&Model::new(seed, 3, shape), plan, &mut Rejection::new());
        }
    }
}

/// Accepted mass min(p, q), corrected mass max(0, p - q): together p.
#[test]
fn what_is_accepted_and_what_replaces_it_add_up_to_p() {
    for shape in SHAPES {
        for seed in 0..20 {
            let model = Model::new(seed, 4, Some(shape));
            let plan = Plan::sampled(1, 1, Replacement::With);
            let law = law(&model, &by_plan(&model, plan), &mut Rejection::new());
            let pair = model.pair(&[]);
            for token in model.tokens() {
                let (p, q) = (share(&pair.p, token), share(&pair.q, token));
                let accepted = law
                    .iter()
                    .filter(|((e, corrected), _)| e[0] == token && !corrected);
                let accepted: f64 = accepted.map(|(_, mass)| mass).sum();
                let corrected = law.get(&(vec![token], true)).copied().unwrap_or(0.0);
                assert!(
                    (accepted - p.min(q)).abs() < TOLERANCE,
                    "{shape:?} {seed} {token}: {accepted}"
                );
                assert!(
                    (corrected - (p - q).max(0.0)).abs() < TOLERANCE,
                    "{shape:?} {seed} {token}: {corrected}"
                );
            }
        }
    }
}

/// Block verification never accepts less of a chain, and somewhere more (theorem 2 of 2403.10444).
#[test]
fn block_accepts_more_than_rejection() {
    let mut gains = Vec::new();
    for seed in 0..20 {
        let model = Model::new(seed, 3, Some(Shape::Smooth));
        let plan = Plan::sampled(3, 1, Replacement::With);
        let accepted = |verifier: &mut dyn Verifier| -> f64 {
            let law = law(&model, &by_plan(&model, plan), verifier);
            law.iter()
                .map(|((emitted, _), mass)| mass * (emitted.len() - 1) as f64)
                .sum()
        };
        gains.push(accepted(&mut Block::new()) - accepted(&mut Rejection::new()));
    }
    assert!(gains.iter().all(|&gain| gain > -TOLERANCE), "{gains:?}");
    assert!(gains.iter().sum::<f64>() / 20.0 > 0.02, "{gains:?}");
}

/// The example of the rule about dropping: q = (.5, .5), p = (.8, .2), token 1 dropped when drawn: (.9, .1).
#[test]
fn dropping_a_sampled_draft_emits_what_arithmetic_says() {
    let (p, q) = ([0.8, 0.2], [0.5, 0.5]);
    let model = Model::with_fixed(2, distribution(p.into_iter()), distribution(q.into_iter()));
    let drop_one: Grow<'_> = Box::new(|tree, node, path, choose| {
        if path.is_empty() && choose(&q) == 0 {
            // Recorded and pushed as if nothing had been dropped.
            draw_sampled(
                tree,
                node,
                &model.pair(path).q,
                Replacement::With,
                1,
                &mut |_| 0,
            );
        }
    });
    let law = law(&model, &drop_one, &mut Rejection::new());
    let first = |token| -> f64 {
        law.iter()
            .filter(|((emitted, _), _)| emitted[0] == TokenId(token))
            .map(|(_, mass)| mass)
            .sum()
    };
    assert!((first(0) - 0.9).abs() < TOLERANCE && (first(1) - 0.1).abs() < TOLERANCE);
}

/// Nothing drafted: every verifier draws from p.
#[test]
fn plain_decoding_is_the_tree_of_one_node() {
    let model = Model::new(5, 4, Some(Shape::Sparse));
    let nothing: Grow<'_> = Box::new(|_, _, _, _| {});
    for verifier in [
        &mut Rejection::new() as &mut dyn Verifier,
        &mut Block::new(),
        &mut Coupled,
    ] {
        let law = law(&model, &nothing, verifier);
        // One bonus token, and nothing else can come.
        assert!(law.keys().all(|(e, corrected)| e.len() == 1 && !corrected));
        assert!(
            differences(&model, &law, 1).0 < 1e-12,
            "{}",
            verifier.name()
        );
    }
}
