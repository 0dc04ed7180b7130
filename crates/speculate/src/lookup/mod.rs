//! The drafter without a model: what followed the last time that the text went like this?
//!
//! Prompt lookup, with the longest match in place of one of fixed length: of the sequence's own text, prompt and
//! output, the longest suffix that has occurred before is found by a suffix automaton ([`automaton`]), and what
//! followed it is drafted (SuffixDecoding, 2411.04975, does so with a suffix tree of bounded depth). Copied, edited,
//! quoted and repeated text is drafted almost for nothing; other text has no match, no nodes, and costs nothing.
//!
//! - A node stands for the match with the path to the node behind it; its *cursor* is the automaton's state of that
//!   string, and its children are what has followed the string: ranked by how often, then by how lately. As soon as
//!   only one token has, which is soon, the walk is the pointer into the text that prompt lookup moves on.
//! - Where the text ends, the string is a suffix of the text, so what followed the text's longest match is drafted
//!   again: a period goes on for as long as a draft may be.
//! - How long a draft may be grows with the match ([`DRAFTED_FOR_A_MATCHED`]): one token that agrees proves little, a
//!   hundred prove a copy. The node budget bounds it as well.
//! - All children are deterministic: they depend on the text alone, so any verifier may prune or check them.
//!
//! The automaton reads emitted tokens only, so a rejected draft leaves no trace.

mod automaton;

use std::cmp::Reverse;
use std::collections::HashMap;

use automaton::{Continuation, MAX_TOKENS, StateId, SuffixAutomaton};
use foredraft_common::TokenId;

use crate::{
    AllowedTokens, DraftError, Drafter, NodeBudget, NodeIndex, SequenceId, SequenceView, TokenTree,
    Verdict,
};

/// The shortest match that is continued.
///
/// From replays of SmolLM2's greedy answers to 14 code edits, of Python source and of documentation, chains of up to 8
/// nodes, each step charged the T(M) of a 4-bit model on a CPU: the gains are 2.8, 1.5 and 1.5 from one token on, 2.7,
/// 1.4 and 1.4 from two, 2.4, 1.2 and 1.3 from four. One token is right less often, but then few are drafted.
const MIN_MATCH: u32 = 1;

/// How many tokens may be drafted for each token of the match: 2n for a match of n. In a copy the match grows by what
/// was accepted, so the limit triples from step to step and soon is none. (In the same replay 4n + 4 drafts more and
/// gains less.)
const DRAFTED_FOR_A_MATCHED: u32 = 2;

/// The longest draft, whatever the match: no step could check more to any use.
const LONGEST_DRAFT: u32 = 256;

/// The confidence of a child is below 1, however long the match.
const LONGEST_BELIEVED: u32 = 1 << 20;

/// The `lookup` drafter. See the module's text.
#[derive(Debug)]
pub struct Lookup {
    source: u8,
    sequences: HashMap<SequenceId, Sequence>,
    /// Scratch of a level: what could be added to a tree.
    candidates: Vec<Candidate>,
    /// Scratch of a node: what followed its string, the best first.
    ranked: Vec<Continuation>,
}

/// What is kept for a sequence.
#[derive(Debug)]
struct Sequence {
    /// Of its prompt and output.
    automaton: SuffixAutomaton,
    /// Where the root of this step's tree is; none when no match is long enough.
    root: Option<Cursor>,
    /// The nodes of the deepest level that this drafter has grown.
    frontier: Vec<(NodeIndex, Cursor)>,
}

/// Where a node is in what is known.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    state: StateId,
    /// Tokens of the node's string that have occurred before: the match, and the path from the root.
    len: u32,
    /// The product of the confidences on the path.
    value: f32,
}

/// A node that could be added.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// Its place among the candidates, by parent and rank: which of two equal ones comes first.
    place: usize,
    parent: NodeIndex,
    token: TokenId,
    confidence: f32,
    cursor: Cursor,
}

impl Lookup {
    /// A drafter whose nodes carry `source`.
    pub fn new(source: u8) -> Self {
        Self {
            source,
            sequences: HashMap::new(),
            candidates: Vec::new(),
            ranked: Vec::new(),
        }
    }

    /// Bytes of memory held for all sequences: some 100 for each of their tokens.
    pub fn bytes(&self) -> usize {
        let of_sequence = |sequence: &Sequence| {
            sequence.automaton.bytes()
                + sequence.frontier.capacity() * size_of::<(NodeIndex, Cursor)>()
        };
        self.sequences.values().map(of_sequence).sum::<usize>()
            + self.sequences.capacity() * size_of::<(SequenceId, Sequence)>()
            + self.candidates.capacity() * size_of::<Candidate>()
            + self.ranked.capacity() * size_of::<Continuation>()
    }
}

impl Drafter for Lookup {
    fn name(&self) -> &str {
        "lookup"
    }

