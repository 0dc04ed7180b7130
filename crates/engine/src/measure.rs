//! Measurements that a benchmark takes: a single pass of any shape.

use std::time::Instant;

use foredraft_common::TokenId;
use foredraft_model::PartTime;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::sequence::Sequence;

impl Engine {
    /// Seconds of each part of a pass over `rows` new tokens after `context`, on average over `passes` of them.
    ///
    /// # Errors
    /// When the pass is larger than what was reserved.
    pub fn time_parts(
        &mut self,
        context: usize,
        rows: usize,
        passes: usize,
    ) -> Result<Vec<PartTime>, EngineError> {
        self.time_pass(context, rows)?;
        self.model.executor.time_parts(true);
        for _ in 0..passes {
            self.time_pass(context, rows)?;
        }
        let average = |time: &PartTime| PartTime {
            part: time.part,
            seconds: time.seconds / passes as f64,
            waiting_seconds: time.waiting_seconds / passes as f64,
        };
        let executor = &mut self.model.executor;
        let times = executor.part_times().iter().map(average).collect();
        executor.time_parts(false);
        Ok(times)
    }

    /// Seconds of one pass over `rows` new tokens, all logits asked for, after `context` tokens. Nothing is committed but the
    /// context, whose pages are held until [`Engine::forget`] or the next request. For an engine that answers nobody.
    ///
    /// # Errors
    /// When the pass is larger than what was reserved.
    pub fn time_pass(&mut self, context: usize, rows: usize) -> Result<f64, EngineError> {
        let vocabulary = self.tokenizer().vocabulary_len();
        let filler = |i: usize| TokenId((i * 31 % vocabulary) as u32);
        if self.timed.committed() != context {
            self.read_filler((0..context).map(filler).collect())?;
        }
        self.batch.clear();
        let tables = self.timed.tables().iter().map(Vec::as_slice);
        let index = self.batch.add_sequence(context, tables);
        let mut parent = None;
        for token in (context..context + rows).map(filler) {
            parent = Some(self.batch.push(index, token, parent, true));
        }
        let start = Instant::now();
        self.model.executor.forward(&self.batch)?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Reads a text chunk by chunk into pages of its own.
    fn read_filler(&mut self, tokens: Vec<TokenId>) -> Result<(), EngineError> {
        self.pages.release(&mut self.timed, false);
        self.timed = Sequence::new(tokens, self.pages.groups());
        let executor = &mut *self.model.executor;
        let mut slots = Vec::new();
        while !self.timed.pending().is_empty() {
            let rows = self.timed.pending().len().min(self.model.options.max_rows);
            self.batch.clear();
            slots.clear();
            let tables = self.timed.tables().iter().map(Vec::as_slice);
            let index = self.batch.add_sequence(self.timed.committed(), tables);
            for &token in &self.timed.pending()[..rows] {
                let parent = slots.last().copied();
                slots.push(self.batch.push(index, token, parent, false));
            }
            if !self.pages.reserve(&mut self.timed, rows, executor) {
                let pages = self.pages.smallest_pool();
                return Err(EngineError::Pages { pages });
            }
            executor.forward(&self.batch)?;
            self.pages.commit(&mut self.timed, &slots, executor);
        }
        Ok(())
    }
}
