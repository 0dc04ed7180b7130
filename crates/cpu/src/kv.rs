//! KV page pools and the scratch of nodes in flight, in the layout of [`foredraft_model::kv`].

#![allow(unsafe_code)]

use std::ops::Range;

use foredraft_model::kv::{KvGroup, KvType, PAGE_POSITIONS, PageId, pages_for};
use foredraft_model::{Commit, KvLayer, LoadError, Slot};
use half::f16;

use crate::shared::Shared;
use crate::storage::Storage;

/// The pages of one layer group.
pub(crate) struct Group {
    pub(crate) shape: KvGroup,
    /// `[pages][page]`, halves. A page costs memory from its first use on.
    pool: Storage,
    /// Where the group's part of the scratch begins, in elements.
    scratch_start: usize,
}

/// All page pools, and the scratch of nodes in flight.
pub(crate) struct KvStore {
    pub(crate) groups: Vec<Group>,
    /// Of all groups, one after the other: `[scratch pages][page]`, halves.
    pub(crate) scratch: Vec<u16>,
    scratch_pages: usize,
}

impl KvStore {
    pub(crate) fn new(
        shapes: &[KvGroup],
        pages: &[usize],
        slots: usize,
    ) -> Result<Self, LoadError> {
        let scratch_pages = pages_for(slots);
        let mut elements = 0;
        let mut groups = Vec::with_capacity(shapes.len());
        for (shape, pages) in shapes.iter().zip(pages) {
            groups.push(Group {
                shape: *shape,
                pool: Storage::new(pages * shape.page_bytes(KvType::F16))?,
                scratch_start: elements,
            });
            elements += scratch_pages * shape.page_elements();
        }
        Ok(Self {
            groups,
            scratch: vec![0; elements],
            scratch_pages,
        })
    }

    /// Pages in the pool of a group.
    pub(crate) fn pages(&self, group: usize) -> usize {
        let group = &self.groups[group];
        group.pool().len() / group.shape.page_elements().max(1)
    }

    pub(crate) fn pool_bytes(shape: &KvGroup, pages: usize) -> u64 {
        pages as u64 * shape.page_bytes(KvType::F16) as u64
    }

    pub(crate) fn scratch_bytes(shape: &KvGroup, slots: usize) -> u64 {
        Self::pool_bytes(shape, pages_for(slots))
    }

    /// Copies accepted nodes, in order, to the positions from `commit.committed` on.
    pub(crate) fn commit(&mut self, commit: &Commit<'_>) {
        for (group, table) in self.groups.iter_mut().zip(commit.tables) {
            let scratch = &self.scratch[group.scratch_range(self.scratch_pages)];
            for (i, slot) in commit.slots.iter().enumerate() {
                let position = commit.committed + i;
                let page = table[position / PAGE_POSITIONS];
                group.copy_position(scratch, *slot, page, position % PAGE_POSITIONS);
            }
        }
    }

    /// The store as the threads of a pass share it.
    pub(crate) fn share(&mut self) -> SharedKv<'_> {
        SharedKv {
            groups: &self.groups,
            scratch: Shared::new(&mut self.scratch),
            scratch_pages: self.scratch_pages,
        }
    }
}

impl Group {
    /// `[pages][page]`, halves.
    #[inline(always)]
    pub(crate) fn pool(&self) -> &[u16] {
        bytemuck::cast_slice(self.pool.bytes())
    }

    fn scratch_range(&self, pages: usize) -> Range<usize> {
        self.scratch_start..self.scratch_start + pages * self.shape.page_elements()
    }

    fn copy_position(&mut self, scratch: &[u16], slot: Slot, page: PageId, lane: usize) {
        let shape = self.shape;
        let elements = shape.page_elements();
        let from = &scratch[slot.index() / PAGE_POSITIONS * elements..][..elements];
        let pool: &mut [u16] = bytemuck::cast_slice_mut(self.pool.bytes_mut());
        let to = &mut pool[page.index() * elements..][..elements];
        let from_lane = slot.index() % PAGE_POSITIONS;
        for layer in 0..shape.layers {
            for head in 0..shape.kv_heads {
                let keys = shape.key_offset(layer, head);
                for row in (keys..keys + shape.head_dim * PAGE_POSITIONS).step_by(PAGE_POSITIONS) {
                    to[row + lane] = from[row + from_lane];
                }
                let values = shape.value_offset(layer, head);
                to[values + lane * shape.head_dim..][..shape.head_dim].copy_from_slice(
                    &from[values + from_lane * shape.head_dim..][..shape.head_dim],
                );
            }
        }
    }
}

/// The pools, only read by a pass, and the scratch, shared by its threads.
#[derive(Clone, Copy)]
pub(crate) struct SharedKv<'a> {
    pub(crate) groups: &'a [Group],
    scratch: Shared<'a, u16>,
    scratch_pages: usize,
}

impl<'a> SharedKv<'a> {
    /// The scratch of a group.
    ///
    /// # Safety
    /// No thread may write to it until a barrier later.
    pub(crate) unsafe fn scratch(&self, group: usize) -> &'a [u16] {
        // SAFETY: the caller's promise.
        unsafe {
            self.scratch
                .range(self.groups[group].scratch_range(self.scratch_pages))
        }
    }

    /// Writes the key and the value of one head to a slot, rounded to halves.
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
        let page = group.scratch_start + slot.index() / PAGE_POSITIONS * shape.page_elements();
        let lane = slot.index() % PAGE_POSITIONS;
        let keys = page + shape.key_offset(layer.layer, head) + lane;
        for (d, key) in key.iter().enumerate() {
            let at = keys + d * PAGE_POSITIONS;
            // SAFETY: single elements of this slot's lane; the caller's promise.
            let cell = unsafe { self.scratch.range_mut(at..at + 1) };
            cell[0] = f16::from_f32(*key).to_bits();
        }
        let values = page + shape.value_offset(layer.layer, head) + lane * shape.head_dim;
        // SAFETY: the run of this slot's value; the caller's promise.
        let run = unsafe { self.scratch.range_mut(values..values + shape.head_dim) };
        for (cell, value) in run.iter_mut().zip(value) {
            *cell = f16::from_f32(*value).to_bits();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_moves_a_node_to_its_position_in_every_layer_and_head() {
        let group = KvGroup {
            layers: 2,
            kv_heads: 2,
            head_dim: 3,
            window: None,
        };
        let mut store = KvStore::new(&[group], &[4], 20).expect("memory");
        let elements = group.page_elements();
        for (i, value) in store.scratch.iter_mut().enumerate() {
            *value = i as u16;
        }
        let tables = [vec![PageId(3), PageId(1)]];
        // Node 18 goes to position 15 (page 3, lane 15), node 2 to position 16 (page 1, lane 0).
        store.commit(&Commit {
            slots: &[Slot(18), Slot(2)],
            committed: 15,
            tables: &tables,
        });
        let pool = store.groups[0].pool();
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
}
