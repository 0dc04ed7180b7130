//! The loop: where answers end, what they depend on, and what they leave behind.

mod common;

use std::ops::ControlFlow;

use common::{answer, engine, engine_with, greedy, ids, prompt, sampled, tokenizer};
use foredraft_common::TokenId;
use foredraft_engine::{Engine, EngineError, EngineOptions, Event, FinishReason, Request};
use foredraft_speculate::SamplingSettings;
use foredraft_testing::stories260k;

#[test]
fn a_seed_repeats_its_text_and_another_gives_another() {
    let mut engine = engine();
    let start = prompt("Once upon a time");
    let first = answer(&mut engine, &sampled(start.clone(), Some(7), 60));
    let other = answer(&mut engine, &sampled(start.clone(), Some(8), 60));
    let again = answer(&mut engine, &sampled(start.clone(), Some(7), 60));
    assert_eq!(first.tokens, again.tokens);
    assert_ne!(first.tokens, other.tokens);
    // Another choice of the same request draws its own numbers.
    let choice = Request {
        choice: 1,
        ..sampled(start, Some(7), 60)
    };
    assert_ne!(first.tokens, answer(&mut engine, &choice).tokens);
}

#[test]
fn a_drawn_seed_is_reported_and_repeats_the_text() {
    let mut engine = engine();
    let first = answer(&mut engine, &sampled(prompt("One day"), None, 40));
    let again = answer(
        &mut engine,
        &sampled(prompt("One day"), Some(first.seed), 40),
    );
    assert_eq!(first.tokens, again.tokens);
    assert!(first.seed < 1 << 53);
}

#[test]
fn neither_threads_nor_a_kept_prefix_change_the_text() {
    let request = sampled(prompt("Lily and Tom went to the park. They"), Some(3), 80);
    let expected = answer(
        &mut engine_with(&stories260k(), 1, &EngineOptions::default()),
        &request,
    );
    for threads in 2..=3 {
        let mut engine = engine_with(&stories260k(), threads, &EngineOptions::default());
        // The second run finds all but one token of the prompt, the third a part of it.
        let first = answer(&mut engine, &request);
        let second = answer(&mut engine, &request);
        engine.forget();
        answer(
            &mut engine,
            &greedy(prompt("Lily and Tom went to the beach"), 30),
        );
        let third = answer(&mut engine, &request);
        for got in [&first, &second, &third] {
            assert_eq!(got.tokens, expected.tokens);
            assert_eq!(got.text, expected.text);
        }
        assert_eq!(first.usage.cached_tokens, 0);
        assert_eq!(second.usage.cached_tokens, request.prompt.len() - 1);
        assert!(
            third.usage.cached_tokens > 5 && third.usage.cached_tokens < request.prompt.len() - 1
        );
    }
}

#[test]
fn a_long_prompt_in_chunks_equals_the_same_text_generated() {
    let mut engine = engine();
    let generated = answer(&mut engine, &greedy(ids(&[1]), 400));
    let mut start = ids(&[1]);
    start.extend(&generated.tokens[..300]);
    let mut fresh = self::engine();
    let continued = answer(&mut fresh, &greedy(start, 100));
    assert_eq!(continued.tokens, generated.tokens[300..400]);
}

#[test]
fn the_number_of_tokens_is_kept_to() {
    let mut engine = engine();
    for count in [0, 1, 2, 17] {
        let completion = answer(&mut engine, &greedy(ids(&[1]), count));
        assert_eq!(completion.tokens.len(), count);
        assert_eq!(completion.finish_reason, FinishReason::MaxTokens);
    }
}

