//! The weighted sum of values: for each query one chain of fused multiply-adds in position order, values in lanes.

use std::ops::Range;

use foredraft_common::lanes::LANES;
use foredraft_model::Slot;

use super::SPLIT;
use super::element::Element;
use super::scores::LINE_BYTES;
use super::source::Source;
use crate::simd::Simd;

/// Columns of 16 whose sums stay in registers at once.
const fn columns_at_once(queries: usize, registers: usize) -> usize {
    match registers / queries {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// `sums[n] += weight[n][position] * value[position]` for the positions in `range`, in order; `sums` is `[N][head_dim]`,
/// `weights` `[N][SPLIT]` with the values' scales already in them.
#[inline(always)]
pub(super) fn weigh_values<S: Simd, E: Element, const N: usize>(
    simd: S,
    weights: &[f32],
    source: &Source<'_, E>,
    path: &[Slot],
    range: Range<usize>,
    sums: &mut [f32],
) {
    let head_dim = source.head_dim;
    let weigh = Weigh {
        weights,
        source,
        path,
        range,
    };
    let mut d = 0;
    match const { columns_at_once(N, S::REGISTERS) } {
        4 => weigh.whole::<S, N, 4>(simd, &mut d, sums),
        2 => weigh.whole::<S, N, 2>(simd, &mut d, sums),
        _ => {}
    }
    weigh.whole::<S, N, 1>(simd, &mut d, sums);
    for d in d..head_dim {
        weigh.single::<N>(d, sums);
    }
}

/// Multiplies the weights of the positions in `range` by the scales of their values.
#[inline(always)]
pub(super) fn scale_weights<E: Element>(
    weights: &mut [f32],
    source: &Source<'_, E>,
    path: &[Slot],
    range: Range<usize>,
) {
    let mut position = range.start;
    while position < range.end {
        let run = source.run_at(path, position, range.end);
        let weights = &mut weights[position % SPLIT..][..run.count];
        for (weight, scale) in weights.iter_mut().zip(source.value_scales_of(&run)) {
            *weight *= scale;
        }
        position += run.count;
    }
}

struct Weigh<'a, E: Element> {
    weights: &'a [f32],
    source: &'a Source<'a, E>,
    path: &'a [Slot],
    range: Range<usize>,
}

impl<E: Element> Weigh<'_, E> {
    /// All columns from `d` on that make `D` registers, and moves `d` behind them.
    #[inline(always)]
    fn whole<S: Simd, const N: usize, const D: usize>(
        &self,
        simd: S,
        d: &mut usize,
        sums: &mut [f32],
    ) {
        while *d + D * LANES <= self.source.head_dim {
            self.columns::<S, N, D>(simd, *d, sums);
            *d += D * LANES;
        }
    }

    /// Columns `d..d + 16 D`: the sums stay in registers over all positions.
    #[inline(always)]
    fn columns<S: Simd, const N: usize, const D: usize>(
        &self,
        simd: S,
        d: usize,
        sums: &mut [f32],
    ) {
        let source = self.source;
        let head_dim = source.head_dim;
        let place = |n: usize| n * head_dim + d..n * head_dim + d + D * LANES;
        let mut lanes = [[simd.splat(0.0); D]; N];
        for (n, lanes) in lanes.iter_mut().enumerate() {
            let (columns, _) = sums[place(n)].as_chunks::<LANES>();
            for (lanes, column) in lanes.iter_mut().zip(columns) {
                *lanes = simd.load(column);
            }
        }
        let mut position = self.range.start;
        while position < self.range.end {
            let run = source.run_at(self.path, position, self.range.end);
            let start = position % SPLIT;
            position += run.count;
            let weights: [&[f32]; N] =
                std::array::from_fn(|n| &self.weights[n * SPLIT + start..][..run.count]);
            let rows = source.values_of(&run)[run.lane * head_dim..].chunks_exact(head_dim);
            let ahead = source.values_ahead(&run)[run.lane * head_dim..].chunks_exact(head_dim);
            for (i, (row, ahead)) in rows.zip(ahead).take(run.count).enumerate() {
                for line in ahead[d..d + D * LANES].chunks(LINE_BYTES / size_of::<E::Stored>()) {
                    simd.prefetch_far(bytemuck::bytes_of(&line[0]));
                }
                let (columns, _) = row[d..d + D * LANES].as_chunks::<LANES>();
                let mut values = [simd.splat(0.0); D];
                for (value, column) in values.iter_mut().zip(columns) {
                    *value = E::load(simd, column);
                }
                for (lanes, weights) in lanes.iter_mut().zip(&weights) {
                    let weight = simd.splat(weights[i]);
                    for (sum, value) in lanes.iter_mut().zip(values) {
                        *sum = simd.fma(weight, value, *sum);
                    }
                }
            }
        }
        for (n, lanes) in lanes.into_iter().enumerate() {
            let (columns, _) = sums[place(n)].as_chunks_mut::<LANES>();
            for (column, lanes) in columns.iter_mut().zip(lanes) {
                simd.store(lanes, column);
            }
        }
    }

    /// Column `d`, for head widths that are not whole registers.
    #[inline(always)]
    fn single<const N: usize>(&self, d: usize, sums: &mut [f32]) {
        let head_dim = self.source.head_dim;
        let mut position = self.range.start;
        while position < self.range.end {
            let run = self.source.run_at(self.path, position, self.range.end);
            let rows = self.source.values_of(&run)[run.lane * head_dim..].chunks_exact(head_dim);
            for (i, row) in rows.take(run.count).enumerate() {
                for n in 0..N {
                    let weight = self.weights[n * SPLIT + position % SPLIT + i];
                    let sum = &mut sums[n * head_dim + d];
                    *sum = weight.mul_add(E::widen(row[d]), *sum);
                }
            }
            position += run.count;
        }
    }
}
