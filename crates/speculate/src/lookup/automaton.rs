//! The suffix automaton of a growing text of tokens: what has come before, and what followed it.
//!
//! The smallest automaton that reads exactly the substrings of the text (Blumer et al. 1985, "The smallest automaton
//! recognizing the subwords of a text"). A *state* stands for the substrings that end at the same positions; its
//! longest one has `len` tokens, and `link` leads to the state of the longest suffix that also ends elsewhere. So the
//! links of a state are its shorter and shorter suffixes, and an *edge* (state, token) leads to what follows. Of the
//! state of the whole text, `link` is therefore the longest suffix of the text that has occurred before: the match
//! that [`longest_match`](SuffixAutomaton::longest_match) gives without a search.
//!
//! **Counts.** A continuation is worth as much as it is frequent and recent, so each state carries how often its
//! substrings have occurred and where the last one ended. A new token adds one occurrence to *every* suffix, that is
//! to every state on the chain of links, and such a chain can be as long as the text (n equal tokens: n states), which
//! would cost n^2. Keeping them exact needs a dynamic tree of logarithmic cost and twice the memory. Here the walk
//! ends after the [`PROPAGATED`] longest suffixes instead, and what it does not reach stays as it was. That is sound:
//! a count is never too large, and a recent end is always an end, if not always the latest. And it is exact where it
//! matters: chains are two or three states long in source code and documentation (measured), only runs and short
//! periods have more than the limit, and what is left out of those is their short suffixes, which occur inside of the
//! long ones.
//!
//! **Cost.** A token takes O(1) steps amortised, plus at most [`PROPAGATED`]. For n tokens there are at most 2n states
//! of 24 bytes and 3n edges of 12 bytes: at most 88 bytes a token with the text itself, and up to twice that when a
//! vector has just doubled. (Measured on source code and on documentation: some 100 bytes held and 0.2 us a token.)
//! The edges of a state are a list; the few states with more than [`NARROW`] (the root and short, frequent suffixes)
//! have theirs in a hash table as well, some 30 bytes each. The table's hash is the standard library's keyed one, so
//! that no prompt can be built to collide.

use std::collections::HashMap;

use foredraft_common::TokenId;

/// How many suffixes of a new token's text, the longest first, are told of the new occurrence.
pub(super) const PROPAGATED: usize = 32;

/// How many edges a state may have before they are also found by hash.
const NARROW: u32 = 8;

/// How many edges of a state [`SuffixAutomaton::continuations`] gives: those that were seen first the latest. What has
/// been followed by more different tokens than this is no basis for a guess, and this bounds the time of one.
pub(super) const MOST_CONTINUATIONS: usize = 1024;

/// The most tokens of a text: 2n states and 3n edges still have 32-bit numbers.
pub(super) const MAX_TOKENS: usize = 1 << 30;

/// The number of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct StateId(u32);

/// The state of the empty string.
const ROOT: StateId = StateId(0);

/// The end of a list of edges.
const NO_EDGE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct State {
    /// Tokens of the longest substring that the state stands for.
    len: u32,
    /// The longest suffix that ends at more positions; the root's is the root.
    link: StateId,
    /// How often the substrings have occurred (at least; see the module's text).
    count: u32,
    /// Where the latest known occurrence ends: how many tokens of the text there are up to its last.
    recent_end: u32,
    /// The first of the list of edges, the newest.
    first_edge: u32,
    /// Edges in the list.
    degree: u32,
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    token: TokenId,
    target: StateId,
    next: u32,
}

/// The longest suffix of the text that has occurred before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) state: StateId,
    /// Tokens of the suffix; 0: there is none.
    pub(super) len: u32,
}

