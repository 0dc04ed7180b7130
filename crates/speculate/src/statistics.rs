//! Tests of whether what was drawn follows the distribution it should have been drawn from.
//!
//! Pearson's chi-square test with an exact tail (the regularised incomplete gamma function, not a normal
//! approximation: approximations are poorest in the far tail, where a fault shows), and Holm's correction for doing
//! many tests at once. The crate's own tests use them, and so does `foredraft audit`.

/// Cells with a smaller expectation are pooled: the usual condition for the chi-square distribution to hold.
pub const MINIMUM_EXPECTATION: f64 = 5.0;

/// Counts that cannot be tested.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// The two lists do not describe the same cells.
    #[error("{observed} cells were observed, but {expected} expected")]
    CellCount {
        /// Length of the observed counts.
        observed: usize,
        /// Length of the expected counts.
        expected: usize,
    },
    /// An expected count is negative, infinite or NaN.
    #[error("the expected count of cell {cell} is {value}; it must be a finite number, 0 or more")]
    Expectation {
        /// Index of the cell.
        cell: usize,
        /// Its expected count.
        value: f64,
    },
    /// The observed and the expected counts have different sums.
    #[error(
        "{observed} events were observed, but {expected} expected; scale the expectation to the number of events"
    )]
    Total {
        /// Sum of the observed counts.
        observed: f64,
        /// Sum of the expected counts.
        expected: f64,
    },
}

/// The result of a chi-square test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChiSquare {
    /// Sum over the cells of (observed - expected)^2 / expected.
    pub statistic: f64,
    /// Cells after pooling, less one.
    pub degrees_of_freedom: usize,
    /// The probability of a statistic at least this large when the expectation is right.
    pub p_value: f64,
}

/// Pearson's chi-square test of `observed` counts against `expected` ones (same cells, same sum up to 1 in 10^5).
///
/// Cells expected less than [`MINIMUM_EXPECTATION`] times are pooled into one, which joins the smallest other cell if
/// it is still too small. A single event in a cell with expectation 0 gives the p-value 0: what is impossible
/// has happened. With one cell left there is nothing to test, and the p-value is 1.
pub fn chi_square_test(observed: &[u64], expected: &[f64]) -> Result<ChiSquare, StatisticsError> {
    check(observed, expected)?;
    if observed
        .iter()
        .zip(expected)
        .any(|(&o, &e)| o > 0 && e == 0.0)
    {
        return Ok(ChiSquare {
            statistic: f64::INFINITY,
            degrees_of_freedom: expected
                .iter()
                .filter(|&&e| e > 0.0)
                .count()
                .saturating_sub(1),
            p_value: 0.0,
        });
    }
    let cells = pool(observed, expected);
    let statistic = cells.iter().map(|(o, e)| (o - e) * (o - e) / e).sum();
    let degrees_of_freedom = cells.len().saturating_sub(1);
    let p_value = match degrees_of_freedom {
        0 => 1.0,
        n => regularised_gamma_q(n as f64 / 2.0, statistic / 2.0),
    };
    Ok(ChiSquare {
        statistic,
        degrees_of_freedom,
        p_value,
    })
}

fn check(observed: &[u64], expected: &[f64]) -> Result<(), StatisticsError> {
    if observed.len() != expected.len() {
        let (observed, expected) = (observed.len(), expected.len());
        return Err(StatisticsError::CellCount { observed, expected });
    }
    let valid = |e: f64| e >= 0.0 && e.is_finite();
    if let Some((cell, &value)) = expected.iter().enumerate().find(|&(_, &e)| !valid(e)) {
        return Err(StatisticsError::Expectation { cell, value });
    }
    let observed = observed.iter().map(|&o| o as f64).sum::<f64>();
    let expected = expected.iter().sum::<f64>();
    if (observed - expected).abs() > 1e-5 * observed.max(expected) {
        return Err(StatisticsError::Total { observed, expected });
    }
    Ok(())
}

/// The cells as (observed, expected), small ones pooled by their expectation alone (never by what was seen).
fn pool(observed: &[u64], expected: &[f64]) -> Vec<(f64, f64)> {
    let all = observed.iter().zip(expected).map(|(&o, &e)| (o as f64, e));
    let (mut cells, small): (Vec<_>, Vec<_>) = all.partition(|&(_, e)| e >= MINIMUM_EXPECTATION);
    let pooled = small
        .iter()
        .fold((0.0, 0.0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
    if pooled.1 <= 0.0 {
        return cells;
    }
    let smallest = cells.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1));
    match smallest {
        Some(cell) if pooled.1 < MINIMUM_EXPECTATION => {
            *cell = (cell.0 + pooled.0, cell.1 + pooled.1)
        }
        _ => cells.push(pooled),
    }
    cells
}

