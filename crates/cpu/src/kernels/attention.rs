//! Attention of one row and the heads that share a KV head, over committed pages and its own ancestors in flight.
//!
//! A position's score is one chain of fused multiply-adds over the head, wherever the key lies; scores stand in a
//! buffer by absolute position, so a node of a tree computes exactly what it would compute in a line. The context
//! is split at fixed multiples of [`SPLIT`] positions; each part has its own maximum and sum (lanes by absolute
//! position), adds up its values in position order, and the parts are combined in order. (The rescaling of parts
//! is that of online softmax: Milakov and Gimelshein 1805.02867.)

use std::ops::Range;

use foredraft_common::exp;
use foredraft_common::lanes::{self, LANES};
use foredraft_model::Slot;
use foredraft_model::kv::{PAGE_POSITIONS, PageId};
use foredraft_quant::f16_to_f32;

use crate::path::for_each_path;
use crate::simd::Simd;

/// Positions of a part: partial results are combined at fixed multiples of it.
pub(crate) const SPLIT: usize = 1024;

/// What a row sees through one KV head.
#[derive(Clone, Copy)]
pub(crate) struct HeadContext<'a> {
    /// The pool of the layer group.
    pub(crate) pool: &'a [u16],
    /// The scratch of the layer group.
    pub(crate) scratch: &'a [u16],
    /// Elements of a page.
    pub(crate) page_elements: usize,
    /// Values in a head.
    pub(crate) head_dim: usize,
    /// Where the keys of the head begin within a page, `[head_dim][16]`.
    pub(crate) keys: usize,
    /// Where its values begin, `[16][head_dim]`.
    pub(crate) values: usize,
    /// The sequence's pages; they hold positions `0..committed`.
    pub(crate) pages: &'a [PageId],
    pub(crate) committed: usize,
    /// Ancestors in flight; entry `j` is position `committed + j`, the last is the row itself.
    pub(crate) path: &'a [Slot],
    /// Positions before this one are outside the window.
    pub(crate) first: usize,
    /// Multiplies the scores.
    pub(crate) scale: f32,
}

/// Heads of one KV head that are computed together: a key or a value is widened once for all of them.
pub(crate) const GROUP: usize = 4;

/// A thread's working memory.
pub(crate) struct Workspace {
    /// `[GROUP][SPLIT]`.
    scores: Vec<f32>,
    /// `[GROUP][head_dim]`.
    part: Vec<f32>,
}

impl Workspace {
    pub(crate) fn new(head_dim: usize) -> Self {
        Self {
            scores: vec![0.0; GROUP * SPLIT],
            part: vec![0.0; GROUP * head_dim],
        }
    }

    pub(crate) fn bytes_for(head_dim: usize) -> u64 {
        4 * (GROUP * (SPLIT + head_dim)) as u64
    }
}

