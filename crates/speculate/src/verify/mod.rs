//! Verification: which drafted tokens stand, and which token of the target's own follows them.
//!
//! Notation, as in the papers: p is the target's distribution after a node and q the drafter's, both after the same
//! transforms and in the f32 values that were really drawn from; x is a drafted token. Every verifier has the same
//! order: *accept* (walk down the tree while children are accepted), *residual* (draw what replaces the first
//! rejected one), *drop* (nothing below it is looked at), *bonus* (draw one more token after the last of the tree).
//!
//! The tree of one node is plain decoding: nothing to accept, and the bonus is a draw from p.
//!
//! Three things come from outside. The tree says what was drafted and from which q. [`Target`] gives p, and only of nodes
//! that the walk visits. [`Chance`] makes the random decisions, so that tests can enumerate them.
//!
//! What keeps it exact is also outside: a sampled child was drawn from exactly the recorded q, and is in the tree whatever
//! was drawn. See [`Drafter`](crate::Drafter) for that rule.

mod block;
mod chance;
mod coupled;
mod rejection;
mod target;

pub use block::Block;
pub use chance::{Chance, Draw, KeyedChance};
pub use coupled::Coupled;
pub use rejection::Rejection;
pub use target::{LogitsTarget, TargetBuffers};

use crate::{
    Distribution, DistributionError, DraftDraw, NodeIndex, Replacement, TokenTree, Verdict,
};

/// Why a step has no verdict. The request ends with this error; no token was chosen.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum VerifyError {
    /// The target's row at a node has no distribution.
    #[error("verification after {depth} drafted tokens: {source}")]
    Distribution {
        /// Depth of the node whose row it is; 0 is the last emitted token.
        depth: u32,
        /// What is wrong with the row.
        source: DistributionError,
    },
}

/// The target's distributions, made when they are asked for.
pub trait Target {
    /// p: the transformed distribution of the token after `node`, with the node's own path counted as history.
    /// A verifier asks at most once for a node.
    fn distribution(
        &mut self,
        tree: &TokenTree,
        node: NodeIndex,
    ) -> Result<&Distribution, DistributionError>;
}

/// A rule by which drafted tokens are accepted that leaves the distribution of the text as it is.
pub trait Verifier {
    /// Its name in reports, as `--verify` knows it.
    fn name(&self) -> &'static str;

    /// Fills `verdict` for a tree; on an error it means nothing. Allocates nothing once its buffers have grown.
    fn verify(
        &mut self,
        tree: &TokenTree,
        target: &mut dyn Target,
        chance: &mut dyn Chance,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError>;
}

/// The verifier that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verify {
    /// `coupled` for a request with a seed or at temperature 0, else `rejection`.
    #[default]
    Auto,
    /// Speculative sampling; on trees in its form for several children.
    Rejection,
    /// Accepts what plain decoding with the same seed would emit.
    Coupled,
    /// Block verification of chains; trees as `rejection`.
    Block,
}

/// The verifier that a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VerifyRule {
    /// [`Rejection`].
    Rejection,
    /// [`Coupled`].
    Coupled,
    /// [`Block`].
    Block,
}

impl Verify {
    /// What this is for a request that gives a seed (`seeded`) or has temperature 0 (`greedy`).
    ///
    /// At temperature 0 every rule emits the argmax; `coupled` gets there with the fewest draws.
    pub fn resolve(self, seeded: bool, greedy: bool) -> VerifyRule {
        match self {
            Self::Auto if seeded || greedy => VerifyRule::Coupled,
            Self::Auto | Self::Rejection => VerifyRule::Rejection,
            Self::Coupled => VerifyRule::Coupled,
            Self::Block => VerifyRule::Block,
        }
    }
}

impl VerifyRule {
    /// A verifier of this rule. It keeps buffers and nothing else from one tree to the next.
    pub fn verifier(self) -> Box<dyn Verifier + Send> {
        match self {
            Self::Rejection => Box::new(Rejection::new()),
            Self::Coupled => Box::new(Coupled),
            Self::Block => Box::new(Block::new()),
        }
    }

    /// How drafters should draw for this rule. At temperature 0 (`greedy`) the best guesses are the ranked ones.
    pub fn draft_draw(self, greedy: bool) -> DraftDraw {
        match self {
            _ if greedy => DraftDraw::Ranked,
            Self::Coupled => DraftDraw::Coupled,
            // A token drawn twice is never accepted at its second place.
            Self::Rejection | Self::Block => DraftDraw::Sampled(Replacement::Without),
        }
    }
}

/// p at a node, or the error that ends the request.
fn target_at<'t>(
    target: &'t mut dyn Target,
    tree: &TokenTree,
    node: NodeIndex,
) -> Result<&'t Distribution, VerifyError> {
    let depth = tree.depth(node);
    target
        .distribution(tree, node)
        .map_err(|source| VerifyError::Distribution { depth, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_coupled_for_a_seed_and_at_temperature_0() {
        use VerifyRule::{Block, Coupled, Rejection};
        let resolved = |verify: Verify| {
            [(false, false), (true, false), (false, true), (true, true)]
                .map(|(seeded, greedy)| verify.resolve(seeded, greedy))
        };
        assert_eq!(
            resolved(Verify::Auto),
            [Rejection, Coupled, Coupled, Coupled]
        );
        assert_eq!(resolved(Verify::Rejection), [Rejection; 4]);
        assert_eq!(resolved(Verify::Coupled), [Coupled; 4]);
        assert_eq!(resolved(Verify::Block), [Block; 4]);
        for (rule, name) in [
            (Rejection, "rejection"),
            (Coupled, "coupled"),
            (Block, "block"),
        ] {
            assert_eq!(rule.verifier().name(), name);
            assert_eq!(rule.draft_draw(true), DraftDraw::Ranked);
        }
        assert_eq!(Coupled.draft_draw(false), DraftDraw::Coupled);
    }
}
