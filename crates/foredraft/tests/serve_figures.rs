//! `foredraft serve` from outside: what it tells beside the text: log probabilities, what drafting did, metrics.

#[path = "support/serve.rs"]
mod serve;

use serde_json::{Value, json};
use serve::{ServerProcess, chat_model, joined, texts};

#[test]
fn log_probabilities_have_openais_shapes() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = ServerProcess::start(&[&chat_model(folder.path())]);
    let body =
        json!({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12, "logprobs": 2});
    let answer = server.complete(body.clone());
    let logprobs = &answer["choices"][0]["logprobs"];
    let list = |name: &str| logprobs[name].as_array().expect("a list").clone();
    let (tokens, chosen, top) = (list("tokens"), list("token_logprobs"), list("top_logprobs"));
    assert_eq!((tokens.len(), chosen.len(), top.len()), (12, 12, 12));
    let strings: Vec<&str> = tokens.iter().filter_map(Value::as_str).collect();
    assert_eq!(strings.concat(), texts(&answer)[0]);
    let mut offset = 0;
    for i in 0..12 {
        assert_eq!(list("text_offset")[i], offset);
        offset += strings[i].chars().count();
        // At temperature 0 the token is the likeliest.
        let of = top[i].as_object().expect("a map");
        assert_eq!(of.len(), 2);
        assert_eq!(of[strings[i]], chosen[i]);
        assert!(of.values().all(|p| p.as_f64() <= chosen[i].as_f64()));
    }
    let chunks = server.stream("/v1/completions", body);
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(joined(&chunks, 1, name)[0].2, list(name), "{name}");
    }
    let chat = json!({
        "messages": [{"role": "user", "content": "Hi."}], "temperature": 0, "max_tokens": 12, "logprobs": true, "top_logprobs": 3,
    });
    let answer = server.ask("/v1/chat/completions", &chat);
    let content = answer["choices"][0]["logprobs"]["content"]
        .as_array()
        .expect("a list");
    let mut bytes = Vec::new();
    for token in content {
        let top = token["top_logprobs"].as_array().expect("a list");
        assert_eq!(top.len(), 3);
        assert_eq!(
            (&top[0]["token"], &top[0]["logprob"]),
            (&token["token"], &token["logprob"])
        );
        let own = token["bytes"].as_array().expect("bytes");
        bytes.extend(own.iter().map(|byte| byte.as_u64().expect("a byte") as u8));
    }
    assert_eq!(String::from_utf8(bytes).expect("text"), texts(&answer)[0]);
    let chunks = server.stream("/v1/chat/completions", chat);
    assert_eq!(&joined(&chunks, 1, "content")[0].2, content);
    // Not asked for: null.
    let answer = server.complete(json!({"prompt": "Once"}));
    assert!(answer["choices"][0]["logprobs"].is_null());
}

