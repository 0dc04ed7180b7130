//! `foredraft serve` as a process that ends with the test, and what is asked of it.

#![allow(dead_code, unreachable_pub)] // every test file uses its part

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that is killed when it is dropped.
pub struct ServerProcess {
    child: Child,
    pub address: SocketAddr,
    stderr: Arc<Mutex<Vec<String>>>,
    key: Option<String>,
    _home: tempfile::TempDir,
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Checks that it is an error of this status in OpenAI's shape, and gives the error.
    #[track_caller]
    pub fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let kind = self.header("content-type");
        assert_eq!(kind, Some("application/json"), "{self:?}");
        let body = self.json();
        let error = body["error"].as_object().expect("an error");
        let fields: Vec<&str> = error.keys().map(String::as_str).collect();
        assert_eq!(fields, ["message", "type", "param", "code"]);
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
        assert!(error["type"].is_string());
        body["error"].clone()
    }
}

/// The binary's `serve`, with nothing of the caller's settings.
pub fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foredraft"));
    for name in ["FOREDRAFT_API_KEY", "RUST_LOG", "HF_ENDPOINT", "HF_TOKEN"] {
        command.env_remove(name);
    }
    command
        .arg("serve")
        .env("FOREDRAFT_HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl ServerProcess {
    /// Serves this model with these options on a port of its own; returns when it is ready.
    pub fn start(words: &[&str]) -> Self {
        let mut all = words.to_vec();
        all.extend(["--port", "0"]);
        Self::launch(&all, |_| {}, None)
    }

    /// Starts without waiting for the model, on this address.
    pub fn start_at(
        address: SocketAddr,
        words: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let port = address.port().to_string();
        let mut all = words.to_vec();
        all.extend(["--port", &port, "--log-level", "debug"]);
        let process = Self::launch(&all, change, Some(address));
        process.wait_until("it listens", || TcpStream::connect(address).is_ok());
        process
    }

    fn launch(
        words: &[&str],
        change: impl FnOnce(&mut Command),
        known: Option<SocketAddr>,
    ) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let mut command = command(home.path());
        command.args(words);
        change(&mut command);
        let mut child = command.spawn().expect("the binary");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&stderr);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                heard.lock().expect("no panic").push(line);
            }
        });
        let started = Instant::now();
        loop {
            let lines = stderr.lock().expect("no panic").clone();
            let told = lines.iter().find_map(|line| address_in(line));
            if let Some(address) = known.or(told) {
                return Self {
                    child,
                    address,
                    stderr,
                    key: None,
                    _home: home,
                };
            }
            let ended = child.try_wait().expect("a child");
            assert!(
                ended.is_none() && started.elapsed() < PATIENCE,
                "{ended:?}: {lines:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// From now on requests come with this key.
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub fn get(&self, path: &str) -> Reply {
        self.request("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        let json = ("Content-Type", "application/json");
        self.request("POST", path, &[json], body.to_string().as_bytes())
    }

    /// The body of a successful answer.
    #[track_caller]
    pub fn ask(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        reply.json()
    }

    pub fn complete(&self, body: Value) -> Value {
        self.ask("/v1/completions", &body)
    }

    /// The events of a stream: JSON, and at the end `[DONE]`.
    #[track_caller]
    pub fn stream(&self, path: &str, mut body: Value) -> Vec<Value> {
        body["stream"] = json!(true);
        let reply = self.post(path, &body);
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        events(&reply.text)
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut stream = self.send(method, path, headers, body);
        read_reply(&mut stream)
    }

    /// Sends a request and reads nothing.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> TcpStream {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(key) = &self.key {
            head.push_str(&format!("Authorization: Bearer {key}\r\n"));
        }
        if method == "POST" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).expect("sent");
        // A server that has refused the head may have closed already.
        let _ = stream.write_all(body);
        stream
    }

    pub fn send_json(&self, path: &str, body: &Value) -> TcpStream {
        let json = ("Content-Type", "application/json");
        self.send("POST", path, &[json], body.to_string().as_bytes())
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    }

    /// The sum of a metric over its labels (those that contain `label`).
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let reply = self.get("/metrics");
        assert_eq!(reply.status, 200);
        let lines = reply.text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(label)
        });
        let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<f64>().ok());
        lines.map(|line| value(line).expect("a number")).sum()
    }

    /// Answers that are made or wait.
    pub fn busy(&self) -> f64 {
        self.metric("vllm:num_requests_running", "") + self.metric("vllm:num_requests_waiting", "")
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, done: impl Fn() -> bool) {
        let started = Instant::now();
        while !done() {
            let heard = self.stderr();
            assert!(started.elapsed() < PATIENCE, "{what} never came: {heard:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it has said so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().expect("no panic").clone()
    }

    #[cfg(unix)]
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill").success());
    }

    /// Waits for its end, and gives its code.
    pub fn end(&mut self) -> i32 {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code().unwrap_or(-1);
            }
            assert!(started.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("listening on http://")?;
    rest.split('"').next()?.parse().ok()
}

/// Reads a whole response, of a connection that closes after it.
pub fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    // A server that refuses a body closes before it has read it, which may be told as an error after the response.
    let _ = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no response: {:?}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8(bytes[..end].to_vec()).expect("text");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut body = bytes[end + 4..].to_vec();
    if headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked")
    {
        body = unchunk(&body);
    }
    Reply {
        status: status
            .and_then(|status| status.parse().ok())
            .expect("a status"),
        headers,
        text: String::from_utf8(body).expect("whole characters"),
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = bytes.windows(2).position(|window| window == b"\r\n");
        let Some(line) = line else { return body };
        let length = std::str::from_utf8(&bytes[..line]).expect("a length");
        let length = usize::from_str_radix(length, 16).expect("hexadecimal");
        let rest = &bytes[line + 2..];
        if length == 0 || rest.len() < length {
            return body;
        }
        body.extend_from_slice(&rest[..length]);
        bytes = rest.get(length + 2..).unwrap_or_default();
    }
}

