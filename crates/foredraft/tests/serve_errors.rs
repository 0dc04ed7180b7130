//! `foredraft serve` from outside: what it refuses, with which status, and in OpenAI's shape.

#[path = "support/serve.rs"]
mod serve;

use std::time::Instant;

use serde_json::{Value, json};
use serve::{ServerProcess, chat_model};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_wrong_field_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ServerProcess::start(&[&chat_model(folder.path()), "--max-choices", "20"]);
    // Of a completion: the field, what it is, and what the error names.
    for (field, value, param) in [
        ("prompt", Value::Null, "prompt"),
        ("prompt", json!(5), "prompt"),
        ("prompt", json!([]), "prompt"),
        ("prompt", json!([[]]), "prompt"),
        ("prompt", json!([1, "x"]), "prompt"),
        ("prompt", json!([512]), "prompt"),
        ("prompt", json!([-1]), "prompt"),
        ("prompt", json!(vec!["x"; 21]), "n"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("max_tokens", json!(1e30), "max_tokens"),
        ("temperature", json!("hot"), "temperature"),
        ("temperature", json!(-0.1), "temperature"),
        ("temperature", json!(101), "temperature"),
        ("top_p", json!(1.1), "top_p"),
        ("top_k", json!(-2), "top_k"),
        ("min_p", json!(-1), "min_p"),
        ("presence_penalty", json!(2.5), "presence_penalty"),
        ("frequency_penalty", json!(-2.5), "frequency_penalty"),
        ("repetition_penalty", json!(0), "repetition_penalty"),
        ("logit_bias", json!({"x": 1}), "logit_bias"),
        ("logit_bias", json!({"5": 1, "05": 2}), "logit_bias"),
        ("logit_bias", json!({"512": 1}), "logit_bias"),
        ("logit_bias", json!({"5": 101}), "logit_bias"),
        ("seed", json!(1.5), "seed"),
        ("seed", json!("x"), "seed"),
        ("n", json!(0), "n"),
        ("n", json!(21), "n"),
        ("n", json!(129), "n"),
        ("stop", json!(""), "stop"),
        ("stop", json!([1]), "stop"),
        ("stop", json!(vec!["x"; 65]), "stop"),
        ("stream", json!("yes"), "stream"),
        (
            "stream_options",
            json!({"include_usage": true}),
            "stream_options",
        ),
        ("logprobs", json!(21), "logprobs"),
        ("logprobs", json!(true), "logprobs"),
        ("best_of", json!(2), "best_of"),
        ("suffix", json!("x"), "suffix"),
        ("user", json!(1), "user"),
        ("speculation", json!("maybe"), "speculation"),
        (
            "speculation",
            json!({"draft_max": 256}),
            "speculation.draft_max",
        ),
        ("speculation", json!({"tree": "9x9x9"}), "speculation.tree"),
        ("speculation", json!({"verify": "hope"}), "speculation"),
        (
            "response_format",
            json!({"type": "json_object"}),
            "response_format",
        ),
        ("guided_json", json!({}), "guided_json"),
    ] {
        let mut body = json!({"prompt": "x"});
        body[field] = value.clone();
        let error = server.post(COMPLETIONS, &body).error(400);
        assert_eq!(error["param"], param, "{field} {value}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    let hi = json!([{"role": "user", "content": "Hi."}]);
    for (field, value, param) in [
        ("messages", Value::Null, "messages"),
        ("messages", json!([]), "messages"),
        (
            "messages",
            json!([{"role": "user", "content": 1}]),
            "messages[0].content",
        ),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
            "messages[0].content[0].type",
        ),
        ("max_completion_tokens", json!(0), "max_completion_tokens"),
        ("logprobs", json!(1), "logprobs"),
        ("top_logprobs", json!(3), "top_logprobs"),
        ("chat_template_kwargs", json!(3), "chat_template_kwargs"),
        ("tools", json!([{"type": "function"}]), "tools"),
        ("tool_choice", json!("required"), "tool_choice"),
        (
            "response_format",
            json!({"type": "json_schema"}),
            "response_format",
        ),
    ] {
        let mut body = json!({"messages": hi});
        body[field] = value.clone();
        let error = server.post(CHAT, &body).error(400);
        assert_eq!(error["param"], param, "{field} {value}: {error}");
    }
    // What means nothing is no error.
    let body = json!({"messages": hi, "max_tokens": 2, "tools": [], "tool_choice": "none", "response_format": {"type": "text"},
        "temperature": null, "stop": null, "n": null, "seed": -1, "top_k": -1, "logprobs": false, "top_logprobs": 0});
    server.ask(CHAT, &body);
}

#[test]
fn a_prompt_beyond_the_context_is_told_with_the_numbers() {
    let server = ServerProcess::start(&["stories260k", "--context", "64"]);
    let prompt: Vec<u32> = (0..64).map(|_| 100).collect();
    for stream in [false, true] {
        let error = server
            .post(COMPLETIONS, &json!({"prompt": prompt, "stream": stream}))
            .error(400);
        assert_eq!(error["code"], "context_length_exceeded");
        assert_eq!(error["param"], "prompt");
        let message = error["message"].as_str().expect("a message");
        assert!(message.matches("64 tokens").count() == 2, "{message}");
    }
    // One token of room is enough.
    let answer = server.complete(json!({"prompt": prompt[1..], "max_tokens": 10}));
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["total_tokens"], 64);
}

