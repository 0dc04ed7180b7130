//! `foredraft serve` from outside: how it starts and ends, and what clients that misbehave do to it: nothing.

#[path = "support/serve.rs"]
mod serve;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serve::{ServerProcess, events, read_reply};

const COMPLETIONS: &str = "/v1/completions";

/// One that takes long: a hundred answers that do not end by themselves.
fn long(stream: bool) -> Value {
    json!({"prompt": "Once", "n": 100, "max_tokens": 500, "stream": stream, "logit_bias": {"1": -100, "2": -100}})
}

/// A server on which that takes some time.
fn slow(words: &[&str]) -> ServerProcess {
    ServerProcess::start(
        &[
            &[
                "stories260k",
                "--cpu-path",
                "portable",
                "--threads",
                "1",
                "--max-queue",
                "1000",
            ],
            words,
        ]
        .concat(),
    )
}

/// Reads until this text has come.
fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut all = Vec::new();
    let mut part = [0; 4096];
    while !String::from_utf8_lossy(&all).contains(text) {
        let read = stream.read(&mut part).expect("more");
        assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&all));
        all.extend_from_slice(&part[..read]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address")
}

/// It listens at once; that it loads can be seen from outside.
#[cfg(unix)]
#[test]
fn a_server_that_loads_is_alive_and_not_ready() {
    // A hub that never answers: loading takes for ever.
    let hub = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", hub.local_addr().expect("an address"));
    let words = ["hf:owner/model:model.gguf"];
    let mut server = ServerProcess::start_at(free_address(), &words, |command| {
        command.env("HF_ENDPOINT", endpoint);
    });
    assert_eq!(server.get("/health").status, 200);
    for reply in [
        server.get("/ready"),
        server.get("/v1/models"),
        server.post(COMPLETIONS, &json!({"prompt": "x"})),
    ] {
        assert_eq!(reply.error(503)["code"], "model_loading");
        assert!(reply.header("retry-after").is_some());
    }
    assert_eq!(server.busy(), 0.0);
    let asked = Instant::now();
    server.signal("-INT");
    assert_eq!(server.end(), 130);
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert!(
        !server
            .stderr()
            .iter()
            .any(|line| line.contains("listening"))
    );
}

#[test]
fn what_cannot_be_served_ends_with_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let home = tempfile::tempdir().expect("a folder");
    let end = |words: &[&str]| {
        let output = serve::command(home.path())
            .args(words)
            .output()
            .expect("the binary");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(output.stdout, b"");
        (output.status.code(), stderr)
    };
    let (code, stderr) = end(&["stories260k", "--port", &port]);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains(&port) && stderr.contains("--port"),
        "{stderr}"
    );
    for (words, told) in [
        (&["no-such-model"][..], "no-such-model"),
        (&["stories260k", "--host", "example"], "--host"),
        (&["stories260k", "--temperature", "-1"], "--temperature"),
        (&["stories260k", "--log-level", "=="], "--log-level"),
        (&["stories260k", "--memory", "1M"], "the budget is 1.0 MiB"),
        (
            &["stories260k", "--draft", "none", "--draft", "lookup"],
            "--draft",
        ),
        (&["stories260k", "--api-key", ""], "--api-key"),
    ] {
        let (code, stderr) = end(&[words, &["--port", "0"]].concat());
        assert_eq!(code, Some(2), "{words:?}");
        assert!(stderr.contains(told), "{stderr}");
    }
}

#[test]
fn a_server_for_everyone_without_a_key_warns() {
    let server = ServerProcess::start(&["stories260k", "--host", "0.0.0.0"]);
    assert!(
        server.stderr()[0].starts_with("warning: "),
        "{:?}",
        server.stderr()
    );
    drop(server);
    let server = ServerProcess::start(&["stories260k", "--host", "0.0.0.0", "--api-key", "k"]);
    assert!(
        server.stderr()[0].contains("listening"),
        "{:?}",
        server.stderr()
    );
}

