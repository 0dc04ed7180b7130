//! `foredraft audit` from outside: what it refuses, and how it ends. What it checks is tested beside its code.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use support::{foredraft, outcome};

#[test]
fn what_cannot_be_audited_is_told_in_one_line() {
    let home = tempfile::tempdir().expect("a folder");
    for (words, told) in [
        (&["no-such-model.gguf"][..], "no-such-model.gguf"),
        (&["stories260k", "--draft", "none"], "nothing to check"),
        (&["stories260k", "--draft", "model:no.gguf"], "no.gguf"),
        (&["stories260k", "--context", "100000"], "context"),
    ] {
        let (code, stdout, stderr) = outcome(foredraft(home.path()).arg("audit").args(words));
        assert_eq!((code, stdout.as_str()), (2, ""), "{words:?}: {stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.contains(told),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

/// Ctrl-C ends it with 130, and no table of half the checks is printed.
#[cfg(unix)]
#[test]
fn ctrl_c_ends_an_audit() {
    let home = tempfile::tempdir().expect("a folder");
    let mut command = foredraft(home.path());
    command.args(["audit", "stories260k", "--draft", "lookup"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary");
    // The first line on stderr comes when the first kind of checks is done, or after ten seconds.
    let stderr = child.stderr.take().expect("a pipe");
    let mut lines = BufReader::new(stderr).lines();
    let first = lines.next().expect("a line").expect("UTF-8");
    assert!(first.starts_with("bits: "), "{first}");
    let interrupt = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupt.expect("kill").success());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty());
}
