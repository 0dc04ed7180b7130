//! Vocabularies that contradict themselves: each is a clear error or does something sane; none panics.

use foredraft_text::{Detokenizer, GgufVocabulary, Special, TextError, TokenId, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Byte-level BPE over `a`, `b`, `ab` and two control tokens.
fn byte_pair() -> GgufVocabulary {
    GgufVocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: ["a", "b", "ab", "<s>", "</s>"].map(String::from).to_vec(),
        types: vec![1, 1, 1, 3, 3],
        merges: vec!["a b".into()],
        bos: Some(3),
        eos: Some(4),
        ..GgufVocabulary::default()
    }
}

fn sentencepiece() -> GgufVocabulary {
    GgufVocabulary {
        model: "llama".into(),
        pre: None,
        merges: vec![],
        scores: vec![-1.0, -2.0, -3.0, 0.0, 0.0],
        ..byte_pair()
    }
}

fn error(vocabulary: GgufVocabulary) -> String {
    Tokenizer::from_vocabulary(vocabulary)
        .expect_err("contradicts itself")
        .to_string()
}

#[test]
fn what_is_wrong_is_named() {
    for (change, expected) in [
        (
            (|v| v.model = "bert".into()) as fn(&mut GgufVocabulary),
            "`bert` is not supported",
        ),
        (|v| v.pre = Some("bloom".into()), "pre-tokenizer `bloom`"),
        (|v| v.tokens.clear(), "`tokenizer.ggml.tokens` is empty"),
        (
            |v| v.types.truncate(2),
            "`tokenizer.ggml.token_type` has 2 entries for 5 tokens",
        ),
        (
            |v| v.bos = Some(5),
            "`tokenizer.ggml.bos_token_id` is 5, but the vocabulary has only 5 tokens",
        ),
        (
            |v| v.eos = Some(u32::MAX - 1),
            "`tokenizer.ggml.eos_token_id` is 4294967294",
        ),
        (
            |v| v.end_of_generation = vec![7],
            "`tokenizer.ggml.eom_token_id` is 7",
        ),
        (
            |v| v.tokens[1] = "a".into(),
            "token \"a\" has two ids, 0 and 1",
        ),
        (
            |v| v.merges[0] = "a c".into(),
            "merge 0 (\"a c\") needs the token \"c\"",
        ),
        (|v| v.merges[0] = "b a".into(), "needs the token \"ba\""),
        (|v| v.merges[0] = "ab".into(), "not two tokens"),
        (|v| v.merges[0] = String::new(), "not two tokens"),
        (|v| v.merges[0] = "a ".into(), "not two tokens"),
        (|v| v.merges.push("ab ab".into()), "merge 1"),
    ] {
        let mut vocabulary = byte_pair();
        change(&mut vocabulary);
        let message = error(vocabulary);
        assert!(
            message.contains(expected),
            "{message:?} should say {expected:?}"
        );
    }
    let mut short = sentencepiece();
    short.scores.pop();
    assert!(error(short).contains("`tokenizer.ggml.scores` has 4 entries for 5 tokens"));
    let mut odd = sentencepiece();
    odd.types[0] = 6;
    assert!(error(odd).contains("its name is not like <0x0A>"));
}

#[test]
fn what_is_only_odd_works() {
    let mut v = byte_pair();
    v.bos = Some(u32::MAX); // how -1, "none", reads
    v.tokens.extend(["", "[PAD6]", "x"].map(String::from));
    v.types.extend([1, 4, 99]);
    let tokenizer = Tokenizer::from_vocabulary(v).expect("odd, but clear");
    assert_eq!(tokenizer.bos(), None);
    assert!(
        !tokenizer.can_emit(TokenId(5))
            && !tokenizer.can_emit(TokenId(6))
            && tokenizer.can_emit(TokenId(7))
    );
    assert_eq!(tokenizer.vocabulary_len(), 8);
    assert_eq!(
        tokenizer
            .encode("ab</s>b", Special::Parse)
            .expect("encodes"),
        [2, 4, 1].map(TokenId)
    );
    assert!(matches!(
        tokenizer.encode("ab</s>", Special::AsText),
        Err(TextError::NoToken {
            character: '<',
            byte: b'<'
        })
    ));

    // Scores that are no numbers.
    let mut v = sentencepiece();
    v.scores = vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0];
    v.add_space_prefix = false;
    let tokenizer = Tokenizer::from_vocabulary(v).expect("odd, but clear");
    assert_eq!(
        tokenizer.encode("abab", Special::AsText).expect("encodes"),
        [2, 2].map(TokenId)
    );
    // Without types, the ids that the metadata name are control tokens all the same.
    let mut v = sentencepiece();
    v.types.clear();
    let tokenizer = Tokenizer::from_vocabulary(v).expect("odd, but clear");
    assert!(tokenizer.token_bytes(TokenId(4)).is_empty() && tokenizer.is_end_of_text(TokenId(4)));
}

