//! Drafters that do as a test says.

use foredraft_common::TokenId;
use foredraft_speculate::{
    Distribution, DraftError, Drafter, NodeBudget, NodeIndex, SequenceId, SequenceView, TokenTree,
    Verdict, draw_children,
};

/// The nodes of a tree's deepest level.
fn deepest(tree: &TokenTree) -> Vec<NodeIndex> {
    let depth = tree
        .nodes()
        .map(|node| tree.depth(node))
        .max()
        .expect("a root");
    tree.at_depth(depth).collect()
}

/// Knows the text and tells it, but wrongly at some places.
pub(crate) struct Scripted {
    /// Prompt and answer.
    text: Vec<TokenId>,
    /// At every position that this divides, all children are wrong; 0 is never.
    pub(crate) wrong_every: usize,
    /// What a wrong child is: a token that the text does not have there.
    pub(crate) wrong: fn(usize) -> TokenId,
}

impl Scripted {
    pub(crate) fn new(text: &[&[TokenId]], wrong_every: usize) -> Self {
        Self {
            text: text.concat(),
            wrong_every,
            wrong: |number| TokenId(260 + (number * 37 % 250) as u32),
        }
    }
}

impl Drafter for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn begin(&mut self, _: &[SequenceView<'_>]) -> Result<(), DraftError> {
        Ok(())
    }

    fn extend(
        &mut self,
        sequences: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        budgets: &[NodeBudget],
    ) -> Result<(), DraftError> {
        for ((view, tree), budget) in sequences.iter().zip(trees).zip(budgets) {
            let end = tree.len() + budget.nodes;
            for node in deepest(tree) {
                let position = view.tokens.len() + tree.depth(node) as usize;
                let truth = self.text.get(position).copied();
                let is_wrong = self.wrong_every > 0 && position.is_multiple_of(self.wrong_every);
                // The right child, if there is one, may be any of them.
                let right = (!is_wrong).then_some(position * 7 % budget.width);
                for child in (0..budget.width).take(end - tree.len()) {
                    let token = match truth {
                        Some(token) if right == Some(child) => token,
                        _ => (self.wrong)(position + child),
                    };
                    if right == Some(child) || Some(token) != truth {
                        tree.push(node, token, 0, 0.5);
                    }
                }
            }
        }
        Ok(())
    }

    fn observe(&mut self, views: &[SequenceView<'_>], verdicts: &[Verdict]) {
        assert_eq!(views.len(), verdicts.len());
    }

    fn forget(&mut self, _: SequenceId) {}
}

/// Samples its children from a distribution of its own: half on the text's token, the rest on seven others.
pub(crate) struct Sampling(pub(crate) Vec<TokenId>);

impl Drafter for Sampling {
    fn name(&self) -> &str {
        "sampling"
    }

    fn begin(&mut self, _: &[SequenceView<'_>]) -> Result<(), DraftError> {
        Ok(())
    }

    fn extend(
        &mut self,
        sequences: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        budgets: &[NodeBudget],
    ) -> Result<(), DraftError> {
        for ((view, tree), budget) in sequences.iter().zip(trees).zip(budgets) {
            // Whole levels, for what was drawn must not decide what is drafted.
            if deepest(tree).len() * budget.width > budget.nodes {
                continue;
            }
            for node in deepest(tree) {
                let position = view.tokens.len() + tree.depth(node) as usize;
                let mut q = [0.0; 512];
                q[300..307].fill(1.0 / 14.0);
                let truth = self.0.get(position).map_or(310, |token| token.index());
                q[truth] = 1.0 - (q.iter().sum::<f32>() - q[truth]);
                let q = Distribution::from_dense(&q).expect("a distribution");
                draw_children(tree, node, &q, view.draw, budget.width, view.key, 1);
            }
        }
        Ok(())
    }

    fn observe(&mut self, _: &[SequenceView<'_>], _: &[Verdict]) {}

    fn forget(&mut self, _: SequenceId) {}
}

/// How a [`Faulty`] drafter fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// Cannot begin its third step.
    Begin,
    /// Fails at the second level of its third step.
    Extend,
    /// Drafts more than it may.
    TooMany,
    /// Drafts deeper than it may.
    TooDeep,
}

/// A [`Scripted`] drafter that fails in its third step.
pub(crate) struct Faulty {
    pub(crate) inner: Scripted,
    pub(crate) fault: Fault,
    /// Steps begun.
    pub(crate) steps: usize,
}

fn failure() -> DraftError {
    DraftError::Failed {
        drafter: "faulty".into(),
        source: "as planned".into(),
    }
}

impl Drafter for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn begin(&mut self, views: &[SequenceView<'_>]) -> Result<(), DraftError> {
        self.steps += 1;
        assert!(self.steps <= 3, "who failed is not asked again");
        match self.fault {
            Fault::Begin if self.steps == 3 => Err(failure()),
            _ => self.inner.begin(views),
        }
    }

    fn extend(
        &mut self,
        views: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        budgets: &[NodeBudget],
    ) -> Result<(), DraftError> {
        let third = self.steps == 3;
        match self.fault {
            Fault::Extend if third && trees[0].len() > 1 => Err(failure()),
            Fault::TooMany if third => {
                for id in 0..300 {
                    trees[0].push(NodeIndex::ROOT, TokenId(id), 0, 1.0);
                }
                Ok(())
            }
            Fault::TooDeep if third => {
                // Within the nodes of the level, but not on it.
                let mut node = NodeIndex::ROOT;
                for id in 0..budgets[0].nodes.max(300) {
                    node = trees[0].push(node, TokenId(id as u32), 0, 1.0);
                }
                Ok(())
            }
            _ => self.inner.extend(views, trees, budgets),
        }
    }

    fn observe(&mut self, views: &[SequenceView<'_>], verdicts: &[Verdict]) {
        self.inner.observe(views, verdicts);
    }

    fn forget(&mut self, _: SequenceId) {
        self.steps = 0;
    }
}
