//! A request's answer is the same alone and in any company (the cases "Text differs", "Robustness").

mod common;

use common::company::{assert_no_leak, assert_same, together};
use common::requests::{Case, Kind, mixed};
use common::tokenizer;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_drafters::ModelDrafter;
use foredraft_drafters::copies::with_noise;
use foredraft_engine::{Completion, Engine, EngineOptions};
use foredraft_formats::Checkpoint;
use foredraft_model::unwatched;
use foredraft_speculate::{Drafter, Lookup};
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

/// Requests of every kind, at 1, 4 and 16 at a time, with room for all and with room for hardly more than one.
fn same_in_company(drafts: Drafts, count: usize) {
    let cases = mixed(count);
    let expected = alone(&mut engine(drafts, 1, None), &cases);
    if drafts != Drafts::None {
        // What a draft may not change, it does not change.
        let plain = alone(&mut engine(Drafts::None, 1, None), &cases);
        let promised = |number: &usize| cases[*number].kind != Kind::Rejection;
        for number in (0..cases.len()).filter(promised) {
            let one = |all: &[Completion]| vec![all[number].clone()];
            let case = &cases[number..=number];
            assert_same(&one(&expected), &one(&plain), case, "plain");
        }
    }
    let rooms = [
        (1, None),
        (4, None),
        (16, None),
        (4, Some(512)),
        (16, Some(700)),
    ];
    for (at_a_time, kv_tokens) in rooms {
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
    same_in_company(Drafts::None, 200);
}

#[test]
fn text_differs_not_in_company_with_lookup() {
    same_in_company(Drafts::Lookup, 200);
}

#[test]
fn text_differs_not_in_company_with_a_model() {
    same_in_company(Drafts::Model, 65);
}

#[test]
fn text_differs_not_in_company_with_both() {
    same_in_company(Drafts::Both, 65);
}
