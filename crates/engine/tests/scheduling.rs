//! Who runs when: prompts beside running answers, shared prompts, too few pages, requests that come and go.

mod common;

use std::collections::HashMap;
use std::ops::ControlFlow;

use common::backend::Watched;
use common::company::{assert_no_leak, assert_same, together};
use common::requests::{Case, Kind, mixed};
use common::{answer, engine_with, greedy, ids, prompt, tokenizer};
use foredraft_drafters::ModelDrafter;
use foredraft_engine::{
    Completion, DraftModel, Engine, EngineError, EngineOptions, Event, FinishReason, Request,
    RequestId,
};
use foredraft_model::unwatched;
use foredraft_speculate::Lookup;
use foredraft_testing::stories260k;
use proptest::prelude::*;

fn options(max_sequences: usize, kv_tokens: Option<usize>) -> EngineOptions {
    EngineOptions {
        max_sequences,
        kv_tokens,
        ..EngineOptions::default()
    }
}

fn engine(max_sequences: usize, kv_tokens: Option<usize>) -> Engine {
    engine_with(&stories260k(), 1, &options(max_sequences, kv_tokens))
}

/// An engine over a watched backend.
fn watched(max_sequences: usize) -> (Engine, Watched) {
    let backend = Watched::new();
    let engine = Engine::load(
        &stories260k(),
        tokenizer(),
        &backend,
        &options(max_sequences, None),
        &mut unwatched,
    );
    (engine.expect("an engine"), backend)
}

/// A text of the model's own, long enough for any prompt.
fn story() -> Vec<foredraft_common::TokenId> {
    let told = answer(&mut engine(1, None), &greedy(ids(&[1]), 500));
    [&ids(&[1])[..], &told.tokens].concat()
}

