//! Scores: one chain of fused multiply-adds over the head for each query and position, 16 positions in lanes.

use std::ops::Range;

use foredraft_model::Slot;
use foredraft_model::kv::PAGE_POSITIONS;

use super::SPLIT;
use super::element::Element;
use super::source::{Run, Source};
use crate::simd::Simd;

/// A line of the caches.
pub(super) const LINE_BYTES: usize = 64;

/// Pages walked at once: a chain waits for its own last result, so with few queries several pages are needed.
const fn pages_at_once(queries: usize, registers: usize) -> usize {
    match registers / queries {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => 4,
    }
}

/// Scores of the positions in `range`, put into `scores`, `[N][SPLIT]`, at their place in the part.
#[inline(always)]
pub(super) fn score_positions<S: Simd, E: Element, const N: usize>(
    simd: S,
    queries: [&[f32]; N],
    source: &Source<'_, E>,
    path: &[Slot],
    range: Range<usize>,
    scores: &mut [f32],
) {
    match const { pages_at_once(N, S::REGISTERS) } {
        4 => score::<S, E, N, 4>(simd, queries, source, path, range, scores),
        2 => score::<S, E, N, 2>(simd, queries, source, path, range, scores),
        _ => score::<S, E, N, 1>(simd, queries, source, path, range, scores),
    }
}

#[inline(always)]
fn score<'a, S: Simd, E: Element, const N: usize, const P: usize>(
    simd: S,
    queries: [&[f32]; N],
    source: &Source<'a, E>,
    path: &[Slot],
    range: Range<usize>,
    scores: &mut [f32],
) {
    let mut position = range.start;
    while position < range.end {
        let first = source.run_at(path, position, range.end);
        let mut runs = [first; P];
        let mut count = 0;
        while count < P && position < range.end {
            runs[count] = source.run_at(path, position, range.end);
            position += runs[count].count;
            count += 1;
        }
        if count == P {
            let pages = runs.map(|run| source.keys_of(&run));
            let ahead = runs.map(|run| source.keys_ahead(&run));
            let products = key_products::<S, E, N, P>(simd, queries, pages, ahead);
            simd.call(|| put(source, &runs, products.as_flattened(), scores));
        } else {
            for run in &runs[..count] {
                let (page, ahead) = (source.keys_of(run), source.keys_ahead(run));
                let products = key_products::<S, E, N, 1>(simd, queries, [page], [ahead]);
                simd.call(|| put(source, &[*run], products.as_flattened(), scores));
            }
        }
    }
}

/// Writes the scores of runs: the products with their keys, scaled; `products` is `[runs][queries]`.
#[inline(always)]
fn put<E: Element>(
    source: &Source<'_, E>,
    runs: &[Run<'_, E>],
    products: &[[f32; PAGE_POSITIONS]],
    scores: &mut [f32],
) {
    let queries = products.len() / runs.len();
    for (run, products) in runs.iter().zip(products.chunks_exact(queries)) {
        for (n, products) in products.iter().enumerate() {
            let out = &mut scores[n * SPLIT + run.position % SPLIT..][..run.count];
            let products = &products[run.lane..];
            if E::SCALED {
                let scales = source.key_scales_of(run);
                for ((out, product), scale) in out.iter_mut().zip(products).zip(scales) {
                    *out = product * source.scale * scale;
                }
            } else {
                for (out, product) in out.iter_mut().zip(products) {
                    *out = product * source.scale;
                }
            }
        }
    }
}

/// Products of the queries with the 16 keys of each page, `[head_dim][16]`, a lane each: one chain over the head. On the way the
/// pages `ahead` are asked for, line by line: all at once they would hold up the loads of the pages at hand.
#[inline(always)]
fn key_products<S: Simd, E: Element, const N: usize, const P: usize>(
    simd: S,
    queries: [&[f32]; N],
    pages: [&[E::Stored]; P],
    ahead: [&[E::Stored]; P],
) -> [[[f32; PAGE_POSITIONS]; N]; P] {
    let head_dim = queries[0].len();
    let queries = queries.map(|q| &q[..head_dim]);
    let pages = pages.map(|page| &page.as_chunks::<PAGE_POSITIONS>().0[..head_dim]);
    let ahead = ahead.map(|page| &page[..PAGE_POSITIONS * head_dim]);
    let line = LINE_BYTES / size_of::<E::Stored>();
    let mut sums = [[simd.splat(0.0); N]; P];
    for d in 0..head_dim {
        let start = d * PAGE_POSITIONS;
        if start.is_multiple_of(line) {
            for page in &ahead {
                simd.prefetch_far(bytemuck::bytes_of(&page[start]));
            }
        }
        for (sums, page) in sums.iter_mut().zip(&pages) {
            let keys = E::load(simd, &page[d]);
            for (sum, query) in sums.iter_mut().zip(&queries) {
                *sum = simd.fma(simd.splat(query[d]), keys, *sum);
            }
        }
    }
    let mut products = [[[0.0; PAGE_POSITIONS]; N]; P];
    for (products, sums) in products
        .iter_mut()
        .flatten()
        .zip(sums.into_iter().flatten())
    {
        simd.store(sums, products);
    }
    products
}