/// Encoding gives real tokens, and they give the text back or are refused by name.
fn exercise(tokenizer: &Tokenizer, text: &str) {
    for special in [Special::Parse, Special::AsText] {
        if let Ok(ids) = tokenizer.encode(text, special) {
            assert!(ids.iter().all(|&id| tokenizer.can_emit(id)), "{ids:?}");
            let mut detokenizer = Detokenizer::new(tokenizer);
            for id in ids {
                detokenizer.push(id);
                assert!(
                    id.index() < tokenizer.vocabulary_len() && !tokenizer.token_text(id).is_empty()
                );
            }
            detokenizer.finish();
        }
    }
    for id in [0, 1, 7, 1000, u32::MAX] {
        let id = TokenId(id);
        let _ = (
            tokenizer.token_bytes(id),
            tokenizer.token_kind(id),
            tokenizer.is_end_of_text(id),
            tokenizer.is_special(id),
        );
    }
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[abĠ▁<>/s]{0,4}",
        "<0x[0-9A-F]{1,2}>",
        "\\[PAD[0-9]\\]",
        "\\PC{0,3}"
    ]
}

proptest! {
    #[test]
    fn any_vocabulary_is_an_error_or_works(
        gpt2 in any::<bool>(),
        tokens in prop::collection::vec(any_name(), 0..24),
        types in prop::collection::vec(-1..8i32, 24),
        scores in prop::collection::vec(any::<f32>(), 24),
        merges in prop::collection::vec("[abĠ ]{0,5}", 0..3),
        ids in prop::collection::vec(prop::option::of(0..30u32), 6),
        lengths in 0..12usize,
        text in "[ab ▁<>/s\n]{0,12}|\\PC{0,8}",
    ) {
        let count = if lengths == 0 { 20 } else { tokens.len() };
        let vocabulary = GgufVocabulary {
            model: if gpt2 { "gpt2" } else { "llama" }.into(),
            types: types.into_iter().take(count).collect(),
            scores: scores.into_iter().take(count).collect(),
            tokens,
            merges,
            bos: ids[0], eos: ids[1], eot: ids[2], unk: ids[3], pad: ids[4],
            end_of_generation: ids[5].into_iter().collect(),
            ..GgufVocabulary::default()
        };
        if let Ok(tokenizer) = Tokenizer::from_vocabulary(vocabulary) {
            exercise(&tokenizer, &text);
        }
    }
}

