//! Searches of and reductions over a row of f32, each in one fixed order.

use foredraft_common::{TokenId, exp, lanes::LANES};

use crate::DistributionError;
use crate::wide::widest;

/// Elements that are looked at together.
const CHUNK: usize = 256;

widest! {
    /// The largest value, -infinity when there is none; NaN is passed over.
    pub(crate) fn max<'a>(row: &'a [f32]) -> f32 {
        max_inlined(row)
    }
}

/// [`max`], where its caller is compiled for wide registers.
#[inline(always)]
fn max_inlined(row: &[f32]) -> f32 {
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
    let (is_sound, max) = soundness_and_max(row);
    if !is_sound {
        return Err(first_fault(row));
    }
    match max {
        f32::NEG_INFINITY => Err(DistributionError::NothingPossible),
        max => Ok(max),
    }
}

widest! {
    /// Whether no value is NaN or +infinity; and the largest. A chunk is still in the first cache when its maximum is looked for.
    fn soundness_and_max<'a>(row: &'a [f32]) -> (bool, f32) {
        let mut is_sound = true;
        let mut largest = f32::NEG_INFINITY;
        for chunk in row.chunks(CHUNK) {
            // Without a short-circuit, so that the loop has no branch. A NaN is not below infinity.
            for &value in chunk {
                is_sound &= value < f32::INFINITY;
            }
            largest = f32::max(largest, max_inlined(chunk));
        }
        (is_sound, largest)
    }
}

widest! {
    /// Index of the first element equal to `value`, looked for a chunk at a time.
    pub(crate) fn first_equal<'a>(row: &'a [f32], value: f32) -> Option<usize> {
        for (i, chunk) in row.chunks(CHUNK).enumerate() {
            let mut is_in = false;
            for &v in chunk {
                is_in |= v == value;
            }
            if is_in {
                return Some(i * CHUNK + chunk.iter().position(|&v| v == value)?);
            }
        }
        None
    }
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

widest! {
    /// The sum in f64: element i is added to lane i % 16, then the lanes are folded in halves.
    pub(crate) fn sum<'a>(row: &'a [f32]) -> f64 {
        let mut lanes = [0.0f64; LANES];
        add_to_lanes(row, &mut lanes);
        fold(lanes)
    }
}

#[inline(always)]
fn add_to_lanes(row: &[f32], lanes: &mut [f64; LANES]) {
    let (chunks, tail) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(value);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(tail) {
        *lane += f64::from(value);
    }
}

#[inline(always)]
fn fold(mut lanes: [f64; LANES]) -> f64 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

widest! {
    /// The sum in f64 of exp(value - max), in the order of [`sum`].
    pub(crate) fn sum_of_exp<'a>(row: &'a [f32], max: f32) -> f64 {
        let mut lanes = [0.0f64; LANES];
        let mut buffer = [0.0f32; CHUNK];
        for chunk in row.chunks(CHUNK) {
            // Loops of their own, because the compiler makes the most of those.
            for (weight, &value) in buffer.iter_mut().zip(chunk) {
                *weight = exp(value - max);
            }
            add_to_lanes(&buffer[..chunk.len()], &mut lanes);
        }
        fold(lanes)
    }
}

widest! {
    /// Turns logits into weights: exp((logit - max) / temperature).
    pub(crate) fn weigh<'a>(row: &'a mut [f32], max: f32, temperature: f32) {
        for value in row {
            *value = weight(*value, max, temperature);
        }
    }
}

/// The weight of one logit. A division and not a product with 1 / temperature: at the largest logit it gives 0, and so the
/// weight 1, even when the reciprocal would overflow.
#[inline(always)]
pub(crate) fn weight(logit: f32, max: f32, temperature: f32) -> f32 {
    exp((logit - max) / temperature)
}

