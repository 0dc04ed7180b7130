//! A distribution over a vocabulary: what is drawn from, and what verifiers compare.

use foredraft_common::TokenId;

use crate::{SettingsError, row};

/// Why a row of logits has no distribution.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// A logit is NaN.
    #[error(
        "the logit of token {token} is NaN: the model's weights or its computation are broken; no token was chosen"
    )]
    NotANumber {
        /// The first such token.
        token: TokenId,
    },
    /// A logit is +infinity.
    #[error(
        "the logit of token {token} is infinite: the model's weights or its computation are broken; no token was chosen"
    )]
    Infinite {
        /// The first such token.
        token: TokenId,
    },
    /// Every token is banned or has a logit of -infinity.
    #[error("no token is possible: each is outside of the allowed set or has a logit of -infinity")]
    NothingPossible,
    /// A list of probabilities with a negative, infinite or NaN entry.
    #[error("the probability of token {token} is {value}; it must lie between 0 and 1")]
    NotAProbability {
        /// The first such token.
        token: TokenId,
        /// Its entry.
        value: f32,
    },
    /// A list of probabilities with another sum than 1.
    #[error("the probabilities sum to {sum}, not to 1")]
    NotNormalised {
        /// What they sum to.
        sum: f64,
    },
    /// A sampling setting is out of its range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// A probability distribution over tokens, as its support: tokens ascending, with their f32 probabilities.
///
/// These f32 values are what a draw really uses, so they are also what a verifier must compare: the
/// distribution *is* these numbers, and their sum may differ from 1 by rounding.
///
/// Invariants: at least one token; tokens strictly ascend; every probability is above 0 and finite.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    tokens: Vec<TokenId>,
    probabilities: Vec<f32>,
    /// Index in the support of the most probable token, the first among equals.
    peak: usize,
}

impl Distribution {
    /// All mass on one token.
    pub fn one_hot(token: TokenId) -> Self {
        Self {
            tokens: vec![token],
            probabilities: vec![1.0],
            peak: 0,
        }
    }

    /// From the probability of every token of a vocabulary (`[vocabulary]`, zeros allowed), which must sum
    /// to 1 within 1e-3. Nothing is renormalised: the values given are the values drawn from.
    pub fn from_dense(probabilities: &[f32]) -> Result<Self, DistributionError> {
        let in_range = |p: &f32| (0.0..=1.0).contains(p);
        if let Some(id) = probabilities.iter().position(|p| !in_range(p)) {
            let (token, value) = (TokenId(id as u32), probabilities[id]);
            return Err(DistributionError::NotAProbability { token, value });
        }
        let sum = row::sum(probabilities);
        if (sum - 1.0).abs() > 1e-3 {
            return Err(DistributionError::NotNormalised { sum });
        }
        let mut distribution = Self::one_hot(TokenId(0));
        distribution.set_support_of(probabilities);
        distribution.find_peak();
        Ok(distribution)
    }

    /// The probability of `token`; 0 outside of the support.
    pub fn probability(&self, token: TokenId) -> f32 {
        self.tokens
            .binary_search(&token)
            .map_or(0.0, |i| self.probabilities[i])
    }

    /// The most probable token, the lowest id among equals.
    pub fn argmax(&self) -> TokenId {
        self.tokens[self.peak]
    }

    /// The probability of [`argmax`](Self::argmax).
    pub fn max_probability(&self) -> f32 {
        self.probabilities[self.peak]
    }

    /// The tokens of the support with their probabilities, tokens ascending.
    pub fn iter(&self) -> impl Iterator<Item = (TokenId, f32)> + '_ {
        self.tokens
            .iter()
            .copied()
            .zip(self.probabilities.iter().copied())
    }

    /// The tokens with a probability above 0, ascending.
    pub fn support(&self) -> &[TokenId] {
        &self.tokens
    }

    /// The probabilities of [`support`](Self::support), in its order.
    pub fn probabilities(&self) -> &[f32] {
        &self.probabilities
    }

    /// The sum of the probabilities, in f64: 1 up to rounding.
    pub fn sum(&self) -> f64 {
        row::sum(&self.probabilities)
    }

    /// Makes this the distribution with all mass on `token`, keeping its buffers.
    pub fn set_one_hot(&mut self, token: TokenId) {
        self.tokens.clear();
        self.tokens.push(token);
        self.probabilities.clear();
        self.probabilities.push(1.0);
        self.peak = 0;
    }
}

/// What drafters and verifiers do to a distribution; sums and quotients are f64, rounded once.
impl Distribution {
    /// Becomes a copy of `other`, keeping its buffers.
    pub fn copy_from(&mut self, other: &Self) {
        self.tokens.clone_from(&other.tokens);
        self.probabilities.clone_from(&other.probabilities);
        self.peak = other.peak;
    }

