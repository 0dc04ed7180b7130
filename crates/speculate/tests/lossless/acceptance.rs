//! Drafts are accepted as often as theory says.

use foredraft_common::TokenId;
use foredraft_speculate::{DraftDraw, Replacement, VerifyRule};

use crate::decode::{Decoder, Parent, by_plan, keyed};
use crate::model::{Model, Plan, SHAPES, share};

const STEPS: u64 = 20_000;

/// Standard errors that a frequency may lie off: beyond 5 once in two million.
const LIMIT: f64 = 5.0;

fn assert_accepts(decoder: &mut Decoder<'_>, expected: f64, what: &str) {
    let accepted = (0..STEPS)
        .filter(|&seed| !decoder.step(seed, &[]).1.accepted.is_empty())
        .count();
    let frequency = accepted as f64 / STEPS as f64;
    let error = (expected * (1.0 - expected) / STEPS as f64).sqrt();
    // Where the expectation is 0 or 1 up to rounding of f32, so is the frequency.
    assert!(
        (frequency - expected).abs() <= LIMIT * error + 1e-6,
        "{what}: {frequency} accepted, not {expected}"
    );
}

fn first_of_each_shape() -> impl Iterator<Item = Model> {
    (0..)
        .zip(SHAPES)
        .map(|(seed, shape)| Model::new(30 + seed, 4, Some(shape)))
}

/// Sum over x of f(p(x), q(x)).
fn sum(model: &Model, f: impl Fn(f64, f64) -> f64) -> f64 {
    let pair = model.pair(&[]);
    model
        .tokens()
        .map(|token| f(share(&pair.p, token), share(&pair.q, token)))
        .sum()
}

/// sum min(p, q) (2211.17192, theorem 3.5), for block verification of one token too.
#[test]
fn a_sampled_draft_is_accepted_with_the_overlap_of_p_and_q() {
    for model in first_of_each_shape() {
        for rule in [VerifyRule::Rejection, VerifyRule::Block] {
            let plan = Plan::sampled(1, 1, Replacement::With);
            let mut decoder = Decoder {
                model: &model,
                depth: 1,
                draft: &by_plan(plan, DraftDraw::Sampled(Replacement::With)),
                verifier: rule.verifier(),
                chance: keyed,
            };
            let expected = sum(&model, f64::min);
            assert_accepts(
                &mut decoder,
                expected,
                &format!("{rule:?} {:?}", model.shape),
            );
        }
    }
}

/// p(token) of one child, the sum of theirs for several.
#[test]
fn deterministic_drafts_are_accepted_with_their_probability() {
    for model in first_of_each_shape() {
        for rule in [
            VerifyRule::Rejection,
            VerifyRule::Coupled,
            VerifyRule::Block,
        ] {
            for tokens in [&[2u32][..], &[2, 0], &[1, 3, 2]] {
                let draft = |_: &Model, parent: Parent<'_>| {
                    for &id in tokens {
                        parent.tree.push(parent.node, TokenId(id), 0, 1.0);
                    }
                };
                let mut decoder = Decoder {
                    model: &model,
                    depth: 1,
                    draft: &draft,
                    verifier: rule.verifier(),
                    chance: keyed,
                };
                let expected = tokens.iter().map(|&id| model.p(&[], TokenId(id))).sum();
                assert_accepts(
                    &mut decoder,
                    expected,
                    &format!("{rule:?} {:?} {tokens:?}", model.shape),
                );
            }
        }
    }
}

/// With shared Gumbel noise two argmaxes are the same token x with probability 1 / sum over y of
/// max(p(y) / p(x), q(y) / q(x)) (2408.07978, section 3): x wins both races iff every other y has
/// E_y >= E_x max(p(y) / p(x), q(y) / q(x)).
#[test]
fn a_coupled_draft_is_accepted_as_the_gumbel_formula_says() {
    for model in first_of_each_shape() {
        let plan = Plan::sampled(1, 1, Replacement::With);
        let mut decoder = Decoder {
            model: &model,
            depth: 1,
            draft: &by_plan(plan, DraftDraw::Coupled),
            verifier: VerifyRule::Coupled.verifier(),
            chance: keyed,
        };
        let expected = sum(&model, |p, q| match p > 0.0 && q > 0.0 {
            true => {
                1.0 / sum(&model, |other_p, other_q| {
                    f64::max(other_p / p, other_q / q)
                })
            }
            false => 0.0,
        });
        assert_accepts(
            &mut decoder,
            expected,
            &format!("coupled {:?}", model.shape),
        );
    }
}
