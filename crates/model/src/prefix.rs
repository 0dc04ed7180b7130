//! Which texts have their keys and values in pages already: a trie of pages.
//!
//! A node is up to 16 tokens that follow those of its parent, and a page of each layer group that holds their keys and
//! values. The cache is one of the page's holders; a sequence that begins with the same tokens becomes another.
//!
//! ```text
//! root -- [once upon a time ... 16 tokens] -- [there was a ... 16] -- [dog and 2 more]      a leaf may have fewer
//!                                         \-- [there lived ... 16]
//! ```
//!
//! Keys and values depend on the whole text up to their position (and on the model and the pages' type, but a cache
//! belongs to the pools of one model), so a page's key is the path to it. A chain of hashes is the usual short form of
//! that path; two texts whose hashes collide would share pages, and one would be answered with the other's context.
//! Here the tokens themselves are compared, so that cannot happen; a full page is found in one step all the same.
//!
//! A sequence may share the beginning of a page only: it holds the page as it is, and gets a copy once it writes behind
//! that beginning ([`PageTables::reserve`]).
//!
//! Invariants:
//! - a node's path is the text of its page, and the page is written as far as the node has tokens;
//! - no node's tokens begin with all those of another child of its parent, and only a leaf has fewer than 16;
//! - every node holds a page of each group, so that the cache is never larger than the pools.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foredraft_common::TokenId;

use crate::kv::{PAGE_POSITIONS, PageId};
use crate::pages::{PagePool, PageTables};

/// What a [`PrefixCache`] has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PrefixFigures {
    /// Texts looked up.
    pub lookups: u64,
    /// Tokens that could have been found: of each text as many as were asked for.
    pub tokens_asked: u64,
    /// Tokens that were found.
    pub tokens_found: u64,
    /// Pages, over all layer groups, that were let go of to make room.
    pub evicted_pages: u64,
}

/// The pages of texts of the past, for those to come. See the module's text.
#[derive(Debug)]
pub struct PrefixCache {
    groups: usize,
    /// The root, which has no page, and all others in no order.
    nodes: Vec<Node>,
    /// Places in `nodes` that are not used.
    vacant: Vec<NodeId>,
    /// The nodes with 16 tokens, by what they are: found in one step.
    full: HashMap<Key, NodeId>,
    /// All nodes, children of one node side by side in the order of their tokens.
    ordered: BTreeMap<Key, NodeId>,
    /// The nodes without children, by the time of their last use.
    leaves: BTreeSet<(u64, NodeId)>,
    /// Counts lookups and insertions.
    time: u64,
    figures: PrefixFigures,
}

/// An index into [`PrefixCache::nodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NodeId(u32);

const ROOT: NodeId = NodeId(0);

/// What a node is: its parent and its tokens.
type Key = (NodeId, Label);

/// Up to 16 tokens, ordered as words in a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Label {
    /// Filled up with the lowest id, so that the derived order is that of a dictionary.
    tokens: [TokenId; PAGE_POSITIONS],
    len: usize,
}

impl Label {
    /// A label of at most 16 tokens.
    fn new(tokens: &[TokenId]) -> Self {
        let mut label = Self {
            tokens: [TokenId(0); PAGE_POSITIONS],
            len: tokens.len(),
        };
        label.tokens[..tokens.len()].copy_from_slice(tokens);
        label
    }

    /// How many tokens both begin with.
    fn agreement(&self, other: &Self) -> usize {
        let both = self.tokens[..self.len]
            .iter()
            .zip(&other.tokens[..other.len]);
        both.take_while(|(a, b)| a == b).count()
    }
}

#[derive(Debug)]
struct Node {
    key: Key,
    /// One of each layer group.
    pages: Vec<PageId>,
    children: usize,
    /// When it was looked up or inserted last. No child's is later.
    used: u64,
}

impl PrefixCache {
    /// An empty cache over the pools of a program with `groups` layer groups.
    pub fn new(groups: usize) -> Self {
        Self {
            groups,
            nodes: vec![Node {
                key: (ROOT, Label::new(&[])),
                pages: Vec::new(),
                children: 0,
                used: 0,
            }],
            vacant: Vec::new(),
            full: HashMap::new(),
            ordered: BTreeMap::new(),
            leaves: BTreeSet::new(),
            time: 0,
            figures: PrefixFigures::default(),
        }
    }

    /// Pages held, over all layer groups.
    pub fn pages(&self) -> usize {
        self.ordered.len() * self.groups
    }

    /// What it has done so far.
    pub fn figures(&self) -> PrefixFigures {
        self.figures
    }

