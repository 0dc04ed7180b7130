//! A request in the engine, and what it has in a step.

use foredraft_common::TokenId;
use foredraft_model::{Batch, Slot};
use foredraft_speculate::{AllowedTokens, SequenceId, SequenceView, TokenTree, Verdict};

use crate::answer::Answer;
use crate::drafting::{Lane, Limits};
use crate::error::EngineError;
use crate::request::{FinishReason, RequestId};
use crate::scheduler::{Share, Want};
use crate::sequence::Sequence;

/// A request that waits, without pages, or runs.
pub(crate) struct Task {
    pub(crate) id: RequestId,
    pub(crate) answer: Answer,
    pub(crate) sequence: Sequence,
    /// Steps in a row that had no row for it.
    waited: u32,
    /// Which drafters failed for it, by their number.
    failed_drafters: Vec<bool>,
    pub(crate) part: Part,
    /// Why it ends with the step at hand, if it does.
    pub(crate) end: Option<Result<FinishReason, EngineError>>,
}

/// What a task has in the step at hand. The buffers are kept from step to step.
pub(crate) struct Part {
    /// How far its tree may grow.
    pub(crate) limits: Limits,
    pub(crate) share: Share,
    /// Whether its root is in the pass: all that was pending.
    pub(crate) has_root: bool,
    pub(crate) tree: TokenTree,
    pub(crate) verdict: Verdict,
    /// Tokens emitted.
    pub(crate) emitted: usize,
    /// The slots of pending tokens; then of all that is to be committed.
    pub(crate) slots: Vec<Slot>,
    /// Of each node of the tree its slot, if it is in the pass, and its output.
    pub(crate) node_slots: Vec<Option<Slot>>,
    pub(crate) outputs: Vec<usize>,
}

impl Task {
    pub(crate) fn new(id: RequestId, answer: Answer, groups: usize) -> Self {
        Self {
            sequence: Sequence::new(answer.request.prompt.clone(), groups),
            id,
            answer,
            waited: 0,
            failed_drafters: Vec::new(),
            part: Part {
                limits: Limits::default(),
                share: Share::default(),
                has_root: false,
                tree: TokenTree::new(TokenId(0)),
                verdict: Verdict::new(),
                emitted: 0,
                slots: Vec::new(),
                node_slots: Vec::new(),
                outputs: Vec::new(),
            },
            end: None,
        }
    }

    /// How drafters know its sequence: as no other of this engine, ever.
    pub(crate) fn sequence_id(&self) -> SequenceId {
        SequenceId(self.id.0)
    }

    /// What it wants of the next pass in a context of `context` tokens: no tree deeper than what can still be emitted.
    pub(crate) fn want(&mut self, context: usize) -> Want {
        let speculation = &self.answer.request.speculation;
        let remaining = self.answer.remaining(self.sequence.tokens().len(), context);
        // The last token that may be emitted needs no node: the target chooses it anyway.
        let depth = remaining.saturating_sub(1);
        let asked = match self.answer.is_speculative() {
            true => speculation.nodes(),
            false => 0,
        };
        let nodes = match (depth, speculation.tree.is_chain()) {
            (0, _) => 0,
            (_, true) => asked.min(depth),
            (_, false) => asked,
        };
        self.part.limits = Limits {
            shape: speculation.tree,
            nodes,
            depth,
        };
        Want {
            pending: self.sequence.pending().len(),
            nodes,
            whole: self.answer.whole_trees,
            waited: self.waited,
        }
    }

    /// Takes its share of the pass.
    pub(crate) fn take(&mut self, share: Share) {
        let part = &mut self.part;
        part.share = share;
        part.limits.nodes = share.nodes;
        part.has_root = share.rows == self.sequence.pending().len();
        part.emitted = 0;
        part.verdict.accepted.clear();
        // A sequence has a token: the prompt is not empty.
        let root = self.sequence.tokens().last().copied();
        part.tree.reset(root.unwrap_or(TokenId(0)));
        self.waited = match share.rows {
            0 => self.waited.saturating_add(1),
            _ => 0,
        };
    }

    /// Positions that may be committed after the step.
    pub(crate) fn reach(&self) -> usize {
        self.part.share.rows + self.part.limits.levels()
    }

    /// Whether it is in the pass.
    pub(crate) fn runs(&self) -> bool {
        self.part.share.rows > 0
    }

    /// Whether drafters are asked for it in this step.
    pub(crate) fn drafts(&self) -> bool {
        self.part.has_root && self.answer.is_speculative()
    }

