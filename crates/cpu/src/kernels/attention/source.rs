//! Where the keys and values of one KV head lie: committed positions in pages, ancestors in flight in the scratch.

use foredraft_model::Slot;
use foredraft_model::kv::{KvGroup, PAGE_POSITIONS, PageId};

use super::element::Element;

/// How many pages ahead of its use a page is asked for.
const AHEAD_PAGES: usize = 8;

/// A pool of pages, or the scratch, whose pages have the same layout.
#[derive(Clone, Copy)]
pub(crate) struct Store<'a, E: Element> {
    /// `[pages][elements of a page, its scales included as so many elements]`.
    pub(crate) elements: &'a [E::Stored],
    /// The same bytes as scales; empty when the type has none.
    pub(crate) scales: &'a [f32],
}

/// One KV head of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a, E: Element> {
    pub(crate) pool: Store<'a, E>,
    pub(crate) scratch: Store<'a, E>,
    /// From one page to the next, in elements and in scales.
    pub(crate) page_elements: usize,
    pub(crate) page_scales: usize,
    /// Values in a head.
    pub(crate) head_dim: usize,
    /// Where the keys of the head begin within a page, `[head_dim][16]`.
    pub(crate) keys: usize,
    /// Where its values begin, `[16][head_dim]`.
    pub(crate) values: usize,
    /// Where the scales of its keys and of its values begin, `[16]` each.
    pub(crate) key_scales: usize,
    pub(crate) value_scales: usize,
    /// The sequence's pages; they hold positions `0..committed`.
    pub(crate) pages: &'a [PageId],
    pub(crate) committed: usize,
    /// Multiplies the scores.
    pub(crate) scale: f32,
}

impl<'a, E: Element> Source<'a, E> {
    /// A head of a layer; `layer` counts within its group.
    pub(crate) fn new(
        shape: &KvGroup,
        (layer, head): (usize, usize),
        [pool, scratch]: [Store<'a, E>; 2],
        (pages, committed): (&'a [PageId], usize),
        scale: f32,
    ) -> Self {
        let kind = crate::kv::kv_type(E::SCALED);
        let page_bytes = shape.page_bytes(kind);
        Self {
            pool,
            scratch,
            page_elements: page_bytes / size_of::<E::Stored>(),
            page_scales: page_bytes / size_of::<f32>(),
            head_dim: shape.head_dim,
            keys: shape.key_offset(layer, head),
            values: shape.value_offset(layer, head),
            key_scales: shape.key_scale_offset(layer, head),
            value_scales: shape.value_scale_offset(layer, head),
            pages,
            committed,
            scale,
        }
    }
}

/// Positions that lie side by side in one page.
#[derive(Clone, Copy)]
pub(super) struct Run<'a, E: Element> {
    store: Store<'a, E>,
    page: usize,
    /// The first position.
    pub(super) position: usize,
    /// Its lane in the page.
    pub(super) lane: usize,
    /// How many.
    pub(super) count: usize,
}

impl<'a, E: Element> Source<'a, E> {
    /// The run of positions from `position` on, before `end`. `path` holds the ancestors in flight: entry `j` is
    /// position `committed + j`.
    #[inline(always)]
    pub(super) fn run_at(&self, path: &[Slot], position: usize, end: usize) -> Run<'a, E> {
        match position.checked_sub(self.committed) {
            None => {
                let lane = position % PAGE_POSITIONS;
                Run {
                    store: self.pool,
                    page: self.pages[position / PAGE_POSITIONS].index(),
                    position,
                    lane,
                    count: (PAGE_POSITIONS - lane).min(end.min(self.committed) - position),
                }
            }
            Some(in_flight) => {
                let ahead = &path[in_flight..end - self.committed];
                let slot = ahead[0].index();
                Run {
                    store: self.scratch,
                    page: slot / PAGE_POSITIONS,
                    position,
                    lane: slot % PAGE_POSITIONS,
                    count: slots_of_page(ahead),
                }
            }
        }
    }

    /// The keys of a run's page, `[head_dim][16]`.
    #[inline(always)]
    pub(super) fn keys_of(&self, run: &Run<'a, E>) -> &'a [E::Stored] {
        let start = run.page * self.page_elements + self.keys;
        &run.store.elements[start..][..PAGE_POSITIONS * self.head_dim]
    }

    /// The values of a run's page, `[16][head_dim]`.
    #[inline(always)]
    pub(super) fn values_of(&self, run: &Run<'a, E>) -> &'a [E::Stored] {
        let start = run.page * self.page_elements + self.values;
        &run.store.elements[start..][..PAGE_POSITIONS * self.head_dim]
    }

    /// The scales of a run's keys, `[count]`.
    #[inline(always)]
    pub(super) fn key_scales_of(&self, run: &Run<'a, E>) -> &'a [f32] {
        let start = run.page * self.page_scales + self.key_scales + run.lane;
        &run.store.scales[start..][..run.count]
    }

    /// The scales of a run's values, `[count]`.
    #[inline(always)]
    pub(super) fn value_scales_of(&self, run: &Run<'a, E>) -> &'a [f32] {
        let start = run.page * self.page_scales + self.value_scales + run.lane;
        &run.store.scales[start..][..run.count]
    }

    /// The keys of the page some way behind a committed position, to be asked for: pages lie anywhere, and the processor cannot
    /// guess where. Those of the run itself where there is no such page.
    #[inline(always)]
    pub(super) fn keys_ahead(&self, run: &Run<'a, E>) -> &'a [E::Stored] {
        self.ahead(run, self.keys)
    }

    /// The same of values.
    #[inline(always)]
    pub(super) fn values_ahead(&self, run: &Run<'a, E>) -> &'a [E::Stored] {
        self.ahead(run, self.values)
    }

    #[inline(always)]
    fn ahead(&self, run: &Run<'a, E>, half: usize) -> &'a [E::Stored] {
        let ahead = run.position / PAGE_POSITIONS + AHEAD_PAGES;
        let (store, page) = match ahead * PAGE_POSITIONS < self.committed {
            true => (self.pool, self.pages[ahead].index()),
            false => (run.store, run.page),
        };
        &store.elements[page * self.page_elements + half..][..PAGE_POSITIONS * self.head_dim]
    }
}

/// How many of the next ancestors lie side by side in the scratch page of the first.
#[inline(always)]
fn slots_of_page(path: &[Slot]) -> usize {
    let first = path[0].index();
    let room = PAGE_POSITIONS - first % PAGE_POSITIONS;
    let is_next = |(i, slot): &(usize, &Slot)| slot.index() == first + i;
    path.iter()
        .take(room)
        .enumerate()
        .take_while(is_next)
        .count()
}
