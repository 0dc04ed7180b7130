//! The draft's own pages: what sequences hold, what is kept of those that ended, and who goes without.

use foredraft_model::kv::PAGE_POSITIONS;
use foredraft_model::{Executor, PagePool, PageTables, PrefixCache};
use foredraft_speculate::SequenceView;

use super::ModelDrafter;
use super::sequence::Sequence;

/// The pools of a draft and the cache over them.
pub(super) struct Pages {
    pub(super) pools: Vec<PagePool>,
    pub(super) cache: PrefixCache,
    /// How often a sequence has let go of its pages: whoever waits for room need not try again before the next time.
    released: u64,
}

impl Pages {
    pub(super) fn new(pages: &[usize]) -> Self {
        Self {
            pools: pages.iter().copied().map(PagePool::new).collect(),
            cache: PrefixCache::new(pages.len()),
            released: 0,
        }
    }

    /// Takes the pages of `more` further tokens, from the cache if need be; `false`, with nothing taken, when those that
    /// sequences hold leave too few.
    pub(super) fn reserve(
        &mut self,
        tables: &mut PageTables,
        more: usize,
        executor: &mut dyn Executor,
    ) -> bool {
        if !self.cache.make_room(tables, more, &mut self.pools) {
            return false;
        }
        let mut copies = Vec::new();
        let is_reserved = tables.reserve(more, &mut self.pools, &mut copies);
        executor.copy_pages(&copies);
        is_reserved
    }

    /// Shows others the full pages of a sequence that had `before` committed tokens: the choices of one request read their
    /// prompt once.
    pub(super) fn show(&mut self, sequence: &Sequence, before: usize) {
        let full = sequence.pages.committed() / PAGE_POSITIONS;
        if full > before / PAGE_POSITIONS {
            let text = &sequence.tokens[..full * PAGE_POSITIONS];
            self.cache.insert(text, &sequence.pages, &mut self.pools);
        }
    }

    /// Takes a sequence's pages into the cache.
    pub(super) fn keep(&mut self, sequence: &mut Sequence) {
        let Sequence { tokens, pages, .. } = sequence;
        self.cache.insert(tokens, pages, &mut self.pools);
        pages.truncate(0, &mut self.pools);
        tokens.clear();
        self.released += 1;
    }
}

impl ModelDrafter {
    /// Starts a step of a sequence with the pages of its text that are there, its own or the cache's, and reserves those of
    /// the rest. If they are not to be had, the sequence goes without drafts until another lets go of its pages, and lets
    /// go of its own.
    pub(super) fn start(&mut self, view: &SequenceView<'_>) {
        let (groups, text) = (self.pages.pools.len(), view.tokens);
        let sequence = self.sequences.entry(view.id);
        let sequence = sequence.or_insert_with(|| Sequence::new(groups));
        let vocabulary = self.executor.program().vocabulary;
        let can_follow = text.len() <= self.options.context_tokens
            && text.iter().all(|token| token.index() < vocabulary);
        sequence.start(text, can_follow, &mut self.pages.pools);
        if !can_follow {
            return;
        }
        let had_none = sequence.tokens.is_empty();
        if had_none {
            if sequence.waits_since == Some(self.pages.released) {
                sequence.can_follow = false;
                return;
            }
            // Not the last token: its logits are wanted.
            let most = text.len().saturating_sub(1);
            let Pages { pools, cache, .. } = &mut self.pages;
            sequence.pages = cache.lookup(text, most, pools);
            sequence
                .tokens
                .extend_from_slice(&text[..sequence.pages.committed()]);
        }
        let pending = text.len() - sequence.tokens.len();
        let executor = self.executor.as_mut();
        if self.pages.reserve(&mut sequence.pages, pending, executor) {
            sequence.waits_since = None;
            return;
        }
        sequence.can_follow = false;
        if had_none {
            // They are the cache's: nobody gains by its letting go of them.
            sequence.pages.truncate(0, &mut self.pages.pools);
            sequence.tokens.clear();
        } else {
            self.pages.keep(sequence);
        }
        sequence.waits_since = Some(self.pages.released);
    }
}