#[test]
fn what_is_not_there_is_told() {
    let server = ServerProcess::start(&["stories260k", "--max-body", "1K"]);
    let error = server
        .post(COMPLETIONS, &json!({"model": "gpt-4", "prompt": "x"}))
        .error(404);
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("model_not_found"), &json!("model"))
    );
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|m| m.contains("stories260k"))
    );
    server.get("/v1/models/gpt-4").error(404);
    server.get("/v1/models/%ff").error(400);
    assert_eq!(server.get("/v1/nothing").error(404)["code"], "unknown_url");
    let reply = server.get(COMPLETIONS);
    reply.error(405);
    assert_eq!(reply.header("allow"), Some("POST"));
    server.request("DELETE", "/health", &[], b"").error(405);
    // The model has no chat template.
    let chat = json!({"messages": [{"role": "user", "content": "Hi."}]});
    assert_eq!(
        server.post(CHAT, &chat).error(400)["code"],
        "no_chat_template"
    );
    // Bodies: too long, of the wrong kind, no JSON, no object.
    let json = ("Content-Type", "application/json");
    let long = format!("{{\"prompt\": \"{}\"}}", "x".repeat(1024));
    let post =
        |headers: &[(&str, &str)], body: &[u8]| server.request("POST", COMPLETIONS, headers, body);
    assert_eq!(
        post(&[json], long.as_bytes()).error(413)["code"],
        "request_too_large"
    );
    let chunked = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    let mut stream = server.connect();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    std::io::Write::write_all(&mut stream, (head + &chunked).as_bytes()).expect("sent");
    serve::read_reply(&mut stream).error(413);
    post(&[], b"{\"prompt\": \"x\"}").error(415);
    post(&[("Content-Type", "text/plain")], b"{\"prompt\": \"x\"}").error(415);
    for body in [
        "",
        "{",
        "[]",
        "\"x\"",
        "{\"prompt\": \"x\"} {}",
        "{\"prompt\": \"\\ud800\"}",
        "\u{0}",
    ] {
        post(&[json], body.as_bytes()).error(400);
    }
    post(&[json], b"{\"prompt\": \"\xff\"}").error(400);
    let deep = format!("{{\"prompt\": {}1{}}}", "[".repeat(400), "]".repeat(400));
    post(&[json], deep.as_bytes()).error(400);
    server.post("/tokenize", &json!({})).error(400);
    server
        .post("/tokenize", &json!({"prompt": "x", "messages": []}))
        .error(400);
    assert_eq!(
        server
            .post("/detokenize", &json!({"tokens": [99_999]}))
            .error(400)["param"],
        "tokens"
    );
    // It is as well as before.
    server.complete(json!({"prompt": "x"}));
    let responses = |status: &str| server.metric("foredraft_http_responses_total", status);
    assert_eq!(
        (
            responses("\"413\""),
            responses("\"415\""),
            responses("\"405\"")
        ),
        (2.0, 2.0, 2.0)
    );
}

