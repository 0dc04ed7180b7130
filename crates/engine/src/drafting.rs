//! The engine's drafters, and how they grow the trees of a step level by level.

mod growth;

use std::panic::{AssertUnwindSafe, catch_unwind};

use foredraft_speculate::{
    DraftError, Drafter, KeptTokens, NodeBudget, SequenceId, SequenceView, TokenTree, Verdict,
};

use crate::error::panic_message;
use crate::speculation::TreeShape;
use growth::Growth;

/// How far the tree of a sequence may grow in a step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    pub(crate) shape: TreeShape,
    /// Drafted nodes of the tree.
    pub(crate) nodes: usize,
    /// Depth of the deepest: no deeper than what can still be emitted.
    pub(crate) depth: usize,
}

impl Limits {
    /// Levels that the tree may have.
    pub(crate) fn levels(&self) -> usize {
        self.shape.depth(self.nodes).min(self.depth)
    }
}

/// A sequence that is to be drafted for.
pub(crate) struct Lane<'a> {
    pub(crate) view: SequenceView<'a>,
    pub(crate) limits: Limits,
    /// With its root only.
    pub(crate) tree: &'a mut TokenTree,
    /// Which drafters failed for this request, by their number, and are not asked again for it.
    pub(crate) failed: &'a mut Vec<bool>,
}

/// Who hears of a failure, and which lane lost a drafter by it.
pub(crate) type Report<'r> = &'r mut dyn FnMut(usize, &DraftError);

/// A drafter of the engine.
struct Member {
    drafter: Box<dyn Drafter + Send>,
    name: String,
    /// The lanes, in order, that it drafts for in the step at hand.
    lanes: Vec<usize>,
}

/// The drafters of an engine, in the order in which they are asked.
#[derive(Default)]
pub(crate) struct Drafters {
    members: Vec<Member>,
    buffers: Buffers,
}

/// What a member is handed, in a row: its lanes' trees, budgets and verdicts. Trees and verdicts are swapped in and out.
#[derive(Default)]
struct Buffers {
    trees: Vec<TokenTree>,
    budgets: Vec<NodeBudget>,
    verdicts: Vec<Verdict>,
    /// For each lane the length that the level at hand may bring its tree to.
    ends: Vec<usize>,
}

impl Drafters {
    pub(crate) fn new(drafters: Vec<Box<dyn Drafter + Send>>) -> Self {
        let member = |drafter: Box<dyn Drafter + Send>| Member {
            name: drafter.name().to_owned(),
            drafter,
            lanes: Vec::new(),
        };
        Self {
            members: drafters.into_iter().map(member).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }

    /// The sequence is gone, or no drafter's state of it can be relied on.
    pub(crate) fn forget(&mut self, sequence: SequenceId) {
        for member in &mut self.members {
            member.forget(sequence);
        }
    }

    /// Lets go of what is kept for sequences to come.
    pub(crate) fn clear(&mut self) {
        for member in &mut self.members {
            // Whoever panics in it has been told.
            let _ = member.call(|drafter| {
                drafter.clear();
                Ok(())
            });
        }
    }

    /// Of each drafter what it has kept of past texts.
    pub(crate) fn kept_tokens(&self) -> impl Iterator<Item = KeptTokens> {
        self.members
            .iter()
            .map(|member| member.drafter.kept_tokens())
    }

    /// Lets the drafters read on in texts that the target reads in this step.
    pub(crate) fn read(&mut self, lanes: &mut [Lane<'_>], report: Report<'_>) {
        if lanes.is_empty() {
            return;
        }
        let mut growth = Growth::new(lanes, &mut self.buffers, report);
        for (number, member) in self.members.iter_mut().enumerate() {
            growth.read(member, number);
        }
    }

    /// Grows the trees, and reports whoever fails, with the number of the lane that so lost a drafter.
    ///
    /// All drafters share a tree that is a grid, level by level. A chain has one author: the first that has anything to
    /// say; those after it are not even told that there is a step, so a costly one costs nothing then.
    ///
    /// What was grown before a failure stays, for a sampled child must not vanish because of what was drawn.
    pub(crate) fn grow(&mut self, lanes: &mut [Lane<'_>], report: Report<'_>) {
        let Self { members, buffers } = self;
        for member in members.iter_mut() {
            member.lanes.clear();
        }
        let levels = lanes.iter().map(|lane| lane.limits.levels()).max();
        let levels = levels.unwrap_or(0);
        let Some(last) = members.len().checked_sub(1).filter(|_| levels > 0) else {
            return;
        };
        let mut growth = Growth::new(lanes, buffers, report);
        for (number, member) in members.iter_mut().enumerate() {
            growth.begin(member, number);
            // The last grows its chains beside the grids, so that one pass of it serves both.
            if number < last {
                let mut level = 1..=levels;
                while level.next().is_some_and(|level| {
                    growth.open(level, TreeShape::is_chain);
                    growth.extend(member, number, level, TreeShape::is_chain)
                }) {}
            }
        }
        for level in 1..=levels {
            growth.open(level, |_| true);
            let mut grew = false;
            for (number, member) in members.iter_mut().enumerate() {
                let own = |shape: TreeShape| number == last || !shape.is_chain();
                grew |= growth.extend(member, number, level, own);
            }
            if !grew {
                break;
            }
        }
    }

    /// Tells those who drafted what became of it. The lanes are those of [`Drafters::grow`].
    pub(crate) fn observe(&mut self, lanes: &mut [(SequenceView<'_>, &mut Verdict)]) {
        let verdicts = &mut self.buffers.verdicts;
        for member in &mut self.members {
            if member.lanes.is_empty() {
                continue;
            }
            verdicts.resize_with(member.lanes.len().max(verdicts.len()), Verdict::new);
            let views: Vec<_> = member.lanes.iter().map(|&lane| lanes[lane].0).collect();
            for (verdict, &lane) in verdicts.iter_mut().zip(&member.lanes) {
                std::mem::swap(verdict, lanes[lane].1);
            }
            let drafter = &mut member.drafter;
            let told = &verdicts[..views.len()];
            let observed = catch_unwind(AssertUnwindSafe(|| drafter.observe(&views, told)));
            for (verdict, &lane) in verdicts.iter_mut().zip(&member.lanes) {
                std::mem::swap(verdict, lanes[lane].1);
            }
            if observed.is_err() {
                for view in &views {
                    member.forget(view.id);
                }
            }
        }
    }
}

impl Member {
    /// Calls the drafter; a panic in it is a failure like any other.
    fn call(
        &mut self,
        work: impl FnOnce(&mut (dyn Drafter + Send)) -> Result<(), DraftError>,
    ) -> Result<(), DraftError> {
        let drafter = &mut *self.drafter;
        let result = catch_unwind(AssertUnwindSafe(|| work(drafter)));
        result.unwrap_or_else(|payload| Err(self.failure(panic_message(payload.as_ref()))))
    }

    fn failure(&self, source: String) -> DraftError {
        DraftError::Failed {
            drafter: self.name.clone(),
            source: source.into(),
        }
    }

    fn forget(&mut self, sequence: SequenceId) {
        // Whoever panics in forgetting has been told.
        let _ = self.call(|drafter| {
            drafter.forget(sequence);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests;
