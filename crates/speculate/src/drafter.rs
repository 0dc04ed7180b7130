//! What drafts tokens: the trait, and what it is told of a sequence.

use foredraft_common::TokenId;

use crate::{
    AllowedTokens, DistributionError, DraftDraw, History, NodeIndex, NoiseKey, SamplingSettings,
    TokenTree,
};

/// A sequence being generated, as drafters know it: the same for its whole life, and no other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

impl std::fmt::Display for SequenceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A sequence at the start of a step: all that a drafter may know of it.
#[derive(Debug, Clone, Copy)]
pub struct SequenceView<'a> {
    /// Which sequence.
    pub id: SequenceId,
    /// Prompt and output; the last is the root of the step's tree.
    pub tokens: &'a [TokenId],
    /// The counts of the same tokens.
    pub history: &'a History,
    /// The transforms that a drafter applies to its logits, as the target does.
    pub sampling: &'a SamplingSettings,
    /// The tokens that may be emitted.
    pub allowed: &'a AllowedTokens,
    /// Keys the token after the root; the token after a node of depth d is that of `key.later(d)`.
    pub key: NoiseKey,
    /// How a drafter that has a distribution turns it into children.
    pub draw: DraftDraw,
}

/// What a drafter may add to one tree in one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeBudget {
    /// Nodes in all.
    pub nodes: usize,
    /// Children for each node that is extended.
    pub width: usize,
}

/// Where the last token of a step came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The target's correction: the node that the path ends at had children, and none was accepted.
    Corrected,
    /// The target's own draw after a node without children: one token more than was drafted.
    Bonus,
}

/// What verification made of a tree: the accepted path and one token of the target's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The accepted nodes from the root (excluded) down.
    pub accepted: Vec<NodeIndex>,
    /// The token that follows them.
    pub next: TokenId,
    /// Where it came from.
    pub origin: Origin,
}

impl Verdict {
    /// An empty verdict for a verifier to fill; its buffer is kept from step to step.
    pub fn new() -> Self {
        Self {
            accepted: Vec::new(),
            next: TokenId(0),
            origin: Origin::Bonus,
        }
    }

    /// The node that the accepted path ends at.
    pub fn last(&self) -> NodeIndex {
        self.accepted.last().copied().unwrap_or(NodeIndex::ROOT)
    }
}

impl Default for Verdict {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a drafter could not draft.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// A row of the drafter's own logits has no distribution.
    #[error("drafter {drafter}: sequence {sequence}: {source}")]
    Distribution {
        /// The drafter's name.
        drafter: String,
        /// The sequence whose row it was.
        sequence: SequenceId,
        /// What is wrong with it.
        source: DistributionError,
    },
    /// The drafter's network, or the memory it needs, failed.
    #[error("drafter {drafter} failed: {source}; generation can go on without it (--draft none)")]
    Failed {
        /// The drafter's name.
        drafter: String,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Something cheap that guesses what the target will say.
///
/// A step calls `begin` once, `extend` once for each level of the trees, and `observe` once. All take the same
/// sequences in the same order; `extend`'s trees and budgets and `observe`'s verdicts are theirs, one for each. Before
/// that it may call `read` once, with other sequences.
///
/// What a drafter does changes speed, never the text's distribution, as long as it keeps one rule: under `rejection` and
/// `block`, whether a *sampled* child exists may depend on its path and on the shape of q, never on the token that was drawn.
/// A drafter that chooses by token pushes deterministic children. [`draw_children`](crate::draw_children) keeps the rule.
pub trait Drafter {
    /// Its name in reports, as `--draft` knows it.
    fn name(&self) -> &str;

    /// Reads ahead in texts that the target is still reading: the tokens of each view are the beginning of its text, as far
    /// as the target has it after this step. A drafter that would read a long text at once in `begin` reads it here, chunk by
    /// chunk, so that other sequences need not wait for it. What is drafted does not depend on it.
    fn read(&mut self, sequences: &[SequenceView<'_>]) -> Result<(), DraftError> {
        let _ = sequences;
        Ok(())
    }

    /// Starts a step: catches up with what was emitted since the last one.
    fn begin(&mut self, sequences: &[SequenceView<'_>]) -> Result<(), DraftError>;

    /// Adds one level (or several) to the trees, within the budgets.
    fn extend(
        &mut self,
        sequences: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        budgets: &[NodeBudget],
    ) -> Result<(), DraftError>;

    /// Learns what became of the trees; the views are still those of the step's start.
    fn observe(&mut self, sequences: &[SequenceView<'_>], verdicts: &[Verdict]);

    /// The sequence has ended: lets go of what was kept for it. What its text has cost may be kept for later sequences that
    /// begin alike.
    fn forget(&mut self, sequence: SequenceId);

    /// Lets go of what was kept for later sequences.
    fn clear(&mut self) {}

    /// How much of the texts that it had to read it had kept; zeros where it reads none.
    fn kept_tokens(&self) -> KeptTokens {
        KeptTokens::default()
    }
}

/// What a drafter has kept of past texts for those that begin alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptTokens {
    /// Tokens of sequences that began, as far as they could have been kept.
    pub asked: u64,
    /// Of these, tokens that were there and did not have to be read again.
    pub found: u64,
}
