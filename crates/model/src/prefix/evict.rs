//! Letting go of pages, so that sequences can have them.

use super::{NodeId, PrefixCache, ROOT};
use crate::pages::{PagePool, PageTables};

impl PrefixCache {
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
                true => self.remove(leaf, pools),
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
