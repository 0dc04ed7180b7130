//! The engine: from prompts' tokens to answers' texts, many at a time.
//!
//! ```text
//! Engine::submit     Request -> Task: Answer (what it has said) + Sequence (tokens, page tables)
//!                       waiting ---- a place, pages ----> running ---- the end ----> Completion
//!                          ^-------- pages run out ----------'
//!
//! Engine::step       for all running sequences at once:
//!
//! schedule --> draft ------> run ---------------> answer, each by itself --> keep
//! Scheduler,   Drafters,     ONE Batch,           Verifier, Verdict,         Executor::commit,
//! Pages        TokenTrees    Executor::forward    Output, events             Pages, PrefixCache
//! ```
//!
//! [`Engine::step`] is one mechanism for everything (`step.rs`): plain decoding is the step whose trees have one node, a
//! chain or a tree of drafts the same step with more rows, and a chunk of a prompt is rows without a tree. One sequence is
//! the company of one: [`Engine::generate`] is a submission and steps until its end. A [`Service`] is an engine on a thread
//! of its own.
//!
//! Read `step.rs` first, then `emit.rs` (a request's own part of a step), `scheduler.rs` (who gets how many rows: pure),
//! `admission.rs` (who runs, who gives way), `pages.rs` (who gets pages, and what is shared), `drafting.rs`.
//!
//! Invariants:
//! - an answer depends on its request alone: not on the company, on preemption, chunks, threads, or what was cached
//!   before, nor (with a seed, or at temperature 0) on drafts. Everything is keyed by positions. Trees of `rejection` and
//!   `block`, whose text a seed repeats only with the same drafts, are whole or wait;
//! - a page never holds a token that was not committed. When all requests have ended, pages are held by the cache of past
//!   texts alone;
//! - text that was emitted never changes, is whole characters, and never holds a stop text or what follows it;
//! - everything that waits is first come, first served; every running sequence advances again and again, the oldest
//!   whatever the others take;
//! - what goes wrong in a request's part ends that request and no other.

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
