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
use crate::wide::widest;
use crate::{Distribution, Noise};

/// Tokens of the support that are looked at together.
const CHUNK: usize = 128;

/// Draws a token: the one with the smallest E_v / p_v (in f64), the lowest id among equals.
///
/// Depends on the distribution and the noise of the tokens in its support, on nothing else.
pub fn sample(distribution: &Distribution, noise: &impl Noise) -> TokenId {
    // The most probable token runs first: it usually gives a time that few others can beat.
    let mut winner = distribution.argmax();
    let mut best = noise.exponential(winner) / f64::from(distribution.max_probability());
    let mut words = [0; CHUNK + 4];
    let chunks = distribution.support().chunks(CHUNK);
    for (tokens, probabilities) in chunks.zip(distribution.probabilities().chunks(CHUNK)) {
        let high = high_words(tokens, noise, &mut words);
        // Once the best time is good, whole chunks are beaten.
        if are_beaten(high, probabilities, best) {
            continue;
        }
        for ((&token, &high), &p) in tokens.iter().zip(high).zip(probabilities) {
            let p = f64::from(p);
            if is_beaten(high, p, best) {
                continue;
            }
            let low = noise.low_words(token.0 >> 2)[token.index() & 3];
            let time = exponential_from_uniform(uniform_from_words(high, low)) / p;
            if time < best || (time == best && token < winner) {
                (best, winner) = (time, token);
            }
        }
    }
    winner
}

/// When a token arrives in the race.
pub(crate) type Arrival = (f64, TokenId);

/// The first `count` tokens to arrive, in order (all, when the support is smaller); the first is what [`sample`] draws.
///
/// They are a draw without replacement: each is distributed as the distribution without those before it, renormalised
/// (the Gumbel-top-k trick, Kool et al. 1903.06059).
pub(crate) fn first_arrivals(
    distribution: &Distribution,
    noise: &impl Noise,
    count: usize,
    arrivals: &mut Vec<Arrival>,
) {
    arrivals.clear();
    let Some(last) = count.min(distribution.support().len()).checked_sub(1) else {
        return;
    };
    let mut words = [0; CHUNK + 4];
    let chunks = distribution.support().chunks(CHUNK);
    for (tokens, probabilities) in chunks.zip(distribution.probabilities().chunks(CHUNK)) {
        let high = high_words(tokens, noise, &mut words);
        // Once there are enough, a token has to beat the last of them; usually a whole chunk does not.
        if let Some(&(worst, _)) = arrivals.get(last)
            && are_beaten(high, probabilities, worst)
        {
            continue;
        }
        for ((&token, &high), &p) in tokens.iter().zip(high).zip(probabilities) {
            let p = f64::from(p);
            if arrivals
                .get(last)
                .is_some_and(|&(worst, _)| is_beaten(high, p, worst))
            {
                continue;
            }
            let low = noise.low_words(token.0 >> 2)[token.index() & 3];
            let time = exponential_from_uniform(uniform_from_words(high, low)) / p;
            // Tokens ascend, so that among equal times the lowest id stays in front.
            let place = arrivals.partition_point(|&(before, _)| before <= time);
            if place <= last {
                arrivals.truncate(last);
                arrivals.insert(place, (time, token));
            }
        }
    }
}

/// The upper random bits of `tokens` (at most [`CHUNK`], ascending), each block of noise made once.
fn high_words<'a>(
    tokens: &[TokenId],
    noise: &impl Noise,
    words: &'a mut [u32; CHUNK + 4],
) -> &'a [u32] {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
        return &[];
    };
    let first_block = first.0 >> 2;
    // Ascending tokens without a gap: their blocks lie side by side, and theirs are the words from the first on.
    if (last.0 - first.0) as usize == tokens.len() - 1 {
        let offset = first.index() & 3;
        let blocks = (last.0 >> 2) - first_block + 1;
        noise.fill_high_words(first_block, &mut words.as_chunks_mut().0[..blocks as usize]);
        return &words[offset..offset + tokens.len()];
    }
    let mut block = first_block;
    let mut four = noise.high_words(block);
    for (&token, word) in tokens.iter().zip(&mut *words) {
        if token.0 >> 2 != block {
            block = token.0 >> 2;
            four = noise.high_words(block);
        }
        *word = four[token.index() & 3];
    }
    &words[..tokens.len()]
}

