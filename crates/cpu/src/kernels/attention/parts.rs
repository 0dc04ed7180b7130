//! Parts of a long context: their results, and how they are combined.
//!
//! A part's result is `[head_dim]` weighted sums of values, its largest score and the sum of its weights. Results are combined in
//! the order of the parts, whoever made them: threads that share a context get the bits of one that walks it alone.

use foredraft_common::exp;

use crate::path::for_each_path;

/// Positions of a part: results are combined at fixed multiples of it.
pub(crate) const SPLIT: usize = 1024;

/// Values of a part's result that is written down.
pub(crate) const fn part_len(head_dim: usize) -> usize {
    head_dim + 2
}

/// The maximum score and the sum of the weights of a query so far.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub(super) max: f32,
    pub(super) sum: f32,
}

/// Adds a part's sums to `out`, both brought to the larger of the two maxima.
#[inline(always)]
pub(super) fn combine(out: &mut [f32], seen: Option<Seen>, part: &[f32], new: Seen) -> Seen {
    let Some(seen) = seen else {
        out.copy_from_slice(part);
        return new;
    };
    let max = if new.max > seen.max {
        new.max
    } else {
        seen.max
    };
    let (old_factor, new_factor) = (exp(seen.max - max), exp(new.max - max));
    for (out, part) in out.iter_mut().zip(part) {
        *out = part.mul_add(new_factor, *out * old_factor);
    }
    let sum = new.sum.mul_add(new_factor, seen.sum * old_factor);
    Seen { max, sum }
}

/// Turns sums into an average.
#[inline(always)]
pub(super) fn normalize(out: &mut [f32], seen: Option<Seen>) {
    let norm = 1.0 / seen.map_or(f32::NAN, |seen| seen.sum);
    out.iter_mut().for_each(|out| *out *= norm);
}

/// Writes a part's result down; without any when the query sees nothing of the part.
#[inline(always)]
pub(super) fn write_part(to: &mut [f32], sums: &[f32], seen: Option<Seen>) {
    let (values, rest) = to.split_at_mut(sums.len());
    values.copy_from_slice(sums);
    // The largest score has weight 1: a sum of 0 is that of nothing.
    let Seen { max, sum } = seen.unwrap_or(Seen { max: 0.0, sum: 0.0 });
    rest.copy_from_slice(&[max, sum]);
}

for_each_path! {
    /// Combines the results of a query's parts, `[parts][part_len]`, into its output, `[head_dim]`.
    fn combine_parts(parts: &[f32], out: &mut [f32]) = combine_all;
}

#[inline(always)]
fn combine_all(parts: &[f32], out: &mut [f32]) {
    let mut seen = None;
    for part in parts.chunks_exact(part_len(out.len())) {
        let (sums, rest) = part.split_at(out.len());
        let [max, sum] = [rest[0], rest[1]];
        if sum != 0.0 {
            seen = Some(combine(out, seen, sums, Seen { max, sum }));
        }
    }
    normalize(out, seen);
}