    /// A holder of the longest prefix of `tokens` that is here, of `most` tokens at most. Its last page may be used in
    /// part.
    pub fn lookup(
        &mut self,
        tokens: &[TokenId],
        most: usize,
        pools: &mut [PagePool],
    ) -> PageTables {
        self.time += 1;
        let asked = &tokens[..tokens.len().min(most)];
        let mut found = PageTables::new(self.groups);
        let mut node = ROOT;
        for chunk in asked.chunks(PAGE_POSITIONS) {
            let Some((child, agreement)) = self.closest(node, chunk) else {
                break;
            };
            self.touch(child);
            found.push_shared(&self.node(child).pages, agreement, pools);
            if agreement < PAGE_POSITIONS {
                break;
            }
            node = child;
        }
        self.figures.lookups += 1;
        self.figures.tokens_asked += asked.len() as u64;
        self.figures.tokens_found += found.committed() as u64;
        found
    }

    /// Becomes a holder of the pages of the committed tokens of a sequence whose text is `tokens`. Where the same text is
    /// here already, its pages stay, and the sequence's are not taken.
    pub fn insert(&mut self, tokens: &[TokenId], tables: &PageTables, pools: &mut [PagePool]) {
        self.time += 1;
        let committed = &tokens[..tables.committed().min(tokens.len())];
        let mut node = ROOT;
        for (place, chunk) in committed.chunks(PAGE_POSITIONS).enumerate() {
            let pages = tables.tables().iter().map(|table| table[place]);
            node = match self.closest(node, chunk) {
                Some((child, agreement)) if agreement == chunk.len() => child,
                // A leaf that the chunk begins with. There is no other such child, or one would begin with the other.
                Some((child, agreement)) if agreement == self.node(child).key.1.len => {
                    self.lengthen(child, chunk, pages.collect(), pools);
                    child
                }
                _ => self.add(node, chunk, pages.collect(), pools),
            };
            self.touch(node);
        }
    }

    /// Lets go of the least recently used leaves until every pool has `free` free pages; `true` when that is reached.
    ///
    /// A page that a sequence holds too is not freed by being let go of. It stays, unless pages that nobody else holds
    /// are before it, and nothing else is left to let go of. After a `false` every page that is still here is held by a
    /// sequence too; but when no pool is that large, nothing has changed.
    ///
    /// The time is that of a search among the leaves for every page let go of and for every leaf that a sequence holds: one
    /// for each sequence at most.
    pub fn evict(&mut self, free: usize, pools: &mut [PagePool]) -> bool {
        if pools.iter().any(|pool| pool.len() < free) {
            return false;
        }
        let mut held = Vec::new();
        while !have(free, pools)
            && let Some((used, leaf)) = self.leaves.pop_first()
        {
            match self.is_idle(leaf, pools) {
                true => _ = self.remove(leaf, pools),
                false => held.push((used, leaf)),
            }
        }
        self.leaves.extend(&held);
        for (_, leaf) in held {
            self.evict_before(leaf, free, pools);
        }
        have(free, pools)
    }

    /// Lets go of what is needed for `tables` to reserve `more` tokens; `true` when they can.
    ///
    /// It is more than [`PrefixCache::evict`] in one case: the last page of `tables` is held by the cache too, and there is
    /// none to copy it to. The cache then lets go of it, and the sequence can write in place. So a sequence that is alone
    /// can always grow as far as the pools reach.
    pub fn make_room(&mut self, tables: &PageTables, more: usize, pools: &mut [PagePool]) -> bool {
        if self.evict(tables.needs(more, pools), pools) {
            return true;
        }
        // A page that both held may be gone from the cache now, and need no copy any more.
        let needed = tables.needs(more, pools);
        if have(needed, pools) {
            return true;
        }
        let Some(page) = tables.next_page(0) else {
            return false;
        };
        if pools[0].holders(page) != 2 || !have(needed - 1, pools) {
            return false;
        }
        let is_it = |&&(_, leaf): &&(u64, NodeId)| self.node(leaf).pages[0] == page;
        let Some(&(_, leaf)) = self.leaves.iter().find(is_it) else {
            return false;
        };
        self.remove(leaf, pools);
        true
    }

    /// Lets go of everything.
    pub fn clear(&mut self, pools: &mut [PagePool]) {
        for node in self.ordered.values() {
            release(&self.nodes[node.0 as usize].pages, pools);
        }
        *self = Self {
            time: self.time,
            figures: self.figures,
            ..Self::new(self.groups)
        };
    }

    fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.0 as usize]
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.0 as usize]
    }

    /// The child that begins like `tokens` (16 at most) for the longest, and for how many tokens; none for no token.
    fn closest(&self, parent: NodeId, tokens: &[TokenId]) -> Option<(NodeId, usize)> {
        let key = (parent, Label::new(tokens));
        if let Some(&child) = self.full.get(&key) {
            return Some((child, PAGE_POSITIONS));
        }
        // In a dictionary the words that begin most like another are its neighbours.
        let before = self.ordered.range(..key).next_back();
        let after = self.ordered.range(key..).next();
        let siblings = before.into_iter().chain(after);
        siblings
            .filter(|((of, _), _)| *of == parent)
            .map(|((_, label), &child)| (child, label.agreement(&key.1)))
            .filter(|&(_, agreement)| agreement > 0)
            .max_by_key(|&(_, agreement)| agreement)
    }

    /// Notes that a node is used now.
    fn touch(&mut self, node: NodeId) {
        let time = self.time;
        let known = self.node_mut(node);
        let used = std::mem::replace(&mut known.used, time);
        if known.children == 0 {
            self.leaves.remove(&(used, node));
            self.leaves.insert((time, node));
        }
    }

    /// Adds a child with these pages.
    fn add(
        &mut self,
        parent: NodeId,
        tokens: &[TokenId],
        pages: Vec<PageId>,
        pools: &mut [PagePool],
    ) -> NodeId {
        hold(&pages, pools);
        let node = Node {
            key: (parent, Label::new(tokens)),
            pages,
            children: 0,
            used: self.time,
        };
        let id = match self.vacant.pop() {
            Some(id) => {
                *self.node_mut(id) = node;
                id
            }
            None => {
                self.nodes.push(node);
                NodeId(self.nodes.len() as u32 - 1)
            }
        };
        self.leaves.insert((self.time, id));
        let parent_node = self.node_mut(parent);
        parent_node.children += 1;
        let used = parent_node.used;
        self.leaves.remove(&(used, parent));
        self.link(id);
        id
    }

    /// Gives a leaf more tokens, and the pages that hold them.
    fn lengthen(
        &mut self,
        leaf: NodeId,
        tokens: &[TokenId],
        pages: Vec<PageId>,
        pools: &mut [PagePool],
    ) {
        let key = self.node(leaf).key;
        self.ordered.remove(&key);
        hold(&pages, pools);
        let node = self.node_mut(leaf);
        node.key.1 = Label::new(tokens);
        release(&std::mem::replace(&mut node.pages, pages), pools);
        self.link(leaf);
    }

    /// Makes a node known by its key.
    fn link(&mut self, node: NodeId) {
        let key = self.node(node).key;
        self.ordered.insert(key, node);
        if key.1.len == PAGE_POSITIONS {
            self.full.insert(key, node);
        }
    }

    /// Lets go of a leaf; gives its parent.
    fn remove(&mut self, leaf: NodeId, pools: &mut [PagePool]) -> NodeId {
        let node = self.node_mut(leaf);
        let (key, used, pages) = (node.key, node.used, std::mem::take(&mut node.pages));
        release(&pages, pools);
        self.figures.evicted_pages += pages.len() as u64;
        self.leaves.remove(&(used, leaf));
        self.ordered.remove(&key);
        self.full.remove(&key);
        self.vacant.push(leaf);
        let parent = self.node_mut(key.0);
        parent.children -= 1;
        if parent.children == 0 && key.0 != ROOT {
            let used = parent.used;
            self.leaves.insert((used, key.0));
        }
        key.0
    }

    /// Whether nobody else holds a node's pages.
    fn is_idle(&self, node: NodeId, pools: &[PagePool]) -> bool {
        let mut pages = self.node(node).pages.iter().zip(pools);
        pages.any(|(&page, pool)| pool.holders(page) == 1)
    }

    /// Lets go of a leaf that a sequence holds and of what is before it, up to the first page of its text that nobody else
    /// holds, or until a node has other children, or every pool has `free` free pages. There is such a page when two sequences
    /// computed the same text at the same time: one's pages went into the cache, and the other, which goes on, holds its own.
    fn evict_before(&mut self, leaf: NodeId, free: usize, pools: &mut [PagePool]) {
        let up = |&node: &NodeId| Some(self.node(node).key.0);
        let path = std::iter::successors(Some(leaf), up).take_while(|&node| node != ROOT);
        let path: Vec<NodeId> = path.collect();
        let Some(first) = path.iter().rposition(|&node| self.is_idle(node, pools)) else {
            return;
        };
        for &node in &path[..=first] {
            if self.node(node).children > 0 || have(free, pools) {
                return;
            }
            self.remove(node, pools);
        }
    }
}

/// Whether every pool has so many free pages.
fn have(free: usize, pools: &[PagePool]) -> bool {
    pools.iter().all(|pool| pool.free() >= free)
}

fn hold(pages: &[PageId], pools: &mut [PagePool]) {
    for (&page, pool) in pages.iter().zip(pools) {
        pool.hold(page);
    }
}

fn release(pages: &[PageId], pools: &mut [PagePool]) {
    for (&page, pool) in pages.iter().zip(pools) {
        pool.release(page);
    }
}
