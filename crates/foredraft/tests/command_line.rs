//! The binary from outside: exit codes, one line of error, and what goes to which stream.

mod support;

use std::io::Read;
use std::process::Stdio;

use support::{foredraft, outcome};

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Runs the binary with these words; it must refuse them as wrong, in one line that holds `told`.
fn refused(words: &[&str], told: &str) {
    let home = home();
    let (code, stdout, stderr) = outcome(foredraft(home.path()).args(words));
    let context = format!("foredraft {}: {stderr}", words.join(" "));
    assert_eq!(code, 2, "{context}");
    assert_eq!(stdout, "", "{context}");
    assert!(
        stderr.starts_with("error: ") && stderr.contains(told),
        "{context}"
    );
    assert_eq!(stderr.lines().count(), 1, "{context}");
}

#[test]
fn wrong_options_are_told_in_one_line() {
    refused(&["run"], "<MODEL>");
    refused(&["run", ""], "<MODEL>");
    refused(&["run", "m", "--threads", "0"], "at least 1");
    refused(&["run", "m", "--threads", "-1"], "'-1'");
    refused(&["run", "m", "--memory", "5X"], "800M");
    refused(&["run", "m", "--context", "0"], "at least 1");
    refused(&["run", "m", "--temp", "-1"], "0 or more");
    refused(&["run", "m", "--temperature", "nan"], "number");
    refused(&["run", "m", "--top-p", "1.5"], "from 0 to 1");
    refused(&["run", "m", "--repeat-penalty", "0"], "above 0");
    refused(&["run", "m", "--logit-bias", "7"], "ID=X");
    refused(&["run", "m", "--stop", ""], "empty");
    refused(&["run", "m", "--kv", "q3"], "f16");
    refused(&["run", "m", "--draft", "eagle:x"], "not in this version");
    refused(&["run", "m", "--draft", "model:"], "write model:MODEL");
    refused(
        &["run", "m", "x", "--draft", "none", "--draft", "lookup"],
        "stand alone",
    );
    refused(
        &["run", "m", "x", "--draft", "lookup", "--draft", "lookup"],
        "given twice",
    );
    refused(&["run", "m", "--draft-max", "0"], "at least 1");
    refused(&["run", "m", "--tree", "3x"], "WxD");
    refused(&["run", "m", "--verify", "trust"], "rejection");
    refused(&["run", "m", "--draft", "magic"], "no draft");
    refused(
        &["run", "m", "--raw", "--system", "x"],
        "cannot be used with",
    );
    refused(&["run", "m", "--sed", "1"], "'--seed'");
    refused(&["walk"], "walk");
    refused(&["inspect", "m", "extra"], "extra");
    refused(&["completions", "tcsh"], "tcsh");
}

#[test]
fn models_that_are_not_there() {
    refused(&["inspect", "smolm2-135m"], "did you mean smollm2-135m?");
    refused(
        &["inspect", "no/such/model.gguf"],
        "no file no/such/model.gguf",
    );
    refused(&["inspect", "hf:only-owner"], "hf:owner/repo");
    refused(&["inspect", "hf:../../etc:passwd"], "hf:owner/repo");
    refused(&["inspect", env!("CARGO_MANIFEST_DIR")], "model");
    refused(
        &[
            "inspect",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ],
        "GGUF",
    );
    refused(&["pull", "smolm2-135m"], "did you mean");
    refused(&["pull", env!("CARGO_MANIFEST_DIR")], "is here already");
    #[cfg(unix)]
    refused(&["inspect", "/dev/zero"], "neither a file nor a directory");
}

