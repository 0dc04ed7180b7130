//! Reductions over a row with one fixed lane split.
//!
//! Element `i` belongs to lane `i % LANES`; a lane adds its elements in order; the lanes are then
//! folded in halves (0+8, 1+9, ..; 0+4, ..; 0+2, ..; 0+1). Any instruction set that keeps this order
//! gives the same bits, and 16 lanes are one AVX-512 register, two AVX2 ones or four of NEON.

/// Lanes of every fixed-order reduction.
pub const LANES: usize = 16;

/// Folds 16 partial sums in halves.
#[inline(always)]
pub fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The sum of `values` in the fixed lane order.
#[inline(always)]
pub fn sum(values: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (rows, tail) = values.as_chunks::<LANES>();
    for row in rows {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane += value;
        }
    }
    for (lane, value) in lanes.iter_mut().zip(tail) {
        *lane += value;
    }
    fold(lanes)
}

/// The sum of squares of `values` in the fixed lane order, one fused multiply-add an element.
#[inline(always)]
pub fn sum_of_squares(values: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (rows, tail) = values.as_chunks::<LANES>();
    for row in rows {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane = value.mul_add(*value, *lane);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(tail) {
        *lane = value.mul_add(*value, *lane);
    }
    fold(lanes)
}

/// The largest value; minus infinity of an empty row. NaNs are passed over. (The order does not matter here: lanes let it
/// vectorise.)
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (rows, tail) = values.as_chunks::<LANES>();
    for row in rows {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane = larger(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(tail) {
        *lane = larger(*lane, *value);
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_lane_sums_written_out() {
        let values: Vec<f32> = (0..37).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut lanes = [0.0f32; 16];
        for (i, v) in values.iter().enumerate() {
            lanes[i % 16] += v;
        }
        let l = lanes;
        let eight: Vec<f32> = (0..8).map(|i| l[i] + l[i + 8]).collect();
        let four: Vec<f32> = (0..4).map(|i| eight[i] + eight[i + 4]).collect();
        let expected = (four[0] + four[2]) + (four[1] + four[3]);
        assert_eq!(sum(&values).to_bits(), expected.to_bits());
    }

    #[test]
    fn the_largest_of_any_lane_wins_and_nan_never() {
        for at in 0..37 {
            let mut values = [-5.0f32; 37];
            values[at] = 2.0;
            values[(at + 1) % 37] = f32::NAN;
            assert_eq!(max(&values), 2.0);
        }
        assert_eq!(max(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn an_empty_row_sums_to_zero() {
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum_of_squares(&[]), 0.0);
    }

    #[test]
    fn sum_of_squares_of_small_integers_is_exact() {
        let values: Vec<f32> = (1..=20).map(|i| i as f32).collect();
        assert_eq!(sum_of_squares(&values), 2870.0);
    }
}
