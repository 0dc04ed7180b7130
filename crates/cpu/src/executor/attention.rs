//! The attention steps of a pass: heads are rotated and written to the scratch, then queries attend.

use std::ops::Range;

use foredraft_model::kv::KvType;
use foredraft_model::{Batch, BufferId, KvLayer, Op, Row, VectorId};

use super::pass::Pass;
use crate::kernels::attention::{
    Byte, Element, GROUP, Half, Query, Source, Workspace, attend_byte, attend_half,
};
use crate::kernels::rotate::{Rotation, rotate_head};
use crate::pool::Worker;
use crate::shared::share;

/// What one query costs beside another, and what a group costs whatever its size, in the same unit: a key or a value is
/// loaded and widened by three instructions, and meets a query by one.
const GROUP_COST: usize = 3;

#[allow(unsafe_code)] // the discipline of `pass`
impl Pass<'_> {
    /// Heads of queries and of keys are shared out together.
    pub(super) fn rotate_and_cache(&self, worker: &Worker<'_>, op: &Op) {
        let Op::RotateAndCache {
            query,
            key,
            value,
            query_norm,
            key_norm,
            eps,
            rope,
            layer,
        } = op
        else {
            return;
        };
        let shape = &self.kv.groups[layer.group].shape;
        let (dim, kv_heads) = (shape.head_dim, shape.kv_heads);
        let heads = self.width(*query) / dim;
        let table = &self.model.program.ropes[rope.index()];
        let angles = &self.model.angles[rope.index()];
        let norm = |id: &Option<VectorId>| id.map(|v| &self.model.vectors[v.index()][..]);
        let each = heads + kv_heads;
        for item in share(self.rows(*query) * each, 1, worker.index, worker.count) {
            let (row, head) = (item / each, item % each);
            let node = &self.batch.rows()[row];
            let at =
                node.position.index() * table.pairs()..(node.position.index() + 1) * table.pairs();
            let rotation = Rotation {
                layout: table.layout,
                cosines: &angles.cosines[at.clone()],
                sines: &angles.sines[at],
            };
            if head < heads {
                let place = self.place(*query, row, head * dim..(head + 1) * dim);
                // SAFETY: heads are shared out.
                let x = unsafe { self.arena.range_mut(place) };
                rotate_head(self.model.isa, x, norm(query_norm), *eps, rotation);
            } else {
                let head = head - heads;
                let range = head * dim..(head + 1) * dim;
                // SAFETY: heads are shared out; a slot belongs to one row.
                unsafe {
                    let k = self.arena.range_mut(self.place(*key, row, range.clone()));
                    let v = self.arena.range(self.place(*value, row, range));
                    rotate_head(self.model.isa, k, norm(key_norm), *eps, rotation);
                    self.kv.write(*layer, head, node.slot, k, v);
                }
            }
        }
    }

    /// Queries that share a KV head of a sequence, of one row or of several, are shared out in groups.
    pub(super) fn attend(
        &self,
        worker: &Worker<'_>,
        query: BufferId,
        layer: KvLayer,
        scale: f32,
        out: BufferId,
    ) {
        // SAFETY: a worker's own space.
        let workspace = unsafe { self.own_workspace(worker) };
        let attend = Attend {
            query,
            layer,
            scale,
            out,
        };
        match self.kv_type {
            KvType::F16 => self.attend_over::<Half>(worker, &attend, |source, queries| {
                attend_half(self.model.isa, source, queries, workspace);
            }),
            KvType::Q8 => self.attend_over::<Byte>(worker, &attend, |source, queries| {
                attend_byte(self.model.isa, source, queries, workspace);
            }),
        }
    }

    fn attend_over<'s, E: Element>(
        &'s self,
        worker: &Worker<'_>,
        attend: &Attend,
        mut kernel: impl FnMut(Source<'s, E>, &mut [Query<'_>]),
    ) {
        let group = &self.kv.groups[attend.layer.group];
        let shape = &group.shape;
        let dim = shape.head_dim;
        let per_head = self.width(attend.query) / dim / shape.kv_heads;
        let together = queries_together(self.batch, shape.kv_heads, per_head, worker.count);
        let groups_of = |run: &Range<usize>| (run.len() * per_head).div_ceil(together);
        let groups = runs(self.batch).map(|run| groups_of(&run) * shape.kv_heads);
        let own = share(groups.sum(), 1, worker.index, worker.count);
        // SAFETY: keys and values of this layer are complete.
        let scratch = unsafe { self.kv.scratch::<E>(attend.layer.group) };
        let mut first = 0;
        for run in runs(self.batch) {
            let count = groups_of(&run);
            for item in first.max(own.start)..own.end.min(first + count * shape.kv_heads) {
                let (head, index) = ((item - first) / count, (item - first) % count);
                let sequence = self.batch.rows()[run.start].sequence;
                let source = Source::new(
                    shape,
                    (attend.layer.layer, head),
                    [group.pool::<E>(), scratch],
                    (
                        self.batch.pages(sequence, attend.layer.group),
                        self.batch.committed(sequence),
                    ),
                    attend.scale,
                );
                let members = index * together..(run.len() * per_head).min((index + 1) * together);
                let mut queries: [Query<'_>; GROUP] = std::array::from_fn(|n| {
                    let member = (members.start + n).min(members.end - 1);
                    let row = run.start + member / per_head;
                    let head = head * per_head + member % per_head;
                    let is_real = members.start + n < members.end;
                    self.query(
                        attend,
                        row,
                        head * dim..(head + 1) * dim,
                        shape.window,
                        is_real,
                    )
                });
                kernel(source, &mut queries[..members.len()]);
            }
            first += count * shape.kv_heads;
        }
    }

    /// One head of one row; without an output where it only fills an array.
    fn query(
        &self,
        attend: &Attend,
        row: usize,
        range: Range<usize>,
        window: Option<usize>,
        is_real: bool,
    ) -> Query<'_> {
        let node: &Row = &self.batch.rows()[row];
        let out = if is_real {
            self.place(attend.out, row, range.clone())
        } else {
            0..0
        };
        // SAFETY: the queries are complete; heads of the output are shared out.
        let (values, out) = unsafe {
            let values = self.arena.range(self.place(attend.query, row, range));
            (values, self.arena.range_mut(out))
        };
        Query {
            values,
            path: self.batch.path(node),
            first: window.map_or(0, |w| (node.position.index() + 1).saturating_sub(w)),
            out,
        }
    }

    /// # Safety
    /// As [`crate::shared::Shared::range_mut`].
    #[allow(clippy::mut_from_ref)]
    unsafe fn own_workspace(&self, worker: &Worker<'_>) -> &mut Workspace {
        // SAFETY: the caller's promise.
        unsafe { &mut self.spaces.range_mut(worker.index..worker.index + 1)[0].attention }
    }
}

