//! Activations rounded to 8 bits, in the layout that the linear kernels read.
//!
//! Rows come in tiles of [`TILE`]; within a tile everything is block-major, so that a kernel reads all rows of a
//! block from one place with constant offsets: codes `[blocks][rows][32]`, scales `[blocks][rows]`, and beside
//! them what the codes' sums are needed for, computed once for all outputs.

#![allow(unsafe_code)]

use foredraft_quant::{ACTIVATION_BLOCK, SUM_BLOCK};

use crate::path::for_each_path;
use crate::shared::Shared;
use crate::simd::Simd;

/// Rows of a tile: their accumulators, the codes of a block and its scales fit the 32 registers of AVX-512.
pub(crate) const TILE: usize = 8;

/// Sums of 16 codes in a block.
const HALVES: usize = ACTIVATION_BLOCK / SUM_BLOCK;

/// Reserved space for the quantized rows of one linear step.
pub(crate) struct ActivationBuffer {
    codes: Vec<i8>,
    scales: Vec<f32>,
    minus_sums: Vec<i32>,
    minus_half_sums: Vec<i32>,
    scaled_sums: Vec<f32>,
    scaled_half_sums: Vec<f32>,
}

impl ActivationBuffer {
    /// Space for `values` activations in whole blocks.
    pub(crate) fn new(values: usize) -> Self {
        let blocks = values.div_ceil(ACTIVATION_BLOCK);
        Self {
            codes: vec![0; blocks * ACTIVATION_BLOCK],
            scales: vec![0.0; blocks],
            minus_sums: vec![0; blocks],
            minus_half_sums: vec![0; blocks * HALVES],
            scaled_sums: vec![0.0; blocks],
            scaled_half_sums: vec![0.0; blocks * HALVES],
        }
    }

    pub(crate) fn bytes_for(values: usize) -> u64 {
        let blocks = values.div_ceil(ACTIVATION_BLOCK) as u64;
        blocks * (ACTIVATION_BLOCK + 3 * 4 + 2 * 4 * HALVES) as u64
    }

    pub(crate) fn share(&mut self) -> SharedActivations<'_> {
        SharedActivations {
            codes: Shared::new(&mut self.codes),
            scales: Shared::new(&mut self.scales),
            minus_sums: Shared::new(&mut self.minus_sums),
            minus_half_sums: Shared::new(&mut self.minus_half_sums),
            scaled_sums: Shared::new(&mut self.scaled_sums),
            scaled_half_sums: Shared::new(&mut self.scaled_half_sums),
        }
    }
}

/// The buffer as the threads of a pass share it.
#[derive(Clone, Copy)]
pub(crate) struct SharedActivations<'a> {
    codes: Shared<'a, i8>,
    scales: Shared<'a, f32>,
    minus_sums: Shared<'a, i32>,
    minus_half_sums: Shared<'a, i32>,
    scaled_sums: Shared<'a, f32>,
    scaled_half_sums: Shared<'a, f32>,
}

/// A tile of quantized rows.
#[derive(Clone, Copy)]
pub(crate) struct Activations<'a> {
    /// Rows of the tile, 1 to [`TILE`].
    pub(crate) rows: usize,
    /// `[blocks][rows][32]`.
    pub(crate) codes: &'a [i8],
    /// `[blocks][rows]`.
    pub(crate) scales: &'a [f32],
    /// Minus the sum of a block's codes, `[blocks][rows]`: what a zero point multiplies.
    pub(crate) minus_sums: &'a [i32],
    /// The same for each 16 codes, `[blocks][rows][2]`.
    pub(crate) minus_half_sums: &'a [i32],
    /// The sum of a block's codes times its scale, `[blocks][rows]`: what a minimum multiplies.
    pub(crate) scaled_sums: &'a [f32],
    /// The same for each 16 codes, `[blocks][rows][2]`.
    pub(crate) scaled_half_sums: &'a [f32],
}

impl<'a> SharedActivations<'a> {
    /// The tile of `rows` rows that begins at row `first`, a multiple of [`TILE`].
    ///
    /// # Safety
    /// Nobody writes it until a barrier later.
    pub(crate) unsafe fn tile(&self, first: usize, rows: usize, width: usize) -> Activations<'a> {
        let blocks = width / ACTIVATION_BLOCK;
        let (start, end) = (first * blocks, (first + rows) * blocks);
        // SAFETY: the caller's promise.
        unsafe {
            Activations {
                rows,
                codes: self
                    .codes
                    .range(start * ACTIVATION_BLOCK..end * ACTIVATION_BLOCK),
                scales: self.scales.range(start..end),
                minus_sums: self.minus_sums.range(start..end),
                minus_half_sums: self.minus_half_sums.range(start * HALVES..end * HALVES),
                scaled_sums: self.scaled_sums.range(start..end),
                scaled_half_sums: self.scaled_half_sums.range(start * HALVES..end * HALVES),
            }
        }
    }
}

/// Where blocks of one row go.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// The first row of the row's tile.
    pub(crate) tile_first: usize,
    /// Rows of the tile.
    pub(crate) tile_rows: usize,
    /// The row within the tile.
    pub(crate) row: usize,
    /// Blocks in a row.
    pub(crate) blocks: usize,
    /// The first block.
    pub(crate) first_block: usize,
}

for_each_path! {
    /// Quantizes whole blocks of one row, which nobody else touches until a barrier later.
    fn quantize(x: &[f32], to: Destination, buffer: SharedActivations<'_>) = quantize_body, simd;
}

#[inline(always)]
fn quantize_body<S: Simd>(simd: S, x: &[f32], to: Destination, buffer: SharedActivations<'_>) {
    let (blocks, _) = x.as_chunks::<ACTIVATION_BLOCK>();
    for (b, x) in blocks.iter().enumerate() {
        let at = to.tile_first * to.blocks + (to.first_block + b) * to.tile_rows + to.row;
        let halves = at * HALVES..(at + 1) * HALVES;
        // SAFETY: the places of a block of a row are its own, and the caller gives a block to one worker.
        unsafe {
            let codes = buffer
                .codes
                .range_mut(at * ACTIVATION_BLOCK..(at + 1) * ACTIVATION_BLOCK);
            let half_sums = buffer.minus_half_sums.range_mut(halves.clone());
            let scale = simd.round_block(x, codes, half_sums);
            let sum = half_sums[0] + half_sums[1];
            buffer.scales.range_mut(at..at + 1)[0] = scale;
            buffer.minus_sums.range_mut(at..at + 1)[0] = -sum;
            buffer.scaled_sums.range_mut(at..at + 1)[0] = sum as f32 * scale;
            let scaled = buffer.scaled_half_sums.range_mut(halves);
            for (scaled, sum) in scaled.iter_mut().zip(half_sums) {
                *scaled = *sum as f32 * scale;
                *sum = -*sum;
            }
        }
    }
}