/// A client that goes away takes its answers with it, in every phase: waiting, answered as a whole, streamed.
#[test]
fn a_client_that_leaves_leaves_nothing() {
    let server = slow(&[]);
    for stream in [false, true] {
        let mut sent = server.send_json(COMPLETIONS, &long(stream));
        if stream {
            read_until(&mut sent, "\"text\"");
        }
        server.wait_until("work", || {
            server.metric("vllm:num_requests_running", "") > 0.0
        });
        let left = Instant::now();
        drop(sent);
        server.wait_until("rest", || server.busy() == 0.0);
        // All hundred answers would take far longer.
        assert!(
            left.elapsed() < Duration::from_secs(5),
            "{:?}",
            left.elapsed()
        );
    }
    server.wait_until("the log", || {
        let lines = server.stderr();
        lines
            .iter()
            .filter(|line| line.contains("finish=\"abort\""))
            .count()
            == 2
    });
    assert!(server.metric("vllm:request_success_total", "\"abort\"") >= 100.0);
    server.complete(json!({"prompt": "x"}));
}

/// A reader that does not read is given up, and nobody waits for it meanwhile.
#[test]
fn a_slow_reader_holds_up_nobody() {
    let server = slow(&["--stream-buffer", "20", "--write-timeout", "1"]);
    // With log probabilities, some MB of them, which the system's own buffers hold, are soon said.
    let mut body = long(true);
    body["logprobs"] = json!(20);
    let mut sent = server.send_json(COMPLETIONS, &body);
    read_until(&mut sent, "\"text\"");
    let asked = Instant::now();
    server.complete(json!({"prompt": "x", "max_tokens": 3}));
    server.wait_until("rest", || server.busy() == 0.0);
    let said = server.metric("vllm:inter_token_latency_seconds_count", "");
    assert!(said < 25_000.0, "all that was asked for are 50000: {said}");
    assert!(
        asked.elapsed() < Duration::from_secs(50),
        "{:?}",
        asked.elapsed()
    );
    // The connection is closed, though nobody has read it to the end.
    let cut = ["abort", "error"].map(|how| format!("finish=\"{how}\""));
    server.wait_until("the log", || {
        let lines = server.stderr();
        let is_cut = |line: &String| cut.iter().any(|cut| line.contains(cut));
        lines.iter().any(is_cut)
    });
}

/// What comes in part only is waited for, and then given up.
#[test]
fn requests_that_do_not_arrive_are_given_up() {
    let server = ServerProcess::start(&["stories260k", "--read-timeout", "1"]);
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 100\r\n"
    );
    let begin = |text: String| {
        let mut stream = server.connect();
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    };
    let mut half_body = begin(format!("{head}\r\n{{\"prompt\""));
    let mut half_head = begin(head.clone());
    let mut nothing = begin(String::new());
    // A body that comes byte by byte is no better.
    let mut trickle = begin(format!("{head}\r\n"));
    let trickling = std::thread::spawn(move || {
        for _ in 0..30 {
            if trickle.write_all(b" ").is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        read_reply(&mut trickle)
    });
    assert_eq!(server.get("/health").status, 200);
    let started = Instant::now();
    assert_eq!(
        read_reply(&mut half_body).error(408)["code"],
        "body_timeout"
    );
    for stream in [&mut half_head, &mut nothing] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.starts_with(b"HTTP/1.1 200"));
    }
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    trickling.join().expect("a thread").error(408);
    // One that breaks off.
    let broken = begin(format!("{head}\r\n{{\"prompt\""));
    broken.shutdown(std::net::Shutdown::Write).expect("closed");
    drop(broken);
    server.complete(json!({"prompt": "x"}));
}

#[test]
fn many_that_connect_and_leave_change_nothing() {
    let server = slow(&[]);
    let body = json!({"prompt": "Once", "max_tokens": 500, "stream": true, "logit_bias": {"1": -100, "2": -100}});
    for round in 0..10 {
        let connections: Vec<TcpStream> = (0..20)
            .map(|i| match (round + i) % 3 {
                0 => server.connect(),
                1 => server.send("GET", "/v1/models", &[], b""),
                _ => server.send_json(COMPLETIONS, &body),
            })
            .collect();
        drop(connections);
    }
    server.wait_until("rest", || server.busy() == 0.0);
    server.complete(json!({"prompt": "x"}));
}

