//! Who holds which KV page: the pools, and a sequence's tables.
//!
//! Targets and drafts hold their pages alike, each in pools of its own.

use crate::kv::{PageId, pages_for};

/// Hands out the pages of one layer group, each held by one or more owners.
///
/// Invariant: a page is either free (no holders, on the free list once) or held (one holder or more).
#[derive(Debug)]
pub struct PagePool {
    /// Holders of each page.
    holders: Vec<u32>,
    /// Pages without a holder; the last is handed out next.
    free: Vec<PageId>,
}

impl PagePool {
    /// A pool of `pages` free pages.
    pub fn new(pages: usize) -> Self {
        Self {
            holders: vec![0; pages],
            free: (0..pages as u32).rev().map(PageId).collect(),
        }
    }

    /// A free page, now held once; `None` when there is none.
    pub fn allocate(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.holders[page.index()] = 1;
        Some(page)
    }

    /// Lets go of a page; it is free when nobody else holds it.
    ///
    /// # Panics
    /// When nobody held it: a defect of the caller that would hand one page to two sequences.
    pub fn release(&mut self, page: PageId) {
        let holders = &mut self.holders[page.index()];
        assert!(*holders > 0, "page {} is released but not held", page.0);
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }

    /// Pages that are held.
    pub fn used(&self) -> usize {
        self.holders.len() - self.free.len()
    }

    /// All pages.
    pub fn len(&self) -> usize {
        self.holders.len()
    }

    /// Whether the pool has no pages at all.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }
}

/// The pages that hold the committed tokens of a sequence, in each layer group.
///
/// Invariant: outside of a reservation, each table covers exactly the committed tokens.
#[derive(Debug, Default)]
pub struct PageTables {
    committed: usize,
    tables: Vec<Vec<PageId>>,
}

impl PageTables {
    /// Empty tables of a program with `groups` layer groups.
    pub fn new(groups: usize) -> Self {
        Self {
            committed: 0,
            tables: vec![Vec::new(); groups],
        }
    }

    /// Tokens whose keys and values are in pages.
    pub fn committed(&self) -> usize {
        self.committed
    }

    /// The pages of each layer group.
    pub fn tables(&self) -> &[Vec<PageId>] {
        &self.tables
    }

    /// Lets go of all but the first `committed` tokens; does nothing when there are no more than that.
    pub fn truncate(&mut self, committed: usize, pools: &mut [PagePool]) {
        self.committed = self.committed.min(committed);
        for (table, pool) in self.tables.iter_mut().zip(pools) {
            let keep = pages_for(self.committed).min(table.len());
            for page in table.drain(keep..) {
                pool.release(page);
            }
        }
    }

    /// Takes the pages that `more` further tokens need. `false`, with nothing taken, when a pool has too few.
    pub fn reserve(&mut self, more: usize, pools: &mut [PagePool]) -> bool {
        let needed = pages_for(self.committed + more);
        for (table, pool) in self.tables.iter_mut().zip(pools.iter_mut()) {
            while table.len() < needed {
                match pool.allocate() {
                    Some(page) => table.push(page),
                    None => {
                        self.truncate(self.committed, pools);
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Counts `more` tokens as committed; their pages are reserved and written.
    pub fn commit(&mut self, more: usize) {
        self.committed += more;
        debug_assert!(
            self.tables
                .iter()
                .all(|table| table.len() == pages_for(self.committed))
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_that_fails_takes_nothing() {
        let mut pools = [PagePool::new(4), PagePool::new(2)];
        let mut tables = PageTables::new(2);
        assert!(!tables.reserve(60, &mut pools));
        assert_eq!((pools[0].used(), pools[1].used()), (0, 0));
        assert!(tables.reserve(32, &mut pools));
        tables.commit(32);
        assert!(!tables.reserve(1, &mut pools));
        assert_eq!((tables.committed(), pools[0].used()), (32, 2));
        tables.truncate(17, &mut pools);
        assert_eq!((tables.committed(), pools[0].used()), (17, 2));
        tables.truncate(40, &mut pools);
        assert_eq!((tables.committed(), pools[1].used()), (17, 2));
        tables.truncate(16, &mut pools);
        assert_eq!((tables.committed(), pools[1].used()), (16, 1));
    }

    #[test]
    fn a_page_has_one_owner_until_it_is_released() {
        let mut pool = PagePool::new(2);
        let (a, b) = (pool.allocate(), pool.allocate());
        assert_ne!(a, b);
        assert_eq!((pool.allocate(), pool.used()), (None, 2));
        pool.release(a.expect("a page"));
        assert_eq!(pool.used(), 1);
        assert_eq!(pool.allocate(), a);
    }

    #[test]
    #[should_panic(expected = "released but not held")]
    fn a_page_cannot_be_released_twice() {
        let mut pool = PagePool::new(1);
        let page = pool.allocate().expect("a page");
        pool.release(page);
        pool.release(page);
    }
}
