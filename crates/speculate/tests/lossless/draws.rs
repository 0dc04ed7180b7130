//! What is generated with keyed noise, several steps long, has the target's frequencies; and under `coupled` it is
//! what plain decoding generates.

use foredraft_common::TokenId;
use foredraft_speculate::statistics::{chi_square_test, holm};
use foredraft_speculate::{
    Block, Coupled, DraftDraw, Rejection, Replacement, Verdict, Verifier, Verify, VerifyRule,
    sample,
};

use crate::decode::{Decoder, by_plan, key, keyed};
use crate::model::{Model, Plan, Shape};
use crate::reference::{Fault, Reference};

/// Tokens of a generated text whose joint frequencies are tested.
const TOKENS: usize = 3;

/// Chance of any false alarm.
const ALPHA: f64 = 1e-3;

/// The p-value of the joint frequencies of the first tokens over `draws` seeds.
pub(crate) fn p_value(decoder: &mut Decoder<'_>, seeds: std::ops::Range<u64>) -> f64 {
    let model = decoder.model;
    let n = model.vocabulary as usize;
    let draws = seeds.end - seeds.start;
    let mut observed = vec![0u64; n.pow(TOKENS as u32)];
    for seed in seeds {
        let text = decoder.generate(seed, TOKENS);
        observed[text.iter().fold(0, |cell, token| cell * n + token.index())] += 1;
    }
    let probability = |cell: usize| -> f64 {
        let text = [cell / n / n, cell / n % n, cell % n].map(|id| TokenId(id as u32));
        (0..TOKENS).map(|i| model.p(&text[..i], text[i])).product()
    };
    let expected: Vec<f64> = (0..observed.len())
        .map(|cell| probability(cell) * draws as f64)
        .collect();
    chi_square_test(&observed, &expected)
        .expect("a valid test")
        .p_value
}

const WITH: DraftDraw = DraftDraw::Sampled(Replacement::With);
const WITHOUT: DraftDraw = DraftDraw::Sampled(Replacement::Without);

fn tree(depth: u32, width: usize) -> Plan {
    Plan::sampled(depth, width, Replacement::With)
}

fn mixed(depth: u32, deterministic: usize, drawn: usize) -> Plan {
    Plan {
        deterministic,
        ragged: true,
        ..tree(depth, drawn)
    }
}

#[test]
fn what_is_generated_has_the_targets_frequencies() {
    use VerifyRule::{Block, Coupled, Rejection};
    let cases = [
        (Rejection, tree(0, 0), WITH),
        (Rejection, tree(1, 1), WITH),
        (Rejection, tree(4, 1), WITH),
        (Rejection, tree(2, 2), WITH),
        (Rejection, tree(2, 3), WITHOUT),
        (Rejection, tree(2, 2), DraftDraw::Ranked),
        // A draft drawn with the target's noise is as good as a fixed one when the verifier does not use that noise.
        (Rejection, tree(2, 2), DraftDraw::Coupled),
        (Rejection, mixed(2, 2, 2), WITH),
        (Rejection, mixed(3, 1, 2), WITHOUT),
        (Block, tree(2, 1), WITH),
        (Block, tree(4, 1), WITH),
        (Block, tree(3, 1), DraftDraw::Ranked),
        (Block, tree(2, 2), WITHOUT),
        (Coupled, tree(3, 1), DraftDraw::Coupled),
        (Coupled, tree(2, 2), WITHOUT),
        (Coupled, mixed(2, 2, 2), DraftDraw::Coupled),
    ];
    let mut results = Vec::new();
    for (number, (rule, plan, draw)) in (0u64..).zip(cases) {
        for shape in [Shape::Smooth, Shape::Sparse] {
            let model = Model::new(70 + number, 4, Some(shape));
            let mut decoder = Decoder {
                model: &model,
                depth: plan.depth,
                draft: &by_plan(plan, draw),
                verifier: rule.verifier(),
                chance: keyed,
            };
            let seeds = number * 100_000..number * 100_000 + 20_000;
            results.push((
                format!("{rule:?} {shape:?} {plan:?} {draw:?}"),
                p_value(&mut decoder, seeds),
            ));
        }
    }
    let adjusted = holm(&results.iter().map(|(_, p)| *p).collect::<Vec<_>>());
    for ((name, p), adjusted) in results.iter().zip(adjusted) {
        println!("{p:.3e} {name}");
        assert!(
            adjusted >= ALPHA,
            "{name}: p = {p:e} ({adjusted:e} after Holm)"
        );
    }
}

