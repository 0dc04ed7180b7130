//! Real vocabularies against ids that others computed (`data/README.md` says who).

mod common;

use common::{Golden, check, data, from_gguf, golden, shared, smollm2, stories260k, vectors};
use foredraft_text::{Detokenizer, Special, TokenId, TokenKind, Tokenizer};

#[test]
fn smollm2_gives_the_golden_ids() {
    let tokenizer = smollm2();
    check(&tokenizer, &golden("tokenizer_smollm2.json"));
    assert_eq!(tokenizer.bos(), Some(TokenId(1)));
    assert!(!tokenizer.adds_bos(), "the file says add_bos_token = false");
    assert_eq!(tokenizer.vocabulary_len(), 49152);
    // <|endoftext|> and <|im_end|>.
    assert_eq!(tokenizer.end_of_text_ids(), [TokenId(0), TokenId(2)]);
    assert!(tokenizer.chat_template().is_some());
}

#[test]
fn qwen2_gives_the_golden_ids_and_pads_what_it_does_not_name() {
    let Some(path) = shared("vocab/ggml-vocab-qwen2.gguf") else {
        return;
    };
    let tokenizer = from_gguf(&path);
    check(&tokenizer, &golden("tokenizer_qwen2.5-coder.json"));
    assert_eq!(
        tokenizer.vocabulary_len(),
        151_646,
        "the real tokens; 290 of padding follow"
    );
    assert_eq!(tokenizer.token_text(TokenId(151_645)), "<|im_end|>");
    assert!(tokenizer.can_emit(TokenId(151_645)) && tokenizer.is_end_of_text(TokenId(151_645)));
    for id in [151_646, 151_935, 151_936, u32::MAX] {
        assert!(
            !tokenizer.can_emit(TokenId(id)),
            "{id} is padding or beyond the table"
        );
        assert!(tokenizer.token_bytes(TokenId(id)).is_empty());
    }
    let ids = tokenizer
        .encode("[PAD151646]", Special::Parse)
        .expect("encodes");
    assert!(
        ids.iter().all(|&id| tokenizer.can_emit(id)),
        "text never becomes padding"
    );
}

#[test]
fn the_vocabularies_of_llama_cpp_give_its_vectors() {
    for name in ["gpt-2", "qwen2", "starcoder"] {
        if let Some(path) = shared(&format!("vocab/ggml-vocab-{name}.gguf")) {
            check(&from_gguf(&path), &vectors(&path));
        }
    }
}

#[test]
fn the_qwen3_tokenizer_json_gives_the_qwen2_ids() {
    let Some(path) = shared("vocab/qwen3") else {
        return;
    };
    let tokenizer = Tokenizer::from_json_directory(&path).expect("a tokenizer.json");
    let decomposed = "a\u{300}";
    let (decomposed, mut goldens): (Vec<_>, Vec<_>) = golden("tokenizer_qwen2.5-coder.json")
        .into_iter()
        .partition(|golden| golden.text.contains(decomposed));
    check(&tokenizer, &goldens);
    // This file asks for Unicode normal form C, which the golden ids (of a GGUF file, which cannot ask) leave out. With
    // the Python package `tokenizers` 0.23.3 it gives 6362 for each of these letters, `à`.
    assert_eq!(decomposed.len(), 1);
    goldens.extend(decomposed.into_iter().map(|golden| Golden {
        text: golden.text.replace("a\u{300}", "à"),
        ids: vec![6362; golden.ids.len() / 2],
    }));
    check(&tokenizer, &goldens);
    assert_eq!(
        tokenizer
            .encode("a\u{300}", Special::AsText)
            .expect("encodes"),
        [TokenId(6362)]
    );
    if let Some(path) = shared("vocab/ggml-vocab-qwen2.gguf") {
        check(&tokenizer, &vectors(&path));
    }
    assert_eq!((tokenizer.bos(), tokenizer.adds_bos()), (None, false));
    assert_eq!(tokenizer.vocabulary_len(), 151_669);
    assert!(
        tokenizer.is_end_of_text(TokenId(151_645)) && tokenizer.is_end_of_text(TokenId(151_643))
    );
    // These four names are padding in Qwen2.5's files.
    for (id, name) in [
        (151_665, "<tool_response>"),
        (151_666, "</tool_response>"),
        (151_667, "<think>"),
        (151_668, "</think>"),
    ] {
        assert_eq!(tokenizer.token_text(TokenId(id)), name);
        assert!(tokenizer.can_emit(TokenId(id)));
        assert_eq!(tokenizer.token_kind(TokenId(id)), TokenKind::UserDefined);
        assert_eq!(
            tokenizer.token_bytes(TokenId(id)),
            name.as_bytes(),
            "thinking tags are text"
        );
    }
    assert!(!tokenizer.can_emit(TokenId(151_669)));
    assert!(
        tokenizer
            .chat_template()
            .is_some_and(|template| template.check().is_ok())
    );
}

