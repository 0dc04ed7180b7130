//! Attention of one row and one head over committed pages and its own ancestors in flight.
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

use crate::path::for_each_path;
use crate::simd::Simd;
use foredraft_quant::f16_to_f32;

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

/// A thread's working memory.
pub(crate) struct Workspace {
    scores: Vec<f32>,
    part: Vec<f32>,
}

impl Workspace {
    pub(crate) fn new(head_dim: usize) -> Self {
        Self {
            scores: vec![0.0; SPLIT],
            part: vec![0.0; head_dim],
        }
    }

    pub(crate) fn bytes_for(head_dim: usize) -> u64 {
        4 * (SPLIT + head_dim) as u64
    }
}

for_each_path! {
    /// One head of one row: query `[head_dim]` to out `[head_dim]`.
    fn attend_head(query: &[f32], context: HeadContext<'_>, workspace: &mut Workspace, out: &mut [f32]) = attend_head_body, simd;
}

#[inline(always)]
fn attend_head_body<S: Simd>(
    simd: S,
    query: &[f32],
    context: HeadContext<'_>,
    workspace: &mut Workspace,
    out: &mut [f32],
) {
    let end = context.committed + context.path.len();
    let head_dim = query.len();
    let part = &mut workspace.part[..head_dim];
    let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0f32);
    for index in context.first / SPLIT..end.div_ceil(SPLIT) {
        let range = index * SPLIT..end.min((index + 1) * SPLIT);
        let weights = &mut workspace.scores[..range.len()];
        scores(simd, query, &context, range.clone(), weights);
        let part_max = weights
            .iter()
            .fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
        for weight in weights.iter_mut() {
            *weight = exp(*weight - part_max);
        }
        let part_sum = lanes::sum(weights);
        part.fill(0.0);
        weighted_values(simd, weights, &context, range, part);
        if index == context.first / SPLIT {
            (max, sum) = (part_max, part_sum);
            out.copy_from_slice(part);
        } else {
            let both = if part_max > max { part_max } else { max };
            let (old, new) = (exp(max - both), exp(part_max - both));
            (max, sum) = (both, part_sum.mul_add(new, sum * old));
            for (out, part) in out.iter_mut().zip(part.iter()) {
                *out = part.mul_add(new, *out * old);
            }
        }
    }
    let norm = 1.0 / sum;
    for out in out.iter_mut() {
        *out *= norm;
    }
}

/// Scores of the positions in `range`; minus infinity before the window.
#[inline(always)]
fn scores<S: Simd>(
    simd: S,
    query: &[f32],
    context: &HeadContext<'_>,
    range: Range<usize>,
    out: &mut [f32],
) {
    let start = range.start;
    let committed = range.end.min(context.committed);
    for position in (start..committed).step_by(PAGE_POSITIONS) {
        let page = context.pages[position / PAGE_POSITIONS].index();
        let keys = &context.pool[page * context.page_elements + context.keys..];
        let lanes = key_products(simd, query, keys);
        let count = PAGE_POSITIONS.min(committed - position);
        for (out, dot) in out[position - start..].iter_mut().zip(&lanes[..count]) {
            *out = dot * context.scale;
        }
    }
    let mut position = start.max(context.committed);
    while position < range.end {
        let ahead = &context.path[position - context.committed..range.end - context.committed];
        let slot = ahead[0].index();
        let keys = &context.scratch[slot / PAGE_POSITIONS * context.page_elements + context.keys..];
        let out = &mut out[position - start..];
        if fills_a_page(ahead) {
            for (out, dot) in out.iter_mut().zip(key_products(simd, query, keys)) {
                *out = dot * context.scale;
            }
            position += PAGE_POSITIONS;
        } else {
            out[0] = key_product(query, keys, slot % PAGE_POSITIONS) * context.scale;
            position += 1;
        }
    }
    let outside = context.first.clamp(start, range.end) - start;
    out[..outside].fill(f32::NEG_INFINITY);
}

/// Whether the next 16 ancestors are the 16 slots of one scratch page, as along a prompt. (Slots ascend along a
/// path, so the last tells.)
#[inline(always)]
fn fills_a_page(path: &[Slot]) -> bool {
    path.len() >= PAGE_POSITIONS
        && path[0].index().is_multiple_of(PAGE_POSITIONS)
        && path[PAGE_POSITIONS - 1].index() == path[0].index() + PAGE_POSITIONS - 1
}

/// Products of the query with 16 keys, `[head_dim][16]`, a lane each.
#[inline(always)]
fn key_products<S: Simd>(simd: S, query: &[f32], keys: &[u16]) -> [f32; PAGE_POSITIONS] {
    let mut sums = simd.splat(0.0);
    let (lines, _) = keys.as_chunks::<PAGE_POSITIONS>();
    for (q, line) in query.iter().zip(lines) {
        sums = simd.fma(simd.splat(*q), simd.load_half(line), sums);
    }
    let mut products = [0.0; PAGE_POSITIONS];
    simd.store(sums, &mut products);
    products
}

/// The product of the query with the key in one lane: the same chain as in [`key_products`].
#[inline(always)]
fn key_product(query: &[f32], keys: &[u16], lane: usize) -> f32 {
    let mut sum = 0.0f32;
    let (lines, _) = keys.as_chunks::<PAGE_POSITIONS>();
    for (q, line) in query.iter().zip(lines) {
        sum = q.mul_add(f16_to_f32(line[lane]), sum);
    }
    sum
}

/// Adds `weight[position] * value[position]` in position order.
#[inline(always)]
fn weighted_values<S: Simd>(
    simd: S,
    weights: &[f32],
    context: &HeadContext<'_>,
    range: Range<usize>,
    out: &mut [f32],
) {
    let head_dim = out.len();
    for position in range.start.max(context.first)..range.end {
        let (store, page, lane) = match position.checked_sub(context.committed) {
            None => {
                let page = context.pages[position / PAGE_POSITIONS].index();
                (context.pool, page, position % PAGE_POSITIONS)
            }
            Some(in_flight) => {
                let slot = context.path[in_flight].index();
                (
                    context.scratch,
                    slot / PAGE_POSITIONS,
                    slot % PAGE_POSITIONS,
                )
            }
        };
        let start = page * context.page_elements + context.values + lane * head_dim;
        let weight = weights[position - range.start];
        let (values, values_rest) = store[start..][..head_dim].as_chunks::<LANES>();
        let (outs, outs_rest) = out.as_chunks_mut::<LANES>();
        for (out, values) in outs.iter_mut().zip(values) {
            let sum = simd.fma(simd.splat(weight), simd.load_half(values), simd.load(out));
            simd.store(sum, out);
        }
        for (out, value) in outs_rest.iter_mut().zip(values_rest) {
            *out = weight.mul_add(f16_to_f32(*value), *out);
        }
    }
}