    /// Takes `token` out and normalises the rest. When nothing would be left, stays as it was and gives false.
    #[must_use]
    pub(crate) fn remove(&mut self, token: TokenId) -> bool {
        let Ok(place) = self.tokens.binary_search(&token) else {
            return true;
        };
        if self.tokens.len() == 1 {
            return false;
        }
        self.tokens.remove(place);
        self.probabilities.remove(place);
        self.normalise();
        true
    }

    /// Becomes norm(max(0, a p - b q)) and gives the sum before normalisation. When that is 0, becomes a copy of p:
    /// p nowhere exceeds q then, which for two distributions means that they differ by rounding only.
    pub(crate) fn set_excess(&mut self, (a, p): (f64, &Self), (b, q): (f64, &Self)) -> f64 {
        // Room for all of p, filled from the front: a weight that is not kept is written over by the next.
        self.tokens.resize(p.tokens.len(), TokenId(0));
        self.probabilities.resize(p.tokens.len(), 0.0);
        let (mut kept, mut place) = (0, 0);
        for (&token, &p) in p.tokens.iter().zip(&p.probabilities) {
            while q.tokens.get(place).is_some_and(|&other| other < token) {
                place += 1;
            }
            let q = match q.tokens.get(place) {
                Some(&other) if other == token => f64::from(q.probabilities[place]),
                _ => 0.0,
            };
            let weight = (a * f64::from(p) - b * q) as f32;
            self.tokens[kept] = token;
            self.probabilities[kept] = weight;
            kept += usize::from(weight > 0.0);
        }
        self.tokens.truncate(kept);
        self.probabilities.truncate(kept);
        if self.tokens.is_empty() {
            self.copy_from(p);
            return 0.0;
        }
        self.normalise()
    }

    /// The sum of the probabilities of all tokens but these, which must ascend. Summed and not subtracted from 1: what
    /// is left of a peaked distribution may be far smaller than the rounding of 1.
    pub(crate) fn sum_without(&self, tokens: &[TokenId]) -> f64 {
        let (mut sum, mut start) = (0.0, 0);
        for token in tokens {
            if let Ok(place) = self.tokens.binary_search(token) {
                sum += row::sum(&self.probabilities[start..place]);
                start = place + 1;
            }
        }
        sum + row::sum(&self.probabilities[start..])
    }
}

/// How [`Transforms`](crate::Transforms) builds a distribution: from weights, which may be any multiple of
/// probabilities until [`normalise`](Distribution::normalise) restores the invariants.
impl Distribution {
    /// Takes the tokens whose weight (`[vocabulary]`) is above 0.
    pub(crate) fn set_support_of(&mut self, weights: &[f32]) {
        const CHUNK: usize = 64;
        self.tokens.clear();
        self.probabilities.clear();
        self.tokens.reserve(weights.len());
        self.probabilities.reserve(weights.len());
        // Usually whole chunks are possible, and those are copied at once.
        for (chunk, first) in weights.chunks(CHUNK).zip((0u32..).step_by(CHUNK)) {
            let tokens = (first..).map(TokenId);
            if chunk.iter().fold(true, |all, &weight| all & (weight > 0.0)) {
                self.tokens.extend(tokens.take(chunk.len()));
                self.probabilities.extend_from_slice(chunk);
                continue;
            }
            for (token, &weight) in tokens.zip(chunk).filter(|&(_, &weight)| weight > 0.0) {
                self.tokens.push(token);
                self.probabilities.push(weight);
            }
        }
    }

    /// Takes tokens with their weights; the tokens must ascend. A weight of 0 is left out.
    pub(crate) fn set_weights(&mut self, weights: impl Iterator<Item = (TokenId, f32)>) {
        self.tokens.clear();
        self.probabilities.clear();
        for (token, weight) in weights.filter(|&(_, weight)| weight > 0.0) {
            self.tokens.push(token);
            self.probabilities.push(weight);
        }
    }

    /// Keeps what `keep` says; the order stays.
    pub(crate) fn retain(&mut self, keep: impl Fn(TokenId, f32) -> bool) {
        let mut kept = 0;
        for i in 0..self.tokens.len() {
            let (token, weight) = (self.tokens[i], self.probabilities[i]);
            if keep(token, weight) {
                self.tokens[kept] = token;
                self.probabilities[kept] = weight;
                kept += 1;
            }
        }
        self.tokens.truncate(kept);
        self.probabilities.truncate(kept);
    }

    /// Turns weights into probabilities: each is weight / sum of weights, computed in f64
    /// and rounded once. Gives the sum.
    ///
    /// None becomes 0: of transformed logits a weight is at least 2^-126 and the sum at most the number of tokens;
    /// of differences of probabilities the sum is at most 1, up to rounding.
    pub(crate) fn normalise(&mut self) -> f64 {
        let sum = row::sum(&self.probabilities);
        row::divide(&mut self.probabilities, sum);
        self.find_peak();
        sum
    }

