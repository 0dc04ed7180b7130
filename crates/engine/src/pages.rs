//! The engine's KV pages: who of the sequences gets them, and what is kept of those that ended.
//!
//! A page is free, or held by sequences, by the cache of past texts, or by both. What only the cache holds is there until
//! somebody needs the room.

use foredraft_model::kv::{PAGE_POSITIONS, pages_for};
use foredraft_model::{Commit, Executor, PageCopy, PagePool, PrefixCache, Slot};

use crate::sequence::Sequence;

/// How many pages are what, over all layer groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageFigures {
    /// In the pools.
    pub total: usize,
    /// Held by sequences or by the cache.
    pub used: usize,
    /// Held by more than one sequence, or by a sequence and the cache.
    pub shared: usize,
    /// Held by the cache.
    pub cached: usize,
    /// Let go of by the cache to make room, since the engine was made.
    pub evicted: u64,
}

/// The pools, and the cache of past texts.
pub(crate) struct Pages {
    pub(crate) pools: Vec<PagePool>,
    cache: PrefixCache,
    /// Scratch.
    copies: Vec<PageCopy>,
    /// Scratch: which pages of the first group sequences hold.
    held: Vec<bool>,
}

impl Pages {
    /// Pools of so many free pages, one for each layer group.
    pub(crate) fn new(pages: &[usize]) -> Self {
        Self {
            pools: pages.iter().map(|&pages| PagePool::new(pages)).collect(),
            cache: PrefixCache::new(pages.len()),
            copies: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Layer groups.
    pub(crate) fn groups(&self) -> usize {
        self.pools.len()
    }

    /// Pages of the smallest pool: what one sequence may have at most.
    pub(crate) fn smallest_pool(&self) -> usize {
        self.pools.iter().map(PagePool::len).min().unwrap_or(0)
    }

    /// Pages in use, over all layer groups.
    pub(crate) fn used(&self) -> usize {
        self.pools.iter().map(PagePool::used).sum()
    }

    pub(crate) fn figures(&self) -> PageFigures {
        PageFigures {
            total: self.pools.iter().map(PagePool::len).sum(),
            used: self.used(),
            shared: self.pools.iter().map(PagePool::shared).sum(),
            cached: self.cache.pages(),
            evicted: self.cache.figures().evicted_pages,
        }
    }

    /// Gives a sequence that is to run what there is of its text: from the cache, or from a running sequence that has
    /// more. At most all but the last token, whose logits are wanted.
    ///
    /// `false`, and the sequence has nothing: a running sequence is about to compute at least a page more of it, so it is
    /// worth waiting for; or there are not enough pages to read all of it beside the others, each of which may need
    /// another page any time.
    pub(crate) fn admit<'s>(
        &mut self,
        new: &mut Sequence,
        running: impl Iterator<Item = &'s Sequence> + Clone,
    ) -> bool {
        let text = new.tokens();
        let most = text.len().saturating_sub(1);
        let agreement = |other: &Sequence| other.agreement(text).min(most);
        let mut found = self.cache.lookup(text, most, &mut self.pools);
        let of_running = running.clone().map(|other| {
            let there = agreement(other).min(other.committed());
            (there, other)
        });
        if let Some((there, other)) = of_running.max_by_key(|&(there, _)| there)
            && there > found.committed()
        {
            found.truncate(0, &mut self.pools);
            found = other.pages.share(there, &mut self.pools);
        }
        let known = found.committed() + PAGE_POSITIONS;
        let is_coming = running.clone().any(|other| agreement(other) >= known);
        new.pages = found;
        if is_coming || !self.has_room(new, running) {
            new.pages.truncate(0, &mut self.pools);
            return false;
        }
        true
    }

    /// Whether a sequence, with the pages that it shares, can be read to its end and get a token more, and every running
    /// one gets another page. What only the cache holds counts as free. A sequence that is alone always has room.
    fn has_room<'s>(
        &mut self,
        new: &Sequence,
        running: impl Iterator<Item = &'s Sequence>,
    ) -> bool {
        let (mut held, mut sequences) = (0, 0);
        self.held.clear();
        self.held.resize(self.smallest_pool(), false);
        let mut count = |sequence: &Sequence| {
            let table = sequence.tables().first().map_or(&[][..], Vec::as_slice);
            for page in table {
                // Of a larger pool a page may have a larger number; it then counts each time.
                let known = self.held.get_mut(page.index());
                held += usize::from(!known.is_some_and(|known| std::mem::replace(known, true)));
            }
        };
        for sequence in running {
            count(sequence);
            sequences += 1;
        }
        count(new);
        let own = new.tables().first().map_or(0, Vec::len);
        // A page that is shared in part is copied.
        let copied = usize::from(!new.committed().is_multiple_of(PAGE_POSITIONS));
        let needed = pages_for(new.tokens().len() + 1).saturating_sub(own) + copied;
        sequences == 0 || held + needed + sequences <= self.smallest_pool()
    }

    /// Takes pages for `more` further tokens, the cache's if there are no others. `false`, with nothing taken, when sequences
    /// hold too many.
    pub(crate) fn reserve(
        &mut self,
        sequence: &mut Sequence,
        more: usize,
        executor: &mut dyn Executor,
    ) -> bool {
        let (tables, pools) = (&mut sequence.pages, &mut self.pools);
        self.copies.clear();
        let has = self.cache.make_room(tables, more, pools)
            && tables.reserve(more, pools, &mut self.copies);
        // At once: who holds the old page too may write to it at any time.
        executor.copy_pages(&self.copies);
        has
    }

    /// Copies nodes in flight, which follow the committed tokens, to the pages that were reserved for them, and gives back
    /// those that were reserved for more. Full pages are shown to others.
    pub(crate) fn commit(
        &mut self,
        sequence: &mut Sequence,
        slots: &[Slot],
        executor: &mut dyn Executor,
    ) {
        let committed = sequence.committed();
        self.give_back(sequence);
        if !self.reserve(sequence, slots.len(), executor) {
            // They were there a moment ago. What is not committed stays pending, and is computed again.
            debug_assert!(false, "reserved pages are gone");
            return;
        }
        executor.commit(Commit {
            slots,
            committed,
            tables: sequence.tables(),
        });
        sequence.pages.commit(slots.len());
        let (before, now) = (
            committed / PAGE_POSITIONS,
            sequence.committed() / PAGE_POSITIONS,
        );
        if now > before {
            let full = &sequence.tokens()[..now * PAGE_POSITIONS];
            self.cache.insert(full, &sequence.pages, &mut self.pools);
        }
    }

    /// Gives back what was reserved.
    pub(crate) fn give_back(&mut self, sequence: &mut Sequence) {
        let committed = sequence.committed();
        sequence.pages.truncate(committed, &mut self.pools);
    }

    /// Takes all pages of a sequence; `keep`: its text stays in the cache.
    pub(crate) fn release(&mut self, sequence: &mut Sequence, keep: bool) {
        self.give_back(sequence);
        if keep {
            let text = &sequence.tokens()[..sequence.committed()];
            self.cache.insert(text, &sequence.pages, &mut self.pools);
        }
        sequence.pages.truncate(0, &mut self.pools);
    }

    /// Empties the cache.
    pub(crate) fn clear(&mut self) {
        self.cache.clear(&mut self.pools);
    }
}