/// Holm's step-down adjustment (1979) of the p-values of several tests: an adjusted value below alpha rejects its
/// test while the chance of rejecting any true hypothesis stays below alpha. The order of the tests is kept.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0f64;
    for (rank, &test) in order.iter().enumerate() {
        let remaining = (p_values.len() - rank) as f64;
        largest = largest.max((p_values[test] * remaining).min(1.0));
        adjusted[test] = largest;
    }
    adjusted
}

/// Q(a, x) = Gamma(a, x) / Gamma(a), the regularised upper incomplete gamma function; NaN unless a > 0 and x >= 0.
/// The tail of a chi-square distribution with n degrees of freedom above c is Q(n / 2, c / 2).
///
/// Left of a + 1 the power series of P = 1 - Q, right of it Legendre's continued fraction of Q by Lentz's method
/// (Abramowitz and Stegun 6.5.29 and 6.5.31): each where it converges fast, and the far tail keeps its relative accuracy.
pub fn regularised_gamma_q(a: f64, x: f64) -> f64 {
    if !(a > 0.0 && x >= 0.0 && a.is_finite()) {
        return f64::NAN;
    }
    if x == 0.0 {
        return 1.0;
    }
    if x == f64::INFINITY {
        return 0.0;
    }
    // x^a e^-x / Gamma(a).
    let front = libm::exp(a * libm::log(x) - x - libm::lgamma(a));
    if x < a + 1.0 {
        (1.0 - front * gamma_series(a, x)).clamp(0.0, 1.0)
    } else {
        (front * gamma_continued_fraction(a, x)).clamp(0.0, 1.0)
    }
}

/// Steps are far fewer (some 8 sqrt(a)); this only bounds the loops.
const MAXIMUM_STEPS: usize = 1_000_000;

