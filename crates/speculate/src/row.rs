//! Searches of and reductions over a row of f32, each in one fixed order.

use foredraft_common::{TokenId, lanes::LANES};

use crate::DistributionError;

/// The largest value, -infinity when there is none; NaN is passed over.
pub(crate) fn max(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut maxima = [f32::NEG_INFINITY; LANES];
    let (chunks, tail) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (max, &value) in maxima.iter_mut().zip(chunk) {
            *max = larger(*max, value);
        }
    }
    maxima
        .iter()
        .chain(tail)
        .fold(f32::NEG_INFINITY, |a, &b| larger(a, b))
}

/// The largest value of a row of logits. Refuses a row with a NaN or +infinity, and one without a finite
/// value (-infinity alone means "impossible").
pub(crate) fn finite_max(row: &[f32]) -> Result<f32, DistributionError> {
    // Without short-circuits, so that the loop has no branch. A NaN is not below infinity.
    if !row
        .iter()
        .fold(true, |all, &value| all & (value < f32::INFINITY))
    {
        return Err(first_fault(row));
    }
    match max(row) {
        f32::NEG_INFINITY => Err(DistributionError::NothingPossible),
        max => Ok(max),
    }
}

/// Index of the first element equal to `value`, looked for a chunk at a time.
pub(crate) fn first_equal(row: &[f32], value: f32) -> Option<usize> {
    const CHUNK: usize = 64;
    let is_in = |chunk: &[f32]| chunk.iter().fold(false, |found, &v| found | (v == value));
    let (i, chunk) = row
        .chunks(CHUNK)
        .enumerate()
        .find(|(_, chunk)| is_in(chunk))?;
    Some(i * CHUNK + chunk.iter().position(|&v| v == value)?)
}

/// What is wrong with the first value that is NaN or +infinity.
#[cold]
fn first_fault(row: &[f32]) -> DistributionError {
    let fault = row
        .iter()
        .position(|value| value.is_nan() || *value == f32::INFINITY);
    match fault {
        Some(id) if row[id].is_nan() => DistributionError::NotANumber {
            token: TokenId(id as u32),
        },
        Some(id) => DistributionError::Infinite {
            token: TokenId(id as u32),
        },
        None => DistributionError::NothingPossible,
    }
}

/// The sum in f64 of `f` of each element: element i is added to lane i % 16, then the lanes are folded
/// in halves.
#[inline(always)]
pub(crate) fn sum_of(row: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (chunks, tail) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(f(value));
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(tail) {
        *lane += f64::from(f(value));
    }
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum in f64 in the order of [`sum_of`].
pub(crate) fn sum(row: &[f32]) -> f64 {
    sum_of(row, |value| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_wherever_it_is() {
        for len in [1usize, 15, 16, 17, 50, 64, 130] {
            for place in 0..len {
                let mut row = vec![-5.0; len];
                row[place] = -1.5;
                assert_eq!(finite_max(&row), Ok(-1.5));
                assert_eq!(first_equal(&row, -1.5), Some(place));
                assert_eq!(first_equal(&row, 1.5), None);
                row[(place + 1) % len] = f32::NEG_INFINITY;
                assert_eq!(
                    finite_max(&row),
                    if len == 1 {
                        Err(DistributionError::NothingPossible)
                    } else {
                        Ok(-1.5)
                    }
                );
            }
        }
    }

    #[test]
    fn a_fault_is_named_with_its_token() {
        for place in 0..40u32 {
            let mut row = vec![0.5; 40];
            row[place as usize] = f32::NAN;
            assert_eq!(
                finite_max(&row),
                Err(DistributionError::NotANumber {
                    token: TokenId(place)
                })
            );
            row[place as usize] = f32::INFINITY;
            assert_eq!(
                finite_max(&row),
                Err(DistributionError::Infinite {
                    token: TokenId(place)
                })
            );
        }
        assert_eq!(finite_max(&[]), Err(DistributionError::NothingPossible));
        assert_eq!(
            finite_max(&[f32::NEG_INFINITY; 20]),
            Err(DistributionError::NothingPossible)
        );
    }

    #[test]
    fn the_sum_keeps_what_f32_would_lose() {
        let mut row = vec![2f32.powi(-30); 1024];
        row[5] = 1.0;
        // 1023 * 2^-30 beside 1: exact in f64, below half a unit in the last place of f32 each.
        assert_eq!(sum(&row), 1.0 + 1023.0 * 2f64.powi(-30));
        assert_eq!(sum(&[]), 0.0);
    }
}
