//! The engine's drafters, and how they grow a step's trees level by level.

use foredraft_speculate::{
    DraftError, Drafter, NodeBudget, NodeIndex, SequenceId, SequenceView, TokenTree, Verdict,
};

use crate::speculation::TreeShape;

/// A drafter of the engine.
struct Member {
    drafter: Box<dyn Drafter + Send>,
    /// It failed for the request at hand and is not asked again before the next.
    failed: bool,
    /// It began the step at hand.
    takes_part: bool,
}

/// The drafters of an engine, in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Drafters {
    members: Vec<Member>,
    budgets: Vec<NodeBudget>,
    ends: Vec<usize>,
}

/// How far the trees of a step may grow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) shape: TreeShape,
    /// Drafted nodes of a tree.
    pub(crate) nodes: usize,
    /// Depth of the deepest: no deeper than what can still be emitted.
    pub(crate) depth: usize,
}

impl Drafters {
    pub(crate) fn new(drafters: Vec<Box<dyn Drafter + Send>>) -> Self {
        let member = |drafter| Member {
            drafter,
            failed: false,
            takes_part: false,
        };
        Self {
            members: drafters.into_iter().map(member).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.members.iter().map(|member| member.drafter.name());
        names.map(str::to_owned).collect()
    }

    /// A new request: who failed for the last one may try again.
    pub(crate) fn restart(&mut self) {
        for member in &mut self.members {
            member.failed = false;
        }
    }

    /// The sequence is gone, or no drafter's state of it can be relied on.
    pub(crate) fn forget(&mut self, sequence: SequenceId) {
        for member in &mut self.members {
            member.drafter.forget(sequence);
        }
    }

    /// Grows the trees, which have their roots only, and reports whoever fails.
    ///
    /// All drafters share a tree that is a grid. A chain has one author: the first that has anything to say; those after
    /// it are not even told that there is a step, so a costly one costs nothing then.
    ///
    /// What was grown before a failure stays, for a sampled child must not vanish because of what was drawn.
    pub(crate) fn grow(
        &mut self,
        limits: Limits,
        sequences: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        report: &mut dyn FnMut(&DraftError),
    ) {
        let Self {
            members,
            budgets,
            ends,
        } = self;
        for member in members.iter_mut() {
            member.takes_part = false;
        }
        let depth = limits.shape.depth(limits.nodes).min(limits.depth);
        if depth == 0 {
            return;
        }
        let together = match limits.shape {
            TreeShape::Chain => 1,
            TreeShape::Grid { .. } => members.len().max(1),
        };
        let mut growth = Growth {
            limits,
            sequences,
            trees,
            budgets,
            ends,
        };
        for team in members.chunks_mut(together) {
            for member in team.iter_mut().filter(|member| !member.failed) {
                member.takes_part = true;
                let result = member.drafter.begin(sequences);
                member.check(result, sequences, report);
            }
            for level in 1..=depth {
                if !grow_level(team, level, &mut growth, report) {
                    break;
                }
            }
            if growth.nodes() > sequences.len() {
                break;
            }
        }
    }

    /// Tells those who drafted what became of it.
    pub(crate) fn observe(&mut self, sequences: &[SequenceView<'_>], verdicts: &[Verdict]) {
        for member in self.members.iter_mut().filter(|member| member.takes_part) {
            member.drafter.observe(sequences, verdicts);
        }
    }
}

impl Member {
    /// After an error the drafter's state is not relied on: it forgets the sequences and leaves the request.
    fn check(
        &mut self,
        result: Result<(), DraftError>,
        sequences: &[SequenceView<'_>],
        report: &mut dyn FnMut(&DraftError),
    ) {
        if let Err(error) = result {
            self.failed = true;
            self.takes_part = false;
            for view in sequences {
                self.drafter.forget(view.id);
            }
            report(&error);
        }
    }
}

/// One level, each drafter in what those before it have left free. Whether anything grew.
fn grow_level(
    team: &mut [Member],
    level: usize,
    growth: &mut Growth<'_, '_>,
    report: &mut dyn FnMut(&DraftError),
) -> bool {
    let limits = growth.limits;
    growth.ends.clear();
    growth.ends.extend(growth.trees.iter().map(|tree| {
        let end = tree
            .len()
            .saturating_add(limits.shape.nodes_of_level(level));
        end.min(limits.nodes + 1)
    }));
    let before = growth.nodes();
    for member in team.iter_mut().filter(|member| member.takes_part) {
        growth.budgets.clear();
        let room = growth.ends.iter().zip(&*growth.trees);
        growth.budgets.extend(room.map(|(&end, tree)| NodeBudget {
            nodes: end.saturating_sub(tree.len()),
            width: limits.shape.width(),
        }));
        if growth.budgets.iter().all(|budget| budget.nodes == 0) {
            break;
        }
        let result = member
            .drafter
            .extend(growth.sequences, growth.trees, growth.budgets);
        let kept_to = growth.check(member.drafter.name());
        member.check(result.and(kept_to), growth.sequences, report);
    }
    growth.nodes() > before
}

/// The trees of a step while they grow.
struct Growth<'g, 'v> {
    limits: Limits,
    sequences: &'g [SequenceView<'v>],
    trees: &'g mut [TokenTree],
    budgets: &'g mut Vec<NodeBudget>,
    /// For each tree the length that the level at hand may bring it to.
    ends: &'g mut Vec<usize>,
}

impl Growth<'_, '_> {
    /// Nodes of all trees.
    fn nodes(&self) -> usize {
        self.trees.iter().map(TokenTree::len).sum()
    }

    /// Holds a drafter to its budget, for the pass and the context have no room beyond it. Where it did not keep to it
    /// the step is a plain one.
    fn check(&mut self, drafter: &str) -> Result<(), DraftError> {
        let depth = self.limits.depth;
        let too_large = |(tree, &end): (&TokenTree, &usize)| {
            tree.len() > end || tree.nodes().any(|node| tree.depth(node) as usize > depth)
        };
        if !self.trees.iter().zip(&*self.ends).any(too_large) {
            return Ok(());
        }
        for tree in self.trees.iter_mut() {
            tree.reset(tree.token(NodeIndex::ROOT));
        }
        Err(DraftError::Failed {
            drafter: drafter.to_owned(),
            source: "it drafted more or deeper than it may".into(),
        })
    }
}
