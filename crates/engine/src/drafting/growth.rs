//! The trees of a step while they grow.

use foredraft_speculate::{DraftError, NodeBudget, NodeIndex, SequenceView, TokenTree};

use super::{Buffers, Lane, Member, Report};
use crate::speculation::TreeShape;

/// The trees of a step, and who is told of failures.
pub(super) struct Growth<'g, 'v> {
    lanes: &'g mut [Lane<'v>],
    buffers: &'g mut Buffers,
    report: Report<'g>,
}

impl<'g, 'v> Growth<'g, 'v> {
    pub(super) fn new(
        lanes: &'g mut [Lane<'v>],
        buffers: &'g mut Buffers,
        report: Report<'g>,
    ) -> Self {
        buffers.ends.clear();
        buffers.ends.resize(lanes.len(), 0);
        Self {
            lanes,
            buffers,
            report,
        }
    }

    /// Lets a drafter read all lanes as far as they go.
    pub(super) fn read(&mut self, member: &mut Member, number: usize) {
        let open = (0..self.lanes.len()).filter(|&index| !self.has_failed(index, number));
        member.lanes.clear();
        member.lanes.extend(open);
        if member.lanes.is_empty() {
            return;
        }
        let views = self.views(member);
        let read = member.call(|drafter| drafter.read(&views));
        self.settle(member, number, read);
        member.lanes.clear();
    }

    fn has_failed(&self, lane: usize, number: usize) -> bool {
        let failed = self.lanes[lane].failed.get(number);
        failed.copied().unwrap_or(false)
    }

    /// Tells a drafter that there is a step, for the lanes that it is to draft for: grids, and chains that nobody began.
    pub(super) fn begin(&mut self, member: &mut Member, number: usize) {
        for (index, lane) in self.lanes.iter().enumerate() {
            let open = !lane.limits.shape.is_chain() || lane.tree.len() == 1;
            if lane.limits.levels() > 0 && open && !self.has_failed(index, number) {
                member.lanes.push(index);
            }
        }
        if member.lanes.is_empty() {
            return;
        }
        let views = self.views(member);
        let begun = member.call(|drafter| drafter.begin(&views));
        self.settle(member, number, begun);
    }

    /// Opens a level of the trees of some shapes: how long they may become with it.
    pub(super) fn open(&mut self, level: usize, of: impl Fn(TreeShape) -> bool) {
        for (lane, end) in self.lanes.iter().zip(&mut self.buffers.ends) {
            let limits = &lane.limits;
            if of(limits.shape) {
                let more = limits.shape.nodes_of_level(level);
                *end = lane.tree.len().saturating_add(more).min(limits.nodes + 1);
            }
        }
    }

    /// Lets a drafter add a level to its trees of some shapes, in what others have left of the level. Whether it did.
    pub(super) fn extend(
        &mut self,
        member: &mut Member,
        number: usize,
        level: usize,
        of: impl Fn(TreeShape) -> bool,
    ) -> bool {
        let Buffers {
            trees,
            budgets,
            ends,
            ..
        } = &mut *self.buffers;
        budgets.clear();
        budgets.extend(member.lanes.iter().map(|&index| {
            let lane = &self.lanes[index];
            let open = of(lane.limits.shape) && level <= lane.limits.levels();
            let room = ends[index].saturating_sub(lane.tree.len());
            NodeBudget {
                nodes: if open { room } else { 0 },
                width: lane.limits.shape.width(),
            }
        }));
        if budgets.iter().all(|budget| budget.nodes == 0) {
            return false;
        }
        let count = member.lanes.len();
        while trees.len() < count {
            trees.push(TokenTree::new(foredraft_common::TokenId(0)));
        }
        let before = self.nodes(member);
        let views = self.views(member);
        let Buffers { trees, budgets, .. } = &mut *self.buffers;
        let trees = &mut trees[..count];
        swap(trees, self.lanes, &member.lanes);
        let result = member.call(|drafter| drafter.extend(&views, trees, budgets));
        swap(trees, self.lanes, &member.lanes);
        let result = result.and(self.hold_to_budget(member));
        let grew = self.nodes(member) > before;
        self.settle(member, number, result);
        grew
    }

    fn views(&self, member: &Member) -> Vec<SequenceView<'v>> {
        let views = member.lanes.iter().map(|&index| self.lanes[index].view);
        views.collect()
    }

    /// Nodes of a drafter's trees.
    fn nodes(&self, member: &Member) -> usize {
        let trees = member.lanes.iter().map(|&index| &self.lanes[index].tree);
        trees.map(|tree| tree.len()).sum()
    }

    /// Holds a drafter to its budget, for the pass and the context have no room beyond it. Where it did not keep to it
    /// the step is a plain one.
    fn hold_to_budget(&mut self, member: &Member) -> Result<(), DraftError> {
        let mut result = Ok(());
        for &index in &member.lanes {
            let Lane { limits, tree, .. } = &mut self.lanes[index];
            let end = self.buffers.ends[index].max(1);
            let too_deep = |node| tree.depth(node) as usize > limits.depth;
            if tree.len() > end || tree.nodes().any(too_deep) {
                tree.reset(tree.token(NodeIndex::ROOT));
                result = Err(member.failure("it drafted more or deeper than it may".into()));
            }
        }
        result
    }

    /// After an error the drafter's state is not relied on: it forgets the sequences of the step. It also leaves the
    /// requests, where the error is not of one sequence alone.
    fn settle(&mut self, member: &mut Member, number: usize, result: Result<(), DraftError>) {
        let Err(error) = result else {
            return;
        };
        for index in std::mem::take(&mut member.lanes) {
            let lane = &mut self.lanes[index];
            let id = lane.view.id;
            member.forget(id);
            let is_other =
                matches!(&error, DraftError::Distribution { sequence, .. } if *sequence != id);
            if !is_other {
                let failed = &mut lane.failed;
                failed.resize(failed.len().max(number + 1), false);
                failed[number] = true;
                (self.report)(index, &error);
            }
        }
    }
}

/// Exchanges the trees of some lanes with buffers that lie in a row.
fn swap(trees: &mut [TokenTree], lanes: &mut [Lane<'_>], chosen: &[usize]) {
    for (tree, &index) in trees.iter_mut().zip(chosen) {
        std::mem::swap(tree, lanes[index].tree);
    }
}
