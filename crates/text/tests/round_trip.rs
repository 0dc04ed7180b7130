//! Text to tokens and back, a token at a time and in bursts, on real vocabularies.

mod common;

use common::{smollm2, stories260k};
use foredraft_text::{Detokenizer, Special, StopMatcher, StopOutcome, TokenId, Tokenizer};
use proptest::prelude::*;
use std::sync::LazyLock;

static SMOLLM2: LazyLock<Tokenizer> = LazyLock::new(smollm2);
static STORIES: LazyLock<Tokenizer> = LazyLock::new(stories260k);

fn decoded(tokenizer: &Tokenizer, ids: &[TokenId]) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer);
    let mut text: String = ids
        .iter()
        .map(|&id| detokenizer.push(id).to_owned())
        .collect();
    text.push_str(&detokenizer.finish());
    text
}

#[test]
fn hard_texts_come_back() {
    for text in [
        "👩‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇺🇳",
        "مرحبا بالعالم — كيف الحال؟",
        "שלום עולם 123 abc \u{200F}\u{202B}x\u{202C}",
        "e\u{301}a\u{30A}\u{327}",
        "កាន់តែពិសេស 我想在apple工作",
        "  leading\t\r\n\n trailing  ",
    ] {
        for tokenizer in [&*SMOLLM2, &*STORIES] {
            let ids = tokenizer.encode(text, Special::AsText).expect("encodes");
            assert_eq!(decoded(tokenizer, &ids), text);
        }
    }
}

/// A failure that users of other engines met: "a multi-byte character cut in two by an uneven burst", with real tokens.
#[test]
fn a_character_of_several_tokens_appears_when_it_is_complete() {
    let ids = SMOLLM2.encode("a🦙b", Special::AsText).expect("encodes");
    assert!(
        ids.len() > 3,
        "SmolLM2 spells the llama in several tokens: {ids:?}"
    );
    let mut detokenizer = Detokenizer::new(&*SMOLLM2);
    let shown: Vec<String> = ids
        .iter()
        .map(|&id| detokenizer.push(id).to_owned())
        .collect();
    assert_eq!(
        shown
            .iter()
            .filter(|text| !text.is_empty())
            .map(String::as_str)
            .collect::<Vec<_>>(),
        ["a", "🦙", "b"]
    );
    assert!(!detokenizer.is_holding());
}

/// A failure that users of other engines met: "tokens after a stop string are kept when several arrive at once", with real tokens.
#[test]
fn a_burst_is_cut_at_the_stop_string_whatever_its_tokens() {
    let text = "one two\nUser: three four";
    let ids = SMOLLM2.encode(text, Special::AsText).expect("encodes");
    for burst in 1..=ids.len() {
        let mut detokenizer = Detokenizer::new(&*SMOLLM2);
        let mut stop = StopMatcher::new(vec!["\nUser:".into()]).expect("valid");
        let mut shown = String::new();
        for ids in ids.chunks(burst) {
            let text: String = ids
                .iter()
                .map(|&id| detokenizer.push(id).to_owned())
                .collect();
            match stop.push(&text) {
                StopOutcome::Emit { text } | StopOutcome::Stopped { text, .. } => {
                    shown.push_str(&text)
                }
            }
        }
        assert_eq!(shown, "one two", "bursts of {burst}");
        assert!(stop.is_stopped());
    }
}

proptest! {
    #[test]
    fn any_text_comes_back(text in "\\PC{0,40}|[ \t\n\r]{0,8}|[a-z0-9 '\\.]{0,60}") {
        match SMOLLM2.encode(&text, Special::AsText) {
            Ok(ids) => prop_assert_eq!(decoded(&SMOLLM2, &ids), &*text),
            // Six control characters and the planes 4 to 11 of Unicode have no token.
            Err(error) => prop_assert!(error.to_string().contains("has no token for"), "{}", error),
        }
        let ids = STORIES.encode(&text, Special::AsText).expect("byte tokens express everything");
        prop_assert_eq!(decoded(&STORIES, &ids), text.replace('\u{2581}', " "));
    }
}
