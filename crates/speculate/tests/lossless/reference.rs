//! A second reading of the rejection rule, dense and in f64, sharing no code with the product's; whole, or with a
//! fault planted. Without a fault it is lossless too, so what a fault changes is the fault's.

use foredraft_common::TokenId;
use foredraft_speculate::{
    Chance, Distribution, Draw, NodeIndex, Origin, Replacement, Target, TokenTree, Verdict,
    Verifier, VerifyError,
};

use crate::model::distribution;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The residual is p - q, negative parts and all, drawn from by its cumulative sums.
    ResidualNotClamped,
    /// The residual is max(0, p - q), not renormalised for the test of the next child.
    NoRenormalisation,
    /// The bonus token is drawn from the row before the last.
    BonusOfWrongRow,
}

pub(crate) struct Reference {
    fault: Fault,
}

/// More than the tokens of any model here.
const DENSE: usize = 8;

fn dense(distribution: &Distribution) -> [f64; DENSE] {
    let mut dense = [0.0; DENSE];
    distribution
        .iter()
        .for_each(|(token, p)| dense[token.index()] = f64::from(p));
    dense
}

fn normalise(weights: &mut [f64; DENSE]) {
    let sum: f64 = weights.iter().sum();
    if sum > 0.0 {
        weights.iter_mut().for_each(|w| *w /= sum);
    }
}

impl Reference {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault }
    }

    fn residual(&self, p: &[f64; DENSE], q: &[f64; DENSE]) -> [f64; DENSE] {
        let mut rest = std::array::from_fn(|v| p[v] - q[v]);
        if self.fault == Fault::ResidualNotClamped {
            return rest;
        }
        rest.iter_mut().for_each(|w| *w = w.max(0.0));
        // Rounding alone makes the residual of equal distributions: p itself then.
        if rest.iter().sum::<f64>() < 1e-12 {
            return *p;
        }
        if self.fault != Fault::NoRenormalisation {
            normalise(&mut rest);
        }
        rest
    }

    fn draw_residual(&self, depth: u32, p: &[f64; DENSE], chance: &mut dyn Chance) -> TokenId {
        if self.fault != Fault::ResidualNotClamped {
            return chance.draw(depth, Draw::Residual, &distribution(p.iter().copied()));
        }
        let grid = distribution(std::iter::repeat_n(1.0, 1 << 8));
        let u = f64::from(chance.draw(depth, Draw::Residual, &grid).0) / f64::from(1 << 8);
        let mass: f64 = p.iter().map(|w| w.max(0.0)).sum();
        let mut sum = 0.0;
        let crossing = p.iter().position(|w| {
            sum += w / mass;
            sum > u
        });
        TokenId(crossing.unwrap_or(0) as u32)
    }
}

impl Verifier for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn verify(
        &mut self,
        tree: &TokenTree,
        target: &mut dyn Target,
        chance: &mut dyn Chance,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.accepted.clear();
        let (mut node, mut before) = (NodeIndex::ROOT, None);
        'walk: loop {
            let depth = tree.depth(node);
            let row = target.distribution(tree, node);
            let mut p = dense(row.map_err(|source| VerifyError::Distribution { depth, source })?);
            let own = p;
            if tree.child_count(node) == 0 {
                let wrong = before.filter(|_| self.fault == Fault::BonusOfWrongRow);
                let row = distribution(wrong.unwrap_or(p).into_iter());
                verdict.next = chance.draw(depth, Draw::Bonus, &row);
                verdict.origin = Origin::Bonus;
                return Ok(());
            }
            let mut sampled = tree
                .sampled(node)
                .map(|(q, replacement)| (dense(q), replacement));
            for (attempt, child) in (0..).zip(tree.children(node)) {
                let x = tree.token(child).index();
                let mut one_hot = [0.0; DENSE];
                one_hot[x] = 1.0;
                let q = match &sampled {
                    Some((q, _)) if tree.node(child).is_sampled => *q,
                    _ => one_hot,
                };
                if chance.accept(depth, attempt, p[x], q[x]) {
                    verdict.accepted.push(child);
                    (node, before) = (child, Some(own));
                    continue 'walk;
                }
                p = self.residual(&p, &q);
                if let Some((q, Replacement::Without)) = &mut sampled
                    && tree.node(child).is_sampled
                {
                    q[x] = 0.0;
                    normalise(q);
                }
            }
            verdict.next = self.draw_residual(depth, &p, chance);
            verdict.origin = Origin::Corrected;
            return Ok(());
        }
    }
}
