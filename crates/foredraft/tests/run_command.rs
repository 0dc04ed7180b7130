//! `foredraft run` from outside: what it says, where, and how it ends.

mod support;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use foredraft_quant::WeightType;
use foredraft_testing::TinyModel;
use serde_json::Value;
use support::{foredraft, outcome};

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Runs `run` with these words and gives code, stdout and stderr.
fn run(words: &[&str]) -> (i32, String, String) {
    let home = home();
    outcome(foredraft(home.path()).arg("run").args(words))
}

/// Runs it with this on standard input.
fn run_with_input(words: &[&str], input: &[u8]) -> (i32, String, String) {
    let home = home();
    let mut command: Command = foredraft(home.path());
    command
        .arg("run")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input)
        .expect("written");
    let output = child.wait_with_output().expect("an end");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (
        output.status.code().expect("a code"),
        text(output.stdout),
        text(output.stderr),
    )
}

fn refused((code, stdout, stderr): (i32, String, String), told: &str) {
    assert_eq!((code, stdout.as_str()), (2, ""), "{stderr}");
    assert!(
        stderr.starts_with("error: ") && stderr.contains(told),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// A tiny model without a vocabulary, written to a file after `change`.
fn tiny(folder: &Path, change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = TinyModel::of_type(WeightType::Q4_0).gguf();
    change(&mut bytes);
    let path = folder.join("tiny.gguf");
    std::fs::write(&path, bytes).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

const STORY: &str = ", there was a little girl named Lily. She loved to play outside in the park.";

#[test]
fn the_built_in_model_continues_a_story() {
    let (code, stdout, stderr) = run(&["stories260k", "Once upon a time", "-t", "0", "-n", "30"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with(STORY), "{stdout}");
    assert!(stdout.ends_with('\n'));
    assert!(
        stderr.contains("answer 30 tokens") && stderr.contains("--max-tokens"),
        "{stderr}"
    );
}

#[test]
fn standard_input_is_a_prompt() {
    for words in [
        ["stories260k", "-", "-t", "0"].as_slice(),
        &["stories260k", "-t", "0"],
    ] {
        let words = [words, &["-n", "30"]].concat();
        let (code, stdout, _) = run_with_input(&words, b"Once upon a time");
        assert_eq!(code, 0);
        assert!(stdout.starts_with(STORY), "{stdout}");
    }
    refused(run_with_input(&["stories260k", "-"], b"caf\xe9"), "UTF-8");
}

#[test]
fn the_same_seed_gives_the_same_text_on_any_threads_and_path() {
    let say = |seed: &str, more: &[&str]| {
        let words = [
            &["stories260k", "The dog", "-n", "60", "--seed", seed],
            more,
        ]
        .concat();
        let (code, stdout, stderr) = run(&words);
        assert_eq!(code, 0, "{stderr}");
        stdout
    };
    let expected = say("7", &[]);
    assert_eq!(say("7", &["--threads", "1"]), expected);
    assert_eq!(
        say("7", &["--threads", "3", "--cpu-path", "portable"]),
        expected
    );
    assert_ne!(say("8", &[]), expected);
}

#[test]
fn json_is_one_object_and_stdout_holds_nothing_else() {
    let (code, stdout, _) = run(&[
        "stories260k",
        "Once upon a time",
        "-t",
        "0",
        "-n",
        "12",
        "--json",
        "--draft",
        "none",
    ]);
    assert_eq!(code, 0);
    let report: Value = serde_json::from_str(&stdout).expect("one object");
    assert_eq!(
        report["text"].as_str(),
        Some(", there was a little girl named Lily. She")
    );
    assert_eq!(report["tokens"].as_array().map(Vec::len), Some(12));
    assert_eq!(report["finish_reason"], "max_tokens");
    assert_eq!(report["usage"]["completion_tokens"], 12);
    assert_eq!(report["timings"]["steps"], 11);
    // The reported seed repeats what was drawn without one.
    let (_, first, _) = run(&["stories260k", "A cat", "-n", "30", "--json"]);
    let first: Value = serde_json::from_str(&first).expect("JSON");
    let seed = first["seed"].as_u64().expect("a seed").to_string();
    let (_, again, _) = run(&[
        "stories260k",
        "A cat",
        "-n",
        "30",
        "--json",
        "--seed",
        &seed,
    ]);
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(first["text"], again["text"]);
}

#[test]
fn a_stop_text_ends_the_answer_before_it() {
    let words = [
        "stories260k",
        "Once upon a time",
        "-t",
        "0",
        "--stop",
        " She loved",
    ];
    let (code, stdout, stderr) = run(&words);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(stdout, ", there was a little girl named Lily.\n");
}

#[test]
fn what_cannot_be_done_is_told_in_one_line() {
    refused(
        run(&["stories260k", "x", "--context", "4096"]),
        "at most 512",
    );
    refused(
        run(&["stories260k", &"word ".repeat(600)]),
        "context holds 512",
    );
    refused(
        run(&["stories260k", "x", "--memory", "1M"]),
        "the budget is 1.0 MiB",
    );
    refused(run(&["stories260k", "x", "--system", "Be brief."]), "--raw");
    refused(run(&["stories260k", "x", "--logit-bias", "600=1"]), "600");
    refused(run(&["no-such-file.gguf", "x"]), "no-such-file.gguf");
}

#[test]
fn models_that_cannot_run_are_refused_by_name() {
    let folder = home();
    let replace = |from: &'static [u8], to: &'static [u8]| {
        move |bytes: &mut Vec<u8>| {
            let at = bytes
                .windows(from.len())
                .position(|w| w == from)
                .expect("present");
            bytes[at..at + from.len()].copy_from_slice(to);
        }
    };
    // No vocabulary at all.
    refused(run(&[&tiny(folder.path(), |_| {}), "x"]), "vocabulary");
    let inspect = |path: &str| {
        let home = home();
        outcome(foredraft(home.path()).args(["inspect", path]))
    };
    let (code, stdout, _) = inspect(&tiny(folder.path(), |_| {}));
    assert_eq!(code, 0);
    assert!(stdout.contains("Q4_0"), "{stdout}");
    // A tensor of an unknown name makes the model incomplete; the file itself is readable.
    let renamed = tiny(
        folder.path(),
        replace(
            b"blk.1.ffn_up.weight",
            b"blk.1.ffn_oops.weight".split_at(19).0,
        ),
    );
    assert_eq!(inspect(&renamed).0, 0);
    refused(
        run(&[&tiny(folder.path(), |b| b.truncate(b.len() / 2)), "x"]),
        "tiny.gguf",
    );
    refused(
        run(&[&tiny(folder.path(), |b| b[0] = b'X'), "x"]),
        "tiny.gguf",
    );
    let directory = folder.path().to_str().expect("UTF-8").to_owned();
    std::fs::remove_file(folder.path().join("tiny.gguf")).expect("removed");
    refused(run(&[&directory, "x"]), "config.json");
}

/// `head` closes the pipe early: the answer ends, quietly.
#[test]
fn a_closed_pipe_ends_the_answer_quietly() {
    let home = home();
    let mut command: Command = foredraft(home.path());
    command
        .args(["run", "stories260k", "Once", "-t", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary");
    let mut first = [0; 4];
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut first)
        .expect("text");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_answer_with_130() {
    let home = home();
    let mut command: Command = foredraft(home.path());
    // A bias against end-of-text: the answer would fill the context.
    command
        .args([
            "run",
            "stories260k",
            "Once",
            "--cpu-path",
            "portable",
            "--threads",
            "1",
            "--logit-bias",
            "2=-100",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary");
    let mut first = [0; 1];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut first)
        .expect("text");
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
}
