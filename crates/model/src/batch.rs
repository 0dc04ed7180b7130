//! What one forward pass works on: rows, each a node of some sequence's tree.

use std::ops::Range;

use foredraft_common::{Position, TokenId};

use crate::kv::PageId;

/// A sequence within a [`Batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceIndex(pub u32);

/// The place of a node in flight in the scratch of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One row of a pass, as the kernels see it.
#[derive(Debug, Clone)]
pub struct Row {
    /// The token that is fed.
    pub token: TokenId,
    /// Its absolute position: the committed length of its sequence plus its depth in the tree.
    pub position: Position,
    /// Where its key and value go.
    pub slot: Slot,
    /// Whose context it reads.
    pub sequence: SequenceIndex,
    /// Its ancestors in flight, root first and itself last: a range of [`Batch::paths`]. Entry `j` stands at
    /// position `committed + j`; slots ascend along a path.
    path: Range<usize>,
}

#[derive(Debug, Clone)]
struct Context {
    committed: usize,
    /// One range of `pages` for each layer group.
    first_table: usize,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    parent: Option<Slot>,
    depth: u32,
    sequence: SequenceIndex,
}

/// The rows of a forward pass, and the nodes in flight of the step that it belongs to.
///
/// A step may take several passes (a draft model grows its tree level by level): [`Batch::next_pass`] forgets
/// the rows and keeps the nodes, so that a row's parent may be a node of an earlier pass. [`Batch::clear`]
/// ends the step. All memory is kept for reuse.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<Row>,
    /// Indices of the rows whose logits are wanted.
    outputs: Vec<u32>,
    paths: Vec<Slot>,
    contexts: Vec<Context>,
    tables: Vec<Range<usize>>,
    pages: Vec<PageId>,
    nodes: Vec<Node>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything: the step is over.
    pub fn clear(&mut self) {
        self.next_pass();
        self.contexts.clear();
        self.tables.clear();
        self.pages.clear();
        self.nodes.clear();
    }

    /// Forgets the rows; sequences and nodes in flight stay.
    pub fn next_pass(&mut self) {
        self.rows.clear();
        self.outputs.clear();
        self.paths.clear();
    }

    /// Adds a sequence with `committed` tokens in its pages; one table of pages for each layer group, in
    /// the order of the program's groups.
    pub fn add_sequence<'a>(
        &mut self,
        committed: usize,
        tables: impl IntoIterator<Item = &'a [PageId]>,
    ) -> SequenceIndex {
        let first_table = self.tables.len();
        for table in tables {
            let start = self.pages.len();
            self.pages.extend_from_slice(table);
            self.tables.push(start..self.pages.len());
        }
        self.contexts.push(Context {
            committed,
            first_table,
        });
        SequenceIndex(self.contexts.len() as u32 - 1)
    }

    /// Adds a row: `token` follows `parent`, a node in flight of the same sequence, or the committed
    /// context when there is none. Returns the row's slot, the parent of rows to come.
    ///
    /// # Panics
    /// When `parent` is not a node of this step and sequence: a defect of the caller, never of an input.
    pub fn push(
        &mut self,
        sequence: SequenceIndex,
        token: TokenId,
        parent: Option<Slot>,
        wants_logits: bool,
    ) -> Slot {
        let depth = parent.map_or(0, |p| {
            let node = &self.nodes[p.index()];
            assert_eq!(node.sequence, sequence, "a parent of another sequence");
            node.depth + 1
        });
        let slot = Slot(self.nodes.len() as u32);
        self.nodes.push(Node {
            parent,
            depth,
            sequence,
        });
        let path = self.append_path(slot);
        if wants_logits {
            self.outputs.push(self.rows.len() as u32);
        }
        let committed = self.contexts[sequence.0 as usize].committed;
        self.rows.push(Row {
            token,
            position: Position((committed + depth as usize) as u32),
            slot,
            sequence,
            path,
        });
        slot
    }

    /// Writes the path from the root to `slot`; copies that of the parent when it is the previous row, as it
    /// is along a prompt.
    fn append_path(&mut self, slot: Slot) -> Range<usize> {
        let start = self.paths.len();
        let node = self.nodes[slot.index()];
        match self.rows.last() {
            Some(last) if node.parent == Some(last.slot) => {
                self.paths.extend_from_within(last.path.clone());
                self.paths.push(slot);
            }
            _ => {
                let mut next = Some(slot);
                while let Some(s) = next {
                    self.paths.push(s);
                    next = self.nodes[s.index()].parent;
                }
                self.paths[start..].reverse();
            }
        }
        start..self.paths.len()
    }

    /// The rows of this pass.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The indices of the rows whose logits are wanted; output `i` of the pass belongs to row `outputs()[i]`.
    pub fn outputs(&self) -> &[u32] {
        &self.outputs
    }

    /// The slots in use by the step so far.
    pub fn slots(&self) -> usize {
        self.nodes.len()
    }

    /// The ancestors of a row in flight, root first, itself last.
    #[inline]
    pub fn path(&self, row: &Row) -> &[Slot] {
        &self.paths[row.path.clone()]
    }

    /// Tokens in the pages of a sequence.
    #[inline]
    pub fn committed(&self, sequence: SequenceIndex) -> usize {
        self.contexts[sequence.0 as usize].committed
    }

    /// The pages of a sequence in a layer group.
    #[inline]
    pub fn pages(&self, sequence: SequenceIndex, group: usize) -> &[PageId] {
        let table = self.contexts[sequence.0 as usize].first_table + group;
        &self.pages[self.tables[table].clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(values: &[u32]) -> Vec<Slot> {
        values.iter().copied().map(Slot).collect()
    }

    #[test]
    fn a_row_sees_its_ancestors_and_no_sibling() {
        let mut batch = Batch::new();
        let s = batch.add_sequence(5, [&[PageId(3)][..]]);
        let root = batch.push(s, TokenId(1), None, true);
        let left = batch.push(s, TokenId(2), Some(root), false);
        let right = batch.push(s, TokenId(3), Some(root), true);
        let leaf = batch.push(s, TokenId(4), Some(left), true);
        let rows = batch.rows();
        assert_eq!(batch.path(&rows[2]), slots(&[root.0, right.0]));
        assert_eq!(batch.path(&rows[3]), slots(&[root.0, left.0, leaf.0]));
        let positions: Vec<u32> = rows.iter().map(|r| r.position.0).collect();
        assert_eq!(positions, [5, 6, 6, 7]);
        assert_eq!(batch.outputs(), [0, 2, 3]);
        assert_eq!(batch.pages(s, 0), [PageId(3)]);
    }

    #[test]
    fn a_parent_may_be_a_node_of_an_earlier_pass() {
        let mut batch = Batch::new();
        let s = batch.add_sequence(0, [&[][..]]);
        let root = batch.push(s, TokenId(1), None, false);
        batch.next_pass();
        let child = batch.push(s, TokenId(2), Some(root), true);
        assert_eq!(batch.rows().len(), 1);
        assert_eq!(batch.path(&batch.rows()[0]), slots(&[root.0, child.0]));
        batch.clear();
        assert_eq!(batch.slots(), 0);
    }

    #[test]
    fn sequences_keep_their_own_positions_and_pages() {
        let mut batch = Batch::new();
        let a = batch.add_sequence(16, [&[PageId(0)][..], &[PageId(7)][..]]);
        let b = batch.add_sequence(1, [&[PageId(1)][..], &[PageId(8), PageId(9)][..]]);
        batch.push(a, TokenId(1), None, true);
        batch.push(b, TokenId(1), None, true);
        assert_eq!(batch.rows()[0].position.0, 16);
        assert_eq!(batch.rows()[1].position.0, 1);
        assert_eq!(batch.pages(a, 1), [PageId(7)]);
        assert_eq!(batch.pages(b, 1), [PageId(8), PageId(9)]);
    }
}
