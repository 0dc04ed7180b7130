//! Attention of queries that share a KV head of one sequence, over committed pages and ancestors in flight.
//!
//! A position's score is one chain of fused multiply-adds over the head, wherever the key lies; scores stand in a
//! buffer by absolute position, so a node of a tree computes exactly what it would compute in a line. The context
//! is split at fixed multiples of [`SPLIT`] positions; each part has its own maximum and sum (lanes by absolute
//! position), adds up its values in position order, and the parts are combined in order. (The rescaling of parts
//! is that of online softmax: Milakov and Gimelshein 1805.02867.)
//!
//! Queries of several heads and rows are walked together: a key or a value is loaded and widened once for all of them
//! as far as their contexts agree (the pages, and the ancestors that their paths begin with), and each walks the rest alone. No
//! operation of a query depends on its company, so neither do its bits.

mod element;
mod parts;
mod scores;
mod source;
mod values;

pub(crate) use element::{Byte, Element, Half};
pub(crate) use parts::{SPLIT, combine_parts, part_len};
pub(crate) use source::{Source, Store};

use std::ops::Range;

use foredraft_common::exp;
use foredraft_common::lanes;
use foredraft_model::Slot;

use crate::path::for_each_path;
use crate::simd::Simd;
use parts::{Seen, combine, normalize, write_part};
use scores::score_positions;
use values::{scale_weights, weigh_values};

/// Queries that may be walked together.
pub(crate) const GROUP: usize = 6;

/// One head of one row.
pub(crate) struct Query<'a> {
    /// `[head_dim]`.
    pub(crate) values: &'a [f32],
    /// Ancestors in flight; entry `j` is position `committed + j`, the last is the row itself.
    pub(crate) path: &'a [Slot],
    /// Positions before this one are outside of the window.
    pub(crate) first: usize,
    /// Overwritten: `[head_dim]`, or [`part_len`] where one part is asked for.
    pub(crate) out: &'a mut [f32],
}

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
    /// Up to [`GROUP`] queries over pages of halves: the whole context, or the result of one part.
    fn attend_half(source: Source<'_, Half>, queries: &mut [Query<'_>], part: Option<usize>, workspace: &mut Workspace) = attend_all, simd;
}

for_each_path! {
    /// Up to [`GROUP`] queries over pages of bytes: the whole context, or the result of one part.
    fn attend_byte(source: Source<'_, Byte>, queries: &mut [Query<'_>], part: Option<usize>, workspace: &mut Workspace) = attend_all, simd;
}

