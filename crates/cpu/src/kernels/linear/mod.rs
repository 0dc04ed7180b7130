//! Linear layers: panels of 16 outputs times tiles of up to 8 rows.
//!
//! A kernel loads the codes of a block of weights once and meets all rows of a tile with them: broadcast dwords of
//! activations against 16 outputs in lanes, exact integer sums, then the float steps of `foredraft_quant::dot` in block
//! order. More rows than a tile go over the same panel, which stays in the first cache, so that weights are streamed
//! from memory once in a pass. Float types have one chain of fused multiply-adds in k order for each output.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float;
mod format;
mod portable;

pub(crate) use float::{FLOAT_TILE, float_panels};

use std::ops::Range;

use foredraft_quant::PANEL_ROWS;

use super::activations::{Activations, SharedActivations, TILE};
use crate::path::{CpuPath, Isa};
use crate::shared::Shared;
use crate::weights::{Matrix, QuantizedPanel};

/// The products of one panel with a tile of rows: `[row][output]`.
type Sums = [[f32; PANEL_ROWS]; TILE];

/// A quantized projection of all rows of a pass.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) matrix: &'a Matrix,
    /// Rows of the pass.
    pub(crate) rows: usize,
    /// The rows, quantized.
    pub(crate) x: SharedActivations<'a>,
    pub(crate) finish: Finish<'a>,
    /// Where the outputs go: row m's begin at `out_start + m * matrix.rows`.
    pub(crate) arena: Shared<'a, f32>,
    pub(crate) out_start: usize,
}

/// Computes the outputs of some panels for all rows.
///
/// # Safety
/// Until a barrier later nobody writes the activations, and nobody else touches these outputs.
#[allow(unsafe_code)]
pub(crate) unsafe fn quantized_panels(isa: Isa, job: &Job<'_>, panels: Range<usize>) {
    match isa.path() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only for a path whose features were detected; the rest is the caller's promise.
        CpuPath::Avx512 => unsafe { avx512::panels(job, panels) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        CpuPath::Avx2 => unsafe { avx2::panels(job, panels) },
        // SAFETY: the caller's promise.
        _ => unsafe { portable::panels(job, panels) },
    }
}

/// Every panel meets all tiles of rows while it is in the first cache. Inlined into each path's own function, so that
/// finishing is compiled for the path too.
///
/// # Safety
/// As [`quantized_panels`].
#[inline(always)]
#[allow(unsafe_code)]
unsafe fn for_each_tile(
    job: &Job<'_>,
    panels: Range<usize>,
    kernel: impl Fn(&QuantizedPanel<'_>, &Activations<'_>, &mut Sums),
) {
    let Job { matrix, rows, .. } = *job;
    let mut sums: Sums = [[0.0; PANEL_ROWS]; TILE];
    for index in panels {
        let Some(panel) = matrix.quantized_panel(index) else {
            return;
        };
        let outputs = index * PANEL_ROWS..matrix.rows.min((index + 1) * PANEL_ROWS);
        for first in (0..rows).step_by(TILE) {
            let count = TILE.min(rows - first);
            // SAFETY: the caller's promise.
            let x = unsafe { job.x.tile(first, count, matrix.width) };
            check(&panel, &x);
            kernel(&panel, &x, &mut sums);
            for (m, sums) in sums[..count].iter().enumerate() {
                let start = job.out_start + (first + m) * matrix.rows;
                // SAFETY: the caller's promise.
                let out = unsafe {
                    job.arena
                        .range_mut(start + outputs.start..start + outputs.end)
                };
                job.finish.store(out, outputs.start, sums);
            }
        }
    }
}

/// The lengths that the kernels rely on.
#[inline(always)]
fn check(panel: &QuantizedPanel<'_>, x: &Activations<'_>) {
    let cells = panel.blocks * x.rows;
    assert!((1..=TILE).contains(&x.rows));
    assert!(panel.codes.len() == panel.layout.code_bytes(panel.blocks * 32));
    assert!(panel.scales.len() == panel.layout.scale_bytes(panel.blocks * 32));
    assert!(x.codes.len() == cells * 32 && x.scales.len() == cells);
    assert!(x.minus_sums.len() == cells && x.scaled_sums.len() == cells);
    assert!(x.minus_half_sums.len() == 2 * cells && x.scaled_half_sums.len() == 2 * cells);
}

/// What becomes of a product.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a> {
    /// Added to the product, `[outputs]`.
    pub(crate) bias: Option<&'a [f32]>,
    /// Whether the result is added to what is there.
    pub(crate) accumulate: bool,
}

impl Finish<'_> {
    /// Writes products of the outputs from `first` on; `out` may end before the panel does.
    #[inline(always)]
    pub(crate) fn store(&self, out: &mut [f32], first: usize, products: &[f32; PANEL_ROWS]) {
        // Whole panels are arrays: a few instructions.
        if let Ok(whole) = <&mut [f32; PANEL_ROWS]>::try_from(&mut *out) {
            let bias = self.bias.map(|bias| &bias[first..first + PANEL_ROWS]);
            let mut values = *products;
            if let Some(bias) = bias {
                for lane in 0..PANEL_ROWS {
                    values[lane] += bias[lane];
                }
            }
            if self.accumulate {
                for lane in 0..PANEL_ROWS {
                    values[lane] += whole[lane];
                }
            }
            *whole = values;
            return;
        }
        for (lane, (out, product)) in out.iter_mut().zip(products).enumerate() {
            let value = match self.bias {
                Some(bias) => product + bias[first + lane],
                None => *product,
            };
            *out = if self.accumulate { *out + value } else { value };
        }
    }
}

#[cfg(test)]
mod tests;
