//! `foredraft serve` from outside: what it answers.

#[path = "support/serve.rs"]
mod serve;

use serde_json::{Value, json};
use serve::{ServerProcess, chat_model, joined, run, texts};

const STORY: &str = ", there was a little girl named Lily. She loved to play outside in the park.";

#[test]
fn a_completion_is_what_run_says() {
    let server = ServerProcess::start(&["stories260k"]);
    let answer = server.complete(
        json!({"model": "stories260k", "prompt": "Once upon a time", "temperature": 0, "max_tokens": 30}),
    );
    assert_eq!(answer["object"], "text_completion");
    assert!(
        answer["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("cmpl-"))
    );
    assert_eq!(answer["model"], "stories260k");
    assert!(
        answer["system_fingerprint"]
            .as_str()
            .is_some_and(|f| f.starts_with("fp_"))
    );
    assert!(texts(&answer)[0].starts_with(STORY), "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 30);
    assert_eq!(
        answer["usage"]["total_tokens"],
        30 + answer["usage"]["prompt_tokens"].as_u64().expect("n")
    );
    // OpenAI's default is 16 tokens.
    let short = server.complete(json!({"prompt": "The dog"}));
    assert_eq!(short["usage"]["completion_tokens"], 16);
    // Sampled: every setting means what it means to `run`.
    let words = [
        "stories260k",
        "The dog",
        "-n",
        "60",
        "--seed",
        "7",
        "-t",
        "0.9",
        "--top-p",
        "0.9",
        "--top-k",
        "20",
        "--min-p",
        "0.01",
        "--repeat-penalty",
        "1.1",
        "--presence-penalty",
        "0.3",
        "--frequency-penalty",
        "0.2",
        "--logit-bias",
        "5=-3",
    ];
    let expected = run(&words);
    let settings = json!({
        "prompt": "The dog", "max_tokens": 60, "seed": 7, "temperature": 0.9, "top_p": 0.9, "top_k": 20, "min_p": 0.01,
        "repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": {"5": -3},
    });
    let answer = server.complete(settings.clone());
    assert_eq!(texts(&answer)[0], expected["text"]);
    assert_eq!(answer["seed"], 7);
    for (field, other) in [
        ("seed", json!(8)),
        ("temperature", json!(2)),
        ("top_p", json!(0.2)),
        ("top_k", json!(1)),
        ("min_p", json!(1)),
        ("repetition_penalty", json!(5)),
        ("presence_penalty", json!(2)),
        ("frequency_penalty", json!(2)),
        ("logit_bias", json!({"5": 100})),
    ] {
        let mut settings = settings.clone();
        settings[field] = other;
        assert_ne!(
            texts(&server.complete(settings))[0],
            expected["text"],
            "{field} is ignored"
        );
    }
    // Without a seed one is drawn, told, and repeats the answer.
    let first = server.complete(json!({"prompt": "A cat", "max_tokens": 40}));
    let again =
        server.complete(json!({"prompt": "A cat", "max_tokens": 40, "seed": first["seed"]}));
    assert_eq!(texts(&first), texts(&again));
}

#[test]
fn a_chat_is_what_run_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = chat_model(folder.path());
    let server = ServerProcess::start(&[&model, "--alias", "teller"]);
    let words = ["--seed", "3", "-t", "1", "--top-p", "1", "-n", "50"];
    let expected = run(&[&[&model, "Tell a story."], &words[..]].concat());
    let chat = json!({
        "model": "teller", "messages": [{"role": "user", "content": "Tell a story."}], "seed": 3,
        "max_completion_tokens": 50, "user": "someone", "an unknown field": {"is": "ignored"},
    });
    let answer = server.ask("/v1/chat/completions", &chat);
    assert_eq!(answer["object"], "chat.completion");
    assert!(
        answer["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("chatcmpl-"))
    );
    assert_eq!(answer["model"], "teller");
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    assert_eq!(texts(&answer)[0], expected["text"]);
    assert_eq!(
        answer["usage"]["prompt_tokens"],
        expected["usage"]["prompt_tokens"]
    );
    // Parts are one text, and "developer" is the system.
    let with = |message: Value| {
        let messages = json!([message, {"role": "user", "content": "Hi."}]);
        let chat = json!({"messages": messages, "temperature": 0, "max_tokens": 20});
        texts(&server.ask("/v1/chat/completions", &chat))
    };
    let system = with(json!({"role": "system", "content": "Be\nbrief."}));
    assert_eq!(
        with(
            json!({"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]})
        ),
        system
    );
    assert_ne!(
        with(json!({"role": "system", "content": "Be loud."})),
        system
    );
    // A stream says the same.
    let mut streamed = chat.clone();
    streamed["stream_options"] = json!({"include_usage": true});
    let chunks = server.stream("/v1/chat/completions", streamed);
    assert_eq!(chunks[0]["object"], "chat.completion.chunk");
    assert_eq!(
        chunks[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    let (text, finish, _) = &joined(&chunks, 1, "content")[0];
    assert_eq!(
        (text.as_str(), finish.as_str()),
        (expected["text"].as_str().expect("text"), "length")
    );
    let (last, others) = chunks.split_last().expect("chunks");
    assert_eq!(
        (&last["usage"]["total_tokens"], &last["choices"]),
        (&answer["usage"]["total_tokens"], &json!([]))
    );
    assert!(
        others
            .iter()
            .all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some())
    );
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
}

#[test]
fn several_answers_have_one_seed_and_are_numbered() {
    let server = ServerProcess::start(&["stories260k"]);
    let body = json!({"prompt": "One day", "n": 3, "max_tokens": 30, "temperature": 1.2});
    let answer = server.complete(body.clone());
    let three = texts(&answer);
    assert_eq!(three.len(), 3);
    assert!(three[0] != three[1] && three[1] != three[2] && three[0] != three[2]);
    assert_eq!(answer["usage"]["completion_tokens"], 90);
    let one = server.complete(json!({"prompt": "One day", "max_tokens": 1}));
    assert_eq!(
        answer["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"],
        "a prompt counts once"
    );
    // The drawn seed repeats all three, and the first of them alone.
    let mut again = body.clone();
    again["seed"] = answer["seed"].clone();
    assert_eq!(texts(&server.complete(again.clone())), three);
    let streamed = joined(
        &server.stream("/v1/completions", again.clone()),
        3,
        "tokens",
    );
    assert_eq!(
        streamed
            .iter()
            .map(|(text, ..)| text.clone())
            .collect::<Vec<_>>(),
        three
    );
    again["n"] = json!(1);
    assert_eq!(texts(&server.complete(again)), three[..1]);
    // Several prompts: the answers to the first come first.
    let prompts = json!({"prompt": ["Once", "The dog"], "n": 2, "max_tokens": 10, "seed": 1});
    let four = texts(&server.complete(prompts));
    for (i, prompt) in ["Once", "The dog"].iter().enumerate() {
        let alone = server.complete(json!({"prompt": prompt, "n": 2, "max_tokens": 10, "seed": 1}));
        assert_eq!(texts(&alone), four[2 * i..2 * i + 2]);
    }
}

#[test]
fn prompts_may_be_tokens_and_be_echoed() {
    let server = ServerProcess::start(&["stories260k"]);
    let tokenized = server.ask(
        "/tokenize",
        &json!({"prompt": "Once upon a time", "return_token_strs": true}),
    );
    let tokens = tokenized["tokens"].clone();
    assert_eq!(tokenized["count"], tokens.as_array().expect("ids").len());
    assert_eq!(tokenized["max_model_len"], 512);
    assert_eq!(tokenized["token_strs"][0], "<s>");
    let bare = server.ask(
        "/tokenize",
        &json!({"prompt": "Once upon a time", "add_special_tokens": false}),
    );
    assert_eq!(
        bare["tokens"].as_array().expect("ids")[..],
        tokens.as_array().expect("ids")[1..]
    );
    let text = server.ask("/detokenize", &json!({"tokens": tokens}));
    assert_eq!(text, json!({"prompt": "Once upon a time"}));
    let say = |prompt: Value, echo: bool| {
        let body = json!({"prompt": prompt, "temperature": 0, "max_tokens": 12, "echo": echo});
        let answer = texts(&server.complete(body.clone()));
        let streamed = joined(
            &server.stream("/v1/completions", body),
            answer.len(),
            "tokens",
        );
        assert_eq!(
            streamed
                .into_iter()
                .map(|(text, ..)| text)
                .collect::<Vec<_>>(),
            answer
        );
        answer
    };
    let plain = say(json!("Once upon a time"), false);
    assert_eq!(say(tokens.clone(), false), plain);
    assert_eq!(say(json!([tokens]), false), plain);
    let echoed = format!("Once upon a time{}", plain[0]);
    assert_eq!(say(json!("Once upon a time"), true)[0], echoed);
    assert_eq!(say(json!([tokens, tokens]), true), [echoed.clone(), echoed]);
    // Nothing but the prompt.
    let nothing = server.complete(json!({"prompt": "Once", "echo": true, "max_tokens": 0}));
    assert_eq!(
        (
            texts(&nothing)[0].as_str(),
            &nothing["choices"][0]["finish_reason"]
        ),
        ("Once", &json!("length"))
    );
}

#[test]
fn stop_texts_end_an_answer_before_them() {
    let server = ServerProcess::start(&["stories260k", "--stop", " in the park"]);
    for (stop, expected) in [
        (json!(" She loved"), ", there was a little girl named Lily."),
        (json!(["xyz", " girl", " little"]), ", there was a"),
        // The server's own, unless the request has others.
        (
            Value::Null,
            ", there was a little girl named Lily. She loved to play outside",
        ),
    ] {
        let body =
            json!({"prompt": "Once upon a time", "temperature": 0, "max_tokens": 40, "stop": stop});
        let answer = server.complete(body.clone());
        assert_eq!(texts(&answer)[0], expected);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let chunks = server.stream("/v1/completions", body);
        let (text, finish, _) = &joined(&chunks, 1, "tokens")[0];
        assert_eq!((text.as_str(), finish.as_str()), (expected, "stop"));
    }
}

/// The bytes of a character may come with different tokens: it is told when it is whole.
#[test]
fn characters_come_whole() {
    let server = ServerProcess::start(&["stories260k"]);
    // Tokens 3 to 258 are bytes. Only those of é may be said, in any order.
    let [first, second] = [3 + 0xC3, 3 + 0xA9].map(|id: u32| id.to_string());
    let body = json!({
        "prompt": "x", "max_tokens": 40, "seed": 1, "top_k": 0, "min_p": 0, "logprobs": 0,
        "logit_bias": {first: 100, second: 100},
    });
    let answer = server.complete(body.clone());
    let chunks = server.stream("/v1/completions", body);
    let (text, _, tokens) = &joined(&chunks, 1, "tokens")[0];
    assert_eq!(text, &texts(&answer)[0]);
    let byte = |token: &Value| match token.as_str() {
        Some("bytes:\\xc3") => 0xC3,
        Some("bytes:\\xa9") => 0xA9,
        other => panic!("{other:?} was said"),
    };
    let bytes: Vec<u8> = tokens.iter().map(byte).collect();
    assert_eq!(text, &String::from_utf8_lossy(&bytes));
    assert!(text.contains('é') && bytes.len() == 40, "{text}");
}
