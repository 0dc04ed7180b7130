//! Drafters that run networks.
//!
//! The [`Drafter`](foredraft_speculate::Drafter) trait and the drafters that need no network are in `speculate`; here
//! are those that compute logits of their own:
//!
//! | module | holds |
//! | --- | --- |
//! | [`model`](ModelDrafter) | any supported model as the draft of another with the same vocabulary |
//! | [`copies`] | cheaper or worse copies of a model, for drafting where there is no small sibling, and for audits |
//!
//! Invariants:
//! - A drafter owns its executor and its KV pages; it never reads or writes the target's.
//! - Its pages hold emitted tokens only: what was rejected is forgotten with the step's scratch.
//! - Its distributions depend on a sequence's tokens, settings and key alone, never on the other sequences, on what was
//!   rejected before, or on how the text reached it.

pub mod copies;
mod model;

pub use model::{DraftSizes, ModelDrafter, executor_options};