fn ignore(_: RequestId, _: Event<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A step; gives who emitted how many tokens, and who ended.
fn step(engine: &mut Engine) -> (HashMap<RequestId, usize>, Vec<(RequestId, Completion)>) {
    let (mut tokens, mut finished) = (HashMap::new(), Vec::new());
    engine.step(
        &mut |id, event| {
            if let Event::Token { .. } = event {
                *tokens.entry(id).or_default() += 1;
            }
            ControlFlow::Continue(())
        },
        &mut finished,
    );
    let ended = finished.into_iter();
    let ended = ended.map(|(id, result)| (id, result.expect("an answer")));
    (tokens, ended.collect())
}

/// A long prompt is read beside a running answer, which goes on in every step, in passes of bounded size.
#[test]
fn a_long_prompt_never_stalls_a_running_answer() {
    let story = story();
    let (mut engine, backend) = watched(4);
    let first = engine.submit(greedy(prompt("One day"), 60)).expect("taken");
    step(&mut engine);
    backend.seen.lock().expect("fine").passes.clear();
    let long = greedy(story[..400].to_vec(), 3);
    let second = engine.submit(long.clone()).expect("taken");
    let mut steps_until_answered = 0;
    loop {
        let (tokens, _) = step(&mut engine);
        assert_eq!(tokens.get(&first), Some(&1), "it goes on in every step");
        steps_until_answered += 1;
        if tokens.contains_key(&second) {
            break;
        }
    }
    // Of 400 tokens the first, which begins every text, is there. The others in chunks of 64: 6 of them, and 15 with
    // which the first token comes.
    assert_eq!(steps_until_answered, 7);
    let passes = backend.seen.lock().expect("fine").passes.clone();
    assert_eq!(passes, [65, 65, 65, 65, 65, 65, 16]);
    // Alone it takes all rows of a pass.
    while !engine.is_idle() {
        step(&mut engine);
    }
    engine.forget();
    backend.seen.lock().expect("fine").passes.clear();
    answer(&mut engine, &long);
    assert_eq!(backend.seen.lock().expect("fine").passes[..2], [256, 144]);
}

/// So do drafts: what the model reads in chunks, they read in chunks beside it.
#[test]
fn a_long_prompt_is_read_chunk_by_chunk_by_the_draft_too() {
    let story = story();
    let (model, draft) = (stories260k(), stories260k());
    let backend = Watched::new();
    let loaded = Engine::load_with_drafts(
        &model,
        &[&draft],
        tokenizer(),
        &backend,
        &options(4, None),
        &mut unwatched,
    );
    let (mut engine, mut drafts) = loaded.expect("both");
    let DraftModel { executor, options } = drafts.remove(0);
    let drafter = ModelDrafter::new("model", 0, executor, options);
    engine.set_drafters(vec![Box::new(drafter)]);
    let first = greedy(prompt("One day"), 200);
    let first = engine.submit(first).expect("taken");
    step(&mut engine);
    backend.seen.lock().expect("fine").passes.clear();
    let long = greedy(story[..400].to_vec(), 3);
    let second = engine.submit(long).expect("taken");
    loop {
        let (tokens, _) = step(&mut engine);
        assert!(tokens.contains_key(&first));
        if tokens.contains_key(&second) {
            break;
        }
    }
    let largest = backend
        .seen
        .lock()
        .expect("fine")
        .passes
        .iter()
        .copied()
        .max();
    // A chunk, and the rows of the other, which drafts 8.
    assert!(largest <= Some(64 + 9 + 1), "{largest:?}");
}

/// With too few pages the younger give way, and nothing of what they said is said again or changed.
#[test]
fn preempted_answers_go_on_where_they_were() {
    let cases: Vec<Case> = mixed(39)
        .into_iter()
        .filter(|case| matches!(case.kind, Kind::Greedy | Kind::LongPrompt | Kind::Sampled))
        .collect();
    let expected = together(&mut engine(16, None), &cases);
    for kv_tokens in [512, 640, 1000] {
        let mut engine = engine(16, Some(kv_tokens));
        engine.set_drafters(vec![Box::new(Lookup::new(0))]);
        let got = together(&mut engine, &cases);
        assert_same(&got, &expected, &cases, &format!("{kv_tokens}"));
        let figures = assert_no_leak(&mut engine);
        assert!(figures.preemptions > 0);
        let tokens: usize = got.iter().map(|got| got.tokens.len()).sum();
        assert_eq!(
            figures.generated_tokens, tokens as u64,
            "none is said twice"
        );
    }
}

/// The oldest always advances, however long all of them are.
#[test]
fn the_oldest_advances_in_every_step() {
    let mut engine = engine(6, Some(512));
    let submit = |engine: &mut Engine, number| {
        let request = Request {
            choice: number,
            ..common::sampled(prompt("One day"), Some(3), 450)
        };
        engine.submit(request).expect("taken")
    };
    let mut open: Vec<RequestId> = (0..6).map(|number| submit(&mut engine, number)).collect();
    let mut preemptions = 0;
    while !open.is_empty() {
        let (tokens, ended) = step(&mut engine);
        // Its prompt is short, but where it starts again there may be a chunk to read.
        let is_reading = engine.figures().preemptions > preemptions || tokens.is_empty();
        preemptions = engine.figures().preemptions;
        assert!(is_reading || tokens.contains_key(&open[0]) || !ended.is_empty());
        open.retain(|id| ended.iter().all(|(gone, _)| gone != id));
    }
    assert!(preemptions > 3);
    assert_no_leak(&mut engine);
}

#[test]
fn requests_end_at_once_when_they_are_cancelled_wherever_they_are() {
    let mut engine = engine(1, None);
    let running = engine
        .submit(greedy(prompt("One day"), 100))
        .expect("taken");
    let waiting = engine.submit(greedy(prompt("Once"), 100)).expect("taken");
    step(&mut engine);
    engine.cancel(waiting);
    engine.cancel(running);
    engine.cancel(running);
    assert_eq!((engine.running(), engine.waiting()), (0, 0));
    assert!(!engine.is_idle(), "the ends are not given out yet");
    let (_, ended) = step(&mut engine);
    let ended: Vec<_> = ended
        .iter()
        .map(|(id, got)| (*id, got.finish_reason, got.tokens.len()))
        .collect();
    let cancelled = FinishReason::Cancelled;
    assert_eq!(ended, [(waiting, cancelled, 0), (running, cancelled, 1)]);
    assert!(engine.is_idle());
    assert_no_leak(&mut engine);
}

/// A pass that fails ends all that were in it, and nothing else.
#[test]
fn robustness_a_failed_pass_ends_those_in_it_and_the_next_go_on() {
    let (mut engine, backend) = watched(2);
    let requests = ["Once", "One day", "Mom said"].map(|start| greedy(prompt(start), 20));
    let ids = requests
        .clone()
        .map(|request| engine.submit(request).expect("taken"));
    step(&mut engine);
    backend.seen.lock().expect("fine").next_pass_fails = true;
    let mut finished = Vec::new();
    while !engine.is_idle() {
        engine.step(&mut ignore, &mut finished);
    }
    let result = |id| &finished.iter().find(|(of, _)| *of == id).expect("ended").1;
    for id in &ids[..2] {
        assert!(matches!(result(*id), Err(EngineError::Forward(_))));
    }
    let third = result(ids[2]).as_ref().expect("an answer");
    let alone = answer(&mut self::engine(1, None), &requests[2]);
    assert_eq!(third.tokens, alone.tokens);
    assert_eq!(assert_no_leak(&mut engine).ended.failed, 2);
}

/// Logits that are not numbers, and a listener that panics, each in company: the others do not notice.
#[test]
fn robustness_a_request_that_fails_inside_a_batch_leaves_the_others_unchanged() {
    let cases = mixed(26);
    let mut undisturbed = engine(8, None);
    undisturbed.set_drafters(vec![Box::new(Lookup::new(0))]);
    let expected = together(&mut undisturbed, &cases);
    let (mut engine, backend) = watched(8);
    engine.set_drafters(vec![Box::new(Lookup::new(0))]);
    // Nobody else gets that far.
    let spoiled = engine
        .submit(greedy(story()[..495].to_vec(), 30))
        .expect("taken");
    backend.seen.lock().expect("fine").spoiled_position = Some(508);
    let ids: Vec<RequestId> = cases
        .iter()
        .map(|case| engine.submit(case.request.clone()).expect("taken"))
        .collect();
    let (panicked, mut heard) = (ids[5], HashMap::new());
    let mut finished = Vec::new();
    while !engine.is_idle() {
        let mut hear = |id: RequestId, event: Event<'_>| {
            if let Event::Token { .. } = event {
                let tokens: &mut usize = heard.entry(id).or_default();
                *tokens += 1;
                assert!(id != panicked || *tokens < 5, "as planned");
                let place = ids.iter().position(|other| *other == id);
                let case = place.and_then(|place| cases[place].cancelled_after);
                if case.is_some_and(|most| *tokens >= most) {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        engine.step(&mut hear, &mut finished);
    }
    let mut failed = 0;
    for (id, result) in finished {
        match result {
            Ok(got) => {
                let place = ids
                    .iter()
                    .position(|other| *other == id)
                    .expect("one of them");
                assert_same(&[got], &expected[place..=place], &cases[place..=place], "");
            }
            Err(EngineError::Logits { position, .. }) if id == spoiled => {
                assert_eq!(position, 509);
                failed += 1;
            }
            Err(EngineError::Panicked { message }) if id == panicked => {
                assert!(message.contains("as planned"), "{message}");
                failed += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(failed, 2);
    assert_no_leak(&mut engine);
}

/// What may happen to an engine between two steps.
#[derive(Debug, Clone)]
enum Operation {
    Submit(usize),
    /// Of those that were submitted, by number.
    Cancel(usize),
    Steps(usize),
    Forget,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => (0..52usize).prop_map(Operation::Submit),
        1 => (0..40usize).prop_map(Operation::Cancel),
        4 => (1..12usize).prop_map(Operation::Steps),
        1 => Just(Operation::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever comes and goes: an answer is what it is alone, or, where it was cancelled, the beginning of that.
    #[test]
    fn any_course_of_events_leaves_every_answer_as_it_is_alone(
        operations in prop::collection::vec(operation(), 1..60),
        at_a_time in 1..=8usize,
        kv_tokens in 512..1500usize,
        has_lookup: bool,
    ) {
        let (cases, expected) = &*ANSWERS;
        let mut engine = engine(at_a_time, Some(kv_tokens));
        if has_lookup {
            engine.set_drafters(vec![Box::new(Lookup::new(0))]);
        }
        let (mut submitted, mut finished) = (Vec::new(), Vec::new());
        for operation in operations {
            match operation {
                Operation::Submit(number) => {
                    let id = engine.submit(cases[number].request.clone()).expect("taken");
                    submitted.push((id, number));
                }
                Operation::Cancel(place) => {
                    if let Some(&(id, _)) = submitted.get(place) {
                        engine.cancel(id);
                    }
                }
                Operation::Steps(steps) => {
                    for _ in 0..steps {
                        engine.step(&mut ignore, &mut finished);
                    }
                }
                Operation::Forget => engine.forget(),
            }
            prop_assert!(engine.running() <= at_a_time);
        }
        while !engine.is_idle() {
            engine.step(&mut ignore, &mut finished);
        }
        prop_assert_eq!(finished.len(), submitted.len());
        for (id, result) in finished {
            let got = result.expect("an answer");
            let place = submitted.iter().position(|(of, _)| *of == id).expect("known");
            let expected = &expected[submitted[place].1];
            if got.finish_reason == FinishReason::Cancelled {
                prop_assert!(expected.tokens.starts_with(&got.tokens));
            } else {
                prop_assert_eq!(&got.tokens, &expected.tokens);
                prop_assert_eq!(&got.text, &expected.text);
            }
        }
        assert_no_leak(&mut engine);
    }
}

/// Requests whose text no draft changes, and their answers.
static ANSWERS: std::sync::LazyLock<(Vec<Case>, Vec<Completion>)> =
    std::sync::LazyLock::new(|| {
        let mut cases = mixed(65);
        cases.retain(|case| case.kind != Kind::Rejection);
        for case in &mut cases {
            case.cancelled_after = None;
        }
        let answers = together(&mut engine(16, None), &cases);
        (cases, answers)
    });
