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