/// The operands of an attention step.
struct Attend {
    query: BufferId,
    layer: KvLayer,
    scale: f32,
    out: BufferId,
}

/// Runs of rows that belong to one sequence.
fn runs(batch: &Batch) -> impl Iterator<Item = Range<usize>> {
    let rows = batch.rows();
    let mut start = 0;
    std::iter::from_fn(move || {
        let sequence = rows.get(start)?.sequence;
        let of_run = rows[start..].iter().take_while(|r| r.sequence == sequence);
        let run = start..start + of_run.count();
        start = run.end;
        Some(run)
    })
}

/// How many queries are walked together: as many as save work, but so few that every worker gets its share.
fn queries_together(batch: &Batch, kv_heads: usize, per_head: usize, workers: usize) -> usize {
    let cost = |together: usize| {
        let groups = runs(batch).map(|run| (run.len() * per_head).div_ceil(together) * kv_heads);
        groups.sum::<usize>().div_ceil(workers) * (together + GROUP_COST)
    };
    (1..=GROUP).rev().min_by_key(|n| cost(*n)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use foredraft_common::TokenId;

    use super::*;

    fn batch(rows: &[usize]) -> Batch {
        let mut batch = Batch::new();
        for rows in rows {
            let sequence = batch.add_sequence(0, []);
            let mut parent = None;
            for _ in 0..*rows {
                parent = Some(batch.push(sequence, TokenId(0), parent, false));
            }
        }
        batch
    }

    #[test]
    fn rows_of_a_sequence_are_a_run() {
        let all: Vec<Range<usize>> = runs(&batch(&[2, 1, 3])).collect();
        assert_eq!(all, [0..2, 2..3, 3..6]);
        assert_eq!(runs(&batch(&[])).count(), 0);
    }

    #[test]
    fn groups_are_large_where_every_worker_has_work() {
        // SmolLM2, 8 rows, 2 workers: 24 queries a KV head; 12 groups of 6.
        assert_eq!(queries_together(&batch(&[8]), 3, 3, 2), 6);
        // One row of Qwen 1.5B: 6 queries for each of 2 heads, a group for each worker.
        assert_eq!(queries_together(&batch(&[1]), 2, 6, 2), 6);
        // The same with 4 workers: 4 groups of 3.
        assert_eq!(queries_together(&batch(&[1]), 2, 6, 4), 3);
    }
}
