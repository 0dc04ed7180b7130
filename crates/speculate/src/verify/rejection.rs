//! Speculative sampling: chains as in Leviathan et al. (2211.17192, algorithm 1) and Chen et al. (2302.01318, algorithm
//! 2), trees as in SpecInfer (Miao et al. 2305.09781, algorithm 2, multi-step speculative sampling).

use foredraft_common::TokenId;

use super::{Chance, Draw, Target, Verifier, VerifyError, target_at};
use crate::{Distribution, NodeIndex, Origin, Replacement, TokenTree, Verdict};

/// Accepts x with probability min(1, p(x) / q(x)); a rejected one is replaced by a draw from norm(max(0, p - q)).
///
/// Why it is exact (2211.17192, appendix A.1): a token x is emitted as an accepted draft with probability
/// q(x) min(1, p(x) / q(x)) = min(p(x), q(x)), and after a rejection with probability max(0, p(x) - q(x)); together p(x).
/// With several children the residual takes p's place for the next child, and the same argument holds again.
#[derive(Debug, Clone)]
pub struct Rejection {
    /// What is left of p after the children rejected so far, and a buffer for the next.
    residual: Distribution,
    next: Distribution,
    /// Tokens of the sampled children rejected so far, ascending.
    tried: Vec<TokenId>,
}

impl Rejection {
    /// Buffers that grow on first use.
    pub fn new() -> Self {
        Self {
            residual: Distribution::one_hot(TokenId(0)),
            next: Distribution::one_hot(TokenId(0)),
            tried: Vec::new(),
        }
    }

    /// The child of `node` that is accepted, if one is; otherwise `self.residual` is what replaces them all.
    fn accepted_child(
        &mut self,
        tree: &TokenTree,
        node: NodeIndex,
        p: &Distribution,
        chance: &mut dyn Chance,
    ) -> Option<NodeIndex> {
        let depth = tree.depth(node);
        self.tried.clear();
        for (attempt, child) in (0..).zip(tree.children(node)) {
            let x = tree.token(child);
            // After a rejection p stands for the residual: p' = norm(max(0, p - q)).
            let p = if attempt == 0 { p } else { &self.residual };
            let p_of_x = f64::from(p.probability(x));
            match tree.sampled(node).filter(|_| tree.node(child).is_sampled) {
                // A deterministic child: q(x) = 1 and 0 elsewhere, so that the residual is p without x.
                None => {
                    if chance.accept(depth, attempt, p_of_x, 1.0) {
                        return Some(child);
                    }
                    self.next.copy_from(p);
                    // Where x is all of p, p stays: nothing else can be emitted.
                    let _ = self.next.remove(x);
                }
                Some((q, replacement)) => {
                    let scale = self.scale_of(q, replacement);
                    if chance.accept(depth, attempt, p_of_x, scale * f64::from(q.probability(x))) {
                        return Some(child);
                    }
                    // What was tried before needs no place in q: a rejected token had p < q, so its residual is 0.
                    self.next.set_excess((1.0, p), (scale, q));
                    let place = self.tried.partition_point(|&before| before < x);
                    self.tried.insert(place, x);
                }
            }
            std::mem::swap(&mut self.residual, &mut self.next);
        }
        None
    }

    /// What q is multiplied with to be the distribution that the next child was drawn from: without replacement, q
    /// without the tokens tried, renormalised.
    fn scale_of(&self, q: &Distribution, replacement: Replacement) -> f64 {
        match replacement {
            Replacement::Without if !self.tried.is_empty() => 1.0 / q.sum_without(&self.tried),
            _ => 1.0,
        }
    }
}

impl Default for Rejection {
    fn default() -> Self {
        Self::new()
    }
}

impl Verifier for Rejection {
    fn name(&self) -> &'static str {
        "rejection"
    }

    fn verify(
        &mut self,
        tree: &TokenTree,
        target: &mut dyn Target,
        chance: &mut dyn Chance,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.accepted.clear();
        let mut node = NodeIndex::ROOT;
        loop {
            let p = target_at(target, tree, node)?;
            let depth = tree.depth(node);
            if tree.child_count(node) == 0 {
                // Bonus: all that was drafted is accepted; one token from p_{K+1}.
                verdict.next = chance.draw(depth, Draw::Bonus, p);
                verdict.origin = Origin::Bonus;
                return Ok(());
            }
            // Accept.
            let Some(child) = self.accepted_child(tree, node, p, chance) else {
                // Residual; and drop: nothing below is visited.
                verdict.next = chance.draw(depth, Draw::Residual, &self.residual);
                verdict.origin = Origin::Corrected;
                return Ok(());
            };
            verdict.accepted.push(child);
            node = child;
        }
    }
}
