//! One pass: what a thread does at each operation.
//!
//! The discipline that makes the sharing sound: within a stage each worker writes only its own share of the
//! output and reads only what was complete before the stage began, and all meet at a barrier before the next.
//! Every `SAFETY` comment below refers to it.

#![allow(unsafe_code)]

use std::ops::Range;

use foredraft_model::{Batch, BufferId, KvLayer, Op, Projection, RowSet, TapId, VectorId};
use foredraft_quant::{ACTIVATION_BLOCK, PANEL_ROWS};

use super::Model;
use crate::kernels::activations::{Destination, SharedActivations, TILE, quantize};
use crate::kernels::attention::{GROUP, HeadContext, Workspace, attend_heads};
use crate::kernels::elementwise::silu_product;
use crate::kernels::linear::{FLOAT_TILE, Finish, Job, float_panels, quantized_panels};
use crate::kernels::norm::rms_norm;
use crate::kernels::rotate::{Rotation, rotate_head};
use crate::kv::SharedKv;
use crate::pool::Worker;
use crate::shared::{Shared, share};
use crate::weights::Matrix;

/// A pass as all its threads see it.
pub(super) struct Pass<'a> {
    pub(super) model: &'a Model,
    pub(super) batch: &'a Batch,
    pub(super) kv: SharedKv<'a>,
    /// Every buffer and tap.
    pub(super) arena: Shared<'a, f32>,
    pub(super) activations: SharedActivations<'a>,
    /// One for each worker.
    pub(super) workspaces: Shared<'a, Workspace>,
}

impl<'a> Pass<'a> {
    /// Runs the program's operations, this worker's share of each.
    pub(super) fn walk(&self, worker: &Worker<'_>) {
        for op in &self.model.program.ops {
            match op {
                Op::Embed { table, out } => {
                    self.embed(worker, &self.model.matrices[table.index()], *out)
                }
                Op::RmsNorm {
                    input,
                    weight,
                    eps,
                    out,
                } => self.rms_norm(worker, *input, *weight, *eps, *out),
                Op::Linear { input, outputs } => self.linear(worker, *input, outputs),
                Op::RotateAndCache { .. } => self.rotate_and_cache(worker, op),
                Op::Attend {
                    query,
                    layer,
                    scale,
                    out,
                } => self.attend(worker, *query, *layer, *scale, *out),
                Op::SiluProduct { gate, up } => self.silu_product(worker, *gate, *up),
                Op::Tap { input, tap } => self.tap(worker, *input, *tap),
                Op::Gather { input, out } => self.gather(worker, *input, *out),
            }
            worker.barrier();
        }
    }

    /// Rows of this pass that a buffer holds.
    fn rows(&self, id: BufferId) -> usize {
        match self.model.program.buffers[id.index()].rows {
            RowSet::All => self.batch.rows().len(),
            RowSet::Outputs => self.batch.outputs().len(),
        }
    }

    fn width(&self, id: BufferId) -> usize {
        self.model.program.buffers[id.index()].width
    }

    /// Where values `range` of row `row` of a buffer lie in the arena.
    fn place(&self, id: BufferId, row: usize, range: Range<usize>) -> Range<usize> {
        let start = self.model.buffer_starts[id.index()] + row * self.width(id);
        start + range.start..start + range.end
    }