widest! {
    /// Divides every value by `divisor`, in f64 and rounded once to f32. Values and divisor are finite and above 0.
    ///
    /// A division costs as much as eight multiplications, so most values are multiplied with the reciprocal. In f64 that
    /// product is within 2 units of the quotient's last place (the reciprocal's error of half a unit counts up to twice,
    /// the roundings of product and quotient half a unit each), and both round to the same f32 unless they lie on either side
    /// of the middle between two of these: where a product is near one, its chunk is divided after all.
    pub(crate) fn divide<'a>(values: &'a mut [f32], divisor: f64) {
        let reciprocal = 1.0 / divisor;
        for chunk in values.chunks_mut(CHUNK) {
            // Positive floats have the order of their bits, and a minimum of integers is one that the compiler vectorises.
            let mut smallest = u32::MAX;
            let mut is_near = false;
            for &mut value in &mut *chunk {
                smallest = smallest.min(value.to_bits());
                is_near |= is_near_middle(f64::from(value) * reciprocal);
            }
            // f32 keeps fewer bits of what is smaller.
            let is_normal = f64::from(f32::from_bits(smallest)) * reciprocal >= f64::from(f32::MIN_POSITIVE);
            if is_normal && !is_near {
                for value in chunk {
                    *value = (f64::from(*value) * reciprocal) as f32;
                }
            } else {
                for value in chunk {
                    *value = (f64::from(*value) / divisor) as f32;
                }
            }
        }
    }
}

/// Whether an f64 within 3 units in the last place of `value` may round to another f32: of the mantissa f32 keeps all but 29
/// bits, and the middle has the uppermost of these set and no other.
#[inline(always)]
fn is_near_middle(value: f64) -> bool {
    const MIDDLE: u64 = 1 << 28;
    // From 4 below the middle to 3 above it, which all have zeros here once 4 is added and the middle subtracted.
    let above = value.to_bits().wrapping_add(4).wrapping_sub(MIDDLE);
    above & ((1 << 29) - 8) == 0
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

    /// Against the division itself: any values, values whose quotient lies next to the middle between two f32, and
    /// quotients below the normal range.
    #[test]
    fn dividing_by_way_of_the_reciprocal_gives_the_bits_of_the_division() {
        let check = |mut values: Vec<f32>, divisor: f64| {
            let quotient = |&value: &f32| (f64::from(value) / divisor) as f32;
            let expected: Vec<f32> = values.iter().map(quotient).collect();
            divide(&mut values, divisor);
            assert_eq!(values, expected, "by {divisor}");
        };
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u32
        };
        for _ in 0..200_000 {
            let value = f32::from_bits(0x3000_0000 + next() % 0x0f00_0000);
            // The upper bits of the mantissa and the one below those of f32.
            let middle = 1.0 + (f64::from(next() % (1 << 23)) + 0.5) * 2f64.powi(-23);
            // And a middle below the normal range, where f32 keeps multiples of 2^-149.
            let tiny = (f64::from(next() % (1 << 22)) + 0.5) * 2f64.powi(-149);
            for (middle, units) in [
                (middle, -2),
                (middle, 0),
                (middle, 1),
                (tiny, -1),
                (tiny, 0),
            ] {
                let divisor = f64::from(value) / middle;
                let near = f64::from_bits((divisor.to_bits() as i64 + units) as u64);
                check(vec![value], near);
            }
        }
        for round in 0..100 {
            let mut values: Vec<f32> = (0..700)
                .map(|_| next() as f32 * 2f64.powi(-31) as f32 + 1e-9)
                .collect();
            if round % 2 == 0 {
                values[600] = 1.5 * f32::MIN_POSITIVE;
            }
            check(values, 1.0 + f64::from(next()) * 2f64.powi(-16));
        }
    }

    #[test]
    fn what_is_next_to_the_middle_is_known() {
        let middle = 1.0 + 2f64.powi(-24);
        let beside = |units: i64| f64::from_bits((middle.to_bits() as i64 + units) as u64);
        for units in -4..=3 {
            assert!(is_near_middle(beside(units)), "{units}");
        }
        for units in [-5, 4, 100, 1 << 28, -(1 << 28) + 1] {
            assert!(!is_near_middle(beside(units)), "{units}");
        }
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
