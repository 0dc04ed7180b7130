//! The attention steps of a pass: heads are rotated and written to the scratch, then queries attend.

use std::ops::Range;

use foredraft_model::kv::{KvGroup, KvType};
use foredraft_model::{BufferId, KvLayer, Op, Row, VectorId};

use super::pass::Pass;
use super::sharing::{Item, Sharing, parts, runs};
use crate::kernels::attention::{
    Byte, Element, GROUP, Half, Query, Source, Workspace, attend_byte, attend_half, combine_parts,
    part_len,
};
use crate::kernels::rotate::{Rotation, rotate_head};
use crate::pool::Worker;
use crate::shared::share;

#[allow(unsafe_code)] // the discipline of `pass`
impl Pass<'_> {
    /// A KV head and its query heads, of all rows, go to one worker where that is possible: it is the one that will read most of
    /// them, and keys of different rows share lines of memory.
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
        let (rows, per_head) = (self.rows(*query), heads / kv_heads);
        let each = (per_head + 1) * rows;
        for item in share(kv_heads * each, 1, worker.index, worker.count) {
            let (kv_head, member, row) = (item / each, item % each / rows, item % rows);
            let node = &self.batch.rows()[row];
            let at =
                node.position.index() * table.pairs()..(node.position.index() + 1) * table.pairs();
            let rotation = Rotation {
                layout: table.layout,
                cosines: &angles.cosines[at.clone()],
                sines: &angles.sines[at],
            };
            if member < per_head {
                let head = kv_head * per_head + member;
                let place = self.place(*query, row, head * dim..(head + 1) * dim);
                // SAFETY: heads are shared out.
                let x = unsafe { self.arena.range_mut(place) };
                rotate_head(self.model.isa, x, norm(query_norm), *eps, rotation);
            } else {
                let range = kv_head * dim..(kv_head + 1) * dim;
                // SAFETY: heads are shared out; a slot belongs to one row.
                unsafe {
                    let k = self.arena.range_mut(self.place(*key, row, range.clone()));
                    let v = self.arena.range(self.place(*value, row, range));
                    rotate_head(self.model.isa, k, norm(key_norm), *eps, rotation);
                    self.kv.write(*layer, kv_head, node.slot, k, v);
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
            KvType::F16 => self.attend_over::<Half>(worker, &attend, |source, queries, part| {
                attend_half(self.model.isa, source, queries, part, workspace);
            }),
            KvType::Q8 => self.attend_over::<Byte>(worker, &attend, |source, queries, part| {
                attend_byte(self.model.isa, source, queries, part, workspace);
            }),
        }
    }

    fn attend_over<'s, E: Element>(
        &'s self,
        worker: &Worker<'_>,
        attend: &Attend,
        mut kernel: impl FnMut(Source<'s, E>, &mut [Query<'_>], Option<usize>),
    ) {
        let group = &self.kv.groups[attend.layer.group];
        let shape = &group.shape;
        let per_head = self.width(attend.query) / shape.head_dim / shape.kv_heads;
        let sharing = Sharing::new(self.batch, shape.kv_heads, per_head, worker.count);
        let items = runs(self.batch).map(|run| sharing.items(self.batch, &run));
        let own = share(items.sum(), 1, worker.index, worker.count);
        // SAFETY: keys and values of this layer are complete.
        let scratch = unsafe { self.kv.scratch::<E>(attend.layer.group) };
        let mut first = 0;
        for run in runs(self.batch) {
            let count = sharing.items(self.batch, &run);
            let sequence = self.batch.rows()[run.start].sequence;
            let committed = self.batch.committed(sequence);
            let pages = self.batch.pages(sequence, attend.layer.group);
            for item in first.max(own.start)..own.end.min(first + count) {
                let Item {
                    head,
                    members,
                    part,
                } = sharing.item(self.batch, &run, item - first);
                let source = Source::new(
                    shape,
                    (attend.layer.layer, head),
                    [group.pool::<E>(), scratch],
                    (pages, committed),
                    attend.scale,
                );
                let mut queries: [Query<'_>; GROUP] = std::array::from_fn(|n| {
                    let member = (members.start + n).min(members.end - 1);
                    let row = run.start + member / per_head;
                    let head = head * per_head + member % per_head;
                    let is_real = members.start + n < members.end;
                    self.query(attend, shape, (row, head), is_real.then_some(part))
                });
                kernel(source, &mut queries[..members.len()], part);
            }
            first += count;
        }
        if sharing.is_split {
            worker.barrier();
            self.combine(worker, attend, shape.head_dim);
        }
    }

    /// Combines the parts of each query, which all workers have made.
    fn combine(&self, worker: &Worker<'_>, attend: &Attend, dim: usize) {
        let heads = self.width(attend.query) / dim;
        let rows = self.batch.rows();
        for item in share(rows.len() * heads, 1, worker.index, worker.count) {
            let (row, head) = (item / heads, item % heads);
            let run = runs(self.batch).find(|run| run.contains(&row));
            let parts = run.map_or(0, |run| parts(self.batch, &run));
            let start = self.part_place(attend, dim, (row, head), 0).start;
            let out = self.place(attend.out, row, head * dim..(head + 1) * dim);
            // SAFETY: the parts are complete; heads of the output are shared out.
            unsafe {
                let made = self.arena.range(start..start + parts * part_len(dim));
                combine_parts(self.model.isa, made, self.arena.range_mut(out));
            }
        }
    }

    /// Where the result of one part of a query's context is written down.
    fn part_place(
        &self,
        attend: &Attend,
        dim: usize,
        (row, head): (usize, usize),
        part: usize,
    ) -> Range<usize> {
        let heads = self.width(attend.query) / dim;
        let query = row * heads + head;
        let start = (query * self.model.most_parts + part) * part_len(dim);
        let start = self.model.parts_start + start;
        start..start + part_len(dim)
    }

    /// One head of one row, over its whole context or a part of it; without an output (`None`) where it only fills an
    /// array.
    fn query(
        &self,
        attend: &Attend,
        shape: &KvGroup,
        (row, head): (usize, usize),
        over: Option<Option<usize>>,
    ) -> Query<'_> {
        let node: &Row = &self.batch.rows()[row];
        let dim = shape.head_dim;
        let range = head * dim..(head + 1) * dim;
        let out = match over {
            None => 0..0,
            Some(None) => self.place(attend.out, row, range.clone()),
            Some(Some(part)) => self.part_place(attend, dim, (row, head), part),
        };
        // SAFETY: the queries are complete; heads and parts of the output are shared out.
        let (values, out) = unsafe {
            let values = self.arena.range(self.place(attend.query, row, range));
            (values, self.arena.range_mut(out))
        };
        let position = node.position.index();
        Query {
            values,
            path: self.batch.path(node),
            first: shape.window.map_or(0, |w| (position + 1).saturating_sub(w)),
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
