//! What a model drafter keeps for a sequence.

use foredraft_common::TokenId;
use foredraft_model::{PagePool, PageTables, SequenceIndex, Slot};
use foredraft_speculate::{
    Distribution, DraftDraw, NodeBudget, NodeIndex, SequenceView, TokenTree, Verdict, draw_children,
};

/// A sequence in the draft.
///
/// Invariant: `tokens` are those that the pages hold; all of them were emitted.
pub(super) struct Sequence {
    pub(super) tokens: Vec<TokenId>,
    pub(super) pages: PageTables,
    /// Whether the draft can read the text of this step, and has pages for it.
    pub(super) can_follow: bool,
    /// It goes without pages; what `Pages::released` was when none were to be had.
    pub(super) waits_since: Option<u64>,
    /// In the step's batch; none when nothing is (or no more is) drafted in this step.
    pub(super) index: Option<SequenceIndex>,
    /// Nodes that have been through the model in this step.
    in_flight: Vec<InFlight>,
    /// The deepest level that has been through the model: at first the root.
    level: Vec<NodeIndex>,
    /// One for each node of the level, and buffers behind them.
    leaves: Vec<Leaf>,
    /// Whether the children of the level have been drawn.
    is_drawn: bool,
    /// Scratch of a level that the budget cuts: the value, node and rank of each possible child.
    candidates: Vec<(f32, usize)>,
}

/// A node in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    node: NodeIndex,
    slot: Slot,
    token: TokenId,
}

/// What is known of a node that has been through the model.
pub(super) struct Leaf {
    /// The distribution of the token after it.
    pub(super) q: Distribution,
    /// Whether `q` is that; otherwise no token is possible.
    pub(super) is_known: bool,
}

impl Sequence {
    pub(super) fn new(groups: usize) -> Self {
        Self {
            tokens: Vec::new(),
            pages: PageTables::new(groups),
            can_follow: false,
            waits_since: None,
            index: None,
            in_flight: Vec::new(),
            level: Vec::new(),
            leaves: Vec::new(),
            is_drawn: false,
            candidates: Vec::new(),
        }
    }

    /// Bytes held beside the pages.
    pub(super) fn bytes(&self) -> usize {
        let support = |leaf: &Leaf| leaf.q.support().len() * size_of::<(TokenId, f32)>();
        let pages: usize = self.pages.tables().iter().map(Vec::capacity).sum();
        self.tokens.capacity() * size_of::<TokenId>()
            + pages * size_of::<foredraft_model::kv::PageId>()
            + self.leaves.iter().map(support).sum::<usize>()
    }

    /// Starts a step: keeps what the pages share with `text`, all but its last token, whose logits are wanted.
    pub(super) fn start(&mut self, text: &[TokenId], can_follow: bool, pools: &mut [PagePool]) {
        self.end_step();
        self.can_follow = can_follow;
        let both = self.tokens.iter().zip(text);
        let shared = both.take_while(|(a, b)| a == b).count();
        let keep = shared.min(text.len().saturating_sub(1));
        self.pages.truncate(keep, pools);
        self.tokens.truncate(keep);
        self.open_level(1);
        self.level.push(NodeIndex::ROOT);
    }