for_each_path! {
    /// Up to [`GROUP`] heads of one row that share a KV head: queries `[heads, head_dim]` to out `[heads, head_dim]`.
    fn attend_heads(
        queries: &[f32],
        head_dim: usize,
        context: HeadContext<'_>,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) = attend_heads_body, simd;
}

#[inline(always)]
fn attend_heads_body<S: Simd>(
    simd: S,
    queries: &[f32],
    head_dim: usize,
    context: HeadContext<'_>,
    workspace: &mut Workspace,
    out: &mut [f32],
) {
    match queries.len() / head_dim {
        1 => attend::<S, 1>(simd, queries, head_dim, &context, workspace, out),
        2 => attend::<S, 2>(simd, queries, head_dim, &context, workspace, out),
        3 => attend::<S, 3>(simd, queries, head_dim, &context, workspace, out),
        _ => attend::<S, 4>(simd, queries, head_dim, &context, workspace, out),
    }
}

#[inline(always)]
fn attend<S: Simd, const N: usize>(
    simd: S,
    queries: &[f32],
    head_dim: usize,
    context: &HeadContext<'_>,
    workspace: &mut Workspace,
    out: &mut [f32],
) {
    let end = context.committed + context.path.len();
    let queries: [&[f32]; N] = std::array::from_fn(|h| &queries[h * head_dim..(h + 1) * head_dim]);
    let part = &mut workspace.part[..N * head_dim];
    let (mut max, mut sum) = ([f32::NEG_INFINITY; N], [0.0f32; N]);
    for index in context.first / SPLIT..end.div_ceil(SPLIT) {
        let range = index * SPLIT..end.min((index + 1) * SPLIT);
        let scores = &mut workspace.scores[..N * SPLIT];
        score_positions(simd, queries, context, range.clone(), scores);
        let (mut part_max, mut part_sum) = ([0.0; N], [0.0; N]);
        for h in 0..N {
            let weights = &mut scores[h * SPLIT..][..range.len()];
            part_max[h] = lanes::max(weights);
            for weight in weights.iter_mut() {
                *weight = exp(*weight - part_max[h]);
            }
            part_sum[h] = lanes::sum(weights);
        }
        weigh_values::<S, N>(simd, scores, context, range, head_dim, part);
        for (h, (part, out)) in part
            .chunks_exact(head_dim)
            .zip(out.chunks_exact_mut(head_dim))
            .enumerate()
        {
            if index == context.first / SPLIT {
                (max[h], sum[h]) = (part_max[h], part_sum[h]);
                out.copy_from_slice(part);
                continue;
            }
            let both = if part_max[h] > max[h] {
                part_max[h]
            } else {
                max[h]
            };
            let (old, new) = (exp(max[h] - both), exp(part_max[h] - both));
            (max[h], sum[h]) = (both, part_sum[h].mul_add(new, sum[h] * old));
            for (out, part) in out.iter_mut().zip(part) {
                *out = part.mul_add(new, *out * old);
            }
        }
    }
    for (out, sum) in out.chunks_exact_mut(head_dim).zip(sum) {
        let norm = 1.0 / sum;
        out.iter_mut().for_each(|out| *out *= norm);
    }
}

/// Positions whose keys lie side by side in one page.
#[derive(Clone, Copy)]
struct Run<'a> {
    /// The keys of the page, `[head_dim][16]`.
    keys: &'a [u16],
    /// The first position.
    position: usize,
    /// Its lane in the page.
    lane: usize,
    /// How many.
    count: usize,
}

/// Scores of the positions in `range`, `[N][SPLIT]`; minus infinity before the window.
#[inline(always)]
fn score_positions<S: Simd, const N: usize>(
    simd: S,
    queries: [&[f32]; N],
    context: &HeadContext<'_>,
    range: Range<usize>,
    scores: &mut [f32],
) {
    let start = range.start;
    let mut put = |run: &Run<'_>, products: &[[f32; PAGE_POSITIONS]; N]| {
        for (h, products) in products.iter().enumerate() {
            let out = &mut scores[h * SPLIT + run.position - start..][..run.count];
            for (out, product) in out.iter_mut().zip(&products[run.lane..]) {
                *out = product * context.scale;
            }
        }
    };
    // A chain waits for its own last result; with few heads, two pages are walked at once.
    let mut held: Option<Run<'_>> = None;
    let mut position = start;
    while position < range.end {
        let run = context.run_at(position, range.end);
        position += run.count;
        if position < range.end {
            // The next page lies anywhere: the processor cannot guess where.
            simd.prefetch(context.run_at(position, range.end).keys);
        }
        match held.take() {
            None => held = Some(run),
            Some(first) => {
                let [a, b] = key_products(simd, queries, [first.keys, run.keys]);
                put(&first, &a);
                put(&run, &b);
            }
        }
    }
    if let Some(run) = held {
        let [products] = key_products(simd, queries, [run.keys]);
        put(&run, &products);
    }
    let outside = context.first.clamp(start, range.end) - start;
    for h in 0..N {
        scores[h * SPLIT..][..outside].fill(f32::NEG_INFINITY);
    }
}

/// How many of the next ancestors lie side by side in the scratch page of the first.
#[inline(always)]
fn slots_of_page(path: &[Slot]) -> usize {
    let first = path[0].index();
    let room = PAGE_POSITIONS - first % PAGE_POSITIONS;
    let is_next = |(i, slot): &(usize, &Slot)| slot.index() == first + i;
    path.iter()
        .take(room)
        .enumerate()
        .take_while(is_next)
        .count()
}

