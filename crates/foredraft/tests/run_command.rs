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

const LONG: [&str; 6] = [
    "stories260k",
    "Once upon a time",
    "-n",
    "120",
    "--seed",
    "5",
];

/// `run` with these words and `--json`.
fn report(words: &[&str]) -> Value {
    let (code, stdout, stderr) = run(&[words, &["--json"]].concat());
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("one object")
}

#[test]
fn a_draft_changes_the_speed_and_not_the_text() {
    let plain = report(&LONG);
    assert!(plain["speculation"].is_null());
    for draft in [
        &["--draft", "lookup"][..],
        &["--draft", "lookup", "--tree", "3x2"],
        &["--draft", "model:stories260k", "--draft-max", "4"],
        &[
            "--draft",
            "model:stories260k",
            "--draft",
            "lookup",
            "--tree",
            "2x2",
        ],
    ] {
        let drafted = report(&[&LONG, draft].concat());
        assert_eq!(drafted["text"], plain["text"], "{draft:?}");
        assert_eq!(drafted["tokens"], plain["tokens"], "{draft:?}");
        let speculation = &drafted["speculation"];
        assert_eq!(speculation["verify"], "coupled");
        let number = |field: &str| speculation[field].as_f64().expect("a number");
        assert_eq!(
            number("steps"),
            drafted["timings"]["steps"].as_f64().expect("a number") + 1.0
        );
        assert_eq!(
            number("acceptance_rate"),
            number("accepted") / number("drafted")
        );
        let by_depth = speculation["accepted_by_depth"].as_array().expect("a list");
        assert!(!by_depth.is_empty());
        if draft.contains(&"4") {
            // The model drafts for itself with its own noise: it is always right.
            assert_eq!(speculation["drafter"], "model:stories260k");
            assert_eq!(
                (number("acceptance_rate"), number("tokens_per_step")),
                (1.0, 5.0)
            );
        }
    }
}

/// Another rule than `coupled` has its own text, and says how to have it again.
#[test]
fn a_rule_that_draws_for_itself_can_be_repeated() {
    let words = [
        "stories260k",
        "One day",
        "-n",
        "60",
        "--draft",
        "model:stories260k",
    ];
    let first = report(&words);
    assert_eq!(first["speculation"]["verify"], "rejection");
    let seed = first["seed"].as_u64().expect("a seed").to_string();
    let again = report(&[&words[..], &["--seed", &seed, "--verify", "rejection"]].concat());
    assert_eq!(again["text"], first["text"]);
    let (_, _, stderr) = run(&words);
    assert!(stderr.contains("with --verify rejection"), "{stderr}");
    assert!(stderr.contains("drafted accepted"), "{stderr}");
}

#[test]
fn show_draft_colours_and_trace_tells_every_step() {
    let (_, plain, _) = run(&LONG);
    let folder = home();
    let trace = folder.path().join("trace.jsonl");
    let trace = trace.to_str().expect("UTF-8");
    let drafted = [&LONG[..], &["--draft", "lookup", "--trace", trace]].concat();
    let (code, shown, stderr) = run(&[&drafted[..], &["--show-draft=always"]].concat());
    assert_eq!(code, 0, "{stderr}");
    assert!(
        shown.contains("\x1b[32m") && shown.contains("\x1b[0m"),
        "{shown:?}"
    );
    let mut bare = shown;
    for code in ["\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[0m"] {
        bare = bare.replace(code, "");
    }
    assert_eq!(bare, plain);
    // Not on a terminal: no colours.
    let (_, shown, _) = run(&[&drafted[..], &["--show-draft"]].concat());
    assert_eq!(shown, plain);
    let lines = std::fs::read_to_string(trace).expect("a trace");
    let steps: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let sum = |of: &dyn Fn(&Value) -> u64| steps.iter().map(of).sum::<u64>();
    assert_eq!(
        sum(&|step| step["emitted"].as_u64().expect("a number")),
        120
    );
    let accepted = sum(&|step| step["accepted"].as_array().expect("a list").len() as u64);
    assert!(accepted > 0 && steps[0]["step"] == 0, "{}", steps[0]);
    let drafted = steps
        .iter()
        .find_map(|step| step["drafted"].get(0))
        .expect("a node");
    assert_eq!(
        (&drafted["drafter"], &drafted["depth"]),
        (&"lookup".into(), &1.into())
    );
    refused(
        run(&[&LONG[..], &["--draft", "lookup", "--tree", "9x9"]].concat()),
        "255",
    );
}

#[test]
fn keys_and_values_in_8_bits_work_with_drafts_too() {
    let words = [&LONG[..], &["--kv", "q8"]].concat();
    let plain = report(&words);
    let drafted = report(&[&words[..], &["--draft", "model:stories260k"]].concat());
    assert_eq!(drafted["tokens"], plain["tokens"]);
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