    fn find_peak(&mut self) {
        let max = row::max(&self.probabilities);
        self.peak = row::first_equal(&self.probabilities, max).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_support_is_what_has_mass() {
        let d = Distribution::from_dense(&[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]).expect("valid");
        assert_eq!(d.support(), [TokenId(1), TokenId(3), TokenId(4)]);
        assert_eq!(d.probabilities(), [0.25, 0.5, 0.25]);
        let dense: Vec<f32> = (0..8).map(|id| d.probability(TokenId(id))).collect();
        assert_eq!(dense, [0.0, 0.25, 0.0, 0.5, 0.25, 0.0, 0.0, 0.0]);
        assert_eq!(
            (d.argmax(), d.max_probability(), d.sum()),
            (TokenId(3), 0.5, 1.0)
        );
    }

    #[test]
    fn the_lowest_id_is_the_peak_among_equals() {
        let d = Distribution::from_dense(&[0.2, 0.4, 0.4]).expect("valid");
        assert_eq!(d.argmax(), TokenId(1));
    }

    #[test]
    fn one_hot_keeps_no_trace_of_what_was_there() {
        let mut d = Distribution::from_dense(&[0.5, 0.5]).expect("valid");
        d.set_one_hot(TokenId(9));
        assert_eq!(d, Distribution::one_hot(TokenId(9)));
        assert_eq!(
            (d.probability(TokenId(9)), d.probability(TokenId(0))),
            (1.0, 0.0)
        );
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let error = |values: &[f32]| {
            Distribution::from_dense(values)
                .expect_err("refused")
                .to_string()
        };
        assert_eq!(
            error(&[0.5, -0.5, 1.0]),
            "the probability of token 1 is -0.5; it must lie between 0 and 1"
        );
        assert!(error(&[0.5, f32::NAN]).contains("token 1 is NaN"));
        assert_eq!(
            error(&[0.5, 0.25]),
            "the probabilities sum to 0.75, not to 1"
        );
        assert_eq!(error(&[]), "the probabilities sum to 0, not to 1");
    }

    fn from(probabilities: &[f32]) -> Distribution {
        Distribution::from_dense(probabilities).expect("valid")
    }

    #[test]
    fn a_removed_token_leaves_the_rest_in_proportion() {
        let mut d = from(&[0.5, 0.0, 0.125, 0.375]);
        assert!(d.remove(TokenId(1)), "not there: nothing to do");
        assert_eq!(d, from(&[0.5, 0.0, 0.125, 0.375]));
        assert!(d.remove(TokenId(0)));
        assert_eq!(d, from(&[0.0, 0.0, 0.25, 0.75]));
        assert!(d.remove(TokenId(2)));
        assert!(!d.remove(TokenId(3)), "nothing would be left");
        assert_eq!(d, Distribution::one_hot(TokenId(3)));
    }

    #[test]
    fn the_excess_of_p_over_q_worked_by_hand() {
        // p - q: 0.25, -0.5, 0.125, 0.125, with tokens that only one of them has.
        let p = from(&[0.5, 0.0, 0.375, 0.125]);
        let q = from(&[0.25, 0.5, 0.25, 0.0]);
        let mut d = Distribution::one_hot(TokenId(9));
        assert_eq!(d.set_excess((1.0, &p), (1.0, &q)), 0.5);
        assert_eq!(d, from(&[0.5, 0.0, 0.25, 0.25]));
        assert_eq!(d.argmax(), TokenId(0));
        // p / 2 - q: 0, -0.5, -0.0625, 0.0625.
        assert_eq!(d.set_excess((0.5, &p), (1.0, &q)), 0.0625);
        assert_eq!(d, Distribution::one_hot(TokenId(3)));
        // Nowhere above: p itself.
        assert_eq!(d.set_excess((1.0, &p), (1.0, &p)), 0.0);
        assert_eq!(d, p);
    }

    #[test]
    fn a_sum_without_tokens_is_summed_and_not_subtracted() {
        let tiny = 2f32.powi(-100);
        let d = from(&[0.5, tiny, 0.5, 0.0, tiny]);
        assert_eq!(
            d.sum_without(&[TokenId(0), TokenId(2)]),
            2.0 * f64::from(tiny)
        );
        assert_eq!(d.sum_without(&[TokenId(0), TokenId(3)]), 0.5);
        assert_eq!(d.sum_without(&[]), d.sum());
        assert_eq!(d.sum_without(&[0, 1, 2, 4].map(TokenId)), 0.0);
    }
}
