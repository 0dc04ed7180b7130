//! Block verification of chains: Sun et al. 2403.10444, algorithm 2.
//!
//! Token by token, a draft that is too likely at one place (p < q) may be rejected though a later token makes up for
//! it (p > q). Judging the block as a whole wins that back: of all exact verifiers of a chain this one accepts the most.

use foredraft_common::TokenId;

use super::{Chance, Draw, Rejection, Target, Verifier, VerifyError, target_at};
use crate::{Distribution, NodeIndex, Origin, TokenTree, Verdict};

/// Accepts the longest prefix X_1 .. X_i of the chain for which eta_i < h_i.
///
/// With p_0 = 1 and p_i = min(1, p_{i-1} p(X_i) / q(X_i)), where p and q are those after X_1 .. X_{i-1}, and with the p and q
/// after X_1 .. X_i in R_i = sum over x of max(0, p_i p(x) - q(x)):
///
/// ```text
/// h_i = R_i / (R_i + 1 - p_i)   for i < K,     h_K = p_K
/// the token after X_1 .. X_i:   norm(max(0, p_i p - q)) for i < K,   p for i = K
/// ```
///
/// Why it is exact: by induction from the end, at least i tokens are accepted with probability p_i given X_1 .. X_i. A
/// deterministic token has q(X_i) = 1 and 0 elsewhere. Trees that are no chain are verified by [`Rejection`].
#[derive(Debug, Clone)]
pub struct Block {
    /// What follows the longest prefix accepted so far, and that of the prefix being tested.
    after_accepted: Distribution,
    after_tested: Distribution,
    /// q of a deterministic token.
    one_hot: Distribution,
    for_trees: Rejection,
}

impl Block {
    /// Buffers that grow on first use.
    pub fn new() -> Self {
        let one_hot = || Distribution::one_hot(TokenId(0));
        Self {
            after_accepted: one_hot(),
            after_tested: one_hot(),
            one_hot: one_hot(),
            for_trees: Rejection::new(),
        }
    }
}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

impl Verifier for Block {
    fn name(&self) -> &'static str {
        "block"
    }

    fn verify(
        &mut self,
        tree: &TokenTree,
        target: &mut dyn Target,
        chance: &mut dyn Chance,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        if !tree.is_chain() {
            return self.for_trees.verify(tree, target, chance, verdict);
        }
        verdict.accepted.clear();
        // In a chain node i is X_i.
        let (mut accepted, mut p_i) = (NodeIndex::ROOT, 1.0);
        for node in tree.nodes() {
            let p = target_at(target, tree, node)?;
            let child = tree.children(node).next();
            let h_i = match child {
                None => {
                    self.after_tested.copy_from(p);
                    p_i
                }
                Some(child) => {
                    let q = q_of(tree, node, child, &mut self.one_hot);
                    let r_i = self.after_tested.set_excess((p_i, p), (1.0, q));
                    let x = tree.token(child);
                    let ratio = f64::from(p.probability(x)) / f64::from(q.probability(x));
                    let h_i = h(r_i, p_i);
                    p_i = f64::min(1.0, p_i * ratio);
                    h_i
                }
            };
            // Accept: eta_i < h_i; the empty prefix always stands.
            let depth = tree.depth(node);
            if node == NodeIndex::ROOT || chance.accept(depth, 0, h_i, 1.0) {
                accepted = node;
                std::mem::swap(&mut self.after_accepted, &mut self.after_tested);
            }
            if p_i == 0.0 {
                // Every longer prefix has h = 0.
                break;
            }
        }
        // Residual and bonus; drop: what lies behind the accepted prefix is forgotten.
        let (kind, origin) = match tree.child_count(accepted) {
            0 => (Draw::Bonus, Origin::Bonus),
            _ => (Draw::Residual, Origin::Corrected),
        };
        verdict
            .accepted
            .extend(tree.nodes().skip(1).take(accepted.index()));
        verdict.next = chance.draw(tree.depth(accepted), kind, &self.after_accepted);
        verdict.origin = origin;
        Ok(())
    }
}

/// h_i for i < K. At R_i = 0 and p_i = 1, where p = q, either answer is exact: some longer prefix is accepted for sure.
fn h(r_i: f64, p_i: f64) -> f64 {
    if r_i == 0.0 {
        0.0
    } else {
        r_i / (r_i + 1.0 - p_i)
    }
}

/// The distribution that the only child of a node was drawn from.
fn q_of<'a>(
    tree: &'a TokenTree,
    node: NodeIndex,
    child: NodeIndex,
    one_hot: &'a mut Distribution,
) -> &'a Distribution {
    match tree.sampled(node).filter(|_| tree.node(child).is_sampled) {
        Some((q, _)) => q,
        None => {
            one_hot.set_one_hot(tree.token(child));
            one_hot
        }
    }
}