/// A token that has followed a substring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Continuation {
    pub(super) token: TokenId,
    /// The state of the substring with the token.
    pub(super) state: StateId,
    /// How often it has followed, at least 1.
    pub(super) count: u32,
    /// How many tokens of the text there are up to and with the latest known time. No two continuations of one
    /// substring have the same.
    pub(super) recent_end: u32,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub(super) struct SuffixAutomaton {
    text: Vec<TokenId>,
    states: Vec<State>,
    edges: Vec<Edge>,
    /// The edges of states with more than [`NARROW`].
    wide: HashMap<(StateId, TokenId), u32>,
    /// The state of the whole text. It alone has no edge.
    last: StateId,
    /// States and edges looked at, so that tests can bound the work.
    #[cfg(test)]
    pub(super) work: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl SuffixAutomaton {
    /// The automaton of the empty text.
    pub(super) fn new() -> Self {
        let mut automaton = Self {
            text: Vec::new(),
            states: Vec::new(),
            edges: Vec::new(),
            wide: HashMap::new(),
            last: ROOT,
            #[cfg(test)]
            work: Default::default(),
        };
        automaton.clear();
        automaton
    }

    /// Forgets the text and keeps the memory for the next one.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.states.clear();
        self.edges.clear();
        self.wide.clear();
        self.last = self.add_state(State {
            len: 0,
            link: ROOT,
            count: 0,
            recent_end: 0,
            first_edge: NO_EDGE,
            degree: 0,
        });
    }

    /// The text so far.
    pub(super) fn text(&self) -> &[TokenId] {
        &self.text
    }

    /// Bytes of memory held. The hash table is counted by its capacity, with one control byte an entry.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity() * size_of::<TokenId>()
            + self.states.capacity() * size_of::<State>()
            + self.edges.capacity() * size_of::<Edge>()
            + self.wide.capacity() * (size_of::<((StateId, TokenId), u32)>() + 1)
    }

    /// Adds a token to the text, which must have fewer than [`MAX_TOKENS`].
    pub(super) fn push(&mut self, token: TokenId) {
        debug_assert!(self.text.len() < MAX_TOKENS);
        self.text.push(token);
        let end = self.text.len() as u32;
        let new = self.add_state(State {
            len: end,
            link: ROOT,
            count: 1,
            recent_end: end,
            first_edge: NO_EDGE,
            degree: 0,
        });
        // Suffixes of the old text that `token` has never followed: now it has.
        let mut suffix = self.last;
        let known = loop {
            if let Some(edge) = self.find(suffix, token) {
                break Some(edge);
            }
            self.add_edge(suffix, token, new);
            if suffix == ROOT {
                break None;
            }
            suffix = self.state(suffix).link;
        };
        // The longest that it has followed before: with it, the longest suffix of the new text that is not new.
        if let Some(edge) = known {
            self.states[new.index()].link = self.state_of_exactly(suffix, edge);
        }
        self.last = new;
        self.tell_suffixes(end);
    }

    /// The longest suffix of the text that also ends earlier in it.
    pub(super) fn longest_match(&self) -> Match {
        let state = self.state(self.last).link;
        let len = self.state(state).len;
        Match { state, len }
    }

    /// Whether the substrings of `state` have occurred at the text's end only, so that nothing has followed them.
    pub(super) fn is_end(&self, state: StateId) -> bool {
        state == self.last
    }

    /// What has followed the substrings of `state`, each token once: the [`MOST_CONTINUATIONS`] that did so first the
    /// latest, in that order.
    pub(super) fn continuations(&self, state: StateId) -> impl Iterator<Item = Continuation> + '_ {
        self.edges_of(state)
            .take(MOST_CONTINUATIONS)
            .map(|(_, edge)| {
                let target = self.state(edge.target);
                Continuation {
                    token: edge.token,
                    state: edge.target,
                    count: target.count,
                    recent_end: target.recent_end,
                }
            })
    }

    /// The state that stands for the substring "the longest of `suffix`, then the token of `edge`" and its suffixes
    /// alone. If the edge's target stands for longer ones too, these no longer end at the same positions, as the new
    /// text ends with the short ones only: the short ones get a state of their own.
    fn state_of_exactly(&mut self, mut suffix: StateId, mut edge: u32) -> StateId {
        let Edge { token, target, .. } = self.edges[edge as usize];
        let len = self.state(suffix).len + 1;
        if self.state(target).len == len {
            return target;
        }
        // What it stands for has occurred, so far, where the target's has, and gone on in the same ways.
        let short = self.add_state(State {
            len,
            ..self.state(target)
        });
        self.copy_edges(target, short);
        self.states[target.index()].link = short;
        // The short ones are reached from `suffix` and its own suffixes.
        loop {
            self.edges[edge as usize].target = short;
            if suffix == ROOT {
                break;
            }
            suffix = self.state(suffix).link;
            match self.find(suffix, token) {
                Some(next) if self.edges[next as usize].target == target => edge = next,
                _ => break,
            }
        }
        short
    }

    /// Counts the occurrence that ends at the text's end for its longest suffixes but itself.
    fn tell_suffixes(&mut self, end: u32) {
        let mut suffix = self.state(self.last).link;
        for _ in 0..PROPAGATED {
            if suffix == ROOT {
                break;
            }
            self.tick();
            let state = &mut self.states[suffix.index()];
            state.count += 1;
            state.recent_end = end;
            suffix = state.link;
        }
    }

    /// The state with this number. Numbers come from this automaton only, which never drops a state.
    fn state(&self, id: StateId) -> State {
        self.states[id.index()]
    }

    fn add_state(&mut self, state: State) -> StateId {
        self.tick();
        self.states.push(state);
        StateId(self.states.len() as u32 - 1)
    }

    /// The edges of a state with their numbers, the newest first.
    fn edges_of(&self, state: StateId) -> impl Iterator<Item = (u32, Edge)> + '_ {
        let mut next = self.state(state).first_edge;
        std::iter::from_fn(move || {
            let number = next;
            let edge = *self.edges.get(number as usize)?; // NO_EDGE is beyond every edge
            self.tick();
            next = edge.next;
            Some((number, edge))
        })
    }

    /// The number of the edge of `state` with `token`.
    fn find(&self, state: StateId, token: TokenId) -> Option<u32> {
        self.tick();
        if self.state(state).degree > NARROW {
            return self.wide.get(&(state, token)).copied();
        }
        let found = self.edges_of(state).find(|(_, edge)| edge.token == token);
        found.map(|(number, _)| number)
    }

    /// Adds the edge, which must not be there, to the front of the list.
    fn add_edge(&mut self, id: StateId, token: TokenId, target: StateId) {
        let number = self.edges.len() as u32;
        let state = &mut self.states[id.index()];
        self.edges.push(Edge {
            token,
            target,
            next: state.first_edge,
        });
        state.first_edge = number;
        state.degree += 1;
        let degree = state.degree;
        if degree == NARROW + 1 {
            self.index_edges(id);
        } else if degree > NARROW {
            self.wide.insert((id, token), number);
        }
    }

    /// Gives `to`, which comes after all other edges were made, a list of its own like that of `from`.
    fn copy_edges(&mut self, from: StateId, to: StateId) {
        let first = self.edges.len() as u32;
        let mut next = self.state(from).first_edge;
        while let Some(&edge) = self.edges.get(next as usize) {
            self.tick();
            next = edge.next;
            let after = if next == NO_EDGE {
                NO_EDGE
            } else {
                self.edges.len() as u32 + 1
            };
            self.edges.push(Edge {
                next: after,
                ..edge
            });
        }
        // The target of a split has occurred before the text's end, so it has an edge.
        self.states[to.index()].first_edge = first;
        if self.state(to).degree > NARROW {
            self.index_edges(to);
        }
    }

    /// Enters all edges of a state that has become wide into the hash table.
    fn index_edges(&mut self, id: StateId) {
        let mut next = self.state(id).first_edge;
        while let Some(edge) = self.edges.get(next as usize) {
            self.wide.insert((id, edge.token), next);
            next = edge.next;
        }
    }

    /// Counts a step of work, in tests.
    #[inline(always)]
    fn tick(&self) {
        #[cfg(test)]
        self.work.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

impl StateId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests;
