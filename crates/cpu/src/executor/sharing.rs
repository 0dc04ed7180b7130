//! How the queries of an attention step are shared out among the workers.

use std::ops::Range;

use foredraft_model::Batch;

use crate::kernels::attention::{GROUP, SPLIT};
use crate::sizes::SPLIT_ROWS;

/// What one query costs beside another, and what a group costs whatever its size, in the same unit: a key or a value is
/// loaded and widened by three instructions, and meets a query by one.
const GROUP_COST: usize = 3;

/// Runs of rows that belong to one sequence.
pub(super) fn runs(batch: &Batch) -> impl Iterator<Item = Range<usize>> {
    let rows = batch.rows();
    let mut start = 0;
    std::iter::from_fn(move || {
        let sequence = rows.get(start)?.sequence;
        let of_run = rows[start..].iter().take_while(|r| r.sequence == sequence);
        let run = start..start + of_run.count();
        start = run.end;
        Some(run)
    })
}

/// The parts of the longest context of a run.
pub(super) fn parts(batch: &Batch, run: &Range<usize>) -> usize {
    let ends = batch.rows()[run.clone()].iter();
    let end = ends.map(|row| row.position.index() + 1).max();
    end.unwrap_or(0).div_ceil(SPLIT)
}

/// How the queries of a pass are shared out among the workers.
pub(super) struct Sharing {
    kv_heads: usize,
    /// Query heads of a KV head.
    per_head: usize,
    /// Queries that are walked together.
    together: usize,
    /// Whether the parts of a context are shared out too: with few rows in the pass its heads alone may leave a worker without
    /// work.
    pub(super) is_split: bool,
}

/// Queries of one KV head, and what of their context they are to walk.
#[derive(Debug, PartialEq)]
pub(super) struct Item {
    pub(super) head: usize,
    /// Query heads of all rows of the run, row by row.
    pub(super) members: Range<usize>,
    pub(super) part: Option<usize>,
}

impl Sharing {
    pub(super) fn new(batch: &Batch, kv_heads: usize, per_head: usize, workers: usize) -> Self {
        let is_long = || runs(batch).any(|run| parts(batch, &run) > 1);
        Self {
            kv_heads,
            per_head,
            together: queries_together(batch, kv_heads, per_head, workers),
            is_split: workers > 1 && batch.rows().len() <= SPLIT_ROWS && is_long(),
        }
    }

    fn groups(&self, run: &Range<usize>) -> usize {
        (run.len() * self.per_head).div_ceil(self.together)
    }

    fn parts(&self, batch: &Batch, run: &Range<usize>) -> usize {
        match self.is_split {
            true => parts(batch, run),
            false => 1,
        }
    }

    /// Items of a run.
    pub(super) fn items(&self, batch: &Batch, run: &Range<usize>) -> usize {
        self.kv_heads * self.groups(run) * self.parts(batch, run)
    }

    /// The item of this number. Heads come first, so that a worker's share is of few of them.
    pub(super) fn item(&self, batch: &Batch, run: &Range<usize>, number: usize) -> Item {
        let (parts, groups) = (self.parts(batch, run), self.groups(run));
        let (group, part) = (number / parts, number % parts);
        let (head, start) = (group / groups, group % groups * self.together);
        Item {
            head,
            members: start..(run.len() * self.per_head).min(start + self.together),
            part: self.is_split.then_some(part),
        }
    }
}

/// How many queries are walked together: as many as save work, but so few that every worker gets its share.
fn queries_together(batch: &Batch, kv_heads: usize, per_head: usize, workers: usize) -> usize {
    let cost = |together: usize| {
        let groups = runs(batch).map(|run| (run.len() * per_head).div_ceil(together) * kv_heads);
        groups.sum::<usize>().div_ceil(workers) * (together + GROUP_COST)
    };
    (1..=GROUP).rev().min_by_key(|n| cost(*n)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use foredraft_common::TokenId;

    use super::*;

    fn batch(rows: &[usize]) -> Batch {
        let mut batch = Batch::new();
        for rows in rows {
            let sequence = batch.add_sequence(0, []);
            let mut parent = None;
            for _ in 0..*rows {
                parent = Some(batch.push(sequence, TokenId(0), parent, false));
            }
        }
        batch
    }

    #[test]
    fn rows_of_a_sequence_are_a_run() {
        let all: Vec<Range<usize>> = runs(&batch(&[2, 1, 3])).collect();
        assert_eq!(all, [0..2, 2..3, 3..6]);
        assert_eq!(runs(&batch(&[])).count(), 0);
    }

    #[test]
    fn groups_are_large_where_every_worker_has_work() {
        // SmolLM2, 8 rows, 2 workers: 24 queries a KV head; 12 groups of 6.
        assert_eq!(queries_together(&batch(&[8]), 3, 3, 2), 6);
        // One row of Qwen 1.5B: 6 queries for each of 2 heads, a group for each worker.
        assert_eq!(queries_together(&batch(&[1]), 2, 6, 2), 6);
        // The same with 4 workers: 4 groups of 3.
        assert_eq!(queries_together(&batch(&[1]), 2, 6, 4), 3);
    }

    #[test]
    fn parts_of_a_long_context_are_shared_out_where_rows_are_few() {
        // SmolLM2: 9 query heads over 3 KV heads; a context of three parts, two workers.
        let long = |rows: usize| {
            let mut batch = Batch::new();
            let sequence = batch.add_sequence(2500, []);
            for _ in 0..rows {
                batch.push(sequence, TokenId(0), None, false);
            }
            batch
        };
        let batch = long(1);
        let sharing = Sharing::new(&batch, 3, 3, 2);
        let items: Vec<Item> = (0..sharing.items(&batch, &(0..1)))
            .map(|number| sharing.item(&batch, &(0..1), number))
            .collect();
        let expected: Vec<Item> = (0..3)
            .flat_map(|head| {
                (0..3).map(move |part| Item {
                    head,
                    members: 0..3,
                    part: Some(part),
                })
            })
            .collect();
        assert_eq!(items, expected);
        assert!(!Sharing::new(&batch, 3, 3, 1).is_split, "one worker");
        assert!(!Sharing::new(&long(9), 3, 3, 2).is_split, "many rows");
    }
}
