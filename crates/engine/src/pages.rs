//! The pool of KV pages: who holds which page.

use foredraft_model::kv::PageId;

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

#[cfg(test)]
mod tests {
    use super::*;

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
