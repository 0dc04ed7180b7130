//! Who holds which KV page: the pools, and a sequence's tables.
//!
//! Targets and drafts hold their pages alike, each in pools of its own.
//!
//! Sequences with an equal beginning hold the same pages. A page that several hold is only read: who wants to write behind
//! its own tokens in it takes a page in its place first, and has it copied (copy on write).

use crate::kv::{PAGE_POSITIONS, PageId, pages_for};

/// Hands out the pages of one layer group, each held by one or more owners.
///
/// Invariant: a page is either free (no holders, on the free list once) or held (one holder or more).
#[derive(Debug)]
pub struct PagePool {
    /// Holders of each page.
    holders: Vec<u32>,
    /// Pages without a holder; the last is handed out next.
    free: Vec<PageId>,
    /// Pages with more than one holder.
    shared: usize,
}

impl PagePool {
    /// A pool of `pages` free pages.
    pub fn new(pages: usize) -> Self {
        Self {
            holders: vec![0; pages],
            free: (0..pages as u32).rev().map(PageId).collect(),
            shared: 0,
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
        match *holders {
            0 => self.free.push(page),
            1 => self.shared -= 1,
            _ => {}
        }
    }

    /// Counts one more holder of a page.
    ///
    /// # Panics
    /// When nobody holds it: a defect of the caller, for the page may be handed out to somebody else.
    pub fn hold(&mut self, page: PageId) {
        let holders = &mut self.holders[page.index()];
        assert!(*holders > 0, "page {} is shared but not held", page.0);
        *holders += 1;
        self.shared += usize::from(*holders == 2);
    }

    /// How many hold a page; 0: it is free.
    pub fn holders(&self, page: PageId) -> u32 {
        self.holders[page.index()]
    }

    /// Pages that more than one holds.
    pub fn shared(&self) -> usize {
        self.shared
    }

    /// Pages that nobody holds.
    pub fn free(&self) -> usize {
        self.free.len()
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

/// A page whose content another is to have too, because a sequence is about to write behind what it shares of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCopy {
    /// The layer group of both.
    pub group: usize,
    /// What is copied.
    pub from: PageId,
    /// What it is copied to.
    pub to: PageId,
}

/// The pages that hold the committed tokens of a sequence, in each layer group.
///
/// Invariant: each table covers the committed tokens and what is reserved beyond them.
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

    /// Takes the pages that `more` further tokens need; `false`, with nothing taken and nothing in `copies`, when a pool
    /// has too few. What is reserved may be committed in parts; [`PageTables::truncate`] to the committed tokens gives back
    /// the rest.
    ///
    /// A last page that is partly filled and held by others too is let go, and a page of the sequence's own stands in its
    /// place. Its content is there only once the caller has passed `copies`, to which it is added, to
    /// [`Executor::copy_pages`](crate::Executor::copy_pages). That must happen before the next pass and the next commit,
    /// also when the reservation is not used: the other holders may write to the old page, or let go of it, at any time.
    #[must_use]
    pub fn reserve(
        &mut self,
        more: usize,
        pools: &mut [PagePool],
        copies: &mut Vec<PageCopy>,
    ) -> bool {
        let free = pools.iter().map(PagePool::free).min();
        if self.needs(more, pools) > free.unwrap_or(0) {
            return false;
        }
        let needed = pages_for(self.committed + more);
        let next = self.committed / PAGE_POSITIONS;
        for (group, (table, pool)) in self.tables.iter_mut().zip(pools).enumerate() {
            if let Some(page) = table.get_mut(next)
                && more > 0
                && pool.holders(*page) > 1
                && let Some(to) = pool.allocate()
            {
                let from = std::mem::replace(page, to);
                pool.release(from);
                copies.push(PageCopy { group, from, to });
            }
            let missing = needed.saturating_sub(table.len());
            table.extend((0..missing).map_while(|_| pool.allocate()));
        }
        true
    }

    /// Pages that every pool must have free for [`PageTables::reserve`] to take what `more` further tokens need.
    pub fn needs(&self, more: usize, pools: &[PagePool]) -> usize {
        let all = pages_for(self.committed + more);
        let next = self.committed / PAGE_POSITIONS;
        let of = |(table, pool): (&Vec<PageId>, &PagePool)| {
            let is_shared = |&page: &PageId| more > 0 && pool.holders(page) > 1;
            let copies = table.get(next).is_some_and(is_shared);
            all.saturating_sub(table.len()) + usize::from(copies)
        };
        self.tables.iter().zip(pools).map(of).max().unwrap_or(0)
    }

    /// The page of a layer group that the next token goes to, if it is there already.
    pub(crate) fn next_page(&self, group: usize) -> Option<PageId> {
        let table = self.tables.get(group)?;
        table.get(self.committed / PAGE_POSITIONS).copied()
    }

    /// Becomes one more holder of a page in each layer group, in which the next `tokens` tokens are.
    ///
    /// The pages before it are full.
    pub(crate) fn push_shared(&mut self, pages: &[PageId], tokens: usize, pools: &mut [PagePool]) {
        debug_assert!(self.committed.is_multiple_of(PAGE_POSITIONS));
        for ((table, &page), pool) in self.tables.iter_mut().zip(pages).zip(pools) {
            pool.hold(page);
            table.push(page);
        }
        self.committed += tokens;
    }

    /// A second holder of the first `tokens` committed tokens (of all, when there are no more than that), the last page
    /// included if it is partly filled.
    pub fn share(&self, tokens: usize, pools: &mut [PagePool]) -> PageTables {
        let committed = tokens.min(self.committed);
        let mut tables = self.tables.clone();
        for (table, pool) in tables.iter_mut().zip(pools) {
            table.truncate(pages_for(committed));
            table.iter().for_each(|&page| pool.hold(page));
        }
        PageTables { committed, tables }
    }

    /// Counts `more` tokens as committed; their pages are reserved and written.
    pub fn commit(&mut self, more: usize) {
        self.committed += more;
        debug_assert!(
            self.tables
                .iter()
                .all(|table| table.len() >= pages_for(self.committed))
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
        let mut copies = Vec::new();
        assert!(!tables.reserve(60, &mut pools, &mut copies));
        assert_eq!((pools[0].used(), pools[1].used()), (0, 0));
        assert!(tables.reserve(32, &mut pools, &mut copies));
        tables.commit(32);
        assert!(!tables.reserve(1, &mut pools, &mut copies));
        assert!(copies.is_empty());
        assert_eq!((tables.committed(), pools[0].used()), (32, 2));
        tables.truncate(17, &mut pools);
        assert_eq!((tables.committed(), pools[0].used()), (17, 2));
        tables.truncate(40, &mut pools);
        assert_eq!((tables.committed(), pools[1].used()), (17, 2));
        tables.truncate(16, &mut pools);
        assert_eq!((tables.committed(), pools[1].used()), (16, 1));
    }

    #[test]
    fn who_writes_behind_a_shared_part_gets_a_copy() {
        let mut pools = [PagePool::new(5), PagePool::new(4)];
        let mut copies = Vec::new();
        let mut first = PageTables::new(2);
        assert!(first.reserve(20, &mut pools, &mut copies));
        first.commit(20);
        let mut second = first.share(18, &mut pools);
        assert_eq!((second.committed(), second.tables()), (18, first.tables()));
        assert_eq!(pools[0].shared(), 2);
        assert_eq!([pools[0].used(), pools[1].used()], [2, 2]);

        // 18 + 47 = 65 tokens need five pages: three more, and one in place of the shared one. The second pool has two.
        assert!(!second.reserve(47, &mut pools, &mut copies));
        assert_eq!((second.tables(), copies.len()), (first.tables(), 0));
        assert_eq!([pools[0].free(), pools[1].free()], [3, 2]);

        assert!(second.reserve(1, &mut pools, &mut copies));
        second.commit(1);
        let copied = [0, 1].map(|group| PageCopy {
            group,
            from: first.tables()[group][1],
            to: second.tables()[group][1],
        });
        assert_eq!(copies, copied);
        for (group, pool) in pools.iter().enumerate() {
            let holders = |table: &[PageId]| [pool.holders(table[0]), pool.holders(table[1])];
            assert_eq!(holders(&first.tables()[group]), [2, 1]);
            assert_eq!(holders(&second.tables()[group]), [2, 1]);
            assert_eq!(pool.shared(), 1);
        }
        // Each has its own now; and a full page that is shared is never written to.
        assert!(first.reserve(1, &mut pools, &mut copies) && copies.len() == 2);
        let mut third = first.share(16, &mut pools);
        assert!(third.reserve(1, &mut pools, &mut copies) && copies.len() == 2);
        for tables in [&mut first, &mut second, &mut third] {
            tables.truncate(0, &mut pools);
        }
        assert_eq!([pools[0].used(), pools[1].used()], [0, 0]);
    }

    #[test]
    fn the_last_holder_writes_in_place() {
        let mut pools = [PagePool::new(1)];
        let mut copies = Vec::new();
        let mut first = PageTables::new(1);
        assert!(first.reserve(9, &mut pools, &mut copies));
        first.commit(9);
        let mut second = first.share(5, &mut pools);
        assert!(!second.reserve(1, &mut pools, &mut copies));
        first.truncate(0, &mut pools);
        assert!(second.reserve(11, &mut pools, &mut copies) && copies.is_empty());
    }

    #[test]
    #[should_panic(expected = "shared but not held")]
    fn a_free_page_cannot_be_shared() {
        PagePool::new(1).hold(PageId(0));
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
