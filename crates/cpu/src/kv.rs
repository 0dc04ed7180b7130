//! KV page pools and the scratch of nodes in flight, in the layout of [`foredraft_model::kv`].

#![allow(unsafe_code)]

use std::ops::Range;

use foredraft_model::kv::{KvGroup, KvType, PAGE_POSITIONS, PageId, pages_for};
use foredraft_model::{Commit, KvLayer, LoadError, PageCopy, Slot};
use half::f16;

use crate::kernels::attention::{Element, Store};
use crate::shared::Shared;
use crate::storage::Storage;

/// The pages of one layer group.
pub(crate) struct Group {
    pub(crate) shape: KvGroup,
    kind: KvType,
    /// `[pages][page]`. A page costs memory from its first use on.
    pool: Storage,
    /// Where the group's part of the scratch begins, in bytes.
    scratch_start: usize,
}

/// All page pools, and the scratch of nodes in flight.
pub(crate) struct KvStore {
    pub(crate) kind: KvType,
    pub(crate) groups: Vec<Group>,
    /// Of all groups, one after the other: `[scratch pages][page]`.
    scratch: Storage,
    scratch_pages: usize,
}

impl KvStore {
    pub(crate) fn new(
        shapes: &[KvGroup],
        kind: KvType,
        pages: &[usize],
        slots: usize,
    ) -> Result<Self, LoadError> {
        let scratch_pages = pages_for(slots);
        let mut bytes = 0;
        let mut groups = Vec::with_capacity(shapes.len());
        for (shape, pages) in shapes.iter().zip(pages) {
            groups.push(Group {
                shape: *shape,
                kind,
                pool: Storage::new(pages * shape.page_bytes(kind))?,
                scratch_start: bytes,
            });
            bytes += scratch_pages * shape.page_bytes(kind);
        }
        Ok(Self {
            kind,
            groups,
            scratch: Storage::new(bytes)?,
            scratch_pages,
        })
    }

    /// Pages in the pool of a group.
    pub(crate) fn pages(&self, group: usize) -> usize {
        let group = &self.groups[group];
        group.pool.bytes().len() / group.page_bytes().max(1)
    }

    pub(crate) fn pool_bytes(shape: &KvGroup, kind: KvType, pages: usize) -> u64 {
        pages as u64 * shape.page_bytes(kind) as u64
    }

    pub(crate) fn scratch_bytes(shape: &KvGroup, kind: KvType, slots: usize) -> u64 {
        Self::pool_bytes(shape, kind, pages_for(slots))
    }

    /// Copies accepted nodes, in order, to the positions from `commit.committed` on.
    pub(crate) fn commit(&mut self, commit: &Commit<'_>) {
        for (group, table) in self.groups.iter_mut().zip(commit.tables) {
            let scratch = &self.scratch.bytes()[group.scratch_range(self.scratch_pages)];
            for (i, slot) in commit.slots.iter().enumerate() {
                let position = commit.committed + i;
                let page = table[position / PAGE_POSITIONS];
                group.copy_position(scratch, *slot, page, position % PAGE_POSITIONS);
            }
        }
    }

    /// Copies whole pages, one after the other.
    pub(crate) fn copy_pages(&mut self, copies: &[PageCopy]) {
        for copy in copies {
            let group = &mut self.groups[copy.group];
            let bytes = group.page_bytes();
            let from = copy.from.index() * bytes;
            let pool = group.pool.bytes_mut();
            pool.copy_within(from..from + bytes, copy.to.index() * bytes);
        }
    }

    /// The store as the threads of a pass share it.
    pub(crate) fn share(&mut self) -> SharedKv<'_> {
        SharedKv {
            groups: &self.groups,
            scratch: Shared::new(self.scratch.bytes_mut()),
            scratch_pages: self.scratch_pages,
        }
    }
}

/// The type whose elements have scales, or the one whose have none.
pub(crate) const fn kv_type(is_scaled: bool) -> KvType {
    if is_scaled { KvType::Q8 } else { KvType::F16 }
}

