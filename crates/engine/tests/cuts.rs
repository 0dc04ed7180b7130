//! Where answers end within an accepted run, and what is left behind (the cases "Stop", "Prefix cache").

mod common;

use std::ops::ControlFlow;

use common::drafters::Scripted;
use common::{answer, engine_with, greedy, ids, prompt};
use foredraft_common::TokenId;
use foredraft_engine::{
    Completion, Engine, EngineOptions, Event, FinishReason, Request, Speculation, TreeShape,
};
use foredraft_speculate::SamplingSettings;
use foredraft_testing::stories260k;

fn fresh(context_tokens: Option<usize>) -> Engine {
    let options = EngineOptions {
        context_tokens,
        ..EngineOptions::default()
    };
    engine_with(&stories260k(), 1, &options)
}

/// Answers plainly and with a drafter that knows the whole text, in engines of their own, and checks that nothing tells
/// the two apart, then or later.
fn check(request: &Request, context_tokens: Option<usize>, shape: TreeShape) -> Completion {
    let whole = answer(&mut fresh(None), &greedy(request.prompt.clone(), 200));
    let mut plain_engine = fresh(context_tokens);
    let plain = answer(&mut plain_engine, request);
    let mut engine = fresh(context_tokens);
    engine.set_drafters(vec![Box::new(Scripted::new(
        &[&request.prompt, &whole.tokens],
        0,
    ))]);
    let speculation = Speculation {
        tree: shape,
        draft_max: Some(8),
        ..Speculation::default()
    };
    let request = Request {
        speculation,
        ..request.clone()
    };
    let got = answer(&mut engine, &request);
    assert_eq!((&got.tokens, &got.text), (&plain.tokens, &plain.text));
    assert_eq!(got.finish_reason, plain.finish_reason);
    assert!(
        got.timings.steps < plain.timings.steps.max(1),
        "several at once"
    );
    assert_eq!(engine.pages_in_use(), plain_engine.pages_in_use());
    // The next prompt holds what was cut off: neither engine may have it in pages.
    let mut next = [request.prompt.as_slice(), &whole.tokens].concat();
    next.truncate(context_tokens.unwrap_or(512) - 3);
    let next = greedy(next, 2);
    let (after, after_plain) = (answer(&mut engine, &next), answer(&mut plain_engine, &next));
    assert_eq!(after.tokens, after_plain.tokens);
    assert_eq!(after.usage, after_plain.usage, "the cache is the same");
    assert_eq!(
        after.usage.cached_tokens,
        (request.prompt.len() + got.tokens.len() - 1).min(next.prompt.len() - 1)
    );
    got
}

const CHAIN: TreeShape = TreeShape::Chain;
const GRID: TreeShape = TreeShape::Grid { width: 2, depth: 2 };

#[test]
fn stop_strings_cut_an_accepted_run() {
    for (stop, text) in [
        ("named Lily", "Once upon a time, there was a little girl "),
        (
            "y. S",
            "Once upon a time, there was a little girl named Lil",
        ),
        (
            "ved to play",
            "Once upon a time, there was a little girl named Lily. She lo",
        ),
    ] {
        for shape in [CHAIN, GRID] {
            let request = Request {
                stop: vec![stop.into()],
                ..greedy(ids(&[1]), 200)
            };
            let got = check(&request, None, shape);
            assert_eq!(got.text, text);
            assert_eq!(got.finish_reason, FinishReason::StopString);
        }
    }
}

#[test]
fn stop_at_max_tokens_within_an_accepted_run() {
    for count in 1..24 {
        for shape in [CHAIN, GRID] {
            let got = check(&greedy(ids(&[1]), count), None, shape);
            assert_eq!(got.tokens.len(), count);
            assert_eq!(got.finish_reason, FinishReason::MaxTokens);
        }
    }
}

#[test]
fn stop_at_the_contexts_end_within_an_accepted_run() {
    for context in 30..42 {
        for shape in [CHAIN, GRID] {
            let got = check(&greedy(ids(&[1]), 200), Some(context), shape);
            assert_eq!(got.tokens.len(), context - 1);
            assert_eq!(got.finish_reason, FinishReason::Context);
        }
    }
}

/// End-of-text in the middle of a drafted run: the drafter goes on behind it, the answer does not.
#[test]
fn stop_at_end_of_text_within_an_accepted_run() {
    let request = |bias| Request {
        sampling: SamplingSettings {
            logit_bias: vec![(TokenId(2), bias)],
            ..SamplingSettings::greedy()
        },
        ..greedy(prompt("The end"), 60)
    };
    let mut engine = fresh(None);
    // Some bias makes the story end early, but not at once.
    let (request, ended) = (0..100)
        .map(|step| request(step as f32 * 0.25))
        .map(|request| (answer(&mut engine, &request), request))
        .find(|(got, _)| got.finish_reason == FinishReason::EndOfText && got.tokens.len() > 5)
        .map(|(got, request)| (request, got))
        .expect("such a bias");
    let behind = [ended.tokens.as_slice(), &ids(&[300; 20])].concat();
    let scripted = Scripted::new(&[&request.prompt, &behind], 0);
    engine.set_drafters(vec![Box::new(scripted)]);
    let got = answer(&mut engine, &request);
    assert_eq!((&got.tokens, &got.text), (&ended.tokens, &ended.text));
    assert_eq!(got.finish_reason, FinishReason::EndOfText);
    assert!(got.timings.steps < ended.timings.steps);
}

#[test]
fn stop_by_the_caller_within_an_accepted_run() {
    let whole = answer(&mut fresh(None), &greedy(ids(&[1]), 100));
    for after in 1..12 {
        let mut engine = fresh(None);
        engine.set_drafters(vec![Box::new(Scripted::new(
            &[&ids(&[1]), &whole.tokens],
            0,
        ))]);
        let mut tokens = 0;
        let got = engine
            .generate(&greedy(ids(&[1]), 100), &mut |event| {
                tokens += usize::from(matches!(event, Event::Token { .. }));
                match tokens >= after {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            })
            .expect("an answer");
        assert_eq!(got.finish_reason, FinishReason::Cancelled);
        assert_eq!(got.tokens, whole.tokens[..after]);
        assert_eq!(
            answer(&mut engine, &greedy(ids(&[1]), 100)).tokens,
            whole.tokens
        );
    }
}