/// A small tokenizer.json as sentencepiece converters write it.
fn tokenizer_json() -> Value {
    json!({
        "version": "1.0",
        "added_tokens": [
            {"id": 0, "content": "<unk>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
            {"id": 1, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
            {"id": 9, "content": "<tool>", "special": false, "single_word": false, "lstrip": true, "rstrip": true, "normalized": true},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": {"<unk>": 0, "<s>": 1, "<0xC3>": 2, "<0xA9>": 3, "▁": 4, "a": 5, "b": 6, "ab": 7, "▁ab": 8},
            "merges": [["a", "b"], ["▁", "ab"]]},
    })
}

fn from_json(value: &Value) -> Result<Tokenizer, TextError> {
    Tokenizer::from_json(value.to_string().as_bytes())
}

#[test]
fn a_sentencepiece_tokenizer_json_works() {
    let tokenizer = from_json(&tokenizer_json()).expect("valid");
    assert_eq!(
        (
            tokenizer.bos(),
            tokenizer.adds_bos(),
            tokenizer.adds_space_prefix()
        ),
        (Some(TokenId(1)), true, true)
    );
    // Expectations: the Python package `tokenizers` 0.23.3 on the same file.
    let encode = |text| {
        tokenizer
            .encode(text, Special::Parse)
            .expect("encodes")
            .into_iter()
            .map(|id| id.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(encode("ab ab"), [8, 8]);
    assert_eq!(encode("é"), [4, 2, 3]);
    assert_eq!(encode("<s>a"), [1, 4, 5]);
    assert_eq!(encode("x"), [4, 0]);
    assert_eq!(tokenizer.token_bytes(TokenId(8)), b" ab");
    assert_eq!(tokenizer.token_bytes(TokenId(2)), [0xC3]);
    assert_eq!(tokenizer.token_bytes(TokenId(9)), b"<tool>");
    assert!(tokenizer.token_bytes(TokenId(0)).is_empty());
    let mut detokenizer = Detokenizer::new(&tokenizer);
    let text: String = [1, 8, 2, 3, 8]
        .into_iter()
        .map(|id| detokenizer.push(TokenId(id)).to_owned())
        .collect();
    assert_eq!(text, "abé ab");
}

#[test]
fn what_a_tokenizer_json_cannot_be_is_named() {
    for (pointer, value, expected) in [
        (
            "/model/type",
            json!("Unigram"),
            "\"Unigram\" is not supported",
        ),
        (
            "/model/merges/0",
            json!(["a", "x"]),
            "merge 0 needs the token \"x\"",
        ),
        (
            "/model/merges/0",
            json!(["ab", "ab"]),
            "merge 0 needs the token \"abab\"",
        ),
        ("/model/merges/0", json!(["▁ab", "<0xC3>"]), "merge 0 needs"),
        ("/model/merges/0", json!("ab"), "merge 0 is not a pair"),
        ("/model/merges/0", json!(3), "merge 0 is not a pair"),
        (
            "/model/continuing_subword_prefix",
            json!("##"),
            "continuing_subword_prefix",
        ),
        ("/model/dropout", json!(0.1), "dropout"),
        ("/model/vocab", json!({}), "needs the token"),
        ("/model/vocab/ab", json!(4_000_000_000u32), "4000000000"),
        ("/model/vocab/ab", json!(5), "the same id 5"),
        (
            "/normalizer",
            json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "\"Precompiled\" is not supported",
        ),
        (
            "/decoder",
            json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            "\"WordPiece\" is not supported",
        ),
        ("/decoder", Value::Null, "no decoder"),
        (
            "/pre_tokenizer",
            json!({"type": "BertPreTokenizer"}),
            "\"BertPreTokenizer\" is not supported",
        ),
        (
            "/pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
            "",
        ),
        ("/model", Value::Null, "no tokenizer model"),
    ] {
        let mut file = tokenizer_json();
        *file.pointer_mut(pointer).expect("a place in the file") = value;
        let message = from_json(&file).expect_err(pointer).to_string();
        assert!(
            message.contains(expected),
            "{pointer}: {message:?} should say {expected:?}"
        );
    }
    assert!(
        Tokenizer::from_json(b"{").is_err()
            && Tokenizer::from_json(b"").is_err()
            && Tokenizer::from_json(b"[]").is_err()
    );
}

/// Every place in `value`.
fn places(value: &Value, at: String, out: &mut Vec<String>) {
    out.push(at.clone());
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(i, item)| places(item, format!("{at}/{i}"), out)),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, item)| places(item, format!("{at}/{}", escape(key)), out)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_tokenizer_json_is_an_error_or_works(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..14usize), 1..4),
        text in "[ab ▁<>tol/s\n]{0,12}|\\PC{0,8}",
    ) {
        let mut file = tokenizer_json();
        for (place, change) in changes {
            let mut all = vec![];
            places(&file, String::new(), &mut all);
            let replacement = match change {
                0 => Value::Null,
                1 => json!(""),
                2 => json!("ab"),
                3 => json!("ByteLevel"),
                4 => json!(true),
                5 => json!(1),
                6 => json!(-1),
                7 => json!(1e30),
                8 => json!([]),
                9 => json!({}),
                10 => json!({"type": "Strip", "strip_left": true, "strip_right": true}),
                11 => json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
                12 => json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
                _ => json!({"type": "Split", "pattern": {"Regex": "a*"}, "behavior": "MergedWithNext", "invert": true}),
            };
            if let Some(slot) = file.pointer_mut(place.get(&all[..]).as_str()) {
                *slot = replacement;
            }
        }
        if let Ok(tokenizer) = from_json(&file) {
            exercise(&tokenizer, &text);
        }
    }
}
