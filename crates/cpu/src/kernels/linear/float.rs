//! Float weights: one chain of fused multiply-adds for each output, in k order, 16 outputs in lanes.
//!
//! A chain waits for its own last result (4 cycles), so a few chains run side by side: rows of the tile, or, for a
//! single row, panels.

use std::ops::Range;

use foredraft_quant::PANEL_ROWS;

use super::Finish;
use crate::path::for_each_path;
use crate::simd::Simd;
use crate::weights::{Matrix, Panels};

/// Rows of a tile of float activations.
pub(crate) const FLOAT_TILE: usize = 4;
/// Panels at once for a single row.
const PANELS: usize = 4;

for_each_path! {
    /// Outputs of whole panels `panels` of a float matrix for a tile of rows: `x[m]` is row m's input, `outs[m]` its
    /// run of outputs from the first panel on.
    fn float_panels(
        matrix: &Matrix,
        panels: Range<usize>,
        x: &[&[f32]],
        finish: Finish<'_>,
        outs: &mut [&mut [f32]],
    ) = body, simd;
}

#[inline(always)]
fn body<S: Simd>(
    simd: S,
    matrix: &Matrix,
    panels: Range<usize>,
    x: &[&[f32]],
    finish: Finish<'_>,
    outs: &mut [&mut [f32]],
) {
    let first = panels.start;
    match matrix.float_panels(panels) {
        Some(Panels::F32(w)) => tile(simd, w, matrix.width, first, x, finish, outs, |line| {
            simd.load(line)
        }),
        Some(Panels::F16(w)) => tile(simd, w, matrix.width, first, x, finish, outs, |line| {
            simd.load_half(line)
        }),
        Some(Panels::BF16(w)) => tile(simd, w, matrix.width, first, x, finish, outs, |line| {
            simd.load_bfloat(line)
        }),
        None => {}
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn tile<S: Simd, T: Copy>(
    simd: S,
    weights: &[T],
    width: usize,
    first: usize,
    x: &[&[f32]],
    finish: Finish<'_>,
    outs: &mut [&mut [f32]],
    load: impl Fn(&[T; PANEL_ROWS]) -> S::Lanes + Copy,
) {
    let panel = width * PANEL_ROWS;
    let (panels, _) = weights.as_chunks::<PANEL_ROWS>();
    let mut store = |p: usize, m: usize, sums: S::Lanes| {
        let mut products = [0.0; PANEL_ROWS];
        simd.store(sums, &mut products);
        finish.store(
            &mut outs[m][p * PANEL_ROWS..],
            (first + p) * PANEL_ROWS,
            &products,
        );
    };
    let count = weights.len() / panel.max(1);
    let mut p = 0;
    while p < count {
        let lines = &panels[p * width..];
        match x {
            [x] if count - p >= PANELS => {
                let at: [&[[T; PANEL_ROWS]]; PANELS] =
                    std::array::from_fn(|i| &lines[i * width..(i + 1) * width]);
                for (i, sums) in chains(simd, at, [x; PANELS], load).into_iter().enumerate() {
                    store(p + i, 0, sums);
                }
                p += PANELS;
                continue;
            }
            [a] => store(p, 0, chains(simd, [&lines[..width]], [a], load)[0]),
            [a, b] => store_all(
                &mut store,
                p,
                chains(simd, [&lines[..width]; 2], [a, b], load),
            ),
            [a, b, c] => store_all(
                &mut store,
                p,
                chains(simd, [&lines[..width]; 3], [a, b, c], load),
            ),
            [a, b, c, d, ..] => store_all(
                &mut store,
                p,
                chains(simd, [&lines[..width]; 4], [a, b, c, d], load),
            ),
            [] => {}
        }
        p += 1;
    }
}

#[inline(always)]
fn store_all<L: Copy, const N: usize>(
    store: &mut impl FnMut(usize, usize, L),
    p: usize,
    sums: [L; N],
) {
    for (m, sums) in sums.into_iter().enumerate() {
        store(p, m, sums);
    }
}

/// `N` chains side by side: `sum = fma(w[k], x[k], sum)`.
#[inline(always)]
fn chains<S: Simd, T: Copy, const N: usize>(
    simd: S,
    lines: [&[[T; PANEL_ROWS]]; N],
    x: [&[f32]; N],
    load: impl Fn(&[T; PANEL_ROWS]) -> S::Lanes,
) -> [S::Lanes; N] {
    let width = x[0].len();
    let (lines, x) = (lines.map(|l| &l[..width]), x.map(|x| &x[..width]));
    let mut sums = [simd.splat(0.0); N];
    for k in 0..width {
        for i in 0..N {
            sums[i] = simd.fma(load(&lines[i][k]), simd.splat(x[i][k]), sums[i]);
        }
    }
    sums
}
