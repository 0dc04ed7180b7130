//! What a caller sees while an answer is made: whole characters however many tokens a step gives, and before an error
//! nothing that plain decoding would not have said (the cases "Stop, logprobs, streaming" and "Robustness").

mod common;

use std::ops::ControlFlow;
use std::sync::Arc;

use common::backend::Watched;
use common::drafters::Scripted;
use common::{engine, greedy, prompt};
use foredraft_common::TokenId;
use foredraft_engine::{
    Completion, Engine, EngineError, EngineOptions, Event, Request, Speculation, TreeShape,
};
use foredraft_formats::Checkpoint;
use foredraft_model::unwatched;
use foredraft_speculate::{SamplingSettings, Verify};
use foredraft_testing::{stories260k, stories260k_with};
use foredraft_text::Tokenizer;

const SHAPES: [TreeShape; 2] = [TreeShape::Chain, TreeShape::Grid { width: 2, depth: 3 }];

/// What a caller has seen, after each token.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    tokens: Vec<TokenId>,
    /// The text after so many tokens.
    texts: Vec<String>,
    /// Tokens that the steps' reports speak of.
    reported: usize,
}

impl Seen {
    fn hear(&mut self, event: Event<'_>) {
        match event {
            Event::Token { token, .. } => {
                self.tokens.push(token);
                let text = self.texts.last().cloned().unwrap_or_default();
                self.texts.push(text);
            }
            Event::Text(text) => match self.texts.last_mut() {
                Some(all) => all.push_str(text),
                None => panic!("text before the first token"),
            },
            Event::Step(step) => self.reported += step.emitted,
            Event::Prefill { .. } | Event::Warning(_) => {}
        }
    }
}

fn watch(engine: &mut Engine, request: &Request) -> (Seen, Result<Completion, EngineError>) {
    let mut seen = Seen::default();
    let result = engine.generate(request, &mut |event| {
        seen.hear(event);
        ControlFlow::Continue(())
    });
    (seen, result)
}

fn drafted(request: &Request, verify: Verify, tree: TreeShape) -> Request {
    let speculation = Speculation {
        verify,
        tree,
        ..Speculation::default()
    };
    Request {
        speculation,
        ..request.clone()
    }
}

/// A text of bytes that are seldom whole characters: the steps end anywhere within them.
#[test]
fn stop_a_multi_byte_character_is_never_cut_by_a_burst() {
    // Bytes of "é" and of "€", and "a". In this vocabulary byte b is token b + 3.
    let bytes = [0xc3, 0xa9, 0xe2, 0x82, 0xac, b'a'];
    let id = |byte: u8| TokenId(u32::from(byte) + 3);
    let sampling = SamplingSettings {
        temperature: 1.0,
        seed: Some(5),
        frequency_penalty: 1.0,
        logit_bias: bytes.map(|byte| (id(byte), 100.0)).to_vec(),
        ..SamplingSettings::unchanged()
    };
    let request = Request {
        sampling,
        ..greedy(prompt("One day"), 300)
    };
    let mut engine = engine();
    let (plain, whole) = watch(&mut engine, &request);
    let whole = whole.expect("an answer");
    let said: Vec<u8> = whole
        .tokens
        .iter()
        .map(|token| (token.0 - 3) as u8)
        .collect();
    let text = String::from_utf8_lossy(&said);
    let characters = text.chars().filter(|c| *c >= '\u{80}' && *c != '\u{fffd}');
    assert!(characters.count() > 20, "{text}");
    assert_eq!(whole.text, text);
    for tree in SHAPES {
        for wrong_every in [0, 5, 7] {
            let scripted = Scripted::new(&[&request.prompt, &whole.tokens], wrong_every);
            engine.set_drafters(vec![Box::new(scripted)]);
            let (seen, got) = watch(&mut engine, &drafted(&request, Verify::Auto, tree));
            let got = got.expect("an answer");
            assert_eq!(got.text, text, "{tree:?} {wrong_every}");
            // After each token, not only at the end: what could still become a character is held back.
            assert_eq!(seen.texts, plain.texts, "{tree:?} {wrong_every}");
            assert!(got.speculation.expect("speculated").accepted > 100);
        }
    }
    for shown in &plain.texts {
        assert!(text.starts_with(shown.as_str()), "{shown}");
    }
}