#[inline(always)]
fn attend_all<S: Simd, E: Element>(
    simd: S,
    source: Source<'_, E>,
    queries: &mut [Query<'_>],
    part: Option<usize>,
    workspace: &mut Workspace,
) {
    let mut rest = queries;
    while !rest.is_empty() {
        let (now, later) = rest.split_at_mut(company::<S>(rest.len()));
        rest = later;
        match now.len() {
            1 => attend::<S, E, 1>(simd, &source, now, part, workspace),
            2 => attend::<S, E, 2>(simd, &source, now, part, workspace),
            3 => attend::<S, E, 3>(simd, &source, now, part, workspace),
            4 => attend::<S, E, 4>(simd, &source, now, part, workspace),
            6 if const { S::QUERIES >= 6 } => {
                attend::<S, E, 6>(simd, &source, now, part, workspace)
            }
            _ => {}
        }
    }
}

/// How many of `queries` are walked together: sizes that a kernel is compiled for.
#[inline(always)]
fn company<S: Simd>(queries: usize) -> usize {
    match queries.min(S::QUERIES) {
        5 => 3,
        count => count,
    }
}

#[inline(always)]
fn attend<S: Simd, E: Element, const N: usize>(
    simd: S,
    source: &Source<'_, E>,
    queries: &mut [Query<'_>],
    only: Option<usize>,
    workspace: &mut Workspace,
) {
    let end_of = |q: &Query<'_>| source.committed + q.path.len();
    let shared = Shared::of(source.committed, queries);
    let first = queries.iter().map(|q| q.first).min().unwrap_or(0);
    let end = queries.iter().map(end_of).max().unwrap_or(0);
    let mut seen: [Option<Seen>; N] = [None; N];
    let parts = match only {
        None => first / SPLIT..end.div_ceil(SPLIT),
        Some(part) => part..part + 1,
    };
    for index in parts {
        let part = index * SPLIT..(index + 1) * SPLIT;
        let scores = &mut workspace.scores[..N * SPLIT];
        score_part::<S, E, N>(simd, source, queries, &shared, &part, scores);
        let mut new = [None; N];
        for (n, query) in queries.iter().enumerate() {
            let own = own_range(&part, query.first, end_of(query));
            if own.is_empty() {
                continue;
            }
            let weights = &mut scores[n * SPLIT..(n + 1) * SPLIT];
            new[n] = Some(simd.call(|| {
                let seen = soften(&mut weights[..own.end - part.start]);
                if E::SCALED {
                    scale_weights(weights, source, query.path, own);
                }
                seen
            }));
        }
        let sums = &mut workspace.part[..N * source.head_dim];
        weigh_part::<S, E, N>(simd, source, queries, &shared, &part, (scores, sums));
        let sums = sums.chunks_exact(source.head_dim);
        for (((query, sums), seen), new) in queries.iter_mut().zip(sums).zip(&mut seen).zip(new) {
            match (only, new) {
                (Some(_), new) => write_part(query.out, sums, new),
                (None, Some(new)) => {
                    *seen = Some(simd.call(|| combine(query.out, *seen, sums, new)));
                }
                (None, None) => {}
            }
        }
    }
    if only.is_none() {
        for (query, seen) in queries.iter_mut().zip(seen) {
            normalize(query.out, seen);
        }
    }
}

/// What the queries of a group have in common.
struct Shared<'a> {
    /// Positions before it are outside of every query's window.
    first: usize,
    /// Positions before it are outside of some query's window.
    inside: usize,
    /// Positions before it are the same for all: the pages and the first ancestors.
    end: usize,
    /// A path that begins with the common ancestors.
    path: &'a [Slot],
}

impl<'a> Shared<'a> {
    #[inline(always)]
    fn of(committed: usize, queries: &[Query<'a>]) -> Self {
        let path = queries[0].path;
        let common = queries.iter().skip(1).fold(path.len(), |common, q| {
            let both = path[..common].iter().zip(q.path);
            both.take_while(|(a, b)| a == b).count()
        });
        Self {
            first: queries.iter().map(|q| q.first).min().unwrap_or(0),
            inside: queries.iter().map(|q| q.first).max().unwrap_or(0),
            end: committed + common,
            path,
        }
    }
}

/// The positions of a part that a query sees.
#[inline(always)]
fn own_range(part: &Range<usize>, first: usize, end: usize) -> Range<usize> {
    first.max(part.start)..end.min(part.end)
}

/// Scores of a part, `[N][SPLIT]`; minus infinity before a query's window.
#[inline(always)]
fn score_part<S: Simd, E: Element, const N: usize>(
    simd: S,
    source: &Source<'_, E>,
    queries: &[Query<'_>],
    shared: &Shared<'_>,
    part: &Range<usize>,
    scores: &mut [f32],
) {
    let together = own_range(part, shared.first, shared.end);
    let values: [&[f32]; N] = std::array::from_fn(|n| queries[n].values);
    score_positions(simd, values, source, shared.path, together, scores);
    for (n, query) in queries.iter().enumerate() {
        let scores = &mut scores[n * SPLIT..(n + 1) * SPLIT];
        let end = source.committed + query.path.len();
        let alone = own_range(part, query.first.max(shared.end), end);
        score_alone(simd, source, query, alone, scores);
        let outside = query.first.clamp(part.start, part.end) - part.start;
        scores[..outside].fill(f32::NEG_INFINITY);
    }
}

/// Turns scores into exponentials of their distance to the largest.
#[inline(always)]
fn soften(scores: &mut [f32]) -> Seen {
    let max = lanes::max(scores);
    for score in scores.iter_mut() {
        *score = exp(*score - max);
    }
    let sum = lanes::sum(scores);
    Seen { max, sum }
}

/// Weighted sums of the values of a part, `[N][head_dim]`, each in position order: what is before the common window,
/// what is common, what comes after it.
#[inline(always)]
fn weigh_part<S: Simd, E: Element, const N: usize>(
    simd: S,
    source: &Source<'_, E>,
    queries: &[Query<'_>],
    shared: &Shared<'_>,
    part: &Range<usize>,
    (weights, sums): (&[f32], &mut [f32]),
) {
    sums.fill(0.0);
    let together = own_range(part, shared.inside, shared.end);
    let dim = source.head_dim;
    if shared.inside > shared.first {
        for (n, query) in queries.iter().enumerate() {
            let before = own_range(part, query.first, shared.inside.min(shared.end));
            let (weights, sums) = (&weights[n * SPLIT..], &mut sums[n * dim..(n + 1) * dim]);
            weigh_alone(simd, source, query, before, (weights, sums));
        }
    }
    weigh_values::<S, E, N>(simd, weights, source, shared.path, together, sums);
    for (n, query) in queries.iter().enumerate() {
        let end = source.committed + query.path.len();
        let after = own_range(part, query.first.max(shared.end), end);
        let (weights, sums) = (&weights[n * SPLIT..], &mut sums[n * dim..(n + 1) * dim]);
        weigh_alone(simd, source, query, after, (weights, sums));
    }
}

/// [`score_positions`] of one query, compiled once.
#[inline(always)]
fn score_alone<S: Simd, E: Element>(
    simd: S,
    source: &Source<'_, E>,
    query: &Query<'_>,
    range: Range<usize>,
    scores: &mut [f32],
) {
    if !range.is_empty() {
        simd.call(|| {
            score_positions::<S, E, 1>(simd, [query.values], source, query.path, range, scores);
        });
    }
}

/// [`weigh_values`] of one query, compiled once.
#[inline(always)]
fn weigh_alone<S: Simd, E: Element>(
    simd: S,
    source: &Source<'_, E>,
    query: &Query<'_>,
    range: Range<usize>,
    (weights, sums): (&[f32], &mut [f32]),
) {
    if !range.is_empty() {
        simd.call(|| {
            weigh_values::<S, E, 1>(simd, weights, source, query.path, range, sums);
        });
    }
}

#[cfg(test)]
mod tests;
