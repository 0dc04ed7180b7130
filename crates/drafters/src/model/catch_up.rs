//! Catching up: emitted tokens that are not in the draft's pages yet.

use foredraft_model::Commit;
use foredraft_speculate::{DraftError, SequenceView};

use super::ModelDrafter;

/// What a sequence has in a pass.
struct Part {
    /// Index of the sequence in the call.
    view: usize,
    rows: usize,
    /// Which output of the pass is the root's, if the pass reaches it.
    root: Option<usize>,
}

impl ModelDrafter {
    /// Starts a step of the sequences, and brings all of their tokens into pages, as far as there are any; keeps the
    /// distributions after the last tokens, if they are wanted.
    pub(super) fn catch_up(
        &mut self,
        views: &[SequenceView<'_>],
        wants_roots: bool,
    ) -> Result<(), DraftError> {
        for view in views {
            self.start(view);
        }
        while self
            .read_pending(views, wants_roots)
            .inspect_err(|_| self.release_reservations())?
        {}
        Ok(())
    }

    /// Runs one pass over pending tokens of all sequences, as many as fit, and commits them; gives `false` when none
    /// are pending. All of them were emitted, so nothing stays in flight.
    fn read_pending(
        &mut self,
        views: &[SequenceView<'_>],
        wants_roots: bool,
    ) -> Result<bool, DraftError> {
        let parts = self.schedule_pending(views, wants_roots);
        if parts.is_empty() {
            return Ok(false);
        }
        if let Err(error) = self.executor.forward(&self.batch) {
            return Err(self.failed(error));
        }
        let mut first = 0;
        for part in &parts {
            let view = &views[part.view];
            let slots = &self.slots[first..first + part.rows];
            first += part.rows;
            if let Some(sequence) = self.sequences.get_mut(&view.id) {
                let committed = sequence.pages.committed();
                self.executor.commit(Commit {
                    slots,
                    committed,
                    tables: sequence.pages.tables(),
                });
                sequence.commit(&view.tokens[committed..committed + part.rows]);
                self.pages.show(sequence, committed);
            }
        }
        // Rows may be refused only now that all parts are committed.
        self.path.clear();
        for part in &parts {
            if let Some(output) = part.root {
                self.read_logits(output, &views[part.view], 0)?;
            }
        }
        Ok(true)
    }

    /// Fills batch and slots with pending tokens, whose pages are reserved.
    fn schedule_pending(&mut self, views: &[SequenceView<'_>], wants_roots: bool) -> Vec<Part> {
        let max_rows = self.options.max_rows.min(self.options.max_slots);
        let mut parts: Vec<Part> = Vec::new();
        self.batch.clear();
        self.slots.clear();
        for (v, view) in views.iter().enumerate() {
            let Some(sequence) = self.sequences.get_mut(&view.id) else {
                continue;
            };
            let pending = sequence.pending(view.tokens);
            let outputs = self.batch.outputs().len();
            let mut rows = pending.len().min(max_rows - self.slots.len());
            if wants_roots && rows == pending.len() && outputs == self.options.max_outputs {
                rows = rows.saturating_sub(1); // its root in the next pass
            }
            if rows == 0 {
                continue;
            }
            let tables = sequence.pages.tables().iter().map(Vec::as_slice);
            let index = self.batch.add_sequence(sequence.pages.committed(), tables);
            let mut parent = None;
            for (i, &token) in pending[..rows].iter().enumerate() {
                let is_root = wants_roots && i + 1 == pending.len();
                let slot = self.batch.push(index, token, parent, is_root);
                self.slots.push(slot);
                parent = Some(slot);
            }
            parts.push(Part {
                view: v,
                rows,
                root: (wants_roots && rows == pending.len()).then_some(outputs),
            });
        }
        parts
    }

    /// After a failure: no table covers more than its committed tokens.
    fn release_reservations(&mut self) {
        for sequence in self.sequences.values_mut() {
            let committed = sequence.pages.committed();
            sequence.pages.truncate(committed, &mut self.pages.pools);
        }
    }
}
