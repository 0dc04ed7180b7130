//! The naive model: what the cache holds and lets go of, and what must hold between operations.

use foredraft_common::TokenId;
use foredraft_model::kv::{PAGE_POSITIONS, PageId, pages_for};
use foredraft_testing::Random;

use crate::{GROUPS, PAGES, Sequence, World};

/// Stands for a text: equal for equal texts, and for all others that this test meets different.
pub(crate) type TextNumber = u64;

pub(crate) fn numbers(tokens: &[TokenId]) -> Vec<TextNumber> {
    let next = |number: &mut TextNumber, token: &TokenId| {
        *number = Random::new(*number ^ (u64::from(token.0) + 1)).bits();
        Some(*number)
    };
    tokens.iter().scan(0, next).collect()
}

/// A page of the cache, as the model knows it.
pub(crate) struct Cached {
    /// The text from its beginning to the last token of the page.
    pub(crate) text: Vec<TokenId>,
    pub(crate) pages: [PageId; GROUPS],
    pub(crate) used: usize,
}

impl Cached {
    fn is_before(&self, other: &Cached) -> bool {
        self.text.len() < other.text.len() && other.text.starts_with(&self.text)
    }
}

impl World {
    fn free(&self) -> usize {
        self.pools[0].free().min(self.pools[1].free())
    }

    pub(crate) fn is_last(&self, page: PageId) -> bool {
        let cached = self.cached.iter().find(|cached| cached.pages[0] == page);
        cached.is_some_and(|cached| !self.cached.iter().any(|other| cached.is_before(other)))
    }

    fn is_idle(&self, cached: &Cached) -> bool {
        let holds = |sequence: &Sequence| sequence.tables.tables()[0].contains(&cached.pages[0]);
        !self.sequences.iter().any(holds)
    }

    /// The leaf of the list that was not used for the longest, of those that `of` takes.
    fn oldest(&self, of: impl Fn(&Cached) -> bool) -> Option<usize> {
        let is_leaf = |a: &Cached| !self.cached.iter().any(|b| a.is_before(b));
        let mut leaves: Vec<usize> = (0..self.cached.len()).collect();
        leaves.retain(|&i| of(&self.cached[i]) && is_leaf(&self.cached[i]));
        leaves.into_iter().min_by_key(|&i| self.cached[i].used)
    }

    /// Takes from the list what the cache should let go of.
    pub(crate) fn evict_naively(&mut self, free: usize) -> bool {
        if free > PAGES[0].min(PAGES[1]) {
            return false;
        }
        let mut freed = self.free();
        let mut last: Option<Cached> = None;
        while freed < free {
            let hides = |a: &Cached, b: &Cached| a.is_before(b) && self.is_idle(a);
            let hides_something = |leaf: &Cached| self.cached.iter().any(|a| hides(a, leaf));
            let goes = |leaf: &Cached| self.is_idle(leaf) || hides_something(leaf);
            // After a page that a sequence holds, the way to what it hides is gone on.
            let goes_on = |leaf: &Cached| {
                last.as_ref().is_some_and(|last| leaf.is_before(last)) && goes(leaf)
            };
            let idle = match &last {
                None => self.oldest(|leaf| self.is_idle(leaf)),
                Some(_) => self.oldest(goes_on),
            };
            let Some(victim) = idle.or_else(|| self.oldest(goes)) else {
                return false;
            };
            let victim = self.cached.swap_remove(victim);
            if self.is_idle(&victim) {
                self.counts.evicted += 1;
                freed += 1;
                last = last.is_some().then_some(victim);
            } else {
                self.counts.held_let_go += 1;
                last = Some(victim);
            }
        }
        true
    }

    pub(crate) fn check(&self) {
        let mut holders = PAGES.map(|pages| vec![0; pages]);
        let mut count = |numbers: &[TextNumber], group: usize, pages: &[PageId]| {
            for (page, expected) in pages.iter().zip(numbers.chunks(PAGE_POSITIONS)) {
                holders[group][page.index()] += 1;
                let content = &self.content[group][page.index()];
                assert_eq!(&content[..expected.len()], expected);
            }
        };
        for Sequence { tokens, tables } in &self.sequences {
            assert_eq!(tables.committed(), tokens.len());
            for (group, table) in tables.tables().iter().enumerate() {
                assert_eq!(table.len(), pages_for(tokens.len()));
                count(&numbers(tokens), group, table);
            }
        }
        for Cached { text, pages, .. } in &self.cached {
            let first = (pages_for(text.len()) - 1) * PAGE_POSITIONS;
            for (group, &page) in pages.iter().enumerate() {
                count(&numbers(text)[first..], group, &[page]);
            }
        }
        for (pool, holders) in self.pools.iter().zip(&holders) {
            let known = (0..pool.len() as u32).map(|page| pool.holders(PageId(page)));
            assert!(known.eq(holders.iter().copied()), "{pool:?}\n{holders:?}");
            let used = holders.iter().filter(|&&holders| holders > 0).count();
            assert_eq!((pool.used(), pool.free()), (used, pool.len() - used));
        }
        assert_eq!(self.cache.pages(), GROUPS * self.cached.len());
    }
}