/// Text of plain decoding: nothing but `sample`.
fn plain(model: &Model, seed: u64, count: usize) -> Vec<TokenId> {
    let mut text = Vec::new();
    while text.len() < count {
        text.push(sample(&model.pair(&text).p, &key(seed, text.len())));
    }
    text
}

#[test]
fn coupled_emits_what_plain_decoding_with_the_seed_emits() {
    let plans = [
        tree(0, 0),
        tree(1, 1),
        tree(3, 1),
        tree(3, 2),
        mixed(2, 2, 2),
        mixed(4, 1, 1),
    ];
    let draws = [DraftDraw::Coupled, DraftDraw::Ranked, WITH, WITHOUT];
    for (plan, draw) in plans
        .iter()
        .flat_map(|&plan| draws.map(|draw| (plan, draw)))
    {
        for seed in 0..8 {
            let model = Model::new(seed, 5, None);
            let mut decoder = Decoder {
                model: &model,
                depth: plan.depth,
                draft: &by_plan(plan, draw),
                verifier: Verify::Auto.resolve(true, false).verifier(),
                chance: keyed,
            };
            assert_eq!(
                decoder.generate(seed, 60),
                plain(&model, seed, 60),
                "{plan:?} {draw:?}"
            );
        }
    }
}

/// With one-hot p (temperature 0) every verifier emits the same text, whatever is drafted.
#[test]
fn at_temperature_0_all_verifiers_coincide() {
    for seed in 0..8 {
        let model = Model::new(seed, 5, Some(Shape::OneHotP));
        let expected = plain(&model, seed, 60);
        for rule in [
            VerifyRule::Rejection,
            VerifyRule::Coupled,
            VerifyRule::Block,
        ] {
            for draw in [rule.draft_draw(true), rule.draft_draw(false), WITH] {
                for plan in [tree(0, 0), tree(4, 1), tree(2, 3), mixed(3, 1, 2)] {
                    let mut decoder = Decoder {
                        model: &model,
                        depth: plan.depth,
                        draft: &by_plan(plan, draw),
                        verifier: rule.verifier(),
                        chance: keyed,
                    };
                    assert_eq!(
                        decoder.generate(seed, 60),
                        expected,
                        "{rule:?} {plan:?} {draw:?}"
                    );
                }
            }
        }
    }
}

/// The verdicts of two verifiers on the same trees with the same noise.
fn verdicts(plan: Plan, draw: DraftDraw, verifier: Box<dyn Verifier>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let model = Model::new(12, 4, Some(Shape::Smooth));
    let mut decoder = Decoder {
        model: &model,
        depth: plan.depth,
        draft: &by_plan(plan, draw),
        verifier,
        chance: keyed,
    };
    verdicts.extend((0..3000).map(|seed| decoder.step(seed, &[]).1));
    verdicts
}

#[test]
fn the_second_reading_gives_the_same_verdicts_draw_by_draw() {
    for draw in [WITH, WITHOUT, DraftDraw::Ranked] {
        for plan in [tree(3, 1), tree(2, 3), mixed(2, 2, 2)] {
            let second = verdicts(plan, draw, Box::new(Reference::new(Fault::None)));
            assert_eq!(
                verdicts(plan, draw, Box::new(Rejection::new())),
                second,
                "{plan:?} {draw:?}"
            );
        }
    }
}

#[test]
fn block_verifies_a_tree_that_is_no_chain_as_rejection_does() {
    // Two children everywhere: no tree of these is a chain.
    let plan = tree(2, 2);
    let rejection = verdicts(plan, WITHOUT, Box::new(Rejection::new()));
    assert_eq!(verdicts(plan, WITHOUT, Box::new(Block::new())), rejection);
    let chain = verdicts(tree(3, 1), WITH, Box::new(Rejection::new()));
    assert_ne!(verdicts(tree(3, 1), WITH, Box::new(Block::new())), chain);
    assert_eq!(Coupled.name(), "coupled");
}
