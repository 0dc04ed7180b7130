//! The draw: an exponential race between the tokens of the support.
//!
//! With g_v = -ln E_v Gumbel noise (E_v exponential with rate 1), argmax_v (ln p_v + g_v) is a draw from p (the
//! Gumbel-max trick). The same argmax is argmin_v E_v / p_v: token v arrives at a time that is exponential with rate
//! p_v, and the first to arrive wins with probability p_v / sum p. That form needs no logarithm of p.
//!
//! One noise for each token is what couples draws: two distributions drawn with the same noise agree wherever they
//! are close (Daliri et al. 2408.07978), so a drafter that knows the seed guesses what the target will draw.

use foredraft_common::TokenId;

use crate::random::{exponential_from_uniform, uniform_from_words};
use crate::{Distribution, Noise};

/// Draws a token: the one with the smallest E_v / p_v (in f64), the lowest id among equals.
///
/// Depends on the distribution and the noise of the tokens in its support, on nothing else.
pub fn sample(distribution: &Distribution, noise: &impl Noise) -> TokenId {
    // The most probable token runs first: it usually gives a time that few others can beat.
    let mut winner = distribution.argmax();
    let mut best = noise.exponential(winner) / f64::from(distribution.max_probability());
    let mut block = None;
    let mut high = [0; 4];
    for (token, probability) in distribution.iter() {
        if block != Some(token.0 >> 2) {
            block = Some(token.0 >> 2);
            high = noise.high_words(token.0 >> 2);
        }
        let high = high[token.index() & 3];
        let probability = f64::from(probability);
        if is_beaten(high, probability, best) {
            continue;
        }
        let low = noise.low_words(token.0 >> 2)[token.index() & 3];
        let time = exponential_from_uniform(uniform_from_words(high, low)) / probability;
        if time < best || (time == best && token < winner) {
            (best, winner) = (time, token);
        }
    }
    winner
}

/// Whether the upper bits alone show that a token arrives after `best`, so that its logarithm and its
/// lower bits need not be computed.
///
/// E = -ln(1 - u) >= u >= high / 2^32, so E / p > best whenever high / 2^32 > best * p. The factor above 1 covers the
/// rounding of E, of the quotient and of this product (each within 2^-51), so that skipping never changes a result.
#[inline(always)]
fn is_beaten(high: u32, probability: f64, best: f64) -> bool {
    const UNIT: f64 = 1.0 / (1u64 << 32) as f64;
    const MARGIN: f64 = 1.0 + 1.0 / (1u64 << 40) as f64;
    f64::from(high) * UNIT > best * probability * MARGIN
}