widest! {
    /// Whether [`is_beaten`] holds of all, or a little less often: in f32, with a margin for its roundings (each within
    /// 2^-24), and from 24 of the upper bits, which are exact in it.
    fn are_beaten<'a>(high: &'a [u32], probabilities: &'a [f32], best: f64) -> bool {
        const MARGIN: f64 = 1.0 + 1.0 / (1u64 << 20) as f64;
        let best = (best * MARGIN) as f32 * (1u32 << 24) as f32;
        let mut all = true;
        for (&high, &probability) in high.iter().zip(probabilities) {
            all &= (high >> 8) as i32 as f32 > best * probability;
        }
        all
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoiseKey;
    use foredraft_common::Position;
    use proptest::prelude::*;
    use std::cell::Cell;

    fn key(seed: u64, choice: u32, position: u32) -> NoiseKey {
        NoiseKey {
            seed,
            choice,
            position: Position(position),
        }
    }

    /// The definition, word for word: every exponential is computed, none skipped.
    fn sample_unpruned(distribution: &Distribution, noise: &impl Noise) -> TokenId {
        let times = distribution
            .iter()
            .map(|(token, p)| (noise.exponential(token) / f64::from(p), token));
        times
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
            .expect("a support")
            .1
    }

    /// Noise whose words a test has planted.
    struct Planted<F: Fn(TokenId) -> (u32, u32)>(F);

    impl<F: Fn(TokenId) -> (u32, u32)> Noise for Planted<F> {
        fn high_words(&self, block: u32) -> [u32; 4] {
            [0, 1, 2, 3].map(|word| self.0(TokenId(block * 4 + word)).0)
        }
        fn low_words(&self, block: u32) -> [u32; 4] {
            [0, 1, 2, 3].map(|word| self.0(TokenId(block * 4 + word)).1)
        }
    }

    #[test]
    fn a_race_worked_by_hand() {
        // u = 3/4, 1/2, 1/4 (and half a step of 2^-52): E = ln 4, ln 2, ln 4/3 = 1.386, 0.693, 0.288.
        let noise = Planted(|token| ([3 << 30, 1 << 31, 1 << 30, 0][token.index()], 0));
        let winner = |p: &[f32]| sample(&Distribution::from_dense(p).expect("valid"), &noise).0;
        // Times 2.31, 3.47, 1.44.
        assert_eq!(winner(&[0.6, 0.2, 0.2]), 2);
        // Times 1.73, 6.9, 2.88.
        assert_eq!(winner(&[0.8, 0.1, 0.1]), 0);
        // Times 13.9, 0.99, 1.44.
        assert_eq!(winner(&[0.1, 0.7, 0.2]), 1);
        // Only the support runs.
        assert_eq!(winner(&[0.9, 0.1, 0.0]), 0);
    }

    #[test]
    fn the_lowest_id_wins_ties() {
        let d = Distribution::from_dense(&[0.0, 0.25, 0.25, 0.25, 0.0, 0.25]).expect("valid");
        for words in [(0, 0), (1 << 31, 5), (u32::MAX, u32::MAX)] {
            assert_eq!(sample(&d, &Planted(|_| words)), TokenId(1));
        }
        // A lower id ties with the peak that ran first: 2^-k with time ratios that are exact in f64.
        let d = Distribution::from_dense(&[0.25, 0.25, 0.5]).expect("valid");
        let (slow, fast) = ((1 << 31, 0), (1 << 30, 0));
        let noise = Planted(|token| if token.0 == 2 { slow } else { fast });
        let times: Vec<f64> = d
            .iter()
            .map(|(t, p)| noise.exponential(t) / f64::from(p))
            .collect();
        assert!(times[0] < times[2] && times[0] == times[1]);
        assert_eq!(sample(&d, &noise), TokenId(0));
    }

    #[test]
    fn one_token_is_drawn_whatever_the_noise() {
        for words in [(0, 0), (u32::MAX, u32::MAX)] {
            assert_eq!(
                sample(&Distribution::one_hot(TokenId(70_000)), &Planted(|_| words)),
                TokenId(70_000)
            );
        }
    }

    #[test]
    fn every_part_of_the_key_matters_and_equal_keys_draw_equal_tokens() {
        let d = Distribution::from_dense(&[1.0 / 4096.0; 4096]).expect("valid");
        let keys = [
            key(1, 0, 0),
            key(2, 0, 0),
            key(1 << 32, 0, 0),
            key(1, 1, 0),
            key(1, 0, 1),
        ];
        let drawn: Vec<TokenId> = keys.iter().map(|k| sample(&d, k)).collect();
        let mut distinct = drawn.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(drawn, keys.map(|k| sample(&d, &k)));
    }

    #[test]
    fn hardly_any_token_needs_its_logarithm() {
        /// Counts the calls for lower bits, one for each token not skipped.
        struct Counting(NoiseKey, Cell<usize>);
        impl Noise for Counting {
            fn high_words(&self, block: u32) -> [u32; 4] {
                self.0.high_words(block)
            }
            fn low_words(&self, block: u32) -> [u32; 4] {
                self.1.set(self.1.get() + 1);
                self.0.low_words(block)
            }
        }
        let d = Distribution::from_dense(&[1.0 / 49152.0; 49152]).expect("valid");
        let noise = Counting(key(3, 0, 0), Cell::new(0));
        sample(&d, &noise);
        assert!(noise.1.get() < 100, "{} of 49152", noise.1.get());
    }

    /// Skipping may never change the draw: probabilities over many magnitudes, with a wide and with a narrow spread,
    /// in supports of every length and alignment, with and without gaps.
    #[test]
    fn skipping_changes_no_draw() {
        for round in 0..4000u32 {
            let shape = key(99, 0, round);
            let spread = f64::from(round % 7) * 6.0;
            let (start, end) = (round % 5, round % 5 + 1 + round % 211);
            let weight = |id: u32| match (id < start, round % 3) {
                (true, _) => 0.0,
                (_, 0) if id % 13 == round % 13 && id > start => 0.0,
                _ => (-spread * shape.uniform(TokenId(id))).exp(),
            };
            let weights: Vec<f64> = (0..end).map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let dense: Vec<f32> = weights.iter().map(|w| (w / sum) as f32).collect();
            let d = Distribution::from_dense(&dense).expect("valid");
            let noise = key(7, 3, round);
            assert_eq!(
                sample(&d, &noise),
                sample_unpruned(&d, &noise),
                "round {round}"
            );
        }
    }

    /// A seed keeps its text only while the numbering of noise stays: draws computed by another implementation
    /// (Python: Philox on integers, math.log1p). Probabilities are powers of 2, so no exp takes part.
    #[test]
    fn draws_of_fixed_keys_never_change() {
        let seed = 0x0123_4567_89ab_cdef;
        let mut dense = vec![0.0; 4096];
        for (id, p) in [
            (0, 0.5),
            (5, 0.25),
            (6, 0.125),
            (9, 0.0625),
            (300, 0.03125),
            (4095, 0.03125),
        ] {
            dense[id] = p;
        }
        let d = Distribution::from_dense(&dense).expect("valid");
        let by_position: Vec<u32> = (0..24).map(|i| sample(&d, &key(seed, 0, i)).0).collect();
        assert_eq!(
            by_position,
            [
                5, 6, 9, 4095, 5, 9, 5, 0, 0, 6, 9, 0, 300, 5, 5, 0, 5, 0, 5, 0, 6, 5, 0, 0
            ]
        );
        let by_choice: Vec<u32> = (0..12).map(|c| sample(&d, &key(seed, c, 7)).0).collect();
        assert_eq!(by_choice, [0, 5, 0, 5, 0, 0, 0, 0, 300, 0, 0, 0]);
        let uniform = Distribution::from_dense(&[1.0 / 4096.0; 4096]).expect("valid");
        let drawn: Vec<u32> = (0..6)
            .map(|i| sample(&uniform, &key(seed, 1, i)).0)
            .collect();
        assert_eq!(drawn, [1065, 2456, 3794, 158, 315, 2983]);
    }

    #[test]
    fn arrivals_are_those_that_sorting_finds() {
        for round in 0..2000u32 {
            let shape = key(98, 0, round);
            let weights: Vec<f64> = (0..1 + round % 200)
                .map(|id| match (round % 3, id % 5) {
                    (1, 2) if id > 0 => 0.0,
                    _ => (-8.0 * shape.uniform(TokenId(id))).exp(),
                })
                .collect();
            let sum: f64 = weights.iter().sum();
            let dense: Vec<f32> = weights.iter().map(|w| (w / sum) as f32).collect();
            let d = Distribution::from_dense(&dense).expect("valid");
            let noise = key(7, 3, round);
            let mut expected: Vec<Arrival> = d
                .iter()
                .map(|(token, p)| (noise.exponential(token) / f64::from(p), token))
                .collect();
            expected.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let mut arrivals = vec![(0.0, TokenId(1)); 3];
            for count in [0, 1, 2, 5, 500] {
                first_arrivals(&d, &noise, count, &mut arrivals);
                assert_eq!(
                    arrivals,
                    expected[..count.min(expected.len())],
                    "round {round}"
                );
            }
            assert_eq!(arrivals[0].1, sample(&d, &noise));
        }
    }

    /// All times equal: the lowest ids arrive first.
    #[test]
    fn among_equal_times_the_lowest_ids_arrive_first() {
        let d = Distribution::from_dense(&[0.125; 8]).expect("valid");
        let mut arrivals = Vec::new();
        first_arrivals(&d, &Planted(|_| (1 << 31, 0)), 3, &mut arrivals);
        let tokens: Vec<u32> = arrivals.iter().map(|(_, token)| token.0).collect();
        assert_eq!(tokens, [0, 1, 2]);
    }

    proptest! {
        /// Words from a few values, so that times tie or nearly tie: where skipping could go wrong.
        #[test]
        fn skipping_changes_no_draw_among_near_ties(
            weights in prop::collection::vec(0u8..4, 1..30),
            words in prop::collection::vec((0usize..6, 0usize..4), 32),
        ) {
            let total: u32 = weights.iter().map(|&w| u32::from(w)).sum();
            prop_assume!(total > 0);
            let dense: Vec<f32> = weights.iter().map(|&w| f32::from(w) / total as f32).collect();
            let d = Distribution::from_dense(&dense).expect("valid");
            const HIGH: [u32; 6] = [0, 1, 2, 1 << 31, (1 << 31) + 1, u32::MAX];
            const LOW: [u32; 4] = [0, 1 << 12, 1 << 31, u32::MAX];
            let noise = Planted(|token| {
                let (high, low) = words[token.index()];
                (HIGH[high], LOW[low])
            });
            prop_assert_eq!(sample(&d, &noise), sample_unpruned(&d, &noise));
        }
    }
}
