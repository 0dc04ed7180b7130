//! One step: draft, run, verify, emit, keep. Plain decoding is the step whose tree has one node.
//!
//! ```text
//! draft    trees grow from the last token, level by level          nothing to do without drafters
//! run      ONE pass: pending tokens (their last is the root), then the nodes; logits of the root and of every node
//! verify   accepted path and one token of the target's own
//! emit     token by token, ended where plain decoding would have ended
//! keep     the accepted path is copied from the scratch to pages, never computed again; the rest is forgotten
//! ```
//!
//! Invariant: after a step the sequence holds what was emitted and no more, and its pages what plain decoding would have
//! in them: all of it but the last token, the next root.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use foredraft_common::TokenId;
use foredraft_model::{Commit, Executor};
use foredraft_speculate::{KeyedChance, LogSoftmax, LogitsTarget, NodeIndex, Origin, VerifyError};

use crate::answer::{Answer, SEQUENCE};
use crate::drafting::Limits;
use crate::engine::{Engine, EngineError};
use crate::request::{Event, FinishReason, Phases, StepReport, TokenLogprob, TokenOrigin};

/// Who hears of what happens, and may end the answer.
pub(crate) type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>) -> ControlFlow<()>;

impl Engine {
    /// Makes one step of an answer; tells why the answer ends with it, if it does.
    pub(crate) fn step(
        &mut self,
        answer: &mut Answer<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<Option<FinishReason>, EngineError> {
        let mut clock = Clock::start();
        let mut phases = Phases::default();
        let reads_prompt = answer.tokens.is_empty();
        self.draft(answer, on_event);
        phases.draft_seconds = clock.lap();
        self.run()?;
        phases.forward_seconds = clock.lap();
        let total = self.sequence.tokens().len();
        if reads_prompt && on_event(Event::Prefill { done: total, total }).is_break() {
            // The step has no end that drafters could be told of.
            self.drafters.forget(SEQUENCE);
            return Ok(Some(FinishReason::Cancelled));
        }
        phases.other_seconds = clock.lap();
        self.verify(answer)?;
        phases.verify_seconds = clock.lap();
        let (emitted, finish) = self.emit(answer, on_event)?;
        self.count(answer, emitted);
        let [tree] = &self.trees;
        let [verdict] = &self.verdicts;
        let report = StepReport {
            tree,
            verdict,
            emitted,
            phases,
        };
        let wants_more = on_event(Event::Step(report)).is_continue();
        phases.other_seconds += clock.lap();
        self.cut(emitted);
        self.observe(answer);
        phases.draft_seconds += clock.lap();
        self.keep(answer, emitted)?;
        phases.other_seconds += clock.lap();
        answer.count(phases);
        Ok(finish.or((!wants_more).then_some(FinishReason::Cancelled)))
    }

    /// Grows the tree, no deeper than what can still be emitted and no larger than what one pass can take.
    fn draft(&mut self, answer: &Answer<'_>, on_event: OnEvent<'_>) {
        let tokens = self.sequence.tokens();
        let [tree] = &mut self.trees;
        // A sequence has a token: the prompt is not empty.
        tree.reset(tokens.last().copied().unwrap_or(TokenId(0)));
        if !answer.is_speculative() {
            return;
        }
        let context = self.options.context_tokens - tokens.len();
        let asked = answer.request.max_tokens.unwrap_or(usize::MAX);
        let remaining = context.min(asked - answer.tokens.len());
        let rows = self.options.max_rows - self.sequence.pending().len();
        let limits = Limits {
            shape: answer.request.speculation.tree,
            nodes: answer.request.speculation.nodes().min(rows),
            // The last token that may be emitted needs no node: the target chooses it anyway.
            depth: remaining.saturating_sub(1),
        };
        let views = [answer.view(&self.sequence, &self.allowed)];
        self.drafters
            .grow(limits, &views, &mut self.trees, &mut |error| {
                // The answer does not suffer, so whether more is wanted is asked elsewhere.
                let _ = on_event(Event::Warning(&error.to_string()));
            });
    }

    /// Runs pending tokens and nodes in one pass. Node `n`'s logits are output `self.outputs[n]`, its keys and values
    /// in slot `self.node_slots[n]`.
    ///
    /// A token that may not be emitted has p = 0 and is never accepted, so its row (and what follows it) is left out: it
    /// may not even have an embedding. It stays in the tree, for what was drawn must not change the tree.
    fn run(&mut self) -> Result<(), EngineError> {
        let [tree] = &self.trees;
        let batch = &mut self.batch;
        batch.clear();
        self.slots.clear();
        let tables = self.sequence.tables().iter().map(Vec::as_slice);
        let index = batch.add_sequence(self.sequence.committed(), tables);
        let pending = self.sequence.pending();
        for (i, &token) in pending.iter().enumerate() {
            let parent = self.slots.last().copied();
            let is_root = i + 1 == pending.len();
            self.slots.push(batch.push(index, token, parent, is_root));
        }
        self.node_slots.clear();
        self.outputs.clear();
        self.node_slots.push(self.slots.last().copied());
        self.outputs.push(0);
        for node in tree.nodes().skip(1) {
            let token = tree.token(node);
            let parent = self.node_slots[tree.node(node).parent.index()];
            let slot = parent
                .filter(|_| self.allowed.contains(token))
                .map(|parent| batch.push(index, token, Some(parent), true));
            self.node_slots.push(slot);
            self.outputs.push(batch.outputs().len() - 1);
        }
        self.executor.forward(batch)?;
        Ok(())
    }

    /// Finds the accepted path and the token that follows it.
    fn verify(&mut self, answer: &mut Answer<'_>) -> Result<(), EngineError> {
        let ([tree], [verdict]) = (&self.trees, &mut self.verdicts);
        let (executor, outputs) = (&*self.executor, &self.outputs);
        let position = self.sequence.tokens().len();
        let mut chance = KeyedChance(answer.key(position));
        let mut target = LogitsTarget {
            sampling: &answer.request.sampling,
            history: &answer.history,
            allowed: &self.allowed,
            row: |node| row(executor, outputs, node),
            buffers: &mut self.target,
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
    /// come one at a time. How many were emitted, and why the answer ends.
    fn emit(
        &self,
        answer: &mut Answer<'_>,
        on_event: OnEvent<'_>,
    ) -> Result<(usize, Option<FinishReason>), EngineError> {
        let ([tree], [verdict]) = (&self.trees, &self.verdicts);
        let before = self.sequence.tokens().len();
        let last = match (tree.len(), verdict.origin) {
            (1, _) => TokenOrigin::Plain,
            (_, Origin::Corrected) => TokenOrigin::Corrected,
            (_, Origin::Bonus) => TokenOrigin::Bonus,
        };
        let (mut from, mut emitted) = (NodeIndex::ROOT, 0);
        loop {
            let drafted = verdict.accepted.get(emitted).copied();
            let (token, origin) = match drafted {
                Some(node) => (tree.token(node), TokenOrigin::Accepted),
                None => (verdict.next, last),
            };
            if let Some(top) = answer.request.logprobs {
                let logprob = self.logprob(from, token, top, before + emitted)?;
                answer.logprobs.push(logprob);
            }
            answer.tokens.push(token);
            emitted += 1;
            let finish = self.emit_token(answer, (token, origin), before + emitted, on_event);
            match drafted {
                Some(node) if finish.is_none() => from = node,
                _ => return Ok((emitted, finish)),
            }
        }
    }

    /// Emits a token, the sequence's number `len`; tells why the answer ends with it, if it does.
    fn emit_token(
        &self,
        answer: &mut Answer<'_>,
        (token, origin): (TokenId, TokenOrigin),
        len: usize,
        on_event: OnEvent<'_>,
    ) -> Option<FinishReason> {
        let logprob = answer.logprobs.last();
        let event = Event::Token {
            token,
            origin,
            logprob,
        };
        let mut cancelled = on_event(event).is_break();
        if self.tokenizer().is_end_of_text(token) {
            return Some(FinishReason::EndOfText);
        }
        let stopped = answer.output.push(token);
        let fresh = answer.output.fresh();
        cancelled |= !fresh.is_empty() && on_event(Event::Text(fresh)).is_break();
        let most = answer.request.max_tokens;
        if stopped {
            Some(FinishReason::StopString)
        } else if cancelled {
            Some(FinishReason::Cancelled)
        } else if most.is_some_and(|most| answer.tokens.len() >= most) {
            Some(FinishReason::MaxTokens)
        } else if len >= self.options.context_tokens {
            Some(FinishReason::Context)
        } else {
            None
        }
    }

    /// What the row of `node`, the one that `token` at `position` was chosen from, says of it.
    fn logprob(
        &self,
        node: NodeIndex,
        token: TokenId,
        top: usize,
        position: usize,
    ) -> Result<TokenLogprob, EngineError> {
        // Without the padding behind the vocabulary, which may hold any value.
        let row = row(&*self.executor, &self.outputs, node);
        let row = &row[..self.tokenizer().vocabulary_len().min(row.len())];
        let softmax =
            LogSoftmax::new(row).map_err(|source| EngineError::Logits { position, source })?;
        Ok(TokenLogprob {
            log_probability: softmax.log_probability(token),
            top: softmax.top(top),
        })
    }

    fn count(&self, answer: &mut Answer<'_>, emitted: usize) {
        let ([tree], [verdict]) = (&self.trees, &self.verdicts);
        if let Some(figures) = &mut answer.figures {
            let depth = tree.nodes().map(|node| tree.depth(node)).max();
            let accepted = emitted.min(verdict.accepted.len());
            figures.count(
                tree.len() - 1,
                depth.unwrap_or(0) as usize,
                accepted,
                emitted,
            );
        }
    }

    /// Takes out of the verdict what was not emitted: the last token that was is the next root, whoever chose it.
    fn cut(&mut self, emitted: usize) {
        let ([tree], [verdict]) = (&self.trees, &mut self.verdicts);
        if let Some(&node) = verdict.accepted.get(emitted - 1) {
            verdict.next = tree.token(node);
            verdict.accepted.truncate(emitted - 1);
        }
    }

    /// Tells the drafters, whose views are still those of the step's start.
    fn observe(&mut self, answer: &Answer<'_>) {
        if answer.is_speculative() {
            let views = [answer.view(&self.sequence, &self.allowed)];
            self.drafters.observe(&views, &self.verdicts);
        }
    }

    /// Takes the emitted tokens into the sequence, and into pages the keys and values of all but the last.
    fn keep(&mut self, answer: &mut Answer<'_>, emitted: usize) -> Result<(), EngineError> {
        let [verdict] = &self.verdicts;
        for &token in &answer.tokens[answer.tokens.len() - emitted..] {
            self.sequence.push(token);
            answer.history.push(token);
        }
        // An accepted node was in the pass: what was not has p = 0.
        let accepted = verdict.accepted.iter().map(|node| node.index());
        let slots = accepted.filter_map(|node| self.node_slots[node]);
        self.slots.extend(slots);
        self.commit()
    }

    /// Copies the nodes in `self.slots`, which follow the committed tokens, from the scratch to pages.
    pub(crate) fn commit(&mut self) -> Result<(), EngineError> {
        let count = self.slots.len();
        if !self.sequence.reserve(count, &mut self.pools) {
            return Err(EngineError::Pages);
        }
        self.executor.commit(Commit {
            slots: &self.slots,
            committed: self.sequence.committed(),
            tables: self.sequence.tables(),
        });
        self.sequence.commit(count);
        Ok(())
    }
}

/// The logits of the token after `node`.
fn row<'r>(executor: &'r dyn Executor, outputs: &[usize], node: NodeIndex) -> &'r [f32] {
    executor.logits(outputs[node.index()])
}

/// Times one phase after the other.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Seconds since the last lap.
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let lap: Duration = now - self.0;
        self.0 = now;
        lap.as_secs_f64()
    }
}