/// Bytes of pages as elements and as scales.
fn store<E: Element>(bytes: &[u8]) -> Store<'_, E> {
    Store {
        elements: bytemuck::cast_slice(bytes),
        scales: if E::SCALED {
            bytemuck::cast_slice(bytes)
        } else {
            &[]
        },
    }
}

impl Group {
    fn page_bytes(&self) -> usize {
        self.shape.page_bytes(self.kind)
    }

    /// The pool, as elements of the store's type.
    pub(crate) fn pool<E: Element>(&self) -> Store<'_, E> {
        store(self.pool.bytes())
    }

    fn scratch_range(&self, pages: usize) -> Range<usize> {
        self.scratch_start..self.scratch_start + pages * self.page_bytes()
    }

    fn copy_position(&mut self, scratch: &[u8], slot: Slot, page: PageId, lane: usize) {
        let (shape, bytes) = (self.shape, self.page_bytes());
        let from = &scratch[slot.index() / PAGE_POSITIONS * bytes..][..bytes];
        let to = &mut self.pool.bytes_mut()[page.index() * bytes..][..bytes];
        let from_lane = slot.index() % PAGE_POSITIONS;
        match self.kind {
            KvType::F16 => {
                let (from, to) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
                copy_elements::<u16>(&shape, from, from_lane, to, lane);
            }
            KvType::Q8 => {
                copy_elements::<u8>(&shape, from, from_lane, to, lane);
                let (from, to): (&[f32], &mut [f32]) =
                    (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
                for start in (shape.key_scale_offset(0, 0)..from.len()).step_by(PAGE_POSITIONS) {
                    to[start + lane] = from[start + from_lane];
                }
            }
        }
    }
}

/// Copies the keys and values of one position of a page.
fn copy_elements<T: Copy>(
    shape: &KvGroup,
    from: &[T],
    from_lane: usize,
    to: &mut [T],
    lane: usize,
) {
    for layer in 0..shape.layers {
        for head in 0..shape.kv_heads {
            let keys = shape.key_offset(layer, head);
            for row in (keys..keys + shape.head_dim * PAGE_POSITIONS).step_by(PAGE_POSITIONS) {
                to[row + lane] = from[row + from_lane];
            }
            let values = shape.value_offset(layer, head);
            to[values + lane * shape.head_dim..][..shape.head_dim]
                .copy_from_slice(&from[values + from_lane * shape.head_dim..][..shape.head_dim]);
        }
    }
}

/// The pools, only read by a pass, and the scratch, shared by its threads.
#[derive(Clone, Copy)]
pub(crate) struct SharedKv<'a> {
    pub(crate) groups: &'a [Group],
    scratch: Shared<'a, u8>,
    scratch_pages: usize,
}

