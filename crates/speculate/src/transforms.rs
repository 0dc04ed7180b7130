//! From logits to the distribution that is drawn from: one chain, for the target and for every drafter.
//!
//! In this order, each step on the result of the one before:
//!
//! 1. tokens outside of the allowed set become impossible, whatever their logits;
//! 2. bias is added to the logits;
//! 3. penalties: repetition divides or multiplies, then frequency and presence are subtracted;
//! 4. temperature 0 stops here: all mass on the largest logit, the lowest id among equals;
//! 5. temperature divides the logits;
//! 6. top-k keeps the k largest logits, the lowest ids among equals;
//! 7. top-p keeps, of what is left, the fewest tokens whose share of the mass reaches p, taken by
//!    (probability descending, lowest id), at least one;
//! 8. min-p keeps tokens with probability >= min_p times the largest;
//! 9. what is left is normalised.
//!
//! Between the steps there are weights w = exp((logit - max) / temperature), a multiple of the probabilities
//! whose largest is exactly 1: ratios and shares need no normalisation, which therefore happens once.

use foredraft_common::TokenId;

use crate::history::{HistoryView, TokenCounts};
use crate::select::{keep_largest, rank, ranked_token, ranked_value};
use crate::{AllowedTokens, Distribution, DistributionError, SamplingSettings, row};

/// Tokens that top-p sorts at first; eight times as many whenever they do not reach the mass.
const TOP_P_START: usize = 128;

/// The chain of transforms with its buffers: after the first row of a vocabulary it allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Transforms {
    /// The logits under way, then the weights, `[vocabulary]`.
    values: Vec<f32>,
    /// Keys of the tokens that top-k or top-p looks at.
    keys: Vec<u64>,
    /// Unpenalised logits of the tokens of a path.
    path_logits: Vec<f32>,
}

impl Transforms {
    /// Buffers that grow on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Computes into `out` the distribution of the token after `history`, from the model's raw `logits`
    /// (`[vocabulary]`, padding allowed). On an error `out` is left as it was.
    ///
    /// Biases and counts of tokens beyond the row are passed over: [`SamplingSettings::validate_for`]
    /// is where a request hears of them.
    pub fn apply(
        &mut self,
        logits: &[f32],
        settings: &SamplingSettings,
        history: HistoryView<'_>,
        allowed: &AllowedTokens,
        out: &mut Distribution,
    ) -> Result<(), DistributionError> {
        settings.validate_numbers()?;
        allowed.copy_logits(logits, &mut self.values);
        self.add_bias(&settings.logit_bias);
        if settings.has_penalties() {
            self.penalise(settings, history);
        }
        let max = row::finite_max(&self.values)?;
        if settings.temperature == 0.0 {
            let first = row::first_equal(&self.values, max).unwrap_or(0);
            out.set_one_hot(TokenId(first as u32));
            return Ok(());
        }
        self.weigh(max, settings, out);
        if settings.top_p < 1.0 {
            self.keep_top_p(settings.top_p, out);
        }
        if settings.min_p > 0.0 {
            // The largest weight is 1.
            out.retain(|_, weight| weight >= settings.min_p);
        }
        out.normalise();
        Ok(())
    }

    fn add_bias(&mut self, biases: &[(TokenId, f32)]) {
        for &(token, bias) in biases {
            if let Some(logit) = self.values.get_mut(token.index()) {
                *logit += bias;
            }
        }
    }

    /// Penalises every distinct token of the history once. Tokens of the path are penalised afresh from
    /// their unpenalised logits, with the path counted in.
    fn penalise(&mut self, settings: &SamplingSettings, history: HistoryView<'_>) {
        let values = &mut self.values;
        let logit = |token: &TokenId| {
            values
                .get(token.index())
                .copied()
                .unwrap_or(f32::NEG_INFINITY)
        };
        self.path_logits.clear();
        self.path_logits.extend(history.path().iter().map(logit));
        for &(token, counts) in history.entries() {
            if let Some(logit) = values.get_mut(token.index()) {
                *logit = penalised(*logit, counts, settings);
            }
        }
        for (&token, &unpenalised) in history.path().iter().zip(&self.path_logits) {
            if let Some(logit) = values.get_mut(token.index()) {
                *logit = penalised(unpenalised, history.counts(token), settings);
            }
        }
    }

    /// Temperature and top-k: leaves in `out` the weights of the tokens that top-k keeps.
    ///
    /// Top-k looks at the logits before the temperature divides them. That is the same order, because division
    /// by a positive number is monotone, and only k tokens are left to be exponentiated.
    fn weigh(&mut self, max: f32, settings: &SamplingSettings, out: &mut Distribution) {
        let weight = |logit: f32| row::weight(logit, max, settings.temperature);
        let top_k = settings.top_k as usize;
        if top_k == 0 || top_k >= self.values.len() {
            row::weigh(&mut self.values, max, settings.temperature);
            out.set_support_of(&self.values);
            return;
        }
        keep_largest(&self.values, |i| TokenId(i as u32), top_k, &mut self.keys);
        self.keys.sort_unstable_by_key(|&key| ranked_token(key));
        out.set_weights(
            self.keys
                .iter()
                .map(|&key| (ranked_token(key), weight(ranked_value(key)))),
        );
    }

    /// Keeps the shortest run of the most probable tokens whose mass reaches `top_p` of the whole.
    ///
    /// The run is usually short, so only the largest weights are sorted: first 128, then eight times as many until they
    /// suffice. The mass is always summed from the largest down, so the result does not depend on that.
    fn keep_top_p(&mut self, top_p: f32, out: &mut Distribution) {
        let target = f64::from(top_p) * row::sum(out.probabilities());
        let support = out.support().len();
        let mut sorted = TOP_P_START;
        loop {
            keep_largest(
                out.probabilities(),
                |i| out.support()[i],
                sorted,
                &mut self.keys,
            );
            self.keys.sort_unstable_by(|a, b| b.cmp(a));
            let mut mass = 0.0;
            let last = self.keys.iter().find(|&&key| {
                mass += f64::from(ranked_value(key));
                mass >= target
            });
            if let Some(&last) = last {
                out.retain(|token, weight| rank(weight, token) >= last);
                return;
            }
            if sorted >= support {
                // Only rounding has kept the mass below the target: every token is needed.
                return;
            }
            sorted *= 8;
        }
    }
}

/// A logit after the penalties (repetition as in Keskar et al. 2019; frequency and presence as OpenAI
/// documents them).
fn penalised(logit: f32, counts: TokenCounts, settings: &SamplingSettings) -> f32 {
    let mut value = logit;
    if counts.prompt > 0 || counts.output > 0 {
        value = if value > 0.0 {
            value / settings.repeat_penalty
        } else {
            value * settings.repeat_penalty
        };
    }
    if counts.output > 0 {
        value -= settings.frequency_penalty * counts.output as f32;
        value -= settings.presence_penalty;
    }
    value
}

#[cfg(test)]
mod tests;
