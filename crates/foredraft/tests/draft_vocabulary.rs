//! Which models may draft, from outside (the case "Vocabulary"): the tokens decide, not how many there are.

mod support;

use std::path::Path;

use foredraft_testing::stories260k_with;
use support::{foredraft, outcome};

/// `model:` and the path of a file of these bytes.
fn draft(folder: &Path, name: &str, bytes: Vec<u8>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("written");
    format!("model:{}", path.display())
}

const RUN: [&str; 7] = [
    "run",
    "stories260k",
    "Once upon a time",
    "-t",
    "0",
    "-n",
    "60",
];

/// As many tokens, one of them another: refused by every command that would let it draft.
#[test]
fn vocabulary_a_draft_of_equal_size_with_other_tokens_is_refused() {
    let home = tempfile::tempdir().expect("a folder");
    let change = |tokens: &mut Vec<String>| tokens[403] = "\u{2581}Twice".to_owned();
    let draft = draft(home.path(), "other.gguf", stories260k_with(change, 512));
    let commands = [
        &RUN[..],
        &["bench", "stories260k"],
        &["audit", "stories260k"],
    ];
    for words in commands {
        let words = [words, &["--draft", &draft]].concat();
        let (code, stdout, stderr) = outcome(foredraft(home.path()).args(&words));
        assert_eq!((code, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        for told in ["cannot draft here", "1 of the", "id 403", "Once", "Twice"] {
            assert!(stderr.contains(told), "{words:?}: {told}: {stderr}");
        }
    }
}

/// The same tokens and more, in a table of another size: it drafts, and the text is the model's. What only the draft has, or
/// nobody, would win if it were asked.
#[test]
fn vocabulary_a_draft_of_other_size_with_the_same_tokens_drafts() {
    let home = tempfile::tempdir().expect("a folder");
    let more = |tokens: &mut Vec<String>| {
        tokens.extend((512..600).map(|id| format!("only the draft's {id}")));
        tokens.extend((600..700).map(|id| format!("[PAD{id}]")));
    };
    let draft = draft(home.path(), "more.gguf", stories260k_with(more, 1024));
    let run = |more: &[&str]| {
        let words = [&RUN[..], &["--json"], more].concat();
        let (code, stdout, stderr) = outcome(foredraft(home.path()).args(&words));
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<serde_json::Value>(&stdout).expect("JSON")
    };
    let plain = run(&[]);
    let drafted = run(&["--draft", &draft]);
    assert_eq!(drafted["tokens"], plain["tokens"]);
    // It is the model itself, whatever else it has.
    assert_eq!(drafted["speculation"]["acceptance_rate"], 1.0);
}
