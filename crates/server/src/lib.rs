//! An OpenAI-compatible HTTP server over the engine.
//!
//! ```text
//! connection -> route -> body, fields, prompt ---- Request ---> engine::Service      server.rs, routes.rs, body.rs, parameters.rs
//!                          |                                       |
//!                        Answers <---------- Message -------- AnswerListener           answers.rs, listener.rs
//!                          |
//!               one object, or chunks                                                  chat/, completions/, sse.rs
//! ```
//!
//! A route is a file or a folder. What a request asks for is checked as far as it can be before the engine sees it, so that what
//! is wrong has a status (`error.rs`); what the engine is asked is one [`Request`](foredraft_engine::Request) for each
//! answer.
//!
//! # Invariants
//! * The engine's thread never waits for a client: what it says goes into a channel, and a client that leaves too much of it
//!   lying is cancelled (`listener.rs`).
//! * A client that leaves takes its answers with it: whatever waits for them is dropped, and the tickets with it
//!   (`answers.rs`).
//! * Everything that a client decides has a limit: bytes, time, answers, connections ([`Limits`]).
//! * Every response that is no success has OpenAI's shape, and the description (`/openapi.json`) knows its status.
//! * The text of an answer is the engine's: whole characters, cut nowhere else.
//!
//! Left open for what comes next: tools and structured output (`parameters::refuse_later` refuses them by name; the chat template
//! takes tools already), and a page at `/`.

mod answers;
mod auth;
mod blocking;
mod body;
mod chat;
mod completions;
mod connection;
mod error;
mod health;
mod listener;
mod logprobs;
mod metrics;
mod models;
mod options;
mod parameters;
mod prompt;
mod record;
mod request_id;
mod responses;
mod routes;
mod server;
mod speculation;
mod sse;
mod state;
mod tokenize;
mod usage;

pub use options::{Defaults, Limits, ServerOptions};
pub use server::{Handle, Server};
pub use state::Model;