/// P(a, x) / front: sum over n of x^n / (a (a + 1) .. (a + n)).
fn gamma_series(a: f64, x: f64) -> f64 {
    let mut term = 1.0 / a;
    let mut sum = term;
    for n in 1..MAXIMUM_STEPS {
        term *= x / (a + n as f64);
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    sum
}

/// Q(a, x) / front: 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ..))).
fn gamma_continued_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / away_from_zero(b);
    let mut fraction = d;
    for n in 1..MAXIMUM_STEPS {
        let n = n as f64;
        let numerator = -n * (n - a);
        b += 2.0;
        d = 1.0 / away_from_zero(numerator * d + b);
        c = away_from_zero(b + numerator / c);
        let step = c * d;
        fraction *= step;
        if (step - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_close(got: f64, expected: f64, relative: f64) {
        assert!(
            (got - expected).abs() <= relative * expected.abs(),
            "{got} is not {expected}"
        );
    }

    #[test]
    fn q_of_whole_a_is_a_poisson_sum() {
        // Q(n, x) = e^-x (1 + x + x^2/2! + .. + x^(n-1)/(n-1)!).
        for n in [1u32, 2, 5, 30, 150] {
            for ratio in [0.1, 0.5, 0.9, 1.0, 1.1, 1.5, 3.0] {
                let x = f64::from(n) * ratio;
                let mut term = (-x).exp();
                let mut sum = term;
                for k in 1..n {
                    term *= x / f64::from(k);
                    sum += term;
                }
                assert_close(regularised_gamma_q(f64::from(n), x), sum, 1e-11);
            }
        }
    }

    #[test]
    fn q_of_half_integers_follows_from_erfc() {
        // Q(1/2, x) = erfc(sqrt x), and Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1).
        for x in [0.01f64, 0.5, 1.0, 4.0, 20.0, 100.0, 300.0] {
            let mut expected = libm::erfc(x.sqrt());
            // sqrt(x) e^-x / Gamma(3/2), with Gamma(3/2) = sqrt(pi) / 2.
            let mut step = x.sqrt() * (-x).exp() * 2.0 / std::f64::consts::PI.sqrt();
            let mut a = 0.5;
            while a < 256.0 {
                assert_close(regularised_gamma_q(a, x), expected, 2e-11);
                expected += step;
                a += 1.0;
                step *= x / a;
            }
        }
    }

    #[test]
    fn the_printed_critical_values_of_chi_square() {
        // Abramowitz and Stegun, table 26.8.
        for (degrees, critical, p) in [
            (1.0, 3.84146, 0.05),
            (1.0, 10.828, 0.001),
            (5.0, 11.0705, 0.05),
            (10.0, 23.2093, 0.01),
            (30.0, 59.703, 0.001),
            (100.0, 124.342, 0.05),
        ] {
            assert_close(regularised_gamma_q(degrees / 2.0, critical / 2.0), p, 1e-3);
        }
    }

    #[test]
    fn q_at_the_edges() {
        assert_eq!(regularised_gamma_q(3.0, 0.0), 1.0);
        assert_eq!(regularised_gamma_q(3.0, f64::INFINITY), 0.0);
        assert!(regularised_gamma_q(0.0, 1.0).is_nan());
        assert!(regularised_gamma_q(1.0, -1.0).is_nan());
        assert!(regularised_gamma_q(f64::NAN, 1.0).is_nan());
        // The far tail keeps its size: e^-500.
        assert_close(regularised_gamma_q(1.0, 500.0), (-500f64).exp(), 1e-12);
    }

    #[test]
    fn a_test_worked_by_hand() {
        // (44-50)^2/50 + (56-50)^2/50 = 1.44, one degree: erfc(sqrt(0.72)).
        let test = chi_square_test(&[44, 56], &[50.0, 50.0]).expect("valid");
        assert_eq!(test.degrees_of_freedom, 1);
        assert_close(test.statistic, 1.44, 1e-15);
        assert_close(test.p_value, libm::erfc(0.72f64.sqrt()), 1e-12);
    }

    #[test]
    fn small_cells_are_pooled() {
        // Expectations 3 and 4 pool to 7: cells (20, 18), (6, 7), (10, 11).
        let test = chi_square_test(&[20, 1, 10, 5], &[18.0, 3.0, 11.0, 4.0]).expect("valid");
        assert_eq!(test.degrees_of_freedom, 2);
        assert_close(test.statistic, 4.0 / 18.0 + 1.0 / 7.0 + 1.0 / 11.0, 1e-12);
        // A pool of 2 joins the smallest other cell: (20, 18), (16, 18).
        let test = chi_square_test(&[20, 15, 1], &[18.0, 16.0, 2.0]).expect("valid");
        assert_eq!(test.degrees_of_freedom, 1);
        assert_close(test.statistic, 8.0 / 18.0, 1e-12);
        // Everything pooled: nothing to test.
        assert_eq!(
            chi_square_test(&[2, 1], &[1.0, 2.0])
                .expect("valid")
                .p_value,
            1.0
        );
        assert_eq!(chi_square_test(&[], &[]).expect("valid").p_value, 1.0);
    }

    #[test]
    fn an_impossible_event_is_never_pooled_away() {
        let test = chi_square_test(&[99, 0, 1], &[100.0, 0.0, 0.0]).expect("valid");
        assert_eq!(test.p_value, 0.0);
        let test = chi_square_test(&[50, 50, 0], &[50.0, 50.0, 0.0]).expect("valid");
        assert_eq!((test.degrees_of_freedom, test.p_value), (1, 1.0));
    }

    #[test]
    fn counts_that_cannot_be_tested_are_refused() {
        let error = |o: &[u64], e: &[f64]| chi_square_test(o, e).expect_err("refused").to_string();
        assert_eq!(
            error(&[1], &[1.0, 0.0]),
            "1 cells were observed, but 2 expected"
        );
        assert!(
            error(&[1, 1], &[2.0, f64::NAN]).starts_with("the expected count of cell 1 is NaN")
        );
        assert!(error(&[1, 1], &[3.0, -1.0]).starts_with("the expected count of cell 1 is -1"));
        assert!(error(&[50, 51], &[50.0, 50.0]).starts_with("101 events were observed, but 100"));
    }

    #[test]
    fn holms_adjustment_worked_by_hand() {
        // Sorted .005, .01, .03, .04 times 4, 3, 2, 1 = .02, .03, .06, .04 -> the last may not fall below .06.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expected) in adjusted.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert_close(*got, expected, 1e-12);
        }
        assert_eq!(holm(&[0.7, 0.9]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }
}
