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

mod evict;
mod label;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foredraft_common::TokenId;

use crate::kv::{PAGE_POSITIONS, PageId};
use crate::pages::{PagePool, PageTables};
use label::Label;

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
                Some((child, agreement)) if agreement == self.node(child).key.1.len() => {
                    self.lengthen(child, chunk, pages.collect(), pools);
                    child
                }
                _ => self.add(node, chunk, pages.collect(), pools),
            };
            self.touch(node);
        }
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
        if key.1.len() == PAGE_POSITIONS {
            self.full.insert(key, node);
        }
    }

    /// Lets go of a leaf.
    fn remove(&mut self, leaf: NodeId, pools: &mut [PagePool]) {
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
    }
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
