//! What the files beside a `tokenizer.json` add, and what is said when they are missing or broken.

use foredraft_text::{ChatRequest, Message, Special, TokenId, Tokenizer};
use serde_json::{Value, json};
use std::path::Path;

/// A byte-level BPE over `a`, `b` and `ab` with three special tokens.
fn tokenizer_json() -> Value {
    let special = |id: u32, content: &str| json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
    json!({
        "added_tokens": [special(3, "<s>"), special(4, "<end>"), special(5, "<|im_end|>"), special(7, "<far>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}}]},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3, "<end>": 4, "<|im_end|>": 5, "<far>": 7}, "merges": ["a b"]},
    })
}

/// A directory with these files.
fn directory(files: &[(&str, Value)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, value) in files {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        std::fs::write(directory.path().join(name), text).expect("writes");
    }
    directory
}

fn open(path: &Path) -> Tokenizer {
    Tokenizer::from_json_directory(path).expect("a tokenizer")
}

#[test]
fn a_tokenizer_json_alone_is_enough() {
    let directory = directory(&[("tokenizer.json", tokenizer_json())]);
    let tokenizer = open(directory.path());
    assert_eq!(
        tokenizer.encode("ab<s>a", Special::Parse).expect("encodes"),
        [2, 3, 0].map(TokenId)
    );
    assert_eq!(
        (tokenizer.bos(), tokenizer.adds_bos()),
        (Some(TokenId(3)), true),
        "the post-processor puts <s> first"
    );
    assert_eq!(
        tokenizer.end_of_text_ids(),
        [TokenId(5)],
        "known by its name"
    );
    assert_eq!(tokenizer.vocabulary_len(), 8);
    assert!(!tokenizer.can_emit(TokenId(6)), "a hole in the numbering");
    assert!(tokenizer.chat_template().is_none());
    let error = tokenizer
        .encode("abc", Special::AsText)
        .expect_err("no unknown-token and no byte `c`");
    assert!(error.to_string().contains("no token for 'c'"), "{error}");
}

#[test]
fn the_other_files_name_tokens_and_templates() {
    let directory = directory(&[
        ("tokenizer.json", tokenizer_json()),
        (
            "tokenizer_config.json",
            json!({
                "add_bos_token": false,
                "bos_token": null,
                "eos_token": {"content": "<end>"},
                "chat_template": [
                    {"name": "default", "template": "{{ bos_token }}plain{{ eos_token }}"},
                    {"name": "tool_use", "template": "{{ bos_token }}tools"},
                ],
            }),
        ),
        ("special_tokens_map.json", json!({"bos_token": "<s>"})),
        (
            "generation_config.json",
            json!({"eos_token_id": [5, 7, 999_999]}),
        ),
        ("config.json", json!({"eos_token_id": 1})),
    ]);
    let tokenizer = open(directory.path());
    assert_eq!(
        (tokenizer.bos(), tokenizer.adds_bos()),
        (Some(TokenId(3)), false),
        "the configuration overrules"
    );
    assert_eq!(
        tokenizer.end_of_text_ids(),
        [1, 4, 5, 7].map(TokenId),
        "all that exist"
    );
    let template = tokenizer.chat_template().expect("a template");
    let mut request = ChatRequest::new(vec![Message::user("hi")]);
    assert_eq!(template.render(&request).expect("renders"), "<s>plain<end>");
    request.tools = Some(json!([]));
    assert_eq!(template.render(&request).expect("renders"), "<s>tools");
}

#[test]
fn a_template_file_overrules_the_configuration() {
    let directory = directory(&[
        ("tokenizer.json", tokenizer_json()),
        ("tokenizer_config.json", json!({"chat_template": "old"})),
        ("chat_template.jinja", json!("new")),
    ]);
    let tokenizer = open(directory.path());
    assert_eq!(
        tokenizer.chat_template().expect("a template").source(),
        "new"
    );
}

#[test]
fn broken_files_are_named() {
    let error = |files: &[(&str, Value)]| {
        let directory = directory(files);
        Tokenizer::from_json_directory(directory.path())
            .expect_err("broken")
            .to_string()
    };
    let message = error(&[]);
    assert!(
        message.contains("tokenizer.json: is not there"),
        "{message}"
    );
    let message = error(&[("tokenizer.json", json!("{"))]);
    assert!(message.contains("tokenizer.json: is not JSON"), "{message}");
    let message = error(&[
        ("tokenizer.json", tokenizer_json()),
        ("generation_config.json", json!("nonsense")),
    ]);
    assert!(
        message.contains("generation_config.json: is not JSON"),
        "{message}"
    );
}