impl<'a> SharedKv<'a> {
    /// The scratch of a group.
    ///
    /// # Safety
    /// No thread may write to it until a barrier later.
    pub(crate) unsafe fn scratch<E: Element>(&self, group: usize) -> Store<'a, E> {
        // SAFETY: the caller's promise.
        store(unsafe {
            self.scratch
                .range(self.groups[group].scratch_range(self.scratch_pages))
        })
    }

    /// Writes the key and the value of one head to a slot, rounded to the page's type.
    ///
    /// # Safety
    /// No other thread may touch this head of this slot until a barrier later.
    pub(crate) unsafe fn write(
        &self,
        layer: KvLayer,
        head: usize,
        slot: Slot,
        key: &[f32],
        value: &[f32],
    ) {
        let group = &self.groups[layer.group];
        let shape = &group.shape;
        let page = group.scratch_start + slot.index() / PAGE_POSITIONS * group.page_bytes();
        let lane = slot.index() % PAGE_POSITIONS;
        let keys = shape.key_offset(layer.layer, head) + lane;
        let values = shape.value_offset(layer.layer, head) + lane * shape.head_dim;
        // SAFETY: elements of this slot's lane; the caller's promise.
        unsafe {
            match group.kind {
                KvType::F16 => {
                    let to_half = |x: &f32| f16::from_f32(*x).to_bits();
                    for (d, key) in key.iter().enumerate() {
                        self.put(page, keys + d * PAGE_POSITIONS, to_half(key));
                    }
                    for (d, value) in value.iter().enumerate() {
                        self.put(page, values + d, to_half(value));
                    }
                }
                KvType::Q8 => {
                    let scale = Scale::of(key);
                    for (d, key) in key.iter().enumerate() {
                        self.put(page, keys + d * PAGE_POSITIONS, scale.code(*key));
                    }
                    let at = shape.key_scale_offset(layer.layer, head) + lane;
                    self.put(page, at, scale.scale);
                    let scale = Scale::of(value);
                    for (d, value) in value.iter().enumerate() {
                        self.put(page, values + d, scale.code(*value));
                    }
                    let at = shape.value_scale_offset(layer.layer, head) + lane;
                    self.put(page, at, scale.scale);
                }
            }
        }
    }

    /// Writes element `at` of the page that begins at byte `page`.
    ///
    /// # Safety
    /// As [`Shared::range_mut`].
    #[inline(always)]
    unsafe fn put<T: bytemuck::Pod>(&self, page: usize, at: usize, value: T) {
        let start = page + at * size_of::<T>();
        // SAFETY: the caller's promise.
        let bytes = unsafe { self.scratch.range_mut(start..start + size_of::<T>()) };
        bytes.copy_from_slice(bytemuck::bytes_of(&value));
    }
}

/// How the values of a head become signed bytes.
struct Scale {
    scale: f32,
    inverse: f32,
}

impl Scale {
    /// The largest magnitude becomes 127. A value that is not finite makes the scale NaN, so that whatever is computed from
    /// it is refused by the sampler; magnitudes whose reciprocal would overflow count as zeros.
    fn of(values: &[f32]) -> Self {
        let larger = |max: f32, x: &f32| if x.abs() > max { x.abs() } else { max };
        let max = values.iter().fold(0.0, larger);
        if !values.iter().all(|x| x.is_finite()) {
            return Self {
                scale: f32::NAN,
                inverse: 0.0,
            };
        }
        if max < 1e-30 {
            return Self {
                scale: 0.0,
                inverse: 0.0,
            };
        }
        Self {
            scale: max / 127.0,
            inverse: 127.0 / max,
        }
    }

