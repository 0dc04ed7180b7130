//! The target's distributions from rows of logits.

use foredraft_common::TokenId;

use super::Target;
use crate::{
    AllowedTokens, Distribution, DistributionError, History, NodeIndex, SamplingSettings,
    TokenTree, Transforms,
};

/// Buffers of a [`LogitsTarget`], kept by its caller from step to step.
#[derive(Debug, Clone)]
pub struct TargetBuffers {
    transforms: Transforms,
    path: Vec<TokenId>,
    p: Distribution,
}

impl TargetBuffers {
    /// Buffers that grow on first use.
    pub fn new() -> Self {
        Self {
            transforms: Transforms::new(),
            path: Vec::new(),
            p: Distribution::one_hot(TokenId(0)),
        }
    }
}

impl Default for TargetBuffers {
    fn default() -> Self {
        Self::new()
    }
}

/// A [`Target`] that transforms the row of each node that it is asked for, with the node's own path as history: a
/// penalty sees the drafted tokens before it, and no others.
#[derive(Debug)]
pub struct LogitsTarget<'a, F> {
    /// The request's settings.
    pub sampling: &'a SamplingSettings,
    /// The tokens up to the root, the root included.
    pub history: &'a History,
    /// The tokens that may be emitted.
    pub allowed: &'a AllowedTokens,
    /// Gives the raw logits of the token after a node, `[vocabulary]`.
    pub row: F,
    /// Where it works.
    pub buffers: &'a mut TargetBuffers,
}

impl<'r, F: FnMut(NodeIndex) -> &'r [f32]> Target for LogitsTarget<'_, F> {
    fn distribution(
        &mut self,
        tree: &TokenTree,
        node: NodeIndex,
    ) -> Result<&Distribution, DistributionError> {
        let TargetBuffers {
            transforms,
            path,
            p,
        } = &mut *self.buffers;
        tree.path(node, path);
        let history = self.history.with_path(path);
        transforms.apply((self.row)(node), self.sampling, history, self.allowed, p)?;
        Ok(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Coupled, KeyedChance, Verifier, VerifyError};
    use crate::{NoiseKey, Verdict};
    use foredraft_common::Position;

    const ROOT: NodeIndex = NodeIndex::ROOT;
    const KEY: NoiseKey = NoiseKey {
        seed: 1,
        choice: 0,
        position: Position(3),
    };

    /// Rows over 4 tokens whose argmax moves when a token is penalised by 1.5 an occurrence.
    fn verdict_of(tree: &TokenTree, rows: &[[f32; 4]]) -> Result<Verdict, VerifyError> {
        let sampling = SamplingSettings {
            frequency_penalty: 1.5,
            ..SamplingSettings::greedy()
        };
        let mut target = LogitsTarget {
            sampling: &sampling,
            history: &History::new(&[TokenId(3)]),
            allowed: &AllowedTokens::all(4),
            row: |node: NodeIndex| rows[node.index()].as_slice(),
            buffers: &mut TargetBuffers::new(),
        };
        let mut verdict = Verdict::new();
        Coupled.verify(tree, &mut target, &mut KeyedChance(KEY), &mut verdict)?;
        Ok(verdict)
    }

    #[test]
    fn a_penalty_sees_the_drafted_tokens_before_it_and_no_others() {
        let mut tree = TokenTree::new(TokenId(3));
        let other = tree.push(ROOT, TokenId(2), 0, 1.0);
        let first = tree.push(ROOT, TokenId(0), 0, 1.0);
        let second = tree.push(first, TokenId(0), 0, 1.0);
        tree.push(other, TokenId(1), 0, 1.0);
        // Unpenalised 0 leads by 2: once drafted it still leads (0.5), twice it does not (-1): 1 follows.
        let verdict = verdict_of(&tree, &[[2.0, 0.0, 0.0, -9.0]; 5]).expect("a verdict");
        assert_eq!(
            (verdict.accepted, verdict.next),
            (vec![first, second], TokenId(1))
        );
    }

    #[test]
    fn a_broken_row_on_the_path_is_an_error_and_one_beside_it_is_not() {
        let mut tree = TokenTree::new(TokenId(3));
        tree.push(ROOT, TokenId(0), 0, 1.0);
        tree.push(ROOT, TokenId(1), 0, 1.0);
        let sound = [2.0, 0.0, 0.0, 0.0];
        let broken = [2.0, f32::NAN, 0.0, 0.0];
        let error = verdict_of(&tree, &[sound, broken, sound]).expect_err("no verdict");
        assert!(
            error
                .to_string()
                .starts_with("verification after 1 drafted tokens: the logit of token 1 is NaN"),
            "{error}"
        );
        assert!(verdict_of(&tree, &[sound, sound, broken]).is_ok());
    }
}
