//! How a drafter that has a distribution adds the children of a node.

use foredraft_common::TokenId;

use crate::random::{Purpose, StepNoise};
use crate::sample::first_arrivals;
use crate::select::{keep_largest, ranked_token, ranked_value};
use crate::{Distribution, NodeIndex, NoiseKey, TokenTree, sample};

/// Whether a token that was drawn can be drawn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// Every child is drawn from the same q.
    With,
    /// Every child is drawn from q without the children before it, renormalised.
    Without,
}

/// How children are had from a drafter's distribution q: what the verifier of the request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DraftDraw {
    /// The most probable tokens of q, the lowest ids among equals, as deterministic children: for temperature 0, and for
    /// drafters that rank whatever the temperature.
    Ranked,
    /// Drawn from q with noise that nothing else uses, as sampled children: for `rejection` and `block`.
    Sampled(Replacement),
    /// Drawn with the very noise of the target's draw, as deterministic children: argmax(ln q + g), then the
    /// next best. For `coupled`, which will emit argmax(ln p + g).
    Coupled,
}

/// Adds at most `width` children to `parent`, had from `q`, the drafter's distribution of the token after it, as `draw` says.
/// Gives how many were added.
///
/// `root` is the key of the token after the tree's root ([`SequenceView::key`](crate::SequenceView)), `source` the drafter's
/// number. Tokens that are deterministic children already are not added again: a ranked or coupled child that is there
/// counts as had, and a sampled one cannot be drawn, because q loses those tokens before it is drawn from.
/// How many children are sampled depends on `width` and the support of q alone, never on what is drawn.
///
/// # Panics
/// As [`TokenTree::push`] and [`TokenTree::record`] do.
pub fn draw_children(
    tree: &mut TokenTree,
    parent: NodeIndex,
    q: &Distribution,
    draw: DraftDraw,
    width: usize,
    root: NoiseKey,
    source: u8,
) -> usize {
    let before = tree.len();
    match draw {
        DraftDraw::Ranked => push_ranked(tree, parent, q, width, source),
        DraftDraw::Coupled => {
            let noise = root.later(tree.depth(parent));
            let mut arrivals = std::mem::take(&mut tree.arrivals);
            first_arrivals(q, &noise, width, &mut arrivals);
            for &(_, token) in &arrivals {
                tree.push(parent, token, source, q.probability(token));
            }
            tree.arrivals = arrivals;
        }
        DraftDraw::Sampled(replacement) if width > 0 => {
            push_sampled(tree, parent, q, replacement, width, root, source);
        }
        DraftDraw::Sampled(_) => {}
    }
    tree.len() - before
}

fn push_ranked(
    tree: &mut TokenTree,
    parent: NodeIndex,
    q: &Distribution,
    width: usize,
    source: u8,
) {
    let mut keys = std::mem::take(&mut tree.keys);
    keep_largest(q.probabilities(), |i| q.support()[i], width, &mut keys);
    keys.sort_unstable_by(|a, b| b.cmp(a));
    for &key in &keys {
        tree.push(parent, ranked_token(key), source, ranked_value(key));
    }
    tree.keys = keys;
}

fn push_sampled(
    tree: &mut TokenTree,
    parent: NodeIndex,
    q: &Distribution,
    replacement: Replacement,
    width: usize,
    root: NoiseKey,
    source: u8,
) {
    let depth = tree.depth(parent);
    let noise = |attempt| {
        let purposes = (Purpose::DraftHigh, Purpose::DraftLow);
        StepNoise::new(root, depth, attempt, purposes)
    };
    let mut arrivals = std::mem::take(&mut tree.arrivals);
    arrivals.clear();
    if let Some(q) = tree.record(parent, q, replacement) {
        match replacement {
            // One race: its order is a draw without replacement.
            Replacement::Without => first_arrivals(q, &noise(0), width, &mut arrivals),
            // More children than tokens would only be the same ones again.
            Replacement::With => {
                let count = width.min(q.support().len()) as u32;
                let drawn = |attempt| -> (f64, TokenId) { (0.0, sample(q, &noise(attempt))) };
                arrivals.extend((0..count).map(drawn));
            }
        }
    }
    for &(_, token) in &arrivals {
        tree.push_sampled(parent, token, source);
    }
    tree.arrivals = arrivals;
}