/// The data of server-sent events, without the `[DONE]` that must end them.
#[track_caller]
pub fn events(text: &str) -> Vec<Value> {
    let mut data: Vec<&str> = text
        .split("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{text}");
    let parse = |data: &str| serde_json::from_str(data).expect("JSON");
    data.into_iter().map(parse).collect()
}

/// stories260K with a chat template, written to a folder.
pub fn chat_model(folder: &Path) -> String {
    const TEMPLATE: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
    let mut bytes = std::fs::read(foredraft_testing::stories260k_path()).expect("the model");
    let string = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let pair = |padding: usize| {
        let template = format!("{TEMPLATE}{{#{}#}}", " ".repeat(padding));
        // 8 is the type of a string.
        [
            string("tokenizer.chat_template"),
            8u32.to_le_bytes().to_vec(),
            string(&template),
        ]
        .concat()
    };
    // What follows stays aligned.
    let pair = pair((32 - pair(0).len() % 32) % 32);
    let pairs = u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"));
    bytes[16..24].copy_from_slice(&(pairs + 1).to_le_bytes());
    bytes.splice(24..24, pair);
    let path = folder.join("chat.gguf");
    std::fs::write(&path, bytes).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

/// `foredraft run` with these words and `--json`.
pub fn run(words: &[&str]) -> Value {
    let home = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_foredraft"))
        .arg("run")
        .args(words)
        .arg("--json")
        .env("FOREDRAFT_HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .expect("the binary");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("one object")
}

/// The texts of an answer, in order.
pub fn texts(answer: &Value) -> Vec<String> {
    let choices = answer["choices"].as_array().expect("choices");
    let text = |choice: &Value| {
        let text = choice["text"].as_str();
        let text = text.or(choice["message"]["content"].as_str());
        text.expect("a text").to_owned()
    };
    choices.iter().map(text).collect()
}

/// Of each choice of a stream its text, its finish reason and the lists under this path of its log probabilities, joined.
pub fn joined(chunks: &[Value], choices: usize, lists: &str) -> Vec<(String, String, Vec<Value>)> {
    let mut joined = vec![(String::new(), String::new(), Vec::new()); choices];
    for choice in chunks.iter().filter_map(|chunk| chunk["choices"].get(0)) {
        let index = choice["index"].as_u64().expect("an index") as usize;
        let (text, finish, list) = &mut joined[index];
        let piece = choice["text"]
            .as_str()
            .or(choice["delta"]["content"].as_str());
        text.push_str(piece.unwrap_or_default());
        assert!(finish.is_empty(), "nothing comes after the end");
        finish.push_str(choice["finish_reason"].as_str().unwrap_or_default());
        let more = choice["logprobs"][lists].as_array().cloned();
        list.extend(more.unwrap_or_default());
    }
    joined
}
