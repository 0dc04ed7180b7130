//! stories260K says what its author published, byte for byte, from both file formats.

mod common;

use std::path::{Path, PathBuf};

use common::{answer, engine_with, greedy, ids};
use foredraft_common::TokenId;
use foredraft_engine::EngineOptions;
use foredraft_formats::Checkpoint;
use foredraft_testing::stories260k;
use serde_json::Value;

fn golden() -> (Vec<TokenId>, Vec<TokenId>, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stories260K.json");
    let golden: Value =
        serde_json::from_slice(&std::fs::read(path).expect("the golden file")).expect("JSON");
    let tokens = |key: &str| {
        let list = golden[key].as_array().expect("a list").iter();
        ids(&list
            .map(|id| id.as_u64().expect("an id") as u32)
            .collect::<Vec<_>>())
    };
    let text = golden["published_text"]
        .as_str()
        .expect("a text")
        .to_owned();
    (tokens("start_ids"), tokens("greedy_ids"), text)
}

fn check(checkpoint: &Checkpoint) {
    let (start, expected, text) = golden();
    let mut engine = engine_with(checkpoint, 2, &EngineOptions::default());
    let completion = answer(&mut engine, &greedy(start, expected.len()));
    assert_eq!(completion.tokens, expected);
    assert_eq!(completion.text, text);
}

#[test]
fn the_gguf_reproduces_the_published_text() {
    check(&stories260k());
}

#[test]
fn the_safetensors_reproduce_the_published_text() {
    let directory: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../formats/tests/data/stories260k-hf");
    check(&Checkpoint::open(&directory).expect("the repository carries it"));
}
