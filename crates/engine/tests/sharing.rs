//! Texts that begin alike: what is computed once, and what each has for itself (the case "Prefix cache").

mod common;

use std::ops::ControlFlow;

use common::backend::Watched;
use common::company::{assert_no_leak, assert_same, together};
use common::requests::{Case, Kind};
use common::{answer, engine_with, greedy, ids, prompt, tokenizer};
use foredraft_common::TokenId;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_drafters::ModelDrafter;
use foredraft_engine::{
    Completion, DraftModel, Engine, EngineOptions, Request, RequestId, Speculation,
};
use foredraft_model::unwatched;
use foredraft_speculate::SamplingSettings;
use foredraft_testing::stories260k;

fn options(max_sequences: usize) -> EngineOptions {
    EngineOptions {
        max_sequences,
        ..EngineOptions::default()
    }
}

fn engine(max_sequences: usize) -> Engine {
    engine_with(&stories260k(), 1, &options(max_sequences))
}

/// A text of the model's own, long enough for any prompt.
fn story() -> Vec<TokenId> {
    let told = answer(&mut engine(1), &greedy(ids(&[1]), 500));
    [&ids(&[1])[..], &told.tokens].concat()
}

/// A step; gives who ended.
fn step(engine: &mut Engine) -> Vec<(RequestId, Completion)> {
    let mut finished = Vec::new();
    engine.step(&mut |_, _| ControlFlow::Continue(()), &mut finished);
    let ended = finished.into_iter();
    ended
        .map(|(id, result)| (id, result.expect("an answer")))
        .collect()
}

/// Four choices of one request: its prompt goes through the model once, and its pages are there once.
#[test]
fn n_choices_read_their_prompt_once() {
    let start = story()[..300].to_vec();
    let backend = Watched::new();
    let engine = Engine::load(
        &stories260k(),
        tokenizer(),
        &backend,
        &options(4),
        &mut unwatched,
    );
    let mut engine = engine.expect("an engine");
    let cases: Vec<Case> = (0..4)
        .map(|choice| Case {
            kind: Kind::OfThree,
            request: Request {
                choice,
                sampling: SamplingSettings {
                    seed: Some(5),
                    ..SamplingSettings::default()
                },
                ..greedy(start.clone(), 40)
            },
            cancelled_after: None,
        })
        .collect();
    let got = together(&mut engine, &cases);
    let cached: Vec<usize> = got.iter().map(|got| got.usage.cached_tokens).collect();
    assert_eq!(cached, [0, 299, 299, 299]);
    let fed = backend.seen.lock().expect("fine").tokens.len();
    // The prompt, its last token for each other choice, and every token of the answers but the last.
    assert_eq!(fed, 300 + 3 + 4 * 39);
    for (got, case) in got.iter().zip(&cases) {
        let alone = answer(&mut self::engine(1), &case.request);
        assert_same(
            std::slice::from_ref(got),
            &[alone],
            std::slice::from_ref(case),
            "alone",
        );
    }
    assert_no_leak(&mut engine);
}

/// While they run, 18 full pages (288 tokens) are shared by four; each has its own for the rest.
#[test]
fn choices_share_pages_and_write_to_their_own() {
    let start = story()[..300].to_vec();
    let mut engine = engine(4);
    for choice in 0..4 {
        let request = Request {
            choice,
            ..greedy(start.clone(), 50)
        };
        engine.submit(request).expect("taken");
    }
    while engine.running() < 4 {
        step(&mut engine);
    }
    step(&mut engine);
    let pages = engine.figures().pages;
    // The cache holds the shared ones too, and nothing else.
    assert_eq!((pages.shared, pages.cached), (18, 18));
    assert_eq!(pages.used, 18 + 4);
    while !engine.is_idle() {
        step(&mut engine);
    }
    assert_no_leak(&mut engine);
}

/// Whoever shares a prompt that is still being read waits for it, but not for ever.
#[test]
fn who_waits_for_anothers_prompt_goes_on_when_that_one_leaves() {
    let story = story();
    let mut engine = engine(3);
    let busy = engine
        .submit(greedy(prompt("One day"), 200))
        .expect("taken");
    step(&mut engine);
    let first = engine
        .submit(greedy(story[..400].to_vec(), 9))
        .expect("taken");
    let second = engine
        .submit(greedy(story[..300].to_vec(), 9))
        .expect("taken");
    step(&mut engine);
    assert_eq!((engine.running(), engine.waiting()), (2, 1));
    engine.cancel(first);
    let mut cached = None;
    while cached.is_none() {
        let ended = step(&mut engine);
        let of_second = ended.into_iter().find(|(id, _)| *id == second);
        cached = of_second.map(|(_, got)| got.usage.cached_tokens);
    }
    // What the other had read is there: the token that begins every text, and a chunk.
    assert_eq!(cached, Some(1 + 64));
    engine.cancel(busy);
}

/// A chat of twelve turns: each reads what is new and no more, the draft too, and speculation changes nothing of it.
#[test]
fn prefix_cache_a_turn_of_a_chat_reads_only_what_is_new() {
    let (model, draft) = (stories260k(), stories260k());
    let backend = CpuBackend::new(1, CpuPath::detect()).expect("a backend");
    let loaded = Engine::load_with_drafts(
        &model,
        &[&draft],
        tokenizer(),
        &backend,
        &options(2),
        &mut unwatched,
    );
    let (mut engine, mut drafts) = loaded.expect("both");
    let DraftModel { executor, options } = drafts.remove(0);
    let drafter = ModelDrafter::new("model", 0, executor, options);
    engine.set_drafters(vec![Box::new(drafter)]);
    let mut chat = |speculation: Speculation| {
        engine.forget();
        let before = engine.figures().drafters[0].clone();
        let (mut text, mut cached) = (ids(&[1]), Vec::new());
        for turn in 0..12 {
            text.extend(&prompt(["One day,", "Mom said", "But then"][turn % 3])[1..]);
            let request = Request {
                speculation,
                ..greedy(text.clone(), 20)
            };
            let got = answer(&mut engine, &request);
            // What came out of the last turn, but for its last token, which never was in a pass.
            cached.push((
                text.len() - got.usage.cached_tokens,
                got.usage.cached_tokens,
            ));
            text.extend(&got.tokens);
        }
        let after = engine.figures().drafters[0].clone();
        let asked = after.prompt_tokens - before.prompt_tokens;
        let found = after.cached_prompt_tokens - before.cached_prompt_tokens;
        (cached, asked - found)
    };
    let (with, draft_read) = chat(Speculation::default());
    let (without, _) = chat(Speculation::off());
    assert_eq!(with, without, "the hit rate is the same");
    let new: usize = with.iter().map(|&(new, _)| new).sum();
    for (turn, (new, _)) in with.iter().enumerate().skip(1) {
        let said = prompt(["One day,", "Mom said", "But then"][turn % 3]).len() - 1;
        assert_eq!(*new, said + 1, "turn {turn}");
    }
    // The draft looks up all but a text's last token; of a turn it may lack the last drafted token too.
    let draft_read = draft_read as usize;
    assert!(
        (new - 12..=new).contains(&draft_read),
        "{draft_read} of {new}"
    );
}
