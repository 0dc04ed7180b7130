//! The mathematics of sampling and speculation: from a row of logits to a token, exactly.
//!
//! The crate is pure. It knows no tensor, file, thread or clock: rows of logits come in as slices,
//! random numbers through a trait ([`Noise`]), and every result is a function of its arguments with
//! the same bits on every machine (f32 through `foredraft_common::{exp, ln}`, f64 through the `libm`
//! crate, sums in one written order). So each part can be read beside its formula and tested alone.
//!
//! The way of one token:
//!
//! ```text
//! logits --- Transforms::apply ---> Distribution --- sample(.., NoiseKey) ---> TokenId
//!            allowed tokens, bias, penalties,        exponential race: the smallest
//!            temperature, top-k, top-p, min-p        E_v / p_v of the support wins
//! ```
//!
//! The way of a step that speculates: drafters grow a [`TokenTree`] whose root is the last emitted token, the target
//! computes the logits of all its nodes in one pass, and a [`Verifier`] walks down from the root:
//!
//! ```text
//! Drafter::extend ---> TokenTree ---> Verifier::verify(tree, Target, Chance) ---> Verdict
//!   draw_children:       tokens,        Target: Transforms::apply, only of          accepted path,
//!   q, DraftDraw         depth, q       the nodes visited; Chance: keyed noise      one token more
//! ```
//!
//! Plain decoding is the tree of one node. A verdict is exact because of what three places keep: a drafter records the
//! very q that it drew from (`tree.rs`), every decision has noise of its own (`random.rs`), and the verifiers follow
//! their papers (`verify/`). `tests/lossless/` proves it by enumeration and by counting.
//!
//! | module | holds |
//! | --- | --- |
//! | [`settings`](SamplingSettings) | what a request asks for, and its ranges |
//! | [`history`](History) | the tokens that penalties look at; a view extends it by a path of drafted tokens |
//! | [`allowed`](AllowedTokens) | the tokens that may be emitted at all |
//! | [`transforms`](Transforms) | the one chain of transforms, for the target and for every drafter |
//! | [`distribution`](Distribution) | its result: the support and the f32 probabilities that are really drawn from |
//! | [`random`](NoiseKey) | counter-based random numbers, keyed by what is decided and never by when |
//! | [`sample`](sample()) | the draw |
//! | [`log_softmax`](LogSoftmax) | the log probabilities that a reply reports |
//! | [`tree`](TokenTree) | drafted tokens, and what each was drawn from |
//! | [`drafter`](Drafter) | what drafts, and what it is told of a sequence |
//! | [`draw`](draw_children) | how a drafter's distribution becomes children of a node |
//! | [`verify`](Verifier) | the verifiers: rejection, coupled, block |
//! | [`statistics`] | the tests by which all of this is held to its distribution |
//!
//! Invariants:
//! - A [`Distribution`] is never empty, its tokens ascend, and each of its probabilities is above 0.
//! - A row with a NaN or an infinite logit gives an error, never a token.
//! - The token drawn depends on the distribution and the [`NoiseKey`] alone.
//! - Deterministic children come before sampled ones, and sampled ones were drawn from the recorded q, all of them kept.
//! - Noise of a draft, a test, a residual, a bonus and the target's own draw is never shared, within or between steps;
//!   only [`DraftDraw::Coupled`] shares the target's, and its children are deterministic.
//! - Once its buffers have grown to the vocabulary, the way of a token or a tree allocates nothing.

mod allowed;
mod distribution;
mod drafter;
mod draw;
mod history;
mod log_softmax;
mod lookup;
mod random;
mod row;
mod sample;
mod select;
mod settings;
pub mod statistics;
mod transforms;
mod tree;
mod verify;
mod wide;

pub use allowed::AllowedTokens;
pub use distribution::{Distribution, DistributionError};
pub use drafter::{
    DraftError, Drafter, KeptTokens, NodeBudget, Origin, SequenceId, SequenceView, Verdict,
};
pub use draw::{DraftDraw, Replacement, draw_children};
pub use history::{History, HistoryView, TokenCounts};
pub use log_softmax::{LogSoftmax, log_probability};
pub use lookup::Lookup;
pub use random::{Noise, NoiseKey, Purpose, philox4x32_10};
pub use sample::sample;
pub use settings::{SamplingSettings, SettingsError};
pub use transforms::Transforms;
pub use tree::{Node, NodeIndex, TokenTree};
pub use verify::{
    Block, Chance, Coupled, Draw, KeyedChance, LogitsTarget, Rejection, Target, TargetBuffers,
    Verifier, Verify, VerifyError, VerifyRule,
};
