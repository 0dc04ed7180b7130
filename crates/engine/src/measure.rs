//! Measurements that a benchmark takes: a single pass of any shape, and a cold start.

use std::ops::ControlFlow;
use std::time::Instant;

use foredraft_common::TokenId;
use foredraft_model::PartTime;

use crate::answer::SEQUENCE;
use crate::engine::{Engine, EngineError};

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
        self.executor.time_parts(true);
        for _ in 0..passes {
            self.time_pass(context, rows)?;
        }
        let average = |time: &PartTime| PartTime {
            part: time.part,
            seconds: time.seconds / passes as f64,
            waiting_seconds: time.waiting_seconds / passes as f64,
        };
        let times = self.executor.part_times().iter().map(average).collect();
        self.executor.time_parts(false);
        Ok(times)
    }

    /// Forgets the last sequence: the next prompt is read from its first token on.
    pub fn forget(&mut self) {
        self.sequence.restart(&[], &mut self.pools);
        self.drafters.forget(SEQUENCE);
    }

    /// Seconds of one pass over `rows` new tokens, all logits asked for, after `context` tokens. Nothing is committed.
    ///
    /// # Errors
    /// When the pass is larger than what was reserved.
    pub fn time_pass(&mut self, context: usize, rows: usize) -> Result<f64, EngineError> {
        let filler = |i: usize| TokenId((i * 31 % self.tokenizer().vocabulary_len()) as u32);
        let prompt: Vec<TokenId> = (0..context + 1).map(filler).collect();
        let tokens: Vec<TokenId> = (context..context + rows).map(filler).collect();
        if self.sequence.committed() < context
            || self.sequence.tokens()[..context] != prompt[..context]
        {
            self.sequence.restart(&prompt[..context], &mut self.pools);
            // Reading is all that is wanted: nobody is told.
            let _ = self.prefill(0, &mut |_| ControlFlow::Continue(()))?;
        }
        self.batch.clear();
        let tables = self.sequence.tables().iter().map(Vec::as_slice);
        let index = self.batch.add_sequence(context, tables);
        let mut parent = None;
        for token in tokens {
            parent = Some(self.batch.push(index, token, parent, true));
        }
        let start = Instant::now();
        self.executor.forward(&self.batch)?;
        Ok(start.elapsed().as_secs_f64())
    }
}