#[cfg(unix)]
#[test]
fn answers_under_way_end_before_the_server_does() {
    let mut server = slow(&["--grace", "60"]);
    let mut body = long(true);
    body["n"] = json!(8);
    let mut sent = server.send_json(COMPLETIONS, &body);
    let begun = read_until(&mut sent, "\"text\"");
    server.signal("-TERM");
    server.wait_until("draining", || server.get("/ready").status == 503);
    let refused = server.post(COMPLETIONS, &json!({"prompt": "x"}));
    assert_eq!(refused.error(503)["code"], "shutting_down");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(server.get("/health").status, 200);
    let mut rest = String::new();
    sent.read_to_string(&mut rest).expect("the rest");
    let text = begun + &rest;
    assert_eq!(text.matches("\"finish_reason\":\"length\"").count(), 8);
    assert!(text.contains("data: [DONE]") && !text.contains("\"error\""));
    assert_eq!(server.end(), 0);
}

#[cfg(unix)]
#[test]
fn without_grace_answers_end_with_an_error() {
    let mut server = slow(&["--grace", "0"]);
    let mut streamed = server.send_json(COMPLETIONS, &long(true));
    let mut whole = server.send_json(COMPLETIONS, &long(false));
    read_until(&mut streamed, "\"text\"");
    let asked = Instant::now();
    server.signal("-INT");
    let mut rest = String::new();
    streamed.read_to_string(&mut rest).expect("the rest");
    assert!(
        rest.contains("\"code\":\"shutting_down\"") && rest.contains("data: [DONE]"),
        "{rest}"
    );
    read_reply(&mut whole).error(503);
    assert_eq!(server.end(), 0);
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
}

#[cfg(unix)]
#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = slow(&["--grace", "60"]);
    let mut sent = server.send_json(COMPLETIONS, &long(true));
    read_until(&mut sent, "\"text\"");
    server.signal("-INT");
    server.wait_until("draining", || server.get("/ready").status == 503);
    let asked = Instant::now();
    server.signal("-INT");
    assert_eq!(server.end(), 130);
    assert!(
        asked.elapsed() < Duration::from_secs(10),
        "{:?}",
        asked.elapsed()
    );
}

#[test]
fn the_log_is_a_line_for_each_request() {
    let server = ServerProcess::start(&["stories260k", "--log", "json"]);
    let answer = server.complete(json!({"prompt": "Once upon a time", "max_tokens": 7, "n": 2}));
    let streamed = server.post(COMPLETIONS, &json!({"prompt": "x", "stream": true}));
    events(&streamed.text);
    let refused = server.post(COMPLETIONS, &json!({"prompt": "x", "n": 0}));
    server.get("/health");
    let lines = || -> Vec<Value> {
        let lines = server.stderr();
        let objects = lines
            .iter()
            .map(|line| serde_json::from_str(line).expect("an object"));
        objects.collect()
    };
    server.wait_until("the log", || lines().len() >= 4);
    let lines = lines();
    let of = |id: &str| {
        lines
            .iter()
            .filter(|line| line["id"] == id)
            .collect::<Vec<_>>()
    };
    let id = answer["id"]
        .as_str()
        .and_then(|id| id.strip_prefix("cmpl-"))
        .expect("an id");
    let [line] = of(id)[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(
        (&line["message"], &line["level"]),
        (&json!("request"), &json!("INFO"))
    );
    assert_eq!(
        (
            &line["completion_tokens"],
            &line["answers"],
            &line["finish"]
        ),
        (&json!(14), &json!(2), &json!("length"))
    );
    assert!(line["first_token_s"].as_f64() <= line["total_s"].as_f64());
    let [line] = of(streamed.header("x-request-id").expect("an id"))[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(line["completion_tokens"], 16);
    let [line] = of(refused.header("x-request-id").expect("an id"))[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(
        (&line["message"], &line["status"]),
        (&json!("refused"), &json!(400))
    );
    assert_eq!(lines.len(), 4, "{lines:?}");
}