    /// # Safety
    /// As [`Shared::range`].
    unsafe fn row(&self, id: BufferId, row: usize) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.arena.range(self.place(id, row, 0..self.width(id))) }
    }

    /// # Safety
    /// As [`Shared::range_mut`].
    #[allow(clippy::mut_from_ref)]
    unsafe fn row_mut(&self, id: BufferId, row: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.arena.range_mut(self.place(id, row, 0..self.width(id))) }
    }

    fn embed(&self, worker: &Worker<'_>, table: &Matrix, out: BufferId) {
        for row in share(self.rows(out), 1, worker.index, worker.count) {
            let token = self.batch.rows()[row].token;
            // SAFETY: rows are shared out.
            table.decode_row(token.index(), unsafe { self.row_mut(out, row) });
        }
    }

    fn rms_norm(
        &self,
        worker: &Worker<'_>,
        input: BufferId,
        weight: VectorId,
        eps: f32,
        out: BufferId,
    ) {
        let weight = &self.model.vectors[weight.index()];
        for row in share(self.rows(input), 1, worker.index, worker.count) {
            // SAFETY: rows are shared out; input and out are different buffers.
            let (x, y) = unsafe { (self.row(input, row), self.row_mut(out, row)) };
            rms_norm(self.model.isa, x, weight, eps, y);
        }
    }

    fn linear(&self, worker: &Worker<'_>, input: BufferId, outputs: &[Projection]) {
        let matrices = || {
            outputs
                .iter()
                .map(|o| &self.model.matrices[o.weight.index()])
        };
        if matrices().any(|m| m.kind.is_quantized()) {
            self.quantize_input(worker, input);
            worker.barrier();
        }
        for (projection, matrix) in outputs.iter().zip(matrices()) {
            if matrix.kind.is_quantized() {
                self.quantized(worker, input, projection, matrix);
            } else {
                self.float(worker, input, projection, matrix);
            }
        }
    }

    /// Rounds the input to 8 bits, the blocks of all rows shared out.
    fn quantize_input(&self, worker: &Worker<'_>, input: BufferId) {
        let (rows, width) = (self.rows(input), self.width(input));
        let blocks = width / ACTIVATION_BLOCK;
        let Range { start, end } = share(rows * blocks, 1, worker.index, worker.count);
        let mut next = start;
        while next < end {
            let (row, first_block) = (next / blocks, next % blocks);
            let count = (end - next).min(blocks - first_block);
            let tile_first = row / TILE * TILE;
            let to = Destination {
                tile_first,
                tile_rows: TILE.min(rows - tile_first),
                row: row - tile_first,
                blocks,
                first_block,
            };
            let values = first_block * ACTIVATION_BLOCK..(first_block + count) * ACTIVATION_BLOCK;
            // SAFETY: the input was complete before.
            let x = unsafe { self.arena.range(self.place(input, row, values)) };
            quantize(self.model.isa, x, to, self.activations);
            next += count;
        }
    }

    /// What becomes of the products of a projection.
    fn finish(&self, projection: &Projection) -> Finish<'a> {
        Finish {
            bias: projection.bias.map(|b| &self.model.vectors[b.index()][..]),
            accumulate: projection.accumulate,
        }
    }

    /// This worker's run of outputs of rows `first..first + count`.
    ///
    /// # Safety
    /// The run must be this worker's own.
    unsafe fn outputs<const N: usize>(
        &self,
        out: BufferId,
        first: usize,
        count: usize,
        run: &Range<usize>,
    ) -> [&'a mut [f32]; N] {
        std::array::from_fn(|m| {
            if m < count {
                // SAFETY: the caller's promise; rows differ.
                unsafe {
                    self.arena
                        .range_mut(self.place(out, first + m, run.clone()))
                }
            } else {
                &mut []
            }
        })
    }

    fn quantized(
        &self,
        worker: &Worker<'_>,
        input: BufferId,
        projection: &Projection,
        matrix: &Matrix,
    ) {
        let job = Job {
            matrix,
            rows: self.rows(input),
            x: self.activations,
            finish: self.finish(projection),
            arena: self.arena,
            out_start: self.model.buffer_starts[projection.out.index()],
        };
        let panels = share(matrix.panels(), 1, worker.index, worker.count);
        // SAFETY: the activations are complete; panels are shared out.
        unsafe { quantized_panels(self.model.isa, &job, panels) };
    }

    fn float(
        &self,
        worker: &Worker<'_>,
        input: BufferId,
        projection: &Projection,
        matrix: &Matrix,
    ) {
        let panels = share(matrix.panels(), 1, worker.index, worker.count);
        let run = panels.start * PANEL_ROWS..matrix.rows.min(panels.end * PANEL_ROWS);
        let rows = self.rows(input);
        for first in (0..rows).step_by(FLOAT_TILE) {
            let count = FLOAT_TILE.min(rows - first);
            // SAFETY: the input is complete; runs of outputs are shared out.
            let (x, mut outs) = unsafe {
                let x: [&[f32]; FLOAT_TILE] = std::array::from_fn(|m| {
                    if m < count {
                        self.row(input, first + m)
                    } else {
                        &[]
                    }
                });
                (
                    x,
                    self.outputs::<FLOAT_TILE>(projection.out, first, count, &run),
                )
            };
            float_panels(
                self.model.isa,
                matrix,
                panels.clone(),
                &x[..count],
                self.finish(projection),
                &mut outs[..count],
            );
        }
    }

    /// Heads of queries and of keys are shared out together.
    fn rotate_and_cache(&self, worker: &Worker<'_>, op: &Op) {
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

    fn attend(
        &self,
        worker: &Worker<'_>,
        query: BufferId,
        layer: KvLayer,
        scale: f32,
        out: BufferId,
    ) {
        let group = &self.kv.groups[layer.group];
        let shape = &group.shape;
        let heads = self.width(query) / shape.head_dim;
        let queries_per_head = heads / shape.kv_heads;
        // SAFETY: keys and values of this layer are complete; a workspace belongs to one worker.
        let (scratch, workspace) = unsafe {
            let own = worker.index..worker.index + 1;
            (
                self.kv.scratch(layer.group),
                &mut self.workspaces.range_mut(own)[0],
            )
        };
        let together = heads_together(self.rows(query) * heads, queries_per_head, worker.count);
        let items = heads / together;
        for item in share(self.rows(query) * items, 1, worker.index, worker.count) {
            let (row, head) = (item / items, item % items * together);
            let node = &self.batch.rows()[row];
            let kv_head = head / queries_per_head;
            let context = HeadContext {
                pool: group.pool(),
                scratch,
                page_elements: shape.page_elements(),
                head_dim: shape.head_dim,
                keys: shape.key_offset(layer.layer, kv_head),
                values: shape.value_offset(layer.layer, kv_head),
                pages: self.batch.pages(node.sequence, layer.group),
                committed: self.batch.committed(node.sequence),
                path: self.batch.path(node),
                first: shape
                    .window
                    .map_or(0, |w| (node.position.index() + 1).saturating_sub(w)),
                scale,
            };
            let range = head * shape.head_dim..(head + together) * shape.head_dim;
            // SAFETY: the queries are complete; heads of the output are shared out.
            let (q, y) = unsafe {
                let q = self.arena.range(self.place(query, row, range.clone()));
                (q, self.arena.range_mut(self.place(out, row, range)))
            };
            attend_heads(self.model.isa, q, shape.head_dim, context, workspace, y);
        }
    }

    fn silu_product(&self, worker: &Worker<'_>, gate: BufferId, up: BufferId) {
        let values = self.rows(gate) * self.width(gate);
        let Range { start, end } = share(values, 16, worker.index, worker.count);
        let (gate, up) = (
            self.model.buffer_starts[gate.index()],
            self.model.buffer_starts[up.index()],
        );
        // SAFETY: values are shared out; gate and up are different buffers.
        unsafe {
            let gate = self.arena.range_mut(gate + start..gate + end);
            silu_product(self.model.isa, gate, self.arena.range(up + start..up + end));
        }
    }

    fn tap(&self, worker: &Worker<'_>, input: BufferId, tap: TapId) {
        let width = self.width(input);
        for row in share(self.rows(input), 1, worker.index, worker.count) {
            let start = self.model.tap_starts[tap.index()] + row * width;
            // SAFETY: rows are shared out; taps and buffers are different parts of the arena.
            unsafe {
                let kept = self.arena.range_mut(start..start + width);
                kept.copy_from_slice(self.row(input, row));
            }
        }
    }

    fn gather(&self, worker: &Worker<'_>, input: BufferId, out: BufferId) {
        for index in share(self.rows(out), 1, worker.index, worker.count) {
            let row = self.batch.outputs()[index] as usize;
            // SAFETY: rows are shared out; input and out are different buffers.
            unsafe {
                self.row_mut(out, index)
                    .copy_from_slice(self.row(input, row))
            };
        }
    }
}

/// How many heads of a KV head a worker takes at once: as many as fit, but so few that every worker gets its share.
fn heads_together(heads: usize, queries_per_head: usize, workers: usize) -> usize {
    let enough = |n: &usize| queries_per_head.is_multiple_of(*n) && heads / n >= 2 * workers;
    (2..=GROUP).rev().find(enough).unwrap_or(1)
}