#[test]
fn the_answer_ends_with_the_context() {
    let options = EngineOptions {
        context_tokens: Some(40),
        ..EngineOptions::default()
    };
    let mut engine = engine_with(&stories260k(), 1, &options);
    let completion = answer(&mut engine, &greedy(ids(&[1]), 1000));
    assert_eq!(completion.finish_reason, FinishReason::Context);
    assert_eq!(
        completion.tokens.len(),
        39,
        "40 tokens with the prompt's one"
    );
    let error = engine.generate(&greedy(vec![TokenId(5); 40], 1), &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(matches!(
        error,
        Err(EngineError::PromptTooLong {
            prompt: 40,
            context: 40
        })
    ));
}

#[test]
fn a_stop_text_across_token_borders_ends_the_answer_before_it() {
    let mut engine = engine();
    let request = Request {
        stop: vec!["She loved".into(), "a girl who".into()],
        ..greedy(ids(&[1]), 200)
    };
    let completion = answer(&mut engine, &request);
    assert_eq!(
        completion.text,
        "Once upon a time, there was a little girl named Lily. "
    );
    assert_eq!(completion.finish_reason, FinishReason::StopString);
}

#[test]
fn end_of_text_ends_the_answer_and_is_not_text() {
    let mut engine = engine();
    // A bias makes end-of-text certain.
    let request = Request {
        sampling: SamplingSettings {
            logit_bias: vec![(TokenId(2), 100.0)],
            ..SamplingSettings::greedy()
        },
        ..greedy(ids(&[1]), 10)
    };
    let completion = answer(&mut engine, &request);
    assert_eq!(
        (completion.tokens, completion.text.as_str()),
        (ids(&[2]), "")
    );
    assert_eq!(completion.finish_reason, FinishReason::EndOfText);
}

#[test]
fn the_caller_can_end_it_in_the_prompt_and_in_the_answer() {
    let mut engine = engine();
    let long = answer(&mut engine, &greedy(ids(&[1]), 400));
    let mut start = ids(&[1]);
    start.extend(&long.tokens);
    let mut fresh = self::engine();
    let mut stop_at_prefill = |event: Event<'_>| match event {
        Event::Prefill { done, total } if done < total => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let completion = fresh
        .generate(&greedy(start.clone(), 5), &mut stop_at_prefill)
        .expect("an answer");
    assert_eq!(completion.finish_reason, FinishReason::Cancelled);
    assert_eq!(completion.tokens, []);

    let mut texts = 0;
    let mut stop_at_text = |event: Event<'_>| {
        texts += usize::from(matches!(event, Event::Text(_)));
        if texts == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let completion = fresh
        .generate(&greedy(ids(&[1]), 50), &mut stop_at_text)
        .expect("an answer");
    assert_eq!(completion.finish_reason, FinishReason::Cancelled);
    assert_eq!(completion.tokens, long.tokens[..completion.tokens.len()]);
    assert_eq!(
        answer(&mut fresh, &greedy(ids(&[1]), 400)).tokens,
        long.tokens,
        "nothing is left behind"
    );
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    let mut engine = engine();
    let expected = answer(&mut engine, &greedy(ids(&[1]), 30));
    let refused = |engine: &mut Engine, request: &Request| -> String {
        let result = engine.generate(request, &mut |_| ControlFlow::Continue(()));
        result.expect_err("an error").to_string()
    };
    assert!(refused(&mut engine, &greedy(vec![], 5)).contains("empty"));
    assert!(refused(&mut engine, &greedy(ids(&[512]), 5)).contains("512"));
    let mut request = greedy(ids(&[1]), 5);
    request.sampling.top_p = f32::NAN;
    assert!(refused(&mut engine, &request).contains("top_p"));
    request = greedy(ids(&[1]), 5);
    request.stop = vec![String::new()];
    assert!(refused(&mut engine, &request).contains("stop"));
    assert_eq!(
        answer(&mut engine, &greedy(ids(&[1]), 30)).tokens,
        expected.tokens
    );
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let backend =
        foredraft_cpu::CpuBackend::new(1, foredraft_cpu::CpuPath::Portable).expect("a backend");
    let load = |context_tokens, memory_bytes| {
        let options = EngineOptions {
            context_tokens,
            memory_bytes,
            ..EngineOptions::default()
        };
        Engine::load(
            &stories260k(),
            tokenizer(),
            &backend,
            &options,
            &mut foredraft_model::unwatched,
        )
    };
    let whole = load(None, None).expect("an engine");
    assert_eq!(whole.context_tokens(), 512);
    let total = whole.memory().total_bytes();
    let error = load(Some(512), Some(total - 1))
        .err()
        .expect("an error")
        .to_string();
    for remedy in ["a context of 496 tokens", "--kv q8", "would fit"] {
        assert!(error.contains(remedy), "{error}");
    }
    assert!(load(Some(496), Some(total - 1)).is_ok());
    let error = load(None, Some(100_000))
        .err()
        .expect("an error")
        .to_string();
    assert!(error.contains("smaller quantization"), "{error}");
    assert!(
        load(Some(513), None)
            .err()
            .expect("an error")
            .to_string()
            .contains("at most 512")
    );
    assert!(load(Some(1), None).is_err());
}
