//! A request's answer is the same alone and in any company (the cases "Text differs", "Robustness").

mod common;

use std::sync::LazyLock;

use common::company::{assert_no_leak, assert_same, together};
use common::drafters::Sampling;
use common::requests::{Case, Kind, mixed};
use common::{prompt, sampled, tokenizer};
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_drafters::ModelDrafter;
use foredraft_drafters::copies::with_noise;
use foredraft_engine::{Completion, Engine, EngineOptions, Request, Speculation};
use foredraft_formats::Checkpoint;
use foredraft_model::unwatched;
use foredraft_speculate::{Drafter, Lookup, Verify};
use foredraft_testing::stories260k;

/// Who drafts.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Drafts {
    None,
    Lookup,
    Model,
    Both,
}

fn engine(drafts: Drafts, max_sequences: usize, kv_tokens: Option<usize>) -> Engine {
    let model = stories260k();
    let noisy = with_noise(&model, 0.15, 1).expect("a copy");
    let noisy = Checkpoint::from_bytes(noisy).expect("a model");
    let backend = CpuBackend::new(1, CpuPath::detect()).expect("a backend");
    let options = EngineOptions {
        max_sequences,
        kv_tokens,
        ..EngineOptions::default()
    };
    let drafts_for_it: &[&Checkpoint] = match drafts {
        Drafts::None | Drafts::Lookup => &[],
        Drafts::Model | Drafts::Both => &[&noisy],
    };
    let loaded = Engine::load_with_drafts(
        &model,
        drafts_for_it,
        tokenizer(),
        &backend,
        &options,
        &mut unwatched,
    );
    let (mut engine, models) = loaded.expect("an engine");
    let mut drafters: Vec<Box<dyn Drafter + Send>> = Vec::new();
    if matches!(drafts, Drafts::Lookup | Drafts::Both) {
        drafters.push(Box::new(Lookup::new(0)));
    }
    for model in models {
        let source = drafters.len() as u8;
        let drafter = ModelDrafter::new("model", source, model.executor, model.options);
        drafters.push(Box::new(drafter));
    }
    engine.set_drafters(drafters);
    engine
}

/// Each answered by itself, from the first token on.
fn alone(engine: &mut Engine, cases: &[Case]) -> Vec<Completion> {
    let answers = cases.iter().map(|case| {
        engine.forget();
        together(engine, std::slice::from_ref(case)).remove(0)
    });
    answers.collect()
}

/// As many at a time, and room for how many tokens of keys and values in all.
type Company = (usize, Option<usize>);

/// 1, 4 and 16 at a time, with room for all of them and with room for hardly more than one.
const COMPANIES: [Company; 5] = [
    (1, None),
    (4, None),
    (16, None),
    (4, Some(512)),
    (16, Some(700)),
];

/// What plain decoding says to each request by itself.
static PLAIN: LazyLock<Vec<Completion>> = LazyLock::new(|| {
    let cases = mixed(200);
    alone(&mut engine(Drafts::None, 1, None), &cases)
});

/// Requests of every kind, each alone and in company: what a draft may not change, it does not change, and the company
/// changes nothing.
fn same_in_company(drafts: Drafts, count: usize, companies: &[Company]) {
    let cases = mixed(count);
    let mut expected = PLAIN[..count].to_vec();
    if drafts != Drafts::None {
        let drafted = alone(&mut engine(drafts, 1, None), &cases);
        for (number, drafted) in drafted.into_iter().enumerate() {
            if cases[number].kind != Kind::Rejection {
                let plain = &expected[number..=number];
                assert_same(&[drafted], plain, &cases[number..=number], "alone");
            } else {
                expected[number] = drafted;
            }
        }
    }
    for &(at_a_time, kv_tokens) in companies {
        let what = format!("{drafts:?}, {at_a_time} at a time, KV {kv_tokens:?}");
        let mut engine = engine(drafts, at_a_time, kv_tokens);
        let got = together(&mut engine, &cases);
        assert_same(&got, &expected, &cases, &what);
        let figures = assert_no_leak(&mut engine);
        assert_eq!(figures.preemptions > 0, kv_tokens.is_some(), "{what}");
        let drafted = figures.drafters.iter().all(|d| d.accepted[0] > 20);
        assert!(drafted, "{what}: {figures:?}");
    }
}

#[test]
fn text_differs_not_in_company() {
    same_in_company(Drafts::None, 200, &COMPANIES);
}

#[test]
fn text_differs_not_in_company_with_lookup() {
    same_in_company(Drafts::Lookup, 200, &COMPANIES);
}

#[test]
fn text_differs_not_in_company_with_a_model() {
    same_in_company(Drafts::Model, 65, &COMPANIES[2..]);
}

#[test]
fn text_differs_not_in_company_with_both() {
    same_in_company(Drafts::Both, 65, &COMPANIES[1..4]);
}

/// `rejection` and `block` with a seed: trees that do not all fit into a pass are drafted whole or wait, so that a text is
/// what it is alone.
#[test]
fn silently_wrong_rejection_with_a_seed_reproduces_itself_in_company() {
    let story = PLAIN[0].tokens.clone();
    let with_drafter = |max_sequences| {
        let mut engine = engine(Drafts::None, max_sequences, None);
        engine.set_drafters(vec![Box::new(Sampling(story.clone()))]);
        engine
    };
    let mut cases: Vec<Case> = mixed(16);
    for (number, case) in cases.iter_mut().enumerate() {
        case.request = Request {
            speculation: Speculation {
                verify: [Verify::Rejection, Verify::Block][number % 2],
                draft_max: Some(20),
                ..Speculation::default()
            },
            ..sampled(prompt("Once upon a time"), Some(number as u64), 40)
        };
        case.cancelled_after = None;
    }
    let expected = alone(&mut with_drafter(1), &cases);
    let mut engine = with_drafter(16);
    let got = together(&mut engine, &cases);
    assert_same(&got, &expected, &cases, "16 at a time");
    // 16 trees of 20 nodes and a root are more than the outputs of a pass.
    let figures = assert_no_leak(&mut engine);
    let waits = figures.passes as f64 / (figures.sequence_steps as f64 / 16.0);
    assert!(waits > 1.5, "{waits}: {figures:?}");
}
