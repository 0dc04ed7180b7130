//! What a step takes, and what faults cost (the cases "Robustness", "Vocabulary", "Memory").

mod common;

use std::ops::ControlFlow;

use common::backend::Watched;
use common::drafters::{Fault, Faulty, Scripted};
use common::{answer, engine, greedy, ids, prompt, tokenizer};
use foredraft_common::TokenId;
use foredraft_engine::{
    Engine, EngineError, EngineOptions, Event, Request, Speculation, TokenOrigin, TreeShape,
};
use foredraft_model::unwatched;
use foredraft_speculate::{Lookup, Verify};
use foredraft_testing::stories260k;

const CHAIN: TreeShape = TreeShape::Chain;
const GRID: TreeShape = TreeShape::Grid { width: 2, depth: 2 };

#[test]
fn robustness_a_failing_drafter_costs_a_warning_and_nothing_else() {
    let request = greedy(prompt("One day"), 60);
    let plain = answer(&mut self::engine(), &request);
    for fault in [Fault::Begin, Fault::Extend, Fault::TooMany, Fault::TooDeep] {
        let mut engine = self::engine();
        let inner = Scripted::new(&[&request.prompt, &plain.tokens], 3);
        engine.set_drafters(vec![Box::new(Faulty {
            inner,
            fault,
            steps: 0,
        })]);
        // A next request tries it again, and is warned again.
        for _ in 0..2 {
            let mut warnings = Vec::new();
            let got = engine
                .generate(&request, &mut |event| {
                    if let Event::Warning(text) = event {
                        warnings.push(text.to_owned());
                    }
                    ControlFlow::Continue(())
                })
                .expect("an answer");
            assert_eq!(
                (&got.tokens, &got.text),
                (&plain.tokens, &plain.text),
                "{fault:?}"
            );
            assert_eq!(warnings.len(), 1, "{fault:?}: {warnings:?}");
            assert!(warnings[0].contains("faulty"), "{warnings:?}");
            let figures = got.speculation.expect("speculated");
            assert!(figures.accepted > 0 && figures.steps > 40, "{figures:?}");
        }
    }
}

/// An engine over a watched backend.
fn watched() -> (Engine, Watched) {
    let backend = Watched::new();
    let options = EngineOptions::default();
    let engine = Engine::load(
        &stories260k(),
        tokenizer(),
        &backend,
        &options,
        &mut unwatched,
    );
    (engine.expect("an engine"), backend)
}