    /// The tokens of the text that have not been through the model; none when it cannot read them.
    pub(super) fn pending<'a>(&self, text: &'a [TokenId]) -> &'a [TokenId] {
        match self.can_follow {
            true => text.get(self.tokens.len()..).unwrap_or(&[]),
            false => &[],
        }
    }

    /// Whether all of the text has been through the model.
    pub(super) fn follows(&self, text: &[TokenId]) -> bool {
        self.can_follow && !text.is_empty() && self.tokens.len() == text.len()
    }

    /// Counts tokens as committed; their pages are reserved and written.
    pub(super) fn commit(&mut self, tokens: &[TokenId]) {
        self.tokens.extend_from_slice(tokens);
        self.pages.commit(tokens.len());
    }

    /// Writes the slots and tokens of the accepted nodes, as far as they have been through the model.
    pub(super) fn accept(
        &self,
        verdict: &Verdict,
        slots: &mut Vec<Slot>,
        tokens: &mut Vec<TokenId>,
    ) {
        slots.clear();
        tokens.clear();
        for &node in &verdict.accepted {
            let Some(found) = self.in_flight.iter().find(|ran| ran.node == node) else {
                break; // of the last level
            };
            slots.push(found.slot);
            tokens.push(found.token);
        }
    }

    /// Forgets the step.
    pub(super) fn end_step(&mut self) {
        self.index = None;
        self.in_flight.clear();
        self.level.clear();
    }

    /// Writes into `next` the nodes that must go through the model before more can be drawn: the children of the level,
    /// whoever drafted them, once it is drawn. None beyond a context of `context_tokens`.
    pub(super) fn next_level(
        &self,
        tree: &TokenTree,
        context_tokens: usize,
        next: &mut Vec<NodeIndex>,
    ) {
        next.clear();
        if !self.is_drawn || self.index.is_none() {
            return;
        }
        // A node of depth d stands d behind the root, which is the last of the committed tokens.
        let depth = self.level.first().map_or(0, |&node| tree.depth(node)) as usize + 1;
        if self.tokens.len() + depth <= context_tokens {
            let children = self.level.iter().flat_map(|&node| tree.children(node));
            next.extend(children);
        }
    }

    /// Makes `level` the one to be drawn next; its leaves are filled by the passes to come.
    pub(super) fn open(&mut self, level: &[NodeIndex]) {
        self.open_level(level.len());
        self.level.extend_from_slice(level);
    }

    fn open_level(&mut self, nodes: usize) {
        self.level.clear();
        self.is_drawn = false;
        while self.leaves.len() < nodes {
            self.leaves.push(Leaf {
                q: Distribution::one_hot(TokenId(0)),
                is_known: false,
            });
        }
        for leaf in &mut self.leaves {
            leaf.is_known = false;
        }
    }

    /// What is known of the node at `place` of the level.
    ///
    /// # Panics
    /// When the level has no such place.
    pub(super) fn leaf_mut(&mut self, place: usize) -> &mut Leaf {
        &mut self.leaves[place]
    }

    /// Where a node's keys and values are; none for the root, whose are in the pages.
    pub(super) fn slot(&self, node: NodeIndex) -> Option<Slot> {
        let found = self.in_flight.iter().find(|ran| ran.node == node);
        found.map(|ran| ran.slot)
    }

    /// Notes that a node has been through the model.
    pub(super) fn ran(&mut self, node: NodeIndex, slot: Slot, token: TokenId) {
        self.in_flight.push(InFlight { node, slot, token });
    }

    /// Draws the children of the level, if they are not drawn yet.
    ///
    /// Sampled: each node gets equally many, as many as the budget allows for all, for how many there are must not
    /// depend on what is drawn. Otherwise a budget that is too small takes the most probable children, each with the
    /// path to it.
    pub(super) fn draw(
        &mut self,
        view: &SequenceView<'_>,
        tree: &mut TokenTree,
        budget: NodeBudget,
        source: u8,
    ) {
        let nodes = self.level.len();
        if self.is_drawn || self.index.is_none() || nodes == 0 || budget.nodes == 0 {
            return;
        }
        let is_sampled = matches!(view.draw, DraftDraw::Sampled(_));
        let widths = match (is_sampled, nodes.saturating_mul(budget.width)) {
            (true, _) => vec![budget.width.min(budget.nodes / nodes); nodes],
            (false, most) if most <= budget.nodes => vec![budget.width; nodes],
            (false, _) => self.most_probable(tree, budget),
        };
        for ((&node, leaf), width) in self.level.iter().zip(&self.leaves).zip(widths) {
            // Whoever has sampled there was the only one who could.
            if leaf.is_known && tree.sampled(node).is_none() {
                draw_children(tree, node, &leaf.q, view.draw, width, view.key, source);
            }
        }
        self.is_drawn = budget.width > 0;
    }

    /// How many children each node of the level gets when only the most probable of all fit: a child's value is the
    /// product of the confidences on the path to it. With a coupled draw the child of rank r stands for the token of
    /// rank r, which it usually is.
    fn most_probable(&mut self, tree: &TokenTree, budget: NodeBudget) -> Vec<usize> {
        self.candidates.clear();
        for (place, (&node, leaf)) in self.level.iter().zip(&self.leaves).enumerate() {
            if !leaf.is_known {
                continue;
            }
            let path = std::iter::successors(Some(node), |&node| tree.parent(node));
            let value: f32 = path.map(|node| tree.node(node).confidence).product();
            let start = self.candidates.len();
            let of = |&p: &f32| (value * p, place);
            self.candidates
                .extend(leaf.q.probabilities().iter().map(of));
            let own = &mut self.candidates[start..];
            if own.len() > budget.width {
                own.select_nth_unstable_by(budget.width, |a, b| b.0.total_cmp(&a.0));
                self.candidates.truncate(start + budget.width);
            }
        }
        // By value, then in the order of the level. Of one node the values of its ranks descend, so what is taken
        // are its first ranks.
        self.candidates
            .sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut widths = vec![0; self.level.len()];
        for &(_, place) in self.candidates.iter().take(budget.nodes) {
            widths[place] += 1;
        }
        widths
    }
}
