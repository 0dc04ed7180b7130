//! What the engine's tests share.
#![allow(dead_code)] // each test file uses its part

pub(crate) mod backend;
pub(crate) mod company;
pub(crate) mod drafters;
pub(crate) mod requests;

use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft_common::TokenId;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_engine::{Completion, Engine, EngineOptions, Event, Request};
use foredraft_formats::Checkpoint;
use foredraft_speculate::SamplingSettings;
use foredraft_testing::stories260k;
use foredraft_text::{Special, Tokenizer};

/// The tokenizer of stories260K, for whichever form of the model.
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::open(stories260k().vocabulary()).expect("a tokenizer"))
}

/// An engine over a form of stories260K.
pub(crate) fn engine_with(
    checkpoint: &Checkpoint,
    threads: usize,
    options: &EngineOptions,
) -> Engine {
    let backend = CpuBackend::new(threads, CpuPath::detect()).expect("a backend");
    Engine::load(
        checkpoint,
        tokenizer(),
        &backend,
        options,
        &mut foredraft_model::unwatched,
    )
    .expect("an engine")
}

/// The engine that most tests use.
pub(crate) fn engine() -> Engine {
    engine_with(&stories260k(), 2, &EngineOptions::default())
}

pub(crate) fn greedy(prompt: Vec<TokenId>, max_tokens: usize) -> Request {
    Request {
        max_tokens: Some(max_tokens),
        ..Request::new(prompt, SamplingSettings::greedy())
    }
}

pub(crate) fn sampled(prompt: Vec<TokenId>, seed: Option<u64>, max_tokens: usize) -> Request {
    Request {
        sampling: SamplingSettings {
            seed,
            ..SamplingSettings::default()
        },
        ..greedy(prompt, max_tokens)
    }
}

/// Answers, and checks that the events add up to the text.
pub(crate) fn answer(engine: &mut Engine, request: &Request) -> Completion {
    let mut shown = String::new();
    let completion = engine
        .generate(request, &mut |event| {
            if let Event::Text(text) = event {
                shown.push_str(text);
            }
            ControlFlow::Continue(())
        })
        .expect("an answer");
    assert_eq!(shown, completion.text, "what was streamed is the text");
    completion
}

/// The tokens of a text.
pub(crate) fn prompt(text: &str) -> Vec<TokenId> {
    tokenizer()
        .encode_prompt(text, Special::Parse)
        .expect("tokens")
}

pub(crate) fn ids(values: &[u32]) -> Vec<TokenId> {
    values.iter().copied().map(TokenId).collect()
}

/// The log probabilities of an answer, as bits.
pub(crate) fn bits(completion: &Completion) -> Vec<Vec<u32>> {
    let of = |l: &foredraft_engine::TokenLogprob| {
        let top = l.top.iter().flat_map(|(token, p)| [token.0, p.to_bits()]);
        std::iter::once(l.log_probability.to_bits())
            .chain(top)
            .collect()
    };
    completion.logprobs.iter().map(of).collect()
}
