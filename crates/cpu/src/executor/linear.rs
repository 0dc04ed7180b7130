//! The linear layers of a pass: the input is rounded to 8 bits, then the panels of all matrices are shared out.

use std::ops::Range;

use foredraft_model::{BufferId, Projection};
use foredraft_quant::{ACTIVATION_BLOCK, PANEL_ROWS};

use super::pass::Pass;
use super::steps::Input;
use crate::kernels::activations::{
    ActivationBuffer, Destination, SharedActivations, TILE, quantize,
};
use crate::kernels::elementwise::silu_product;
use crate::kernels::linear::{FLOAT_TILE, Finish, Job, float_panels, quantized_panels};
use crate::kernels::norm::rms_norm;
use crate::pool::Worker;
use crate::shared::share;
use crate::weights::Matrix;

/// Up to so many rows each worker rounds all of them for itself: that takes less than a meeting of all workers and fetching
/// from another processor what it rounded.
pub(super) const PRIVATE_ROWS: usize = TILE;

/// Bytes of a matrix that a worker takes at once.
const CLAIM_BYTES: usize = 32 * 1024;

/// A worker's own memory for the inputs of linear layers.
pub(crate) struct InputSpace {
    /// A row before it is rounded, `[width]`.
    row: Vec<f32>,
    /// [`PRIVATE_ROWS`] rows, rounded.
    rounded: ActivationBuffer,
}

impl InputSpace {
    pub(crate) fn new(width: usize) -> Self {
        Self {
            row: vec![0.0; width],
            rounded: ActivationBuffer::new(PRIVATE_ROWS * width),
        }
    }

    pub(crate) fn bytes_for(width: usize) -> u64 {
        4 * width as u64 + ActivationBuffer::bytes_for(PRIVATE_ROWS * width)
    }
}

#[allow(unsafe_code)] // the discipline of `pass`
impl<'a> Pass<'a> {
    /// A linear layer whose matrices are all quantized.
    pub(super) fn quantized_linear(
        &self,
        worker: &Worker<'_>,
        input: Input,
        outputs: &[Projection],
    ) {
        let rows = self.rows(input.shape());
        // SAFETY: a worker's own space.
        let space = unsafe { self.own_space(worker) };
        if rows <= PRIVATE_ROWS {
            let rounded = space.rounded.share();
            for row in 0..rows {
                self.round_row(input, row, rows, &mut space.row, rounded);
            }
            self.multiply(worker, rows, outputs, rounded);
        } else {
            self.round_shared(worker, input, rows, &mut space.row);
            worker.barrier();
            self.multiply(worker, rows, outputs, self.activations);
        }
    }

    /// A linear layer with a float matrix, and perhaps quantized ones beside it.
    pub(super) fn mixed_linear(
        &self,
        worker: &Worker<'_>,
        input: BufferId,
        outputs: &[Projection],
    ) {
        let matrix = |o: &Projection| &self.model.matrices[o.weight.index()];
        let rows = self.rows(input);
        if outputs.iter().any(|o| matrix(o).kind.is_quantized()) {
            // SAFETY: a worker's own space.
            let space = unsafe { self.own_space(worker) };
            self.round_shared(worker, Input::Buffer(input), rows, &mut space.row);
            worker.barrier();
        }
        for projection in outputs {
            let matrix = matrix(projection);
            if matrix.kind.is_quantized() {
                let job = self.job(rows, projection, matrix, self.activations);
                let panels = share(matrix.panels(), 1, worker.index, worker.count);
                // SAFETY: the activations are complete; panels are shared out.
                unsafe { quantized_panels(self.model.isa, &job, panels) };
            } else {
                self.float(worker, input, projection, matrix);
            }
        }
    }

    /// Rounds this worker's share of the rows: whole rows of a norm, which needs them whole, else runs of blocks.
    fn round_shared(&self, worker: &Worker<'_>, input: Input, rows: usize, space: &mut [f32]) {
        if let Input::Norm { .. } = input {
            for row in share(rows, 1, worker.index, worker.count) {
                self.round_row(input, row, rows, space, self.activations);
            }
            return;
        }
        let blocks = self.width(input.shape()) / ACTIVATION_BLOCK;
        let Range { start, end } = share(rows * blocks, 1, worker.index, worker.count);
        let mut next = start;
        while next < end {
            let (row, first) = (next / blocks, next % blocks);
            let last = blocks.min(first + end - next);
            self.round_blocks(input, row, rows, first..last, space, self.activations);
            next += last - first;
        }
    }

