//! One pass: what a thread does at each operation.
//!
//! The discipline that makes the sharing sound: within a stage each worker writes only its own share of the
//! output and reads only what was complete before the stage began, and all meet at a barrier before the next.
//! Every `SAFETY` comment below refers to it.

#![allow(unsafe_code)]

use std::ops::Range;
use std::time::Instant;

use foredraft_model::kv::KvType;
use foredraft_model::{Batch, BufferId, Op, RowSet, TapId, VectorId};

use super::linear::InputSpace;
use super::steps::Step;
use super::times::{Times, part_of};
use super::{Model, Space};
use crate::kernels::activations::SharedActivations;
use crate::kernels::elementwise::silu_product;
use crate::kernels::norm::rms_norm;
use crate::kv::SharedKv;
use crate::pool::Worker;
use crate::shared::{Shared, share};
use crate::weights::Matrix;

/// A pass as all its threads see it.
pub(super) struct Pass<'a> {
    pub(super) model: &'a Model,
    pub(super) batch: &'a Batch,
    pub(super) kv: SharedKv<'a>,
    pub(super) kv_type: KvType,
    /// Every buffer and tap.
    pub(super) arena: Shared<'a, f32>,
    pub(super) activations: SharedActivations<'a>,
    /// One for each worker.
    pub(super) spaces: Shared<'a, Space>,
}

impl<'a> Pass<'a> {
    /// Runs the steps, this worker's share of each.
    pub(super) fn walk(&self, worker: &Worker<'_>) {
        for step in &self.model.steps {
            self.step(worker, step);
            worker.barrier();
        }
    }

    /// The same with a clock, which worker 0 reads.
    pub(super) fn walk_timed(&self, worker: &Worker<'_>, times: Shared<'_, Times>) {
        let mut begun = Instant::now();
        for step in &self.model.steps {
            self.step(worker, step);
            let worked = Instant::now();
            worker.barrier();
            let met = Instant::now();
            if worker.index == 0 {
                // SAFETY: only worker 0 touches the times.
                let times = unsafe { &mut times.range_mut(0..1)[0] };
                times.add(part_of(self.model, step), begun, worked, met);
            }
            begun = met;
        }
    }

    fn step(&self, worker: &Worker<'_>, step: &Step) {
        match step {
            Step::Single(op) => self.single(worker, op),
            Step::Quantized { input, outputs } => self.quantized_linear(worker, *input, outputs),
        }
    }

    fn single(&self, worker: &Worker<'_>, op: &Op) {
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
            Op::Linear { input, outputs } => self.mixed_linear(worker, *input, outputs),
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
    }

    /// Rows of this pass that a buffer holds.
    pub(super) fn rows(&self, id: BufferId) -> usize {
        match self.model.program.buffers[id.index()].rows {
            RowSet::All => self.batch.rows().len(),
            RowSet::Outputs => self.batch.outputs().len(),
        }
    }

    pub(super) fn width(&self, id: BufferId) -> usize {
        self.model.program.buffers[id.index()].width
    }

    /// Where values `range` of row `row` of a buffer lie in the arena.
    pub(super) fn place(&self, id: BufferId, row: usize, range: Range<usize>) -> Range<usize> {
        let start = self.model.buffer_starts[id.index()] + row * self.width(id);
        start + range.start..start + range.end
    }

    /// # Safety
    /// As [`Shared::range`].
    pub(super) unsafe fn row(&self, id: BufferId, row: usize) -> &'a [f32] {
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

    /// # Safety
    /// As [`Shared::range_mut`].
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn own_space(&self, worker: &Worker<'_>) -> &'a mut InputSpace {
        // SAFETY: the caller's promise.
        unsafe { &mut self.spaces.range_mut(worker.index..worker.index + 1)[0].input }
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