#[test]
fn drafts_are_told_and_can_be_switched_for_each_request() {
    let server = ServerProcess::start(&[
        "stories260k",
        "--draft",
        "model:stories260k",
        "--draft-max",
        "4",
    ]);
    let ask = |speculation: Value| {
        let body = json!({"prompt": "Once upon a time", "max_tokens": 60, "seed": 5, "speculation": speculation});
        let answer = server.complete(body);
        (texts(&answer)[0].clone(), answer["speculation"].clone())
    };
    let (expected, on) = ask(Value::Null);
    // The model drafts for itself with its own noise: it is always right.
    assert_eq!(on["drafters"], json!(["model:stories260k"]));
    assert_eq!(
        (&on["verify"], &on["tokens_per_step"]),
        (&json!("coupled"), &json!(5.0))
    );
    assert_eq!((&on["drafted"], &on["accepted"]), (&json!(48), &json!(48)));
    assert_eq!(on["accepted_by_depth"], json!([1.0, 1.0, 1.0, 1.0]));
    for off in [
        json!(false),
        json!("off"),
        json!({"enabled": false}),
        json!({"draft_max": 0}),
    ] {
        let (text, figures) = ask(off);
        assert_eq!(text, expected);
        assert_eq!(
            (&figures["drafters"], &figures["verify"]),
            (&json!([]), &Value::Null)
        );
        assert_eq!(
            (&figures["drafted"], &figures["tokens_per_step"]),
            (&json!(0), &json!(1.0))
        );
    }
    let (text, two) = ask(json!({"draft_max": 2, "tree": "chain"}));
    assert_eq!((&text, &two["tokens_per_step"]), (&expected, &json!(3.0)));
    let (text, grid) = ask(json!({"tree": "2x2", "verify": "coupled"}));
    assert_eq!(
        (&text, &grid["accepted_by_depth"][0]),
        (&expected, &json!(1.0))
    );
    let (_, block) = ask(json!({"verify": "block"}));
    assert_eq!(block["verify"], "block");
    // Without a seed the rule is rejection, and its text is repeated with it; answers are counted together.
    let body = json!({"prompt": "One day", "max_tokens": 40, "n": 2});
    let first = server.complete(body.clone());
    assert_eq!(first["speculation"]["verify"], "rejection");
    let mut again = body;
    again["seed"] = first["seed"].clone();
    again["speculation"] = json!({"verify": "rejection"});
    let again = server.complete(again);
    assert_eq!(
        (texts(&again), &again["speculation"]),
        (texts(&first), &first["speculation"])
    );
    // A stream tells it in its last chunk.
    let chunks = server.stream(
        "/v1/completions",
        json!({"prompt": "Once upon a time", "max_tokens": 60, "seed": 5}),
    );
    let (last, others) = chunks.split_last().expect("chunks");
    assert_eq!(last["speculation"], on);
    assert_eq!(
        (&last["seed"], &last["choices"][0]["finish_reason"]),
        (&json!(5), &json!("length"))
    );
    assert!(
        others
            .iter()
            .all(|chunk| chunk.get("speculation").is_none())
    );
    let metric = |name: &str| server.metric(&format!("vllm:spec_decode_num_{name}_total"), "");
    assert!(metric("draft_tokens") > 0.0 && metric("accepted_tokens") > 0.0);
    assert_eq!(metric("accepted_tokens"), metric("accepted_tokens_per_pos"));
}

#[test]
fn the_model_the_metrics_and_the_description() {
    let server = ServerProcess::start(&["stories260k", "--alias", "a", "--alias", "b"]);
    let models = server.get("/v1/models").json();
    assert_eq!(models["object"], "list");
    let card = &models["data"][0];
    assert_eq!(
        (&card["id"], &card["object"], &card["max_model_len"]),
        (&json!("a"), &json!("model"), &json!(512))
    );
    for name in ["a", "b", "stories260k"] {
        assert_eq!(&server.get(&format!("/v1/models/{name}")).json(), card);
        server.complete(json!({"model": name, "prompt": "x", "max_tokens": 3}));
    }
    assert_eq!(server.get("/health").json(), json!({"status": "ok"}));
    assert_eq!(server.get("/ready").json(), json!({"status": "ok"}));
    assert_eq!(
        server.metric("vllm:generation_tokens_total", "model_name=\"a\""),
        9.0
    );
    assert_eq!(
        server.metric("vllm:request_success_total", "finished_reason=\"length\""),
        3.0
    );
    assert_eq!(
        server.metric("vllm:time_to_first_token_seconds_count", ""),
        3.0
    );
    assert_eq!(
        server.metric("vllm:inter_token_latency_seconds_count", ""),
        6.0
    );
    assert_eq!(
        server.metric("vllm:e2e_request_latency_seconds_count", ""),
        3.0
    );
    assert_eq!(server.busy(), 0.0);
    let description = server.get("/openapi.json").json();
    assert!(
        description["openapi"]
            .as_str()
            .is_some_and(|v| v.starts_with("3."))
    );
    assert!(description["paths"]["/v1/chat/completions"]["post"].is_object());
}
