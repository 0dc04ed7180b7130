//! The tree of drafted tokens that one step verifies.
//!
//! Node 0, the root, is the last emitted token; every other node is a drafted token that would follow its parent. Plain
//! decoding is the tree of one node, a draft chain a path.
//!
//! The children of a node are kept in the order in which they were drawn, and are of two kinds, because a verifier
//! must know what each was drawn from:
//!
//! - *deterministic* children, chosen by rank, by a lookup or by noise that the verifier does not use: their q is
//!   one-hot. They come first, and two of them never hold the same token: naming it twice says no more than once.
//! - *sampled* children, all drawn from one recorded q, with or without replacement. What was drawn stays: drawn with
//!   replacement the same token may be there twice, and merging the two after the draw would change what is emitted.

use foredraft_common::TokenId;

use crate::random::MAX_USES;
use crate::{Distribution, Replacement, sample::Arrival};

/// A node of a [`TokenTree`]; nodes are numbered in the order in which they were added, parents before children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The last emitted token.
    pub const ROOT: Self = Self(0);

    /// The number as an index into what is kept for each node.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// The node it follows; the root is its own parent.
    pub parent: NodeIndex,
    /// The drafted token (of the root: the last emitted one).
    pub token: TokenId,
    /// Edges to the root.
    pub depth: u32,
    /// Which drafter drafted it, as its caller numbers them.
    pub source: u8,
    /// How probable the drafter held the token, 0 to 1. Verifiers never read it.
    pub confidence: f32,
    /// Whether it was drawn from its parent's recorded q; otherwise it is deterministic.
    pub is_sampled: bool,
    /// Its first and last child and its next sibling; the root stands for "none", being nobody's child.
    first_child: NodeIndex,
    last_child: NodeIndex,
    next_sibling: NodeIndex,
    children: u32,
    /// Where in `sampled` the q of its sampled children is.
    sampled: Option<usize>,
}

/// The q of a node's sampled children, and how they were drawn from it.
#[derive(Debug, Clone)]
struct Sampled {
    q: Distribution,
    replacement: Replacement,
}

/// A tree of drafted tokens. [`reset`](Self::reset) keeps its buffers, so that a tree that has grown allocates no more.
///
/// Functions that take a node panic when it is not of the tree: nodes come from the tree, never from outside.
#[derive(Debug, Clone)]
pub struct TokenTree {
    nodes: Vec<Node>,
    /// The first `used` of these belong to this tree; the others are buffers.
    sampled: Vec<Sampled>,
    used: usize,
    /// Scratch of [`draw_children`](crate::draw_children).
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) keys: Vec<u64>,
}

impl TokenTree {
    /// The tree of one node.
    pub fn new(root: TokenId) -> Self {
        let mut tree = Self {
            nodes: Vec::new(),
            sampled: Vec::new(),
            used: 0,
            arrivals: Vec::new(),
            keys: Vec::new(),
        };
        tree.reset(root);
        tree
    }

    /// Becomes the tree of one node.
    pub fn reset(&mut self, root: TokenId) {
        self.used = 0;
        self.nodes.clear();
        self.nodes
            .push(node(NodeIndex::ROOT, root, 0, u8::MAX, 1.0));
    }

    /// Adds a deterministic child, or gives the deterministic child that already holds this token.
    ///
    /// # Panics
    /// When `parent` is not of the tree, already has sampled children, or has no room.
    pub fn push(
        &mut self,
        parent: NodeIndex,
        token: TokenId,
        source: u8,
        confidence: f32,
    ) -> NodeIndex {
        assert!(
            self.node(parent).sampled.is_none(),
            "node {} already has sampled children; deterministic ones come before them",
            parent.0
        );
        match self.child_of(parent, token) {
            Some(child) => child,
            None => self.append(parent, token, source, confidence),
        }
    }

    /// Records what the sampled children of `parent` are drawn from, and gives it back to be drawn from: `q` without
    /// the tokens of the deterministic children, renormalised. None when no token is left (nothing is recorded then).
    ///
    /// # Panics
    /// When `parent` is not of the tree or already has sampled children.
    pub fn record(
        &mut self,
        parent: NodeIndex,
        q: &Distribution,
        replacement: Replacement,
    ) -> Option<&Distribution> {
        assert!(
            self.node(parent).sampled.is_none(),
            "node {} already has sampled children; only one drafter can sample there",
            parent.0
        );
        let place = self.used;
        match self.sampled.get_mut(place) {
            Some(sampled) => {
                sampled.q.copy_from(q);
                sampled.replacement = replacement;
            }
            None => self.sampled.push(Sampled {
                q: q.clone(),
                replacement,
            }),
        }
        let mut child = self.node(parent).first_child;
        while child != NodeIndex::ROOT {
            let Node {
                token,
                next_sibling,
                ..
            } = *self.node(child);
            if !self.sampled[place].q.remove(token) {
                return None;
            }
            child = next_sibling;
        }
        self.nodes[parent.index()].sampled = Some(place);
        self.used += 1;
        Some(&self.sampled[place].q)
    }

