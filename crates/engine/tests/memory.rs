//! The memory budget: what is reserved, what is refused, and whether what is advised suffices (the case "Memory").

mod common;

use common::tokenizer;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_engine::{Engine, EngineError, EngineOptions};
use foredraft_model::unwatched;
use foredraft_testing::stories260k;

fn load(options: &EngineOptions, with_draft: bool) -> Result<Engine, EngineError> {
    let backend = CpuBackend::new(1, CpuPath::Portable).expect("a backend");
    let (model, draft) = (stories260k(), stories260k());
    let drafts = [&draft];
    let drafts = if with_draft { &drafts[..] } else { &[] };
    let loaded = Engine::load_with_drafts(
        &model,
        drafts,
        tokenizer(),
        &backend,
        options,
        &mut unwatched,
    );
    loaded.map(|(engine, _)| engine)
}

fn refused(options: &EngineOptions) -> String {
    let error = load(options, false).err().expect("it is refused");
    error.to_string()
}

fn options(max_sequences: usize, memory_bytes: Option<u64>) -> EngineOptions {
    EngineOptions {
        max_sequences,
        memory_bytes,
        ..EngineOptions::default()
    }
}

#[test]
fn there_is_a_context_for_every_sequence_where_memory_allows() {
    let engine = |options| load(&options, false).expect("it fits");
    let four = engine(options(4, None));
    assert_eq!((four.context_tokens(), four.kv_tokens()), (512, 4 * 512));
    let one = engine(options(1, None));
    assert_eq!(one.kv_tokens(), 512);
    // Less memory is less room, but always one context.
    let total = four.memory().total_bytes();
    let less = engine(options(4, Some(total - 1)));
    assert_eq!(
        (less.context_tokens(), less.kv_tokens()),
        (512, 4 * 512 - 16)
    );
    assert!(less.memory().total_bytes() < total);
    let page = total - less.memory().total_bytes();
    let least = engine(options(4, Some(total - 96 * page)));
    assert_eq!((least.context_tokens(), least.kv_tokens()), (512, 512));
    // With less than that the context is what is shortened: down to 512, which is all of this model's.
    let error = refused(&options(4, Some(total - 97 * page)));
    for remedy in [
        "a context of 496 tokens",
        "one sequence at a time",
        "for 4 sequences, with KV of 512",
    ] {
        assert!(error.contains(remedy), "{error}");
    }
    let shorter = EngineOptions {
        context_tokens: Some(496),
        ..options(4, Some(total - 97 * page))
    };
    assert_eq!(engine(shorter).kv_tokens(), 496);
}

#[test]
fn room_that_is_asked_for_is_had_or_refused_with_what_would_fit() {
    let asked = |kv_tokens, context_tokens, memory_bytes| EngineOptions {
        kv_tokens: Some(kv_tokens),
        context_tokens,
        ..options(8, memory_bytes)
    };
    let engine = |options| load(&options, false).expect("it fits");
    assert_eq!(
        engine(asked(1000, None, None)).kv_tokens(),
        1008,
        "whole pages"
    );
    // A sequence cannot be longer than the room for all.
    let small = engine(asked(200, None, None));
    assert_eq!((small.context_tokens(), small.kv_tokens()), (200, 208));
    let error = refused(&asked(200, Some(300), None));
    assert!(error.contains("200") && error.contains("300"), "{error}");
    let total = engine(asked(4000, None, None)).memory().total_bytes();
    let error = refused(&asked(4000, None, Some(total - 1)));
    assert!(error.contains("KV of 4000 tokens"), "{error}");
    assert!(
        error.contains("KV of 3984 tokens would fit") || error.contains("KV of 3984 tokens, or"),
        "{error}"
    );
    assert!(load(&asked(3984, None, Some(total - 1)), false).is_ok());
}

#[test]
fn numbers_of_no_use_are_refused() {
    let error = refused(&options(0, None));
    assert!(error.contains("1 to 128"), "{error}");
    assert!(refused(&options(129, None)).contains("129"));
    let no_rows = EngineOptions {
        prompt_rows: 0,
        ..options(1, None)
    };
    assert!(refused(&no_rows).contains("at least 1"));
    // A root for each of 100 sequences leaves room for 156 nodes.
    let nodes = |max_draft_nodes| EngineOptions {
        max_draft_nodes,
        ..options(100, None)
    };
    assert!(refused(&nodes(157)).contains("156"));
    assert!(load(&nodes(156), false).is_ok());
}

/// A draft has pages for the same texts as the model, and no more.
#[test]
fn drafts_have_room_for_the_same_texts() {
    let pages = |options: &EngineOptions| {
        let backend = CpuBackend::new(1, CpuPath::Portable).expect("a backend");
        let (model, draft) = (stories260k(), stories260k());
        let loaded = Engine::load_with_drafts(
            &model,
            &[&draft],
            tokenizer(),
            &backend,
            options,
            &mut unwatched,
        );
        loaded.expect("both").1[0].options.pages.clone()
    };
    assert_eq!(pages(&options(4, None)), [4 * 32]);
    let short = EngineOptions {
        kv_tokens: Some(640),
        ..options(4, None)
    };
    // 40 pages, and a last page for each.
    assert_eq!(pages(&short), [40 + 4]);
}
