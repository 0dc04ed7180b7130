//! The engine: from a prompt's tokens to an answer's text.
//!
//! ```text
//! Request -> Sequence (tokens, page tables) -> prompt, chunk by chunk -> steps -> Completion
//!
//! a step:    draft ------> run ----------------> verify -----> emit --------> keep
//!            Drafters,     Batch,                Verifier,     Output,        Executor::commit,
//!            TokenTree     Executor::forward     Verdict       events         Sequence
//! ```
//!
//! [`Engine::generate`] is one loop for everything, and `step.rs` is its body: plain decoding is the step whose tree has one
//! node, a chain or a tree of drafts is the same step with more rows. The engine serves one sequence at a time; many at
//! once, and prefixes shared between them, extend these same parts.
//!
//! Invariants:
//! - a page never holds a token that was not committed, and every page is released when its sequence goes;
//! - text that was emitted never changes, is whole characters, and never holds a stop text or what follows it;
//! - an answer depends on its request alone: not on chunks, threads, or what was cached before, nor (with a
//!   seed, or at temperature 0) on drafts.

mod admission;
mod answer;
mod budget;
mod drafting;
mod emit;
mod engine;
mod error;
mod figures;
mod measure;
mod options;
mod output;
mod pages;
mod request;
mod scheduler;
mod sequence;
mod service;
mod speculation;
mod step;
mod task;

pub use budget::{BudgetError, size};
pub use engine::{DraftModel, Engine, Finished};
pub use error::EngineError;
pub use figures::{DrafterFigures, EndedFigures, EngineFigures};
pub use options::EngineOptions;
pub use pages::PageFigures;
pub use request::{
    Completion, Event, FinishReason, Phases, Request, RequestId, StepReport, Timings, TokenLogprob,
    TokenOrigin, Usage,
};
pub use service::{Listener, Refusal, Service, ServiceFigures, ServiceOptions, Ticket};
pub use speculation::{DEFAULT_DRAFT_NODES, Speculation, SpeculationFigures, TreeShape};