#[test]
fn robustness_a_nan_row_ends_the_request_with_an_error_and_leaks_nothing() {
    let request = greedy(prompt("Once upon a time"), 60);
    let plain = answer(&mut self::engine(), &request);
    for verify in [Verify::Coupled, Verify::Rejection, Verify::Block] {
        let (mut engine, backend) = watched();
        let expected = answer(&mut engine, &request);
        let pages = engine.pages_in_use();
        let scripted = Scripted::new(&[&request.prompt, &plain.tokens], 0);
        engine.set_drafters(vec![Box::new(scripted)]);
        let speculation = Speculation {
            verify,
            ..Speculation::default()
        };
        let speculative = Request {
            speculation,
            ..request.clone()
        };
        let spoil = |position| backend.seen.lock().expect("fine").spoiled_position = position;
        spoil(Some(request.prompt.len() + 20));
        let error = engine
            .generate(&speculative, &mut |_| ControlFlow::Continue(()))
            .expect_err("no token comes of NaN");
        let EngineError::Logits { position, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(position, request.prompt.len() + 21, "{verify:?}");
        assert!(engine.pages_in_use() <= pages);
        spoil(None);
        assert_eq!(answer(&mut engine, &speculative).tokens, expected.tokens);
        assert_eq!(engine.pages_in_use(), pages);
        engine.forget();
        assert_eq!(engine.pages_in_use(), 0);
    }
}

/// A token that the model has no embedding for, or that the tokenizer cannot turn into text, never gets into a pass.
#[test]
fn vocabulary_no_token_beyond_it_reaches_the_embedding() {
    let request = greedy(prompt("Once upon a time"), 80);
    for verify in [Verify::Coupled, Verify::Rejection, Verify::Block] {
        for shape in [CHAIN, GRID] {
            let (mut engine, backend) = watched();
            let plain = answer(&mut engine, &request);
            let mut scripted = Scripted::new(&[&request.prompt, &plain.tokens], 3);
            scripted.wrong = |number| TokenId([512, u32::MAX, 50_000, u32::MAX - 1][number % 4]);
            engine.set_drafters(vec![Box::new(scripted)]);
            let speculation = Speculation {
                verify,
                tree: shape,
                ..Speculation::default()
            };
            let speculative = Request {
                speculation,
                ..request.clone()
            };
            let got = answer(&mut engine, &speculative);
            assert_eq!(got.tokens, plain.tokens, "{verify:?} {shape:?}");
            assert!(got.speculation.expect("speculated").accepted > 0);
            let seen = backend.seen.lock().expect("fine");
            assert!(seen.tokens.iter().all(|token| token.index() < 512));
        }
    }
}

/// Plain decoding takes a pass a token and no row more, and a draft is checked in the pass that is taken anyway.
#[test]
fn a_step_is_one_pass_and_nothing_is_computed_twice() {
    let request = greedy(prompt("Once upon a time"), 40);
    let (mut engine, backend) = watched();
    let plain = answer(&mut engine, &request);
    {
        let seen = backend.seen.lock().expect("fine");
        let mut expected = vec![1; 40];
        expected[0] = request.prompt.len();
        assert_eq!((&seen.passes, &seen.commits), (&expected, &expected));
    }
    assert_eq!((plain.timings.steps, plain.timings.first_tokens), (39, 1));
    // A drafter with nothing to say, and a request that wants none, change nothing.
    let (mut engine, backend) = watched();
    engine.set_drafters(vec![Box::new(Scripted::new(
        &[&request.prompt, &plain.tokens],
        0,
    ))]);
    let off = Request {
        speculation: Speculation::off(),
        ..request.clone()
    };
    let got = answer(&mut engine, &off);
    assert_eq!((got.tokens, got.speculation), (plain.tokens.clone(), None));
    assert_eq!(backend.seen.lock().expect("fine").passes.len(), 40);
    // Right in everything: 40 tokens in 9 a step.
    *backend.seen.lock().expect("fine") = common::backend::Seen::default();
    engine.forget();
    let got = answer(&mut engine, &request);
    assert_eq!(got.tokens, plain.tokens);
    let seen = backend.seen.lock().expect("fine");
    // The last step may emit 4 tokens: 3 drafted, for the fourth is the target's anyway.
    let prompt = request.prompt.len();
    assert_eq!(seen.passes, [prompt + 8, 9, 9, 9, 4]);
    assert_eq!(seen.commits, [prompt + 8, 9, 9, 9, 4]);
    let figures = got.speculation.expect("speculated");
    assert_eq!(
        (figures.steps, figures.drafted, figures.accepted),
        (5, 35, 35)
    );
    assert_eq!(figures.acceptance_by_depth(), [1.0; 8]);
    assert_eq!(got.timings.first_tokens, 9);
}

#[test]
fn events_tell_every_token_and_where_it_came_from() {
    let request = greedy(prompt("Once upon a time"), 60);
    let mut engine = self::engine();
    let plain = answer(&mut engine, &request);
    engine.set_drafters(vec![Box::new(Scripted::new(
        &[&request.prompt, &plain.tokens],
        4,
    ))]);
    let (mut tokens, mut origins, mut emitted) = (Vec::new(), Vec::new(), 0);
    let got = engine
        .generate(&request, &mut |event| {
            match event {
                Event::Token { token, origin, .. } => {
                    tokens.push(token);
                    origins.push(origin);
                }
                Event::Step(step) => {
                    emitted += step.emitted;
                    assert_eq!(emitted, tokens.len());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .expect("an answer");
    assert_eq!(tokens, got.tokens);
    let count = |wanted| origins.iter().filter(|&&origin| origin == wanted).count();
    let figures = got.speculation.expect("speculated");
    assert_eq!(count(TokenOrigin::Accepted), figures.accepted);
    assert!(count(TokenOrigin::Corrected) > 5);
    // A request without drafters tells of plain tokens only.
    engine.set_drafters(Vec::new());
    let mut all_plain = true;
    let see = &mut |event: Event<'_>| {
        if let Event::Token { origin, .. } = event {
            all_plain &= origin == TokenOrigin::Plain;
        }
        ControlFlow::Continue(())
    };
    engine.generate(&request, see).expect("an answer");
    assert!(all_plain);
}

#[test]
fn more_drafted_tokens_than_were_reserved_are_refused() {
    let mut engine = self::engine();
    engine.set_drafters(vec![Box::new(Lookup::new(0))]);
    let tree = TreeShape::Grid { width: 3, depth: 3 };
    let request = Request {
        speculation: Speculation {
            tree,
            ..Speculation::default()
        },
        ..greedy(ids(&[1]), 5)
    };
    let error = engine
        .generate(&request, &mut |_| ControlFlow::Continue(()))
        .expect_err("39 of 31");
    assert!(
        error.to_string().contains("39") && error.to_string().contains("31"),
        "{error}"
    );
}

/// The case "Memory": a draft's weights and pages are in the budget.
#[test]
fn memory_a_draft_is_in_the_budget() {
    let load = |memory_bytes, context_tokens| {
        let backend = Watched::new();
        let options = EngineOptions {
            memory_bytes,
            context_tokens,
            ..EngineOptions::default()
        };
        let target = stories260k();
        Engine::load_with_drafts(
            &target,
            &[&stories260k()],
            tokenizer(),
            &backend,
            &options,
            &mut unwatched,
        )
    };
    let (engine, drafts) = load(None, None).expect("both");
    let [draft] = &drafts[..] else {
        panic!("one draft");
    };
    assert_eq!(draft.options.context_tokens, 512);
    let total = engine.memory().total_bytes() + draft.executor.memory().total_bytes();
    assert!(draft.executor.memory().weights_bytes > 0);
    assert!(load(Some(total), Some(512)).is_ok());
    let error = load(Some(total - 1), Some(512))
        .err()
        .expect("one byte short");
    let text = error.to_string();
    assert!(text.contains("draft: weights"), "{text}");
    for remedy in ["a context of 496 tokens", "--kv q8", "without its draft"] {
        assert!(text.contains(remedy), "{text}");
    }
    assert!(load(Some(total - 1), Some(496)).is_ok());
    // Too little even for the model alone, but for a shorter context.
    let alone = engine.memory().total_bytes();
    let error = load(Some(alone - 1), Some(512)).err().expect("no room");
    let text = error.to_string();
    assert!(text.contains("496 tokens without the draft"), "{text}");
}