/// An engine whose rows can be spoiled, and who spoils them.
fn watched(model: &Checkpoint) -> (Engine, Watched) {
    let backend = Watched::new();
    let tokenizer = Tokenizer::open(model.vocabulary()).expect("a tokenizer");
    let engine = Engine::load(
        model,
        Arc::new(tokenizer),
        &backend,
        &EngineOptions::default(),
        &mut unwatched,
    );
    (engine.expect("an engine"), backend)
}

/// Spoils the row that token number `count` of the answer would come from, and gives what was seen until the error.
fn until_error(
    (engine, backend): &mut (Engine, Watched),
    request: &Request,
    count: usize,
    token: Option<TokenId>,
) -> Seen {
    let spoil = |position| {
        let mut seen = backend.seen.lock().expect("fine");
        (seen.spoiled_position, seen.spoiled_token) = (position, token);
    };
    let position = request.prompt.len() + count;
    spoil(Some(position - 1));
    let (seen, result) = watch(engine, request);
    spoil(None);
    let error = result.expect_err("no token comes of NaN");
    assert!(
        matches!(error, EngineError::Logits { position: named, .. } if named == position),
        "{error}"
    );
    let message = error.to_string();
    assert!(
        message.contains(&format!("position {position}")),
        "{message}"
    );
    seen
}

/// A NaN at any place of a step. What was seen until the error is the beginning of what plain decoding says, in whole
/// steps: what the failing step had accepted before the NaN is not said, for verification gives no half verdicts.
#[test]
fn robustness_what_is_seen_before_a_nan_is_what_plain_decoding_says() {
    let request = Request {
        logprobs: Some(1),
        ..greedy(prompt("Once upon a time"), 60)
    };
    let mut rig = watched(&stories260k());
    let (plain, whole) = watch(&mut rig.0, &request);
    let whole = whole.expect("an answer");
    let scripted = || Scripted::new(&[&request.prompt, &whole.tokens], 11);
    for count in 20..32 {
        rig.0.set_drafters(Vec::new());
        let seen = until_error(&mut rig, &request, count, None);
        assert_eq!(seen.tokens, plain.tokens[..count], "plain, {count}");
        for verify in [Verify::Coupled, Verify::Rejection, Verify::Block] {
            for tree in SHAPES {
                rig.0.set_drafters(vec![Box::new(scripted())]);
                let request = drafted(&request, verify, tree);
                let what = format!("{verify:?} {tree:?}, NaN for token {count}");
                let seen = until_error(&mut rig, &request, count, None);
                let said = seen.tokens.len();
                assert!(said <= count && said + 9 > count, "{what}: {said}");
                assert_eq!(seen.tokens, plain.tokens[..said], "{what}");
                assert_eq!(seen.texts, plain.texts[..said], "{what}");
                assert_eq!(seen.reported, said, "{what}");
            }
        }
    }
    // Nothing of it is left behind.
    let (seen, after) = watch(&mut rig.0, &drafted(&request, Verify::Auto, SHAPES[0]));
    assert_eq!((seen.texts, seen.tokens), (plain.texts, plain.tokens));
    assert_eq!(after.expect("an answer").logprobs, whole.logprobs);
}

/// A NaN where no token can come from, but a log probability is asked for: the error comes while the step's tokens are
/// emitted, and those before it are said.
#[test]
fn robustness_a_nan_of_a_banned_token_ends_a_request_for_logprobs_at_its_position() {
    let banned = TokenId(510);
    let change = |tokens: &mut Vec<String>| tokens[510] = "[PAD510]".to_owned();
    let model = Checkpoint::from_bytes(stories260k_with(change, 512)).expect("a model");
    let mut rig = watched(&model);
    assert!(!rig.0.tokenizer().can_emit(banned));
    let request = greedy(prompt("Once upon a time"), 60);
    let (plain, whole) = watch(&mut rig.0, &request);
    let whole = whole.expect("an answer");
    let scripted = Scripted::new(&[&request.prompt, &whole.tokens], 0);
    rig.0.set_drafters(vec![Box::new(scripted)]);
    for count in 20..32 {
        let logprobs = Request {
            logprobs: Some(0),
            ..drafted(&request, Verify::Auto, SHAPES[0])
        };
        let seen = until_error(&mut rig, &logprobs, count, Some(banned));
        assert_eq!(seen.tokens, plain.tokens[..count], "{count}");
        assert_eq!(seen.texts, plain.texts[..count], "{count}");
        // Who asks for none is answered.
        let (_, got) = watch(&mut rig.0, &drafted(&request, Verify::Auto, SHAPES[0]));
        assert_eq!(got.expect("an answer").tokens, whole.tokens);
    }
}