    fn code(&self, value: f32) -> i8 {
        (value * self.inverse).round_ties_even() as i8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::attention::{Byte, Half};

    #[test]
    fn commit_moves_a_node_to_its_position_in_every_layer_and_head() {
        let group = KvGroup {
            layers: 2,
            kv_heads: 2,
            head_dim: 3,
            window: None,
        };
        let mut store = KvStore::new(&[group], KvType::F16, &[4], 20).expect("memory");
        let elements = group.page_elements();
        let scratch: &mut [u16] = bytemuck::cast_slice_mut(store.scratch.bytes_mut());
        for (i, value) in scratch.iter_mut().enumerate() {
            *value = i as u16;
        }
        let tables = [vec![PageId(3), PageId(1)]];
        // Node 18 goes to position 15 (page 3, lane 15), node 2 to position 16 (page 1, lane 0).
        store.commit(&Commit {
            slots: &[Slot(18), Slot(2)],
            committed: 15,
            tables: &tables,
        });
        let pool = store.groups[0].pool::<Half>().elements;
        let mut copied = 0;
        for (slot, page, lane) in [(18, 3, 15), (2, 1, 0)] {
            for layer in 0..2 {
                for head in 0..2 {
                    for d in 0..3 {
                        let key = group.key_offset(layer, head) + d * 16;
                        let value = group.value_offset(layer, head);
                        let from = slot / 16 * elements;
                        assert_eq!(
                            pool[page * elements + key + lane] as usize,
                            from + key + slot % 16
                        );
                        assert_eq!(
                            pool[page * elements + value + lane * 3 + d] as usize,
                            from + value + slot % 16 * 3 + d
                        );
                        copied += 2;
                    }
                }
            }
        }
        let touched = pool.iter().filter(|v| **v != 0).count();
        assert_eq!(touched, copied, "nothing else is written");
    }

    #[test]
    fn bytes_are_rounded_by_head_and_committed_with_their_scales() {
        let group = KvGroup {
            layers: 2,
            kv_heads: 2,
            head_dim: 4,
            window: None,
        };
        let mut store = KvStore::new(&[group], KvType::Q8, &[2], 20).expect("memory");
        let layer = KvLayer { group: 0, layer: 1 };
        let (key, value) = ([127.0, -63.5, 0.4, 1.5], [0.0, -2.54, 1.27, 0.01]);
        // SAFETY: the only thread.
        unsafe { store.share().write(layer, 1, Slot(17), &key, &value) };
        let tables = [vec![PageId(1)]];
        store.commit(&Commit {
            slots: &[Slot(17)],
            committed: 5,
            tables: &tables,
        });
        let pool = store.groups[0].pool::<Byte>();
        let page = group.page_bytes(KvType::Q8);
        let keys = page + group.key_offset(1, 1) + 5;
        let codes: Vec<i8> = (0..4).map(|d| pool.elements[keys + 16 * d]).collect();
        // The scale is 1; -63.5 and 1.5 are ties and go to the even neighbour.
        assert_eq!(codes, [127, -64, 0, 2]);
        let values = page + group.value_offset(1, 1) + 5 * 4;
        assert_eq!(pool.elements[values..values + 4], [0, -127, 64, 0]);
        let scales = page / 4;
        assert_eq!(pool.scales[scales + group.key_scale_offset(1, 1) + 5], 1.0);
        let scale = pool.scales[scales + group.value_scale_offset(1, 1) + 5];
        assert_eq!(scale, 2.54 / 127.0);
        let touched = pool.elements.iter().filter(|code| **code != 0).count();
        // Three keys, two values, and the bytes of the scales 1.0 (2) and 0.02 (4).
        assert_eq!(touched, 3 + 2 + 2 + 4, "nothing else is written");
    }

    #[test]
    fn a_copy_is_the_whole_page_and_nothing_else() {
        let wide = KvGroup {
            layers: 2,
            kv_heads: 1,
            head_dim: 4,
            window: None,
        };
        let narrow = KvGroup { layers: 1, ..wide };
        for kind in [KvType::F16, KvType::Q8] {
            let mut store = KvStore::new(&[wide, narrow], kind, &[2, 3], 1).expect("memory");
            let [a, b] = [&wide, &narrow].map(|group| group.page_bytes(kind));
            for (group, seed) in store.groups.iter_mut().zip([1, 2]) {
                for (i, byte) in group.pool.bytes_mut().iter_mut().enumerate() {
                    *byte = (i * 31 + i / 256 + seed) as u8;
                }
            }
            let before: Vec<Vec<u8>> = store
                .groups
                .iter()
                .map(|group| group.pool.bytes().to_vec())
                .collect();
            let copy = |group, from, to| PageCopy {
                group,
                from: PageId(from),
                to: PageId(to),
            };
            // In order: page 2 of the second group gets what page 1 was given.
            store.copy_pages(&[copy(0, 0, 1), copy(1, 0, 1), copy(1, 1, 2)]);
            let first = &before[0][..a];
            assert_eq!(store.groups[0].pool.bytes(), [first, first].concat());
            let first = &before[1][..b];
            assert_eq!(store.groups[1].pool.bytes(), [first, first, first].concat());
        }
    }

    #[test]
    fn a_head_that_is_not_finite_gets_a_scale_that_is_not() {
        assert!(Scale::of(&[1.0, f32::NAN]).scale.is_nan());
        assert!(Scale::of(&[f32::INFINITY, 1.0]).scale.is_nan());
        let zeros = Scale::of(&[1e-31, 0.0]);
        assert_eq!((zeros.scale, zeros.code(1e-31)), (0.0, 0));
    }
}
