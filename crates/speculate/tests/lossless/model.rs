//! Targets and drafters over a few tokens, whose distributions are a fixed function of the context.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use foredraft_common::{Position, TokenId};
use foredraft_speculate::{Distribution, NodeIndex, Noise, NoiseKey, Replacement, TokenTree};

/// How p and q relate in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Both have every token, with ratios up to some 30.
    Smooth,
    /// q is p, slightly changed.
    Near,
    /// q is p.
    Equal,
    /// No token has p > 0 and q > 0.
    Disjoint,
    /// All of p, of q, or of both on one token.
    OneHotP,
    OneHotQ,
    OneHots,
    /// Both have tokens of hardly any mass, 1e-9 to 1e-30.
    Tiny,
    /// Some tokens have p = 0, some q = 0.
    Sparse,
}

pub(crate) const SHAPES: [Shape; 9] = [
    Shape::Smooth,
    Shape::Near,
    Shape::Equal,
    Shape::Disjoint,
    Shape::OneHotP,
    Shape::OneHotQ,
    Shape::OneHots,
    Shape::Tiny,
    Shape::Sparse,
];

/// A target (p) and a drafter (q).
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) seed: u64,
    pub(crate) vocabulary: u32,
    /// One shape for all contexts; without one, each context has its own.
    pub(crate) shape: Option<Shape>,
    fixed: Option<Rc<Pair>>,
    made: RefCell<HashMap<Vec<TokenId>, Rc<Pair>>>,
}

/// The two distributions of a context.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) p: Distribution,
    pub(crate) q: Distribution,
}

impl Model {
    pub(crate) fn new(seed: u64, vocabulary: u32, shape: Option<Shape>) -> Self {
        Self {
            seed,
            vocabulary,
            shape,
            fixed: None,
            made: RefCell::default(),
        }
    }

    /// The same two distributions in every context.
    pub(crate) fn with_fixed(vocabulary: u32, p: Distribution, q: Distribution) -> Self {
        Self {
            fixed: Some(Rc::new(Pair { p, q })),
            ..Self::new(0, vocabulary, None)
        }
    }

    pub(crate) fn pair(&self, context: &[TokenId]) -> Rc<Pair> {
        if let Some(pair) = self.fixed.as_ref().or(self.made.borrow().get(context)) {
            return Rc::clone(pair);
        }
        let pair = Rc::new(self.make(context));
        self.made
            .borrow_mut()
            .insert(context.to_vec(), Rc::clone(&pair));
        pair
    }

    /// The probability of `token` after `context`: of the f32 values, as shares of their sum.
    pub(crate) fn p(&self, context: &[TokenId], token: TokenId) -> f64 {
        share(&self.pair(context).p, token)
    }

    /// The tokens, in order.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = TokenId> + use<> {
        (0..self.vocabulary).map(TokenId)
    }

    /// A number that belongs to a context, in (0, 1), for each `of`.
    pub(crate) fn noise(&self, context: &[TokenId], of: u32) -> f64 {
        let number = context.iter().fold(1u32, |n, token| {
            n.wrapping_mul(self.vocabulary + 1)
                .wrapping_add(token.0 + 1)
        });
        let key = NoiseKey {
            seed: self.seed,
            choice: number,
            position: Position(0),
        };
        key.uniform(TokenId(of))
    }

    fn make(&self, context: &[TokenId]) -> Pair {
        let n = self.vocabulary;
        let noise = |of: u32| self.noise(context, of);
        let any = (noise(900) * SHAPES.len() as f64) as usize;
        let smooth = |of: u32| move |v: u32| (3.5 * (noise(of + v) - 0.5)).exp();
        let only = |of: u32| {
            let chosen = (noise(of) * f64::from(n)) as u32;
            move |v: u32| f64::from(u8::from(v == chosen))
        };
        let tiny = |of: u32| {
            move |v: u32| match v {
                0 => 1.0,
                _ => 10f64.powi(-[9, 20, 30, 1, 0][(noise(of + v) * 5.0) as usize]),
            }
        };
        // Token 0 always stays, so that something does.
        let sparse = |of: u32| {
            move |v: u32| match v > 0 && noise(of + v) < 0.4 {
                true => 0.0,
                false => noise(of + 50 + v),
            }
        };
        let from = |weights: &dyn Fn(u32) -> f64| distribution((0..n).map(weights));
        let (p, q) = match self.shape.unwrap_or(SHAPES[any]) {
            Shape::Smooth => (from(&smooth(0)), from(&smooth(100))),
            Shape::Near => (
                from(&smooth(0)),
                from(&|v| smooth(0)(v) * (0.9 + 0.2 * noise(100 + v))),
            ),
            Shape::Equal => (from(&smooth(0)), from(&smooth(0))),
            Shape::Disjoint => (
                from(&|v| smooth(0)(v) * f64::from(v % 2)),
                from(&|v| smooth(100)(v) * f64::from(1 - v % 2)),
            ),
            Shape::OneHotP => (from(&only(0)), from(&smooth(100))),
            Shape::OneHotQ => (from(&smooth(0)), from(&only(100))),
            Shape::OneHots => (from(&only(0)), from(&only(100))),
            Shape::Tiny => (from(&tiny(0)), from(&tiny(100))),
            Shape::Sparse => (from(&sparse(0)), from(&sparse(200))),
        };
        Pair { p, q }
    }
}

/// The share of a token in the sum of a distribution.
pub(crate) fn share(distribution: &Distribution, token: TokenId) -> f64 {
    f64::from(distribution.probability(token)) / distribution.sum()
}

/// The distribution with these weights.
pub(crate) fn distribution(weights: impl Iterator<Item = f64>) -> Distribution {
    let weights: Vec<f64> = weights.collect();
    let sum: f64 = weights.iter().sum();
    let dense: Vec<f32> = weights.iter().map(|w| (w / sum) as f32).collect();
    Distribution::from_dense(&dense).expect("a distribution")
}

/// What is drafted: so many children of each node down to a depth.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) depth: u32,
    pub(crate) deterministic: usize,
    pub(crate) sampled: usize,
    pub(crate) replacement: Replacement,
    /// Each context has numbers of its own, from 0 to these.
    pub(crate) ragged: bool,
}

impl Plan {
    pub(crate) const fn sampled(depth: u32, width: usize, replacement: Replacement) -> Self {
        Self {
            depth,
            deterministic: 0,
            sampled: width,
            replacement,
            ragged: false,
        }
    }

    /// Deterministic and sampled children of a node whose whole context is `context` and whose path has `depth` tokens.
    pub(crate) fn widths(&self, model: &Model, context: &[TokenId], depth: u32) -> (usize, usize) {
        if depth >= self.depth {
            return (0, 0);
        }
        let up_to = |most: usize, of| match self.ragged {
            true => (model.noise(context, of) * (most + 1) as f64) as usize,
            false => most,
        };
        (up_to(self.deterministic, 901), up_to(self.sampled, 902))
    }

    /// Adds deterministic children: tokens that the context fixes, the same one perhaps twice.
    pub(crate) fn push_deterministic(
        &self,
        model: &Model,
        tree: &mut TokenTree,
        node: NodeIndex,
        context: &[TokenId],
        count: usize,
    ) {
        for i in 0..count as u32 {
            let token = model.noise(context, 910 + i) * f64::from(model.vocabulary);
            tree.push(node, TokenId(token as u32), 0, 1.0);
        }
    }
}