    /// Adds a child that was drawn from the recorded q; its confidence is its q.
    ///
    /// # Panics
    /// When `parent` is not of the tree, has no recorded q, or has no room; when q cannot have drawn the token.
    pub fn push_sampled(&mut self, parent: NodeIndex, token: TokenId, source: u8) -> NodeIndex {
        let (q, replacement) = self.sampled(parent).unwrap_or_else(|| {
            panic!(
                "node {} has no recorded distribution to sample children from",
                parent.0
            )
        });
        let confidence = q.probability(token);
        let possible = confidence > 0.0
            && (replacement == Replacement::With || self.child_of(parent, token).is_none());
        assert!(
            possible,
            "token {token} cannot have been drawn as a child of node {}",
            parent.0
        );
        let child = self.append(parent, token, source, confidence);
        self.nodes[child.index()].is_sampled = true;
        child
    }

    /// What is known of a node.
    pub fn node(&self, node: NodeIndex) -> &Node {
        self.nodes.get(node.index()).unwrap_or_else(|| {
            panic!(
                "node {} is not of this tree of {} nodes",
                node.0,
                self.nodes.len()
            )
        })
    }

    /// The token of a node.
    pub fn token(&self, node: NodeIndex) -> TokenId {
        self.node(node).token
    }

    /// The parent of a node; none of the root.
    pub fn parent(&self, node: NodeIndex) -> Option<NodeIndex> {
        (node != NodeIndex::ROOT).then(|| self.node(node).parent)
    }

    /// Edges from a node to the root.
    pub fn depth(&self, node: NodeIndex) -> u32 {
        self.node(node).depth
    }

    /// Nodes, the root included: at least 1.
    #[allow(clippy::len_without_is_empty)] // it never is
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Every node, in the order in which they were added: parents before their children.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeIndex> + '_ {
        (0..self.nodes.len() as u32).map(NodeIndex)
    }

    /// The children of a node in the order in which they were drawn.
    pub fn children(&self, parent: NodeIndex) -> impl Iterator<Item = NodeIndex> + '_ {
        let next = |node: NodeIndex| (node != NodeIndex::ROOT).then_some(node);
        std::iter::successors(next(self.node(parent).first_child), move |&child| {
            next(self.nodes[child.index()].next_sibling)
        })
    }

    /// How many children a node has.
    pub fn child_count(&self, parent: NodeIndex) -> usize {
        self.node(parent).children as usize
    }

    /// The first child of `parent` with this token.
    pub fn child_of(&self, parent: NodeIndex, token: TokenId) -> Option<NodeIndex> {
        self.children(parent)
            .find(|child| self.nodes[child.index()].token == token)
    }

    /// The q that the sampled children of `parent` were drawn from, if any were, and how.
    pub fn sampled(&self, parent: NodeIndex) -> Option<(&Distribution, Replacement)> {
        let place = self.node(parent).sampled?;
        let sampled = self.sampled.get(place)?;
        Some((&sampled.q, sampled.replacement))
    }

    /// The nodes of a depth: the frontier that a level-by-level drafter extends.
    pub fn at_depth(&self, depth: u32) -> impl Iterator<Item = NodeIndex> + '_ {
        self.nodes().filter(move |&node| self.depth(node) == depth)
    }

    /// The nodes without children.
    pub fn leaves(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        self.nodes().filter(|&node| self.child_count(node) == 0)
    }

    /// Whether no node has more than one child.
    pub fn is_chain(&self) -> bool {
        self.nodes.iter().all(|node| node.children <= 1)
    }

    /// Writes into `path` the tokens from the root (excluded) to `node` (included).
    pub fn path(&self, node: NodeIndex, path: &mut Vec<TokenId>) {
        path.clear();
        let mut at = node;
        while let Some(parent) = self.parent(at) {
            path.push(self.token(at));
            at = parent;
        }
        path.reverse();
    }

    fn append(
        &mut self,
        parent: NodeIndex,
        token: TokenId,
        source: u8,
        confidence: f32,
    ) -> NodeIndex {
        let index = NodeIndex(self.nodes.len() as u32);
        let above = *self.node(parent);
        assert!(
            above.depth + 1 < MAX_USES && above.children < MAX_USES,
            "a tree has at most {MAX_USES} levels and children of a node"
        );
        self.nodes
            .push(node(parent, token, above.depth + 1, source, confidence));
        match above.first_child {
            NodeIndex::ROOT => self.nodes[parent.index()].first_child = index,
            _ => self.nodes[above.last_child.index()].next_sibling = index,
        }
        let above = &mut self.nodes[parent.index()];
        above.last_child = index;
        above.children += 1;
        index
    }
}

/// A deterministic node without relations.
fn node(parent: NodeIndex, token: TokenId, depth: u32, source: u8, confidence: f32) -> Node {
    Node {
        parent,
        token,
        depth,
        source,
        confidence,
        is_sampled: false,
        first_child: NodeIndex::ROOT,
        last_child: NodeIndex::ROOT,
        next_sibling: NodeIndex::ROOT,
        children: 0,
        sampled: None,
    }
}

#[cfg(test)]
mod tests;
