//! What a server is told when it starts: where, for whom, how much, and what a request means that does not say.

use std::net::SocketAddr;
use std::time::Duration;

use foredraft_engine::Speculation;
use foredraft_speculate::SamplingSettings;

/// Everything that a server is told when it starts.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen; port 0 takes any that is free.
    pub address: SocketAddr,
    /// What the model is called in requests and metrics: the first name is its own, the others are understood too.
    pub names: Vec<String>,
    /// Keys that requests may come with; with none, no key is asked for.
    pub api_keys: Vec<String>,
    /// What requests may take.
    pub limits: Limits,
    /// What a request means that leaves something out.
    pub defaults: Defaults,
}

impl ServerOptions {
    /// The model's own name.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("model", String::as_str)
    }
}

/// What requests may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Answers to one request: its prompts, times `n`.
    pub choices: usize,
    /// From a request's first header to its last, and from there to the end of its body. Idle connections are closed
    /// after as long.
    pub read_timeout: Duration,
    /// How long a connection may take nothing of what is written to it.
    pub write_timeout: Duration,
    /// From a request to the end of its answer.
    pub request_timeout: Duration,
    /// Pieces of one stream that may wait to be read; at one more the request is cancelled.
    pub stream_buffer: usize,
    /// Connections at a time; more wait to be accepted.
    pub connections: usize,
    /// From the wish to stop to the end of answers under way.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 16 << 20,
            choices: 128,
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(600),
            stream_buffer: 16_384,
            connections: 1024,
            grace: Duration::from_secs(30),
        }
    }
}

/// What a request means that leaves something out.
#[derive(Debug, Clone, PartialEq)]
pub struct Defaults {
    /// How tokens are chosen.
    pub sampling: SamplingSettings,
    /// The most tokens of an answer; `None`: OpenAI's, which are 16 for a completion and the whole context for a chat.
    pub max_tokens: Option<usize>,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// How drafters are used.
    pub speculation: Speculation,
}

impl Default for Defaults {
    /// OpenAI's where OpenAI has one (temperature 1, top-p 1), `foredraft run`'s for the rest (top-k 40, min-p 0.05).
    fn default() -> Self {
        Self {
            sampling: SamplingSettings {
                temperature: 1.0,
                top_p: 1.0,
                ..SamplingSettings::default()
            },
            max_tokens: None,
            stop: Vec::new(),
            speculation: Speculation::default(),
        }
    }
}
