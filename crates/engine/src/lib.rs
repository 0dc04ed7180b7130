//! The engine: from a prompt's tokens to an answer's text.
//!
//! ```text
//! Request -> Sequence (tokens, page tables) -> Batch -> Executor::forward -> logits -> sample -> commit -> Output
//! ```
//!
//! [`Engine::generate`] is one loop for everything: *schedule* the tokens that have not been through the model,
//! *run* them, *postprocess* (sample, commit, emit). Plain decoding is what it does so far; a step verifies the
//! tree of one node. Many sequences at once, shared prefixes and speculation extend these same parts.
//!
//! Invariants:
//! - a page never holds a token that was not committed, and every page is released when its sequence goes;
//! - text that was emitted never changes, is whole characters, and never holds a stop text or what follows it;
//! - an answer depends on its request alone: not on chunks, threads, or what was cached before.

mod budget;
mod engine;
mod measure;
mod output;
mod request;
mod sequence;

pub use budget::{BudgetError, size};
pub use engine::{Engine, EngineError, EngineOptions};
pub use request::{Completion, Event, FinishReason, Request, Timings, Usage};
