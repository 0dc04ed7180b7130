//! One level of the trees: the nodes that go through the model before their children can be drawn.

use foredraft_model::Slot;
use foredraft_speculate::{DraftDraw, DraftError, NodeBudget, NodeIndex, SequenceView, TokenTree};

use super::ModelDrafter;

/// A node that goes through the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct LevelRow {
    /// Index of the sequence in the call.
    view: usize,
    node: NodeIndex,
    /// Its place in the level of its sequence.
    place: usize,
    /// None: it follows the root, which is in the pages.
    parent: Option<Slot>,
}

impl ModelDrafter {
    /// Writes into `self.rows` the nodes that must go through the model before a level can be drawn within the budgets.
    pub(super) fn schedule(
        &mut self,
        views: &[SequenceView<'_>],
        trees: &[TokenTree],
        budgets: &[NodeBudget],
    ) {
        self.rows.clear();
        for (v, ((view, tree), budget)) in views.iter().zip(trees).zip(budgets).enumerate() {
            let Some(sequence) = self.sequences.get_mut(&view.id) else {
                continue;
            };
            if budget.nodes == 0 || budget.width == 0 {
                continue;
            }
            sequence.next_level(tree, self.options.context_tokens, &mut self.next);
            // A sampled level is whole: without room for a child of each node nothing will be drawn.
            let is_sampled = matches!(view.draw, DraftDraw::Sampled(_));
            if self.next.is_empty() || (is_sampled && self.next.len() > budget.nodes) {
                continue;
            }
            for (place, &node) in self.next.iter().enumerate() {
                self.rows.push(LevelRow {
                    view: v,
                    node,
                    place,
                    parent: tree.parent(node).and_then(|parent| sequence.slot(parent)),
                });
            }
            sequence.open(&self.next);
        }
    }

    /// Runs the scheduled rows, in one pass if they fit, and keeps their distributions.
    pub(super) fn run_level(
        &mut self,
        views: &[SequenceView<'_>],
        trees: &[TokenTree],
    ) -> Result<(), DraftError> {
        let most = self.options.max_rows.min(self.options.max_outputs).max(1);
        let rows = std::mem::take(&mut self.rows);
        let mut parts = rows.chunks(most);
        let ran = parts.try_for_each(|part| self.run_part(views, trees, part));
        self.rows = rows;
        if ran.is_err() {
            // No more is drafted in this step; what has run may still be accepted.
            for sequence in self.sequences.values_mut() {
                sequence.index = None;
            }
        }
        ran
    }

    fn run_part(
        &mut self,
        views: &[SequenceView<'_>],
        trees: &[TokenTree],
        rows: &[LevelRow],
    ) -> Result<(), DraftError> {
        self.batch.next_pass();
        self.slots.clear();
        for row in rows {
            let sequence = self.sequences.get(&views[row.view].id);
            if let Some(index) = sequence.and_then(|sequence| sequence.index) {
                let token = trees[row.view].token(row.node);
                self.slots
                    .push(self.batch.push(index, token, row.parent, true));
            }
        }
        if let Err(error) = self.executor.forward(&self.batch) {
            return Err(self.failed(error));
        }
        for (output, row) in rows.iter().enumerate() {
            let (view, tree) = (&views[row.view], &trees[row.view]);
            if let Some(sequence) = self.sequences.get_mut(&view.id) {
                sequence.ran(row.node, self.slots[output], tree.token(row.node));
            }
            tree.path(row.node, &mut self.path);
            self.read_logits(output, view, row.place)?;
        }
        Ok(())
    }
}
