//! Answering many requests at once.

use std::collections::HashMap;
use std::ops::ControlFlow;

use foredraft_engine::{Completion, Engine, EngineFigures, Event, RequestId};

use super::bits;
use super::requests::Case;

/// Answers all at once, as many at a time as the engine runs. Checks that what was streamed is the text.
pub(crate) fn together(engine: &mut Engine, cases: &[Case]) -> Vec<Completion> {
    let mut numbers = HashMap::new();
    for (number, case) in cases.iter().enumerate() {
        let id = engine.submit(case.request.clone()).expect("it is taken");
        numbers.insert(id, number);
    }
    let mut shown = vec![String::new(); cases.len()];
    let mut tokens = vec![0; cases.len()];
    let mut answers: Vec<Option<Completion>> = vec![None; cases.len()];
    let mut finished = Vec::new();
    while !engine.is_idle() {
        let mut hear = |id: RequestId, event: Event<'_>| {
            let number = numbers[&id];
            match event {
                Event::Text(text) => shown[number].push_str(text),
                Event::Token { .. } => tokens[number] += 1,
                Event::Warning(warning) => panic!("{warning}"),
                _ => {}
            }
            match cases[number].cancelled_after {
                Some(most) if tokens[number] >= most => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        };
        engine.step(&mut hear, &mut finished);
        for (id, result) in finished.drain(..) {
            answers[numbers[&id]] = Some(result.expect("an answer"));
        }
    }
    let answers = answers.into_iter().zip(&shown);
    answers
        .map(|(answer, shown)| {
            let answer = answer.expect("everything is answered");
            assert_eq!(&answer.text, shown, "what was streamed is the text");
            answer
        })
        .collect()
}

pub(crate) fn assert_same(got: &[Completion], expected: &[Completion], cases: &[Case], what: &str) {
    for ((got, expected), case) in got.iter().zip(expected).zip(cases) {
        assert_eq!(got.tokens, expected.tokens, "{what}: {case:?}");
        assert_eq!(got.text, expected.text, "{what}: {case:?}");
        assert_eq!(bits(got), bits(expected), "{what}: {case:?}");
        assert_eq!(
            got.finish_reason, expected.finish_reason,
            "{what}: {case:?}"
        );
    }
}

/// Nothing is held but by the cache, and nothing by it once it is emptied.
pub(crate) fn assert_no_leak(engine: &mut Engine) -> EngineFigures {
    let figures = engine.figures();
    assert_eq!(figures.pages.used, figures.pages.cached);
    engine.forget();
    assert_eq!(engine.pages_in_use(), 0);
    figures
}