#[test]
fn without_a_command_the_help_is_shown() {
    let home = home();
    let (code, stdout, stderr) = outcome(&mut foredraft(home.path()));
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("Examples:") && stderr.contains("foredraft run stories260k"));

    let (code, stdout, _) = outcome(foredraft(home.path()).args(["run", "--help"]));
    assert_eq!(code, 0);
    assert!(stdout.contains("--top-p") && stdout.contains("Examples:"));
    let (code, stdout, _) = outcome(foredraft(home.path()).arg("--version"));
    assert_eq!(
        (code, stdout),
        (0, format!("foredraft {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn pull_lists_the_aliases() {
    let home = home();
    let (code, stdout, stderr) = outcome(foredraft(home.path()).arg("pull"));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let line = |alias: &str| {
        stdout
            .lines()
            .find(|line| line.starts_with(alias))
            .map(str::to_string)
            .expect("listed")
    };
    assert!(line("smollm2-135m").contains("98.4 MB") && line("smollm2-135m").ends_with("not here"));
    assert!(line("stories260k").contains("MIT") && line("stories260k").ends_with("built in"));

    let (code, stdout, _) = outcome(foredraft(home.path()).args(["pull", "--json"]));
    let listing: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON object");
    assert_eq!(
        (code, &listing["models"][0]["alias"]),
        (0, &"smollm2-135m".into())
    );
    let sources = listing["models"][1]["sources"].to_string();
    assert!(sources.contains("an upload by an individual"), "{sources}");
}

#[test]
fn inspect_shows_the_built_in_model() {
    let home = home();
    let (code, stdout, stderr) =
        outcome(foredraft(home.path()).args(["inspect", "stories260k", "--json", "--tensors"]));
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON object");
    // The model's published shape: dim 64, 5 layers, 8 heads, 4 kv heads, hidden 172, vocabulary 512.
    let shape = &report["hyperparameters"];
    for (key, value) in [
        ("width", 64),
        ("layers", 5),
        ("heads", 8),
        ("kv_heads", 4),
        ("ffn_width", 172),
        ("vocabulary_rows", 512),
    ] {
        assert_eq!(shape[key], value, "{key}");
    }
    // 512*64 embedding + 5 * (2*64 norms + 64*64*2 q,o + 32*64*2 k,v + 3*64*172 ffn) + 64 last norm.
    assert_eq!(report["parameters"], 260_032);
    assert_eq!(report["vocabulary"]["tokens"], 512);
    assert_eq!(report["vocabulary"]["bos"]["id"], 1);
    assert_eq!(report["vocabulary"]["end_of_text"][0]["id"], 2);
    assert_eq!(report["tensors"].as_array().map(Vec::len), Some(47));

    let (code, stdout, _) = outcome(foredraft(home.path()).args(["inspect", "stories260k"]));
    assert_eq!(code, 0);
    assert!(
        stdout.contains("260,032") && stdout.contains("8 heads of 8, 4 for keys and values"),
        "{stdout}"
    );
}

/// A vocabulary of single letters, and what the binary says of it against another.
#[test]
fn inspect_compares_vocabularies() {
    let home = home();
    let write = |name: &str, tokens: &[&str]| {
        let mut writer = foredraft::formats::write::GgufWriter::new();
        writer
            .str("general.architecture", "llama")
            .str("tokenizer.ggml.model", "llama")
            .str_array("tokenizer.ggml.tokens", tokens)
            .f32_array("tokenizer.ggml.scores", &vec![0.0; tokens.len()])
            .i32_array("tokenizer.ggml.token_type", &vec![1; tokens.len()]);
        let file = home.path().join(name);
        std::fs::write(&file, writer.finish().expect("a file")).expect("writes");
        file
    };
    let target = write("target.gguf", &["a", "b", "c"]);
    let inspect = |other: &std::path::Path, more: &[&str]| {
        let mut command = foredraft(home.path());
        command
            .arg("inspect")
            .arg(&target)
            .arg("--against")
            .arg(other);
        outcome(command.args(more))
    };
    let same = write("same.gguf", &["a", "b", "c", "[PAD3]", "e"]);
    let (code, stdout, stderr) = inspect(&same, &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("each may draft for the other"), "{stdout}");

    let other = write("other.gguf", &["a", "\u{1b}[2J", "c"]);
    let (code, stdout, stderr) = inspect(&other, &[]);
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(
        stderr.starts_with("error: ") && stderr.contains("1 of the 3"),
        "{stderr}"
    );
    assert!(
        stdout.contains("neither can draft for the other"),
        "{stdout}"
    );
    assert!(!format!("{stdout}{stderr}").contains('\u{1b}'));

    let (code, stdout, _) = inspect(&other, &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON object");
    let against = &report["against"];
    assert_eq!((code, &against["compatible"]), (1, &false.into()));
    assert_eq!(
        (&against["shared"], &against["differing"]),
        (&3.into(), &1.into())
    );
    assert_eq!(against["first_differences"][0]["id"], 1);
    assert_eq!(against["first_differences"][0]["here"]["text"], "b");

    let (code, _, stderr) =
        outcome(foredraft(home.path()).args(["inspect", "stories260k", "--against", "smolm2"]));
    assert_eq!(code, 2, "{stderr}");
}

#[test]
fn inspect_disarms_what_a_file_says() {
    let home = home();
    let mut writer = foredraft::formats::write::GgufWriter::new();
    writer
        .str("general.architecture", "evil\u{1b}[2J")
        .str("general.name", "a\u{7}b\u{202e}c");
    let file = home.path().join("evil.gguf");
    std::fs::write(&file, writer.finish().expect("a file")).expect("writes");
    let (code, stdout, stderr) = outcome(foredraft(home.path()).arg("inspect").arg(&file));
    let all = format!("{stdout}{stderr}");
    assert!(code == 0 || code == 2, "{all}");
    assert!(!all.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{all:?}");
    assert!(all.contains("evil"), "{all}");
}

#[test]
fn completions_know_the_options() {
    let home = home();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, stdout, _) = outcome(foredraft(home.path()).args(["completions", shell]));
        assert_eq!(code, 0);
        assert!(stdout.contains("frequency-penalty"), "{shell}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let home = home();
    for words in [
        &["completions", "zsh"][..],
        &["pull"],
        &["inspect", "stories260k", "--tensors"],
        &["--help"],
    ] {
        let mut child = foredraft(home.path())
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        drop(child.stdout.take());
        let mut said = String::new();
        child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut said)
            .expect("UTF-8");
        let status = child.wait().expect("ends");
        assert_eq!((status.code(), said.as_str()), (Some(0), ""), "{words:?}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_stdout_is_a_failure() {
    let home = home();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let output = foredraft(home.path())
        .arg("pull")
        .stdout(full)
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .starts_with("error: cannot write to standard output: ")
    );
}