    /// Whether it reads a text on in this step that will be drafted behind.
    pub(crate) fn reads_on(&self) -> bool {
        let is_behind = self.runs() && !self.part.has_root;
        is_behind && self.answer.is_speculative() && self.part.limits.depth > 0
    }

    /// As those see it who draft for it: its text, as far as it is read with this step, and the tree that they are to grow.
    pub(crate) fn lane<'a>(&'a mut self, allowed: &'a AllowedTokens) -> Lane<'a> {
        let id = self.sequence_id();
        let read = self.sequence.committed() + self.part.share.rows;
        Lane {
            view: self
                .answer
                .view(id, &self.sequence.tokens()[..read], allowed),
            limits: self.part.limits,
            tree: &mut self.part.tree,
            failed: &mut self.failed_drafters,
        }
    }

    /// What those who drafted for it are told of the step.
    pub(crate) fn outcome<'a>(
        &'a mut self,
        allowed: &'a AllowedTokens,
    ) -> (SequenceView<'a>, &'a mut Verdict) {
        let id = self.sequence_id();
        let view = self.answer.view(id, self.sequence.tokens(), allowed);
        (view, &mut self.part.verdict)
    }

    /// Adds its pending tokens and nodes to a pass.
    ///
    /// A token that may not be emitted has p = 0 and is never accepted, so its row (and what follows it) is left out: it
    /// may not even have an embedding. It stays in the tree, for what was drawn must not change the tree.
    pub(crate) fn add_rows(&mut self, batch: &mut Batch, allowed: &AllowedTokens) {
        let part = &mut self.part;
        part.slots.clear();
        part.node_slots.clear();
        part.outputs.clear();
        let tables = self.sequence.tables().iter().map(Vec::as_slice);
        let index = batch.add_sequence(self.sequence.committed(), tables);
        let pending = &self.sequence.pending()[..part.share.rows];
        for (i, &token) in pending.iter().enumerate() {
            let parent = part.slots.last().copied();
            let is_root = part.has_root && i + 1 == pending.len();
            part.slots.push(batch.push(index, token, parent, is_root));
        }
        if !part.has_root {
            return;
        }
        part.node_slots.push(part.slots.last().copied());
        part.outputs.push(batch.outputs().len() - 1);
        for node in part.tree.nodes().skip(1) {
            let token = part.tree.token(node);
            let parent = part.node_slots[part.tree.node(node).parent.index()];
            let slot = parent
                .filter(|_| allowed.contains(token))
                .map(|parent| batch.push(index, token, Some(parent), true));
            part.node_slots.push(slot);
            part.outputs.push(batch.outputs().len() - 1);
        }
    }

    /// Counts what speculation did in the step.
    pub(crate) fn count(&mut self) {
        let Part {
            tree,
            verdict,
            emitted,
            ..
        } = &self.part;
        if let Some(figures) = &mut self.answer.figures {
            let depth = tree.nodes().map(|node| tree.depth(node)).max();
            let (drafted, depth) = (tree.len() - 1, depth.unwrap_or(0) as usize);
            let accepted = verdict.accepted.len().min(*emitted);
            figures.count(drafted, depth, accepted, *emitted);
        }
    }

    /// It ends with an error: nothing of the step counts.
    pub(crate) fn fail(&mut self, error: EngineError) {
        self.part.emitted = 0;
        self.part.verdict.accepted.clear();
        self.end = Some(Err(error));
    }

    /// Takes out of the verdict what was not emitted: the last token that was is the next root, whoever chose it.
    pub(crate) fn cut(&mut self) {
        let Part {
            tree,
            verdict,
            emitted,
            ..
        } = &mut self.part;
        let Some(last) = emitted.checked_sub(1) else {
            return;
        };
        if let Some(&node) = verdict.accepted.get(last) {
            verdict.next = tree.token(node);
            verdict.accepted.truncate(last);
        }
    }

    /// Takes the emitted tokens into the sequence, and the accepted nodes among what is to be committed.
    pub(crate) fn keep(&mut self) {
        let Self {
            answer,
            sequence,
            part,
            ..
        } = self;
        for &token in &answer.tokens[answer.tokens.len() - part.emitted..] {
            sequence.push(token);
            answer.history.push(token);
        }
        // An accepted node was in the pass: what was not has p = 0.
        let accepted = part.verdict.accepted.iter().map(|node| node.index());
        let slots = accepted.filter_map(|node| part.node_slots[node]);
        part.slots.extend(slots);
    }
}