/// Products of the queries with the 16 keys of each page, `[head_dim][16]`, a lane each: one chain over the head.
#[inline(always)]
fn key_products<S: Simd, const N: usize, const P: usize>(
    simd: S,
    queries: [&[f32]; N],
    pages: [&[u16]; P],
) -> [[[f32; PAGE_POSITIONS]; N]; P] {
    let head_dim = queries[0].len();
    let queries = queries.map(|q| &q[..head_dim]);
    let pages = pages.map(|page| &page.as_chunks::<PAGE_POSITIONS>().0[..head_dim]);
    let mut sums = [[simd.splat(0.0); N]; P];
    for d in 0..head_dim {
        for (sums, page) in sums.iter_mut().zip(&pages) {
            let keys = simd.load_half(&page[d]);
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

/// `part[h] = sum of weight[h][position] * value[position]`, in position order, `[N][head_dim]`.
#[inline(always)]
fn weigh_values<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    context: &HeadContext<'_>,
    range: Range<usize>,
    head_dim: usize,
    part: &mut [f32],
) {
    let positions = range.start.max(context.first)..range.end;
    let weights: [&[f32]; N] =
        std::array::from_fn(|h| &weights[h * SPLIT..][positions.start - range.start..]);
    let mut d = 0;
    while d + 4 * LANES <= head_dim {
        weigh_columns::<S, N, 4>(simd, weights, context, positions.clone(), d, part);
        d += 4 * LANES;
    }
    while d + LANES <= head_dim {
        weigh_columns::<S, N, 1>(simd, weights, context, positions.clone(), d, part);
        d += LANES;
    }
    for d in d..head_dim {
        for (h, weights) in weights.iter().enumerate() {
            let terms = weights.iter().zip(positions.clone());
            part[h * head_dim + d] = terms.fold(0.0, |sum: f32, (weight, position)| {
                weight.mul_add(f16_to_f32(context.value(position)[d]), sum)
            });
        }
    }
}

/// Columns `d..d + 16 D` of [`weigh_values`]: the sums stay in registers over all positions.
#[inline(always)]
fn weigh_columns<S: Simd, const N: usize, const D: usize>(
    simd: S,
    weights: [&[f32]; N],
    context: &HeadContext<'_>,
    positions: Range<usize>,
    d: usize,
    part: &mut [f32],
) {
    let mut sums = [[simd.splat(0.0); D]; N];
    let end = positions.end.min(context.committed);
    for (i, position) in positions.enumerate() {
        if position % PAGE_POSITIONS == 0 && position + PAGE_POSITIONS < end {
            simd.prefetch(context.page(position + PAGE_POSITIONS, context.values));
        }
        let (columns, _) = context.value(position)[d..d + D * LANES].as_chunks::<LANES>();
        let mut values = [simd.splat(0.0); D];
        for (value, column) in values.iter_mut().zip(columns) {
            *value = simd.load_half(column);
        }
        for (sums, weights) in sums.iter_mut().zip(&weights) {
            let weight = simd.splat(weights[i]);
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = simd.fma(weight, value, *sum);
            }
        }
    }
    for (h, sums) in sums.into_iter().enumerate() {
        let start = h * context.head_dim + d;
        let (outs, _) = part[start..start + D * LANES].as_chunks_mut::<LANES>();
        for (out, sum) in outs.iter_mut().zip(sums) {
            simd.store(sum, out);
        }
    }
}

impl<'a> HeadContext<'a> {
    /// The run of positions from `position` on, before `end`.
    #[inline(always)]
    fn run_at(&self, position: usize, end: usize) -> Run<'a> {
        let (keys, lane, count) = match position.checked_sub(self.committed) {
            None => {
                let lane = position % PAGE_POSITIONS;
                let count = (PAGE_POSITIONS - lane).min(end.min(self.committed) - position);
                (self.page(position, self.keys), lane, count)
            }
            Some(in_flight) => {
                let ahead = &self.path[in_flight..end - self.committed];
                let slot = ahead[0].index();
                let start = slot / PAGE_POSITIONS * self.page_elements + self.keys;
                let keys = &self.scratch[start..][..PAGE_POSITIONS * self.head_dim];
                (keys, slot % PAGE_POSITIONS, slots_of_page(ahead))
            }
        };
        Run {
            keys,
            position,
            lane,
            count,
        }
    }

    /// The keys (or the values) of the head in the page of a committed position.
    #[inline(always)]
    fn page(&self, position: usize, half: usize) -> &'a [u16] {
        let page = self.pages[position / PAGE_POSITIONS].index();
        &self.pool[page * self.page_elements + half..][..PAGE_POSITIONS * self.head_dim]
    }

    /// The value of a position and what follows it in memory.
    #[inline(always)]
    fn value(&self, position: usize) -> &'a [u16] {
        let (store, page, lane) = match position.checked_sub(self.committed) {
            None => {
                let page = self.pages[position / PAGE_POSITIONS].index();
                (self.pool, page, position % PAGE_POSITIONS)
            }
            Some(in_flight) => {
                let slot = self.path[in_flight].index();
                (self.scratch, slot / PAGE_POSITIONS, slot % PAGE_POSITIONS)
            }
        };
        &store[page * self.page_elements + self.values + lane * self.head_dim..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{CpuPath, Isa};

    fn halves(count: usize, step: f64) -> Vec<u16> {
        // Growing: the largest score is in the last part, or in the first where the pages are taken backwards.
        let value = |i: usize| {
            half::f16::from_f64((i as f64 * step).sin() * (0.2 + i as f64 / count as f64)).to_bits()
        };
        (0..count).map(value).collect()
    }

    /// Softmax attention in f64, straight from the definition.
    fn naive(query: &[f32], context: &HeadContext<'_>) -> Vec<f64> {
        let element = |store: &[u16], at: usize| f64::from(f16_to_f32(store[at]));
        let place = |position: usize| match position.checked_sub(context.committed) {
            None => (
                context.pool,
                context.pages[position / 16].index(),
                position % 16,
            ),
            Some(j) => (
                context.scratch,
                context.path[j].index() / 16,
                context.path[j].index() % 16,
            ),
        };
        let end = context.committed + context.path.len();
        let score = |position: usize| {
            let (store, page, lane) = place(position);
            let keys = page * context.page_elements + context.keys;
            let terms = query.iter().enumerate();
            let dot: f64 = terms
                .map(|(d, q)| f64::from(*q) * element(store, keys + d * 16 + lane))
                .sum();
            dot * f64::from(context.scale)
        };
        let scores: Vec<f64> = (context.first..end).map(score).collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let value = |d: usize| {
            let terms = weights.iter().zip(context.first..end);
            terms.map(move |(weight, position)| {
                let (store, page, lane) = place(position);
                let at = page * context.page_elements + context.values + lane * query.len() + d;
                weight * element(store, at)
            })
        };
        (0..query.len())
            .map(|d| value(d).sum::<f64>() / sum)
            .collect()
    }

    /// Contexts on both sides of the split, windows that begin in either part, ancestors that are scattered.
    #[test]
    fn attention_is_softmax_attention_on_every_path() {
        for head_dim in [8, 64, 72] {
            let page_elements = 2 * 16 * head_dim;
            let pool = halves(160 * page_elements, 0.37);
            let scratch = halves(3 * page_elements, 0.59);
            let forwards: Vec<PageId> = (0..160).map(PageId).collect();
            let backwards: Vec<PageId> = (0..160).rev().map(PageId).collect();
            let path = [0, 1, 2, 5, 17, 40].map(Slot);
            for (committed, first) in [
                (0, 0),
                (37, 0),
                (1021, 0),
                (1090, 0),
                (2100, 0),
                (1090, 37),
                (2100, 1500),
            ] {
                for (heads, pages) in
                    (1..=GROUP).flat_map(|heads| [(heads, &forwards), (heads, &backwards)])
                {
                    let queries: Vec<f32> = (0..heads * head_dim)
                        .map(|i| (i as f32 * 0.83).cos())
                        .collect();
                    let context = HeadContext {
                        pool: &pool,
                        scratch: &scratch,
                        page_elements,
                        head_dim,
                        keys: 0,
                        values: 16 * head_dim,
                        pages,
                        committed,
                        path: &path,
                        first,
                        scale: 0.4,
                    };
                    let mut expected_bits: Option<Vec<f32>> = None;
                    for isa in CpuPath::ALL.into_iter().filter_map(Isa::new) {
                        let mut out = vec![0.0; heads * head_dim];
                        let mut workspace = Workspace::new(head_dim);
                        attend_heads(isa, &queries, head_dim, context, &mut workspace, &mut out);
                        let label = format!(
                            "{} dim {head_dim} committed {committed} first {first}",
                            isa.path()
                        );
                        assert_eq!(
                            &out,
                            expected_bits.get_or_insert_with(|| out.clone()),
                            "{label}"
                        );
                        for (query, out) in queries.chunks(head_dim).zip(out.chunks(head_dim)) {
                            for (got, expected) in out.iter().zip(naive(query, &context)) {
                                assert!(
                                    (f64::from(*got) - expected).abs() < 1e-4,
                                    "{label}: {got}, not {expected}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
