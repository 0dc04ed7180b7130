//! Log probabilities under the model's own distribution, as replies report them.

use foredraft_common::{TokenId, ln};

use crate::select::{keep_largest, ranked_token, ranked_value};
use crate::{DistributionError, row};

/// The log-softmax of a row of raw logits: before bias, penalties, temperature and truncation, so that
/// what is reported does not depend on how the token was sampled.
#[derive(Debug, Clone, Copy)]
pub struct LogSoftmax<'a> {
    logits: &'a [f32],
    max: f32,
    /// ln of the sum of exp(logit - max).
    log_sum: f32,
}

impl<'a> LogSoftmax<'a> {
    /// Of one row (`[vocabulary]`). Refuses a row with a NaN or an infinite logit.
    pub fn new(logits: &'a [f32]) -> Result<Self, DistributionError> {
        let max = row::finite_max(logits)?;
        let sum = row::sum_of_exp(logits, max);
        // The sum lies between 1 and the size of the vocabulary: f32 holds it well.
        let log_sum = ln(sum as f32);
        Ok(Self {
            logits,
            max,
            log_sum,
        })
    }

    /// ln p of `token`: 0 or below, never NaN. -infinity for a logit of -infinity and for a token beyond the
    /// row; a format without infinities (JSON) has to write that in its own way.
    pub fn log_probability(&self, token: TokenId) -> f32 {
        self.logits
            .get(token.index())
            .map_or(f32::NEG_INFINITY, |&logit| self.of_logit(logit))
    }

    /// The `count` most probable tokens, most probable first, the lowest id first among equals; tokens
    /// with a logit of -infinity are not listed.
    pub fn top(&self, count: usize) -> Vec<(TokenId, f32)> {
        let mut keys = Vec::new();
        keep_largest(self.logits, |i| TokenId(i as u32), count, &mut keys);
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys.into_iter()
            .map(|key| (ranked_token(key), self.of_logit(ranked_value(key))))
            .collect()
    }

    fn of_logit(&self, logit: f32) -> f32 {
        (logit - self.max) - self.log_sum
    }
}

/// ln p of one token under the softmax of raw `logits`: see [`LogSoftmax`], which serves several tokens of a row.
pub fn log_probability(logits: &[f32], token: TokenId) -> Result<f32, DistributionError> {
    Ok(LogSoftmax::new(logits)?.log_probability(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_of_a_row_worked_by_hand() {
        // exp: 4, 2, 1, 1 over 8: 1/2, 1/4, 1/8, 1/8.
        let ln2 = std::f32::consts::LN_2;
        let logits = [2.0 * ln2, ln2, 0.0, 0.0];
        for (id, halvings) in [(0, 1.0), (1, 2.0), (2, 3.0), (3, 3.0)] {
            let got = log_probability(&logits, TokenId(id)).expect("valid");
            assert!((got + halvings * ln2).abs() < 3e-7, "token {id}: {got}");
        }
    }

    #[test]
    fn it_agrees_with_f64_over_a_large_vocabulary_far_from_zero() {
        let logits: Vec<f32> = (0..49152u32)
            .map(|i| ((i * 7919) % 4001) as f32 * 0.01 + 300.0)
            .collect();
        let sum: f64 = logits.iter().map(|&l| (f64::from(l) - 340.0).exp()).sum();
        let softmax = LogSoftmax::new(&logits).expect("valid");
        for id in (0..49152).step_by(997) {
            let expected = f64::from(logits[id as usize]) - 340.0 - sum.ln();
            let got = softmax.log_probability(TokenId(id));
            assert!((f64::from(got) - expected).abs() < 1e-5, "{got} {expected}");
        }
    }

    #[test]
    fn the_top_is_in_order_with_the_lowest_id_first_among_equals() {
        let logits = [1.0, 3.0, f32::NEG_INFINITY, 3.0, 2.0];
        let softmax = LogSoftmax::new(&logits).expect("valid");
        let ids = |count| {
            softmax
                .top(count)
                .iter()
                .map(|(t, _)| t.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(3), [1, 3, 4]);
        assert_eq!(ids(usize::MAX), [1, 3, 4, 0]);
        assert!(ids(0).is_empty());
        for (token, value) in softmax.top(5) {
            assert_eq!(value, softmax.log_probability(token));
        }
    }

    #[test]
    fn impossible_is_minus_infinity_and_broken_is_an_error() {
        let logits = [0.0, f32::NEG_INFINITY];
        assert_eq!(log_probability(&logits, TokenId(0)), Ok(0.0));
        assert_eq!(log_probability(&logits, TokenId(1)), Ok(f32::NEG_INFINITY));
        assert_eq!(log_probability(&logits, TokenId(2)), Ok(f32::NEG_INFINITY));
        assert_eq!(
            log_probability(&[0.0, f32::NAN], TokenId(0)),
            Err(DistributionError::NotANumber { token: TokenId(1) })
        );
        assert_eq!(
            log_probability(&[f32::INFINITY], TokenId(0)),
            Err(DistributionError::Infinite { token: TokenId(0) })
        );
        assert_eq!(
            log_probability(&[], TokenId(0)),
            Err(DistributionError::NothingPossible)
        );
    }
}