    fn round_row(
        &self,
        input: Input,
        row: usize,
        rows: usize,
        space: &mut [f32],
        to: SharedActivations<'_>,
    ) {
        let blocks = self.width(input.shape()) / ACTIVATION_BLOCK;
        self.round_blocks(input, row, rows, 0..blocks, space, to);
    }

    /// Makes blocks of a row of the input and rounds them. (Of a norm: all of them.)
    fn round_blocks(
        &self,
        input: Input,
        row: usize,
        rows: usize,
        blocks: Range<usize>,
        space: &mut [f32],
        to: SharedActivations<'_>,
    ) {
        let isa = self.model.isa;
        let tile_first = row / TILE * TILE;
        let destination = Destination {
            tile_first,
            tile_rows: TILE.min(rows - tile_first),
            row: row - tile_first,
            blocks: self.width(input.shape()) / ACTIVATION_BLOCK,
            first_block: blocks.start,
        };
        let values = blocks.start * ACTIVATION_BLOCK..blocks.end * ACTIVATION_BLOCK;
        let space = &mut space[..values.len()];
        // SAFETY: the buffers that are read were complete before the step and are not written in it.
        let read = |id| unsafe { self.arena.range(self.place(id, row, values.clone())) };
        let x = match input {
            Input::Buffer(buffer) => read(buffer),
            Input::Norm { input, weight, eps } => {
                let weight = &self.model.vectors[weight.index()];
                rms_norm(isa, read(input), weight, eps, space);
                space
            }
            Input::Gated { gate, up } => {
                space.copy_from_slice(read(gate));
                silu_product(isa, space, read(up));
                space
            }
        };
        quantize(isa, x, destination, to);
    }

    /// The products of all matrices with the rounded rows. A worker takes its own share piece by piece, then helps the
    /// others: one that is held up by something else on its processor leaves the rest of its share to them.
    fn multiply(
        &self,
        worker: &Worker<'_>,
        rows: usize,
        outputs: &[Projection],
        x: SharedActivations<'_>,
    ) {
        let total = outputs.iter().map(|o| self.panels(o)).sum();
        let piece = self.piece(outputs, total, worker.count);
        worker.claim(total, piece, |claimed| {
            let mut first = 0;
            for projection in outputs {
                let count = self.panels(projection);
                let (start, end) = (claimed.start.max(first), claimed.end.min(first + count));
                if start < end {
                    let matrix = &self.model.matrices[projection.weight.index()];
                    let job = self.job(rows, projection, matrix, x);
                    // SAFETY: the activations are complete; every panel is claimed once.
                    unsafe { quantized_panels(self.model.isa, &job, start - first..end - first) };
                }
                first += count;
            }
        });
    }

    fn panels(&self, projection: &Projection) -> usize {
        self.model.matrices[projection.weight.index()].panels()
    }

    /// Panels that are taken at once: some [`CLAIM_BYTES`], but never so few that a worker's share is more than about 16 pieces.
    fn piece(&self, outputs: &[Projection], total: usize, workers: usize) -> usize {
        let width = self.model.matrices[outputs[0].weight.index()].width;
        let by_bytes = CLAIM_BYTES / (width * PANEL_ROWS / 2).max(1);
        by_bytes.max(total / (16 * workers)).max(1)
    }

    fn job(
        &self,
        rows: usize,
        projection: &Projection,
        matrix: &'a Matrix,
        x: SharedActivations<'a>,
    ) -> Job<'a> {
        Job {
            matrix,
            rows,
            x,
            finish: self.finish(projection),
            arena: self.arena,
            out_start: self.model.buffer_starts[projection.out.index()],
        }
    }

    /// What becomes of the products of a projection.
    fn finish(&self, projection: &Projection) -> Finish<'a> {
        Finish {
            bias: projection.bias.map(|b| &self.model.vectors[b.index()][..]),
            accumulate: projection.accumulate,
        }
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
            let mut outs: [&mut [f32]; FLOAT_TILE] = std::array::from_fn(|m| {
                let place = |_| self.place(projection.out, first + m, run.clone());
                let range = (m < count).then_some(()).map_or(0..0, place);
                // SAFETY: runs of outputs are shared out; rows differ.
                unsafe { self.arena.range_mut(range) }
            });
            let x: [&[f32]; FLOAT_TILE] = std::array::from_fn(|m| {
                // SAFETY: the input is complete.
                unsafe { self.row(input, first + m.min(count - 1)) }
            });
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
}