    fn begin(&mut self, sequences: &[SequenceView<'_>]) -> Result<(), DraftError> {
        for view in sequences {
            let sequence = self.sequences.entry(view.id).or_insert_with(Sequence::new);
            sequence.read(view.tokens);
        }
        Ok(())
    }

    /// Adds one level to each tree: to the root the first time, then to the nodes of the level before. Of what could be
    /// added, a budget too small for all takes what is most probable, the path included.
    fn extend(
        &mut self,
        sequences: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        budgets: &[NodeBudget],
    ) -> Result<(), DraftError> {
        for ((view, tree), budget) in sequences.iter().zip(trees).zip(budgets) {
            let Some(sequence) = self.sequences.get_mut(&view.id) else {
                continue;
            };
            if budget.nodes == 0 || budget.width == 0 {
                continue;
            }
            self.candidates.clear();
            for &(node, cursor) in &sequence.frontier {
                if tree.sampled(node).is_some() || tree.depth(node) >= sequence.longest_draft() {
                    continue; // deterministic children come before sampled ones, or not at all
                }
                let cursor = sequence.wrapped(cursor);
                let total = rank(
                    sequence.automaton.continuations(cursor.state),
                    view.allowed,
                    budget.width,
                    &mut self.ranked,
                );
                for next in &self.ranked {
                    let place = self.candidates.len();
                    self.candidates
                        .push(candidate(place, node, cursor, next, total));
                }
            }
            sequence.frontier.clear();
            add_best(
                &mut self.candidates,
                tree,
                budget.nodes,
                self.source,
                &mut sequence.frontier,
            );
        }
        Ok(())
    }

    fn observe(&mut self, _: &[SequenceView<'_>], _: &[Verdict]) {}

    fn forget(&mut self, sequence: SequenceId) {
        self.sequences.remove(&sequence);
    }
}

impl Sequence {
    fn new() -> Self {
        Self {
            automaton: SuffixAutomaton::new(),
            root: None,
            frontier: Vec::new(),
        }
    }

    /// Reads what is new of the sequence's tokens (all, if they do not go on from those read before), and finds the
    /// root's cursor.
    fn read(&mut self, tokens: &[TokenId]) {
        self.frontier.clear();
        self.root = None;
        if tokens.len() > MAX_TOKENS {
            return;
        }
        // Comparing is a matter of microseconds even for a long text, and nothing else would notice a text that was
        // cut.
        if !tokens.starts_with(self.automaton.text()) {
            self.automaton.clear();
        }
        for &token in tokens.iter().skip(self.automaton.text().len()) {
            self.automaton.push(token);
        }
        let found = self.automaton.longest_match();
        if found.len >= MIN_MATCH {
            let cursor = Cursor {
                state: found.state,
                len: found.len,
                value: 1.0,
            };
            self.root = Some(cursor);
            self.frontier.push((NodeIndex::ROOT, cursor));
        }
    }

    /// The depth of the deepest node that the match is worth.
    fn longest_draft(&self) -> u32 {
        let matched = self.root.map_or(0, |cursor| cursor.len);
        matched
            .saturating_mul(DRAFTED_FOR_A_MATCHED)
            .min(LONGEST_DRAFT)
    }

    /// The cursor to go on from: at the end of the text that of the root, for the string of the node is then a suffix
    /// of the text, and the longest that something has followed is the match.
    fn wrapped(&self, cursor: Cursor) -> Cursor {
        match self.root {
            Some(root) if self.automaton.is_end(cursor.state) => Cursor {
                value: cursor.value,
                ..root
            },
            _ => cursor,
        }
    }
}

/// Writes into `ranked` the `most` best of the allowed continuations, the best first: what followed more often, then
/// what followed more lately. Returns how often any allowed one did.
fn rank(
    continuations: impl Iterator<Item = Continuation>,
    allowed: &AllowedTokens,
    most: usize,
    ranked: &mut Vec<Continuation>,
) -> u64 {
    ranked.clear();
    let mut total = 0;
    let worth = |next: &Continuation| (next.count, next.recent_end);
    for next in continuations.filter(|next| allowed.contains(next.token)) {
        total += u64::from(next.count);
        let place = ranked.partition_point(|better| worth(better) > worth(&next));
        if place < most {
            ranked.truncate(most - 1);
            ranked.insert(place, next);
        }
    }
    total
}

/// The child that a continuation would be. Its confidence is its share of all that followed, times len / (len + 1): of
/// a string that has occurred before, the longer the likelier it is that it goes on in the same way.
fn candidate(
    place: usize,
    parent: NodeIndex,
    cursor: Cursor,
    next: &Continuation,
    total: u64,
) -> Candidate {
    let len = cursor.len.min(LONGEST_BELIEVED) as f32;
    let share = next.count as f32 / total.max(1) as f32;
    let confidence = share * (len / (len + 1.0));
    Candidate {
        place,
        parent,
        token: next.token,
        confidence,
        cursor: Cursor {
            state: next.state,
            len: cursor.len.saturating_add(1),
            value: cursor.value * confidence,
        },
    }
}

/// Adds the best candidates to the tree, at most `most` new nodes, and puts the nodes of all that are in it now into
/// `frontier`.
fn add_best(
    candidates: &mut [Candidate],
    tree: &mut TokenTree,
    most: usize,
    source: u8,
    frontier: &mut Vec<(NodeIndex, Cursor)>,
) {
    // Values are not negative, so their bits are in their order.
    candidates.sort_unstable_by_key(|c| (Reverse(c.cursor.value.to_bits()), c.place));
    let most = tree.len().saturating_add(most);
    for c in candidates.iter() {
        // Another drafter of a mixture may have added the token before: then it is no new node.
        if tree.len() < most || tree.child_of(c.parent, c.token).is_some() {
            let node = tree.push(c.parent, c.token, source, c.confidence);
            frontier.push((node, c.cursor));
        }
    }
}

#[cfg(test)]
mod search;
#[cfg(test)]
mod tests;
