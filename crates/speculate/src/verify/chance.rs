//! Where random decisions enter verification.

use foredraft_common::TokenId;

use crate::random::{Purpose, StepNoise};
use crate::{Distribution, NoiseKey, sample};

/// What a token is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Draw {
    /// The target's own token at this position: what plain decoding with the seed emits.
    Token,
    /// The replacement of a rejected token.
    Residual,
    /// The token after the last accepted one, whose node has no children.
    Bonus,
}

/// The random decisions of one step. Each (kind, depth, attempt) is decided at most once, and all are independent.
pub trait Chance {
    /// Whether r q < p for a uniform r in [0, 1): true with probability min(1, p / q), never when p = 0. `depth` is that
    /// of the node whose child is tested, or the tested node's own in block verification; `attempt` counts its children.
    fn accept(&mut self, depth: u32, attempt: u32, p: f64, q: f64) -> bool;

    /// A token of the distribution after a node of depth `depth`.
    fn draw(&mut self, depth: u32, kind: Draw, from: &Distribution) -> TokenId;
}

/// The decisions that a seed makes: a function of the key (that of the token after the root) and of what is decided.
///
/// [`Draw::Token`] reads the noise of the emitted token, and is byte for byte [`sample`]. All other decisions have
/// noise of their own, which no drafter and no other step shares: noise shared between a draft and the test or the
/// residual that judges it would change the distribution.
#[derive(Debug, Clone, Copy)]
pub struct KeyedChance(pub NoiseKey);

impl Chance for KeyedChance {
    fn accept(&mut self, depth: u32, attempt: u32, p: f64, q: f64) -> bool {
        let purposes = (Purpose::Accept, Purpose::Accept);
        let r = StepNoise::new(self.0, depth, attempt, purposes).unit();
        passes(r, p, q)
    }

    fn draw(&mut self, depth: u32, kind: Draw, from: &Distribution) -> TokenId {
        let purposes = match kind {
            Draw::Token => return sample(from, &self.0.later(depth)),
            Draw::Residual => (Purpose::ResidualHigh, Purpose::ResidualLow),
            Draw::Bonus => (Purpose::BonusHigh, Purpose::BonusLow),
        };
        sample(from, &StepNoise::new(self.0, depth, 0, purposes))
    }
}

/// The acceptance test of Leviathan et al. and Chen et al., r <= p / q, without the division and strictly: r can be
/// 0, and a token with p = 0 must not pass even then.
fn passes(r: f64, p: f64, q: f64) -> bool {
    r * q < p
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Noise;
    use foredraft_common::Position;

    const ROOT: NoiseKey = NoiseKey {
        seed: 7,
        choice: 2,
        position: Position(40),
    };

    #[test]
    fn a_token_with_p_0_never_passes_and_one_with_p_above_q_always_does() {
        let just_below_1 = 1.0 - f64::EPSILON;
        for q in [1e-30, 0.5, 1.0] {
            assert!(!passes(0.0, 0.0, q), "r = 0 and p = 0");
            assert!(passes(0.0, 1e-30, q));
            assert!(passes(just_below_1, q, q));
        }
        assert!(!passes(0.5, 0.25, 0.5), "r q = p is not below p");
    }

    #[test]
    fn the_targets_own_draw_is_the_sampler_byte_for_byte() {
        let p = Distribution::from_dense(&[1.0 / 64.0; 64]).expect("valid");
        for depth in 0..50 {
            let key = NoiseKey {
                position: Position(40 + depth),
                ..ROOT
            };
            let drawn = KeyedChance(ROOT).draw(depth, Draw::Token, &p);
            assert_eq!(drawn, sample(&p, &key));
        }
    }

    /// Every decision of several overlapping steps, drafts included, reads words of its own.
    #[test]
    fn no_two_decisions_share_noise() {
        let purposes = [
            (Purpose::Accept, Purpose::Accept),
            (Purpose::ResidualHigh, Purpose::ResidualLow),
            (Purpose::BonusHigh, Purpose::BonusLow),
            (Purpose::DraftHigh, Purpose::DraftLow),
        ];
        let mut seen = Vec::new();
        for step in 0..4 {
            for (depth, attempt) in (0..4).flat_map(|depth| [0, 1, 2].map(|n| (depth, n))) {
                for purpose in purposes {
                    let noise = StepNoise::new(ROOT.later(step), depth, attempt, purpose);
                    seen.push(noise.high_words(0));
                    if purpose.0 != purpose.1 {
                        seen.push(noise.low_words(0));
                    }
                }
            }
        }
        for position in 0..8 {
            seen.extend([
                ROOT.later(position).high_words(0),
                ROOT.later(position).low_words(0),
            ]);
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn a_test_passes_as_often_as_p_over_q() {
        for (p, q) in [(0.1, 0.8), (0.5, 0.6), (0.3, 1.0)] {
            let passed = (0..100_000)
                .filter(|i| KeyedChance(ROOT.later(i / 8)).accept(i % 4, i / 4 % 2, p, q));
            let frequency = passed.count() as f64 / 100_000.0;
            // 5 standard errors of at most 0.5 / sqrt(100000).
            assert!(
                (frequency - p / q).abs() < 0.008,
                "{frequency} of {}",
                p / q
            );
        }
    }
}
