//! A request's own part of a step: what the model's rows say of its tree, told token by token.
//!
//! Everything here belongs to one request. An error in it, or a panic, ends that request and no other.

use std::ops::ControlFlow;

use foredraft_common::TokenId;
use foredraft_model::Executor;
use foredraft_speculate::{
    KeyedChance, LogSoftmax, LogitsTarget, NodeIndex, Origin, TargetBuffers, VerifyError,
};

use crate::engine::Model;
use crate::error::EngineError;
use crate::request::{Event, FinishReason, Phases, StepReport, TokenLogprob, TokenOrigin};
use crate::step::{Clock, OnEvent};
use crate::task::{Part, Task};

/// What the requests of a step use one after the other.
pub(crate) struct Turn<'s> {
    pub(crate) model: &'s Model,
    pub(crate) buffers: &'s mut TargetBuffers,
    pub(crate) on_event: OnEvent<'s>,
    pub(crate) clock: &'s mut Clock,
    pub(crate) phases: &'s mut Phases,
}

impl Turn<'_> {
    /// Tells how far the text is read; where its end was in the pass, verifies and emits. Tells why the answer ends, if it
    /// does.
    pub(crate) fn answer(&mut self, task: &mut Task) -> Result<Option<FinishReason>, EngineError> {
        if task.answer.tokens.is_empty() {
            let done = task.sequence.committed() + task.part.share.rows;
            let total = task.sequence.tokens().len();
            if self.tell(task, Event::Prefill { done, total }).is_break() {
                return Ok(Some(FinishReason::Cancelled));
            }
        }
        if !task.part.has_root {
            return Ok(None);
        }
        if task.answer.only_reads() {
            return Ok(Some(FinishReason::MaxTokens));
        }
        self.phases.other_seconds += self.clock.lap();
        self.verify(task)?;
        self.phases.verify_seconds += self.clock.lap();
        let finish = self.emit(task)?;
        task.count();
        let report = StepReport {
            tree: &task.part.tree,
            verdict: &task.part.verdict,
            emitted: task.part.emitted,
            phases: *self.phases,
        };
        let wants_more = self.tell(task, Event::Step(report)).is_continue();
        Ok(finish.or((!wants_more).then_some(FinishReason::Cancelled)))
    }

    fn tell(&mut self, task: &Task, event: Event<'_>) -> ControlFlow<()> {
        (self.on_event)(task.id, event)
    }

    /// Finds the accepted path and the token that follows it.
    fn verify(&mut self, task: &mut Task) -> Result<(), EngineError> {
        let position = task.sequence.tokens().len();
        let mut chance = KeyedChance(task.answer.key(position));
        let Part {
            tree,
            verdict,
            outputs,
            ..
        } = &mut task.part;
        let executor = &*self.model.executor;
        let answer = &mut task.answer;
        let mut target = LogitsTarget {
            sampling: &answer.request.sampling,
            history: &answer.history,
            allowed: &self.model.allowed,
            row: |node| row(executor, outputs, node),
            buffers: self.buffers,
        };
        let result = answer
            .verifier
            .verify(tree, &mut target, &mut chance, verdict);
        result.map_err(
            |VerifyError::Distribution { depth, source }| EngineError::Logits {
                position: position + depth as usize,
                source,
            },
        )
    }

    /// Emits the accepted tokens and the one after them, until the answer ends: exactly where it would have ended, had they
    /// come one at a time. Tells why it ends.
    fn emit(&mut self, task: &mut Task) -> Result<Option<FinishReason>, EngineError> {
        let before = task.sequence.tokens().len();
        let last = match (task.part.tree.len(), task.part.verdict.origin) {
            (1, _) => TokenOrigin::Plain,
            (_, Origin::Corrected) => TokenOrigin::Corrected,
            (_, Origin::Bonus) => TokenOrigin::Bonus,
        };
        let mut from = NodeIndex::ROOT;
        loop {
            let Part {
                tree,
                verdict,
                outputs,
                emitted,
                ..
            } = &mut task.part;
            let drafted = verdict.accepted.get(*emitted).copied();
            let (token, origin) = match drafted {
                Some(node) => (tree.token(node), TokenOrigin::Accepted),
                None => (verdict.next, last),
            };
            if let Some(top) = task.answer.request.logprobs {
                let row = row(&*self.model.executor, outputs, from);
                let logprob = self.model.logprob(row, token, top);
                let position = before + *emitted;
                let logprob = logprob.map_err(|source| EngineError::Logits { position, source })?;
                task.answer.logprobs.push(logprob);
            }
            task.answer.tokens.push(token);
            *emitted += 1;
            let len = before + *emitted;
            let finish = self.emit_token(task, token, origin, len);
            match drafted {
                Some(node) if finish.is_none() => from = node,
                _ => return Ok(finish),
            }
        }
    }

    /// Emits a token, the sequence's number `len`; tells why the answer ends with it, if it does.
    fn emit_token(
        &mut self,
        task: &mut Task,
        token: TokenId,
        origin: TokenOrigin,
        len: usize,
    ) -> Option<FinishReason> {
        let logprob = task.answer.logprobs.last();
        let event = Event::Token {
            token,
            origin,
            logprob,
        };
        let mut cancelled = self.tell(task, event).is_break();
        if self.model.tokenizer.is_end_of_text(token) {
            return Some(FinishReason::EndOfText);
        }
        let stopped = task.answer.output.push(token);
        let fresh = task.answer.output.fresh();
        cancelled |= !fresh.is_empty() && (self.on_event)(task.id, Event::Text(fresh)).is_break();
        let most = task.answer.request.max_tokens;
        if stopped {
            Some(FinishReason::StopString)
        } else if cancelled {
            Some(FinishReason::Cancelled)
        } else if most.is_some_and(|most| task.answer.tokens.len() >= most) {
            Some(FinishReason::MaxTokens)
        } else if len >= self.model.options.context_tokens {
            Some(FinishReason::Context)
        } else {
            None
        }
    }
}

impl Model {
    /// What the row that `token` was chosen from says of it.
    fn logprob(
        &self,
        row: &[f32],
        token: TokenId,
        top: usize,
    ) -> Result<TokenLogprob, foredraft_speculate::DistributionError> {
        // Without the padding behind the vocabulary, which may hold any value.
        let row = &row[..self.tokenizer.vocabulary_len().min(row.len())];
        let softmax = LogSoftmax::new(row)?;
        Ok(TokenLogprob {
            log_probability: softmax.log_probability(token),
            top: softmax.top(top),
        })
    }
}

/// The logits of the token after `node`.
fn row<'r>(executor: &'r dyn Executor, outputs: &[usize], node: NodeIndex) -> &'r [f32] {
    executor.logits(outputs[node.index()])
}