#[test]
fn keys_are_asked_for() {
    let server = ServerProcess::start(&["stories260k", "--api-key", "one", "--api-key", "two"]);
    let body = json!({"prompt": "x", "max_tokens": 1});
    for (method, path) in [
        ("POST", COMPLETIONS),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/nothing"),
        ("GET", "/openapi.json"),
    ] {
        for key in [
            None,
            Some("Bearer three"),
            Some("Bearer "),
            Some("Basic one"),
            Some("one"),
        ] {
            let json = ("Content-Type", "application/json");
            let mut headers = vec![json];
            headers.extend(key.map(|key| ("Authorization", key)));
            let reply = server.request(method, path, &headers, body.to_string().as_bytes());
            assert_eq!(reply.error(401)["code"], "invalid_api_key");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        }
    }
    // Whoever watches over the server needs none.
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/ready").status, 200);
    let server = server.with_key("two");
    server.complete(body);
    assert!(
        server.stderr().iter().all(|line| !line.contains("two")),
        "the log keeps secrets"
    );
}

#[test]
fn the_environment_may_hold_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut empty = serve::command(folder.path());
    let output = empty
        .arg("stories260k")
        .env("FOREDRAFT_API_KEY", " ")
        .output();
    let output = output.expect("the binary");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("FOREDRAFT_API_KEY"), "{stderr}");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let server = ServerProcess::start_at(address, &["stories260k"], |command| {
        command.env("FOREDRAFT_API_KEY", "secret");
    });
    server.get("/v1/models").error(401);
    let server = server.with_key("secret");
    server.wait_until("the model", || server.get("/v1/models").status == 200);
}

#[test]
fn too_many_requests_are_refused_and_the_server_stays_well() {
    let server = ServerProcess::start(&["stories260k", "--max-queue", "2", "--max-batch", "1"]);
    // More than can ever wait is the request's own fault.
    server
        .post(COMPLETIONS, &json!({"prompt": "x", "n": 3}))
        .error(400);
    let body =
        json!({"prompt": "x", "n": 2, "max_tokens": 400, "logit_bias": {"1": -100, "2": -100}});
    let sent: Vec<_> = (0..40)
        .map(|_| server.send_json(COMPLETIONS, &body))
        .collect();
    let asked = Instant::now();
    assert_eq!(server.get("/health").status, 200);
    assert!(asked.elapsed().as_secs() < 5, "{:?}", asked.elapsed());
    let replies: Vec<_> = sent
        .into_iter()
        .map(|mut s| serve::read_reply(&mut s))
        .collect();
    let (served, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 200);
    assert!(
        !served.is_empty() && !refused.is_empty(),
        "{} served",
        served.len()
    );
    for reply in refused {
        let error = reply.error(429);
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("rate_limit_error"), &json!("queue_full"))
        );
        assert!(
            reply
                .header("retry-after")
                .is_some_and(|s| s.parse::<u64>().is_ok())
        );
    }
    server.wait_until("rest", || server.busy() == 0.0);
    server.complete(json!({"prompt": "x"}));
}

#[test]
fn an_answer_that_takes_too_long_is_ended() {
    let server = ServerProcess::start(&[
        "stories260k",
        "--request-timeout",
        "1",
        "--cpu-path",
        "portable",
        "--threads",
        "1",
    ]);
    let body =
        json!({"prompt": "x", "n": 100, "max_tokens": 400, "logit_bias": {"1": -100, "2": -100}});
    let reply = server.post(COMPLETIONS, &body);
    assert_eq!(reply.error(503)["code"], "request_timeout");
    assert!(reply.header("retry-after").is_some());
    server.wait_until("rest", || server.busy() == 0.0);
    // A stream ends with the error.
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let chunks = serve::events(&server.post(COMPLETIONS, &streamed).text);
    let last = chunks.last().expect("chunks");
    assert_eq!(last["error"]["code"], "request_timeout", "{last}");
    assert!(server.metric("vllm:request_success_total", "\"error\"") > 0.0);
}
