//! Covering sets: few rows in which every two values of different factors meet.
//!
//! A fault that needs two settings to meet, as most do, is in such a set as surely as in the full product, which
//! is tens of times larger.

use std::collections::HashSet;

/// Two values of two factors: (factor, value) with the lower factor first.
type Pair = ((usize, usize), (usize, usize));

/// Rows that take one value of each factor, such that all pairs of values of different factors occur; `sizes` are the
/// numbers of values. Greedy: each row starts from a pair that has not occurred, and takes for every other factor the
/// value with the most pairs that have not. No row for a factor without values.
pub(super) fn covering_rows(sizes: &[usize]) -> Vec<Vec<usize>> {
    if sizes.len() < 2 || sizes.contains(&0) {
        return every_row(sizes);
    }
    let mut open = pairs_of(sizes);
    let mut is_open: HashSet<Pair> = open.iter().copied().collect();
    // The first pair that is open begins the next row.
    open.reverse();
    let mut rows = Vec::new();
    while let Some(pair) = open.pop() {
        if !is_open.contains(&pair) {
            continue;
        }
        let ((a, of_a), (b, of_b)) = pair;
        let mut row: Vec<Option<usize>> = vec![None; sizes.len()];
        (row[a], row[b]) = (Some(of_a), Some(of_b));
        for factor in 0..sizes.len() {
            if row[factor].is_none() {
                row[factor] = Some(best_value(factor, sizes[factor], &row, &is_open));
            }
        }
        let row: Vec<usize> = row.into_iter().flatten().collect();
        for pair in pairs_in(&row) {
            is_open.remove(&pair);
        }
        rows.push(row);
    }
    rows
}

/// The whole product, the last factor changing fastest.
pub(super) fn every_row(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![Vec::new()], |rows, &size| {
        let longer = |row: &Vec<usize>, value| [row.as_slice(), &[value]].concat();
        let all = rows.iter();
        all.flat_map(|row| (0..size).map(move |value| longer(row, value)))
            .collect()
    })
}

/// The value of `factor` with the most open pairs with what the row has; the lowest among equals.
fn best_value(factor: usize, size: usize, row: &[Option<usize>], open: &HashSet<Pair>) -> usize {
    let gain = |value: usize| {
        let others = row.iter().enumerate();
        let pairs = others.filter_map(|(other, at)| at.map(|at| (other, at)));
        pairs
            .filter(|&other| open.contains(&ordered((factor, value), other)))
            .count()
    };
    // `max_by_key` takes the last of equals.
    (0..size)
        .rev()
        .max_by_key(|&value| gain(value))
        .unwrap_or(0)
}

fn ordered(a: (usize, usize), b: (usize, usize)) -> Pair {
    if a < b { (a, b) } else { (b, a) }
}

fn pairs_of(sizes: &[usize]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (b, &size_of_b) in sizes.iter().enumerate() {
        for (a, &size_of_a) in sizes[..b].iter().enumerate() {
            let all = (0..size_of_a).flat_map(|x| (0..size_of_b).map(move |y| ((a, x), (b, y))));
            pairs.extend(all);
        }
    }
    pairs
}

fn pairs_in(row: &[usize]) -> impl Iterator<Item = Pair> + '_ {
    let before = |b: usize| row[..b].iter().enumerate().map(move |(a, &x)| (a, x));
    row.iter()
        .enumerate()
        .flat_map(move |(b, &y)| before(b).map(move |a| (a, (b, y))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_covered_by_few_rows() {
        for sizes in [
            vec![2, 2],
            vec![4, 6, 3, 2, 2, 2],
            vec![3, 3, 3, 3],
            vec![1, 5, 1, 4],
            vec![2; 10],
        ] {
            let rows = covering_rows(&sizes);
            for row in &rows {
                assert_eq!(row.len(), sizes.len());
                assert!(row.iter().zip(&sizes).all(|(value, size)| value < size));
            }
            // Counted the plain way, not with the generator's own pairs.
            for a in 0..sizes.len() {
                for b in a + 1..sizes.len() {
                    for (x, y) in (0..sizes[a]).flat_map(|x| (0..sizes[b]).map(move |y| (x, y))) {
                        let met = rows.iter().any(|row| row[a] == x && row[b] == y);
                        assert!(met, "{sizes:?}: {a}={x} never meets {b}={y}");
                    }
                }
            }
            // No set is smaller than the product of the two largest; a greedy one is not much larger.
            let mut sorted = sizes.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let least = sorted[0] * sorted[1];
            assert!(
                (least..=2 * least + sizes.len()).contains(&rows.len()),
                "{sizes:?}: {} rows",
                rows.len()
            );
        }
    }

    #[test]
    fn few_factors_give_their_product() {
        assert_eq!(covering_rows(&[3]), [[0], [1], [2]]);
        assert_eq!(every_row(&[2, 2]), [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert!(covering_rows(&[2, 0, 3]).is_empty());
    }
}