#[test]
fn stories260k_gives_the_ids_of_the_plain_algorithm() {
    let tokenizer = stories260k();
    check(&tokenizer, &golden("stories260k_ids.json"));
    assert_eq!(
        (tokenizer.bos(), tokenizer.adds_bos()),
        (Some(TokenId(1)), true)
    );
    assert_eq!(tokenizer.end_of_text_ids(), [TokenId(2)]);
    assert_eq!(tokenizer.vocabulary_len(), 512);
}

#[test]
fn stories260k_reads_and_writes_its_published_text() {
    let tokenizer = stories260k();
    let golden: serde_json::Value =
        serde_json::from_slice(&std::fs::read(data("stories260K.json")).expect("golden"))
            .expect("JSON");
    let text = golden["published_text"].as_str().expect("text");
    let ids: Vec<TokenId> = serde_json::from_value(golden["greedy_ids"].clone()).expect("ids");
    let mut detokenizer = Detokenizer::new(&tokenizer);
    let mut shown: String = detokenizer.push(TokenId(1)).into();
    for &id in &ids {
        shown.push_str(detokenizer.push(id));
    }
    shown.push_str(&detokenizer.finish());
    assert_eq!(
        shown, text,
        "the space that SentencePiece puts first is dropped"
    );

    let mut resumed = Detokenizer::resume(&tokenizer);
    let raw: String = ids.iter().map(|&id| resumed.push(id).to_owned()).collect();
    assert_eq!(
        raw,
        golden["text"].as_str().expect("text"),
        "inside a text nothing is dropped"
    );

    // A model need not write what the encoder reads, but it nearly always does; here it does.
    assert_eq!(
        tokenizer.encode(text, Special::AsText).expect("encodes"),
        ids
    );
    assert_eq!(
        tokenizer
            .encode_prompt(text, Special::AsText)
            .expect("encodes")
            .first(),
        Some(&TokenId(1))
    );
}

#[test]
fn control_tokens_are_read_only_where_asked_for() {
    let tokenizer = smollm2();
    let text = "<|im_start|>user\nhi<|im_end|>";
    let parsed = tokenizer.encode(text, Special::Parse).expect("encodes");
    assert_eq!(parsed.first(), Some(&TokenId(1)));
    assert_eq!(parsed.last(), Some(&TokenId(2)));
    let plain = tokenizer.encode(text, Special::AsText).expect("encodes");
    assert!(
        plain.iter().all(|&id| !tokenizer.is_special(id)),
        "{plain:?}"
    );
    let bytes: Vec<u8> = plain
        .iter()
        .flat_map(|&id| tokenizer.token_bytes(id))
        .copied()
        .collect();
    assert_eq!(bytes, text.as_bytes());
    let silent: Vec<u8> = parsed
        .iter()
        .flat_map(|&id| tokenizer.token_bytes(id))
        .copied()
        .collect();
    assert_eq!(silent, b"user\nhi", "control tokens write nothing");
}

#[test]
fn a_character_without_a_token_is_named() {
    let error = smollm2()
        .encode("a\u{4}b", Special::AsText)
        .expect_err("SmolLM2 has no token for it");
    assert!(error.to_string().contains("'\\u{4}'"), "{error}");
}
