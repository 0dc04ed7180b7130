//! What the integration tests share: where data lie, and how golden files read.
#![allow(dead_code)]

use foredraft_formats::Checkpoint;
use foredraft_text::{Special, TokenId, Tokenizer};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A file of `tests/data`.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// A file of the data that lie beside the checkout; says so aloud and returns `None` when it is not there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let root = std::env::var_os("FOREDRAFT_SHARED").map_or(beside, PathBuf::from);
    let path = root.join("data").join(name);
    if !path.exists() {
        foredraft_testing::skipped(&format!(
            "{} does not exist (set FOREDRAFT_SHARED)",
            path.display()
        ));
        return None;
    }
    Some(path)
}

/// The tokenizer of a GGUF file.
pub(crate) fn from_gguf(path: &Path) -> Tokenizer {
    let checkpoint = Checkpoint::open(path).expect("a GGUF file");
    Tokenizer::open(checkpoint.vocabulary()).expect("a vocabulary")
}

pub(crate) fn smollm2() -> Tokenizer {
    from_gguf(&data("smollm2-vocab.gguf"))
}

pub(crate) fn stories260k() -> Tokenizer {
    from_gguf(&data("stories260k-vocab.gguf"))
}

/// A text and its token ids.
#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) text: String,
    pub(crate) ids: Vec<u32>,
}

pub(crate) fn golden(name: &str) -> Vec<Golden> {
    let text = std::fs::read_to_string(data(name)).expect("a golden file");
    serde_json::from_str(&text).expect("a list of texts and ids")
}

/// Texts and ids of a llama.cpp vocabulary test: `.inp` and `.out`.
pub(crate) fn vectors(vocabulary: &Path) -> Vec<Golden> {
    let read = |ending: &str| {
        let path = format!("{}{ending}", vocabulary.display());
        std::fs::read_to_string(path).expect("a vector file")
    };
    let texts = read(".inp");
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let ids = read(".out");
    let ids: Vec<Vec<u32>> = ids
        .lines()
        .map(|line| {
            line.split_whitespace()
                .map(|id| id.parse().expect("an id"))
                .collect()
        })
        .collect();
    assert_eq!(
        texts.len(),
        ids.len() + 1,
        "each text ends with a separator"
    );
    assert_eq!(ids.len(), 46);
    let pairs = texts.iter().zip(ids).map(|(text, ids)| Golden {
        text: (*text).into(),
        ids,
    });
    pairs.collect()
}

/// Every text gives its ids, and the ids give the text back.
pub(crate) fn check(tokenizer: &Tokenizer, goldens: &[Golden]) {
    for Golden { text, ids } in goldens {
        let found = tokenizer.encode(text, Special::AsText).expect("encodes");
        let found: Vec<u32> = found.into_iter().map(|TokenId(id)| id).collect();
        assert_eq!(&found, ids, "ids of {text:?}");
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| tokenizer.token_bytes(TokenId(id)))
            .copied()
            .collect();
        let decoded = String::from_utf8(bytes).expect("whole characters");
        let expected = match tokenizer.adds_space_prefix() && !text.is_empty() {
            // SentencePiece's own mark for a space in a text reads as a space.
            true => format!(" {}", text.replace('\u{2581}', " ")),
            false => text.clone(),
        };
        assert_eq!(decoded, expected, "text of the ids");
    }
}
