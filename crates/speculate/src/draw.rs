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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::chi_square_test;
    use foredraft_common::Position;

    const ROOT: NodeIndex = NodeIndex::ROOT;

    fn key(seed: u64) -> NoiseKey {
        NoiseKey {
            seed,
            choice: 0,
            position: Position(5),
        }
    }

    fn q() -> Distribution {
        Distribution::from_dense(&[0.125, 0.25, 0.125, 0.5]).expect("valid")
    }

    fn children(tree: &TokenTree, node: NodeIndex) -> Vec<(u32, f32)> {
        let of = |child| (tree.token(child).0, tree.node(child).confidence);
        tree.children(node).map(of).collect()
    }

    #[test]
    fn ranked_children_come_by_probability_then_lowest_id() {
        let mut tree = TokenTree::new(TokenId(0));
        // One that is there already counts as had.
        tree.push(ROOT, TokenId(1), 0, 1.0);
        assert_eq!(
            draw_children(&mut tree, ROOT, &q(), DraftDraw::Ranked, 3, key(0), 4),
            2
        );
        assert_eq!(children(&tree, ROOT), [(1, 1.0), (3, 0.5), (0, 0.125)]);
        assert_eq!(tree.node(NodeIndex(2)).source, 4);
        assert_eq!(
            draw_children(&mut tree, ROOT, &q(), DraftDraw::Ranked, 9, key(0), 4),
            1
        );
    }

    #[test]
    fn coupled_children_begin_with_what_the_target_would_draw_from_q() {
        for seed in 0..200 {
            let mut tree = TokenTree::new(TokenId(0));
            let node = tree.push(ROOT, TokenId(1), 0, 1.0);
            assert_eq!(
                draw_children(&mut tree, node, &q(), DraftDraw::Coupled, 2, key(seed), 0),
                2
            );
            let at_node = NoiseKey {
                position: Position(6),
                ..key(seed)
            };
            let drawn = children(&tree, node);
            assert_eq!(drawn[0].0, sample(&q(), &at_node).0);
            assert_ne!(drawn[0].0, drawn[1].0);
            assert!(
                tree.children(node)
                    .all(|child| !tree.node(child).is_sampled)
            );
        }
    }

    /// p-value of the frequencies of pairs of children under a deterministic child with token 2.
    fn pairs(replacement: Replacement, probability: impl Fn(f64, f64, bool) -> f64) -> f64 {
        let draw = DraftDraw::Sampled(replacement);
        let mut observed = [0; 16];
        for seed in 0..50_000 {
            let mut tree = TokenTree::new(TokenId(0));
            tree.push(ROOT, TokenId(2), 0, 1.0);
            assert_eq!(
                draw_children(&mut tree, ROOT, &q(), draw, 2, key(seed), 0),
                2
            );
            let drawn = children(&tree, ROOT);
            observed[(drawn[1].0 * 4 + drawn[2].0) as usize] += 1;
        }
        // q without token 2: 1/7, 2/7, -, 4/7.
        let masked = [1.0 / 7.0, 2.0 / 7.0, 0.0, 4.0 / 7.0];
        let expected: Vec<f64> = (0..16)
            .map(|cell| {
                50_000.0 * probability(masked[cell / 4], masked[cell % 4], cell / 4 == cell % 4)
            })
            .collect();
        chi_square_test(&observed, &expected)
            .expect("valid")
            .p_value
    }

    #[test]
    fn sampled_children_are_draws_from_the_masked_q() {
        let with = pairs(Replacement::With, |first, second, _| first * second);
        let without = pairs(Replacement::Without, |first, second, same| match same {
            true => 0.0,
            false => first * second / (1.0 - first),
        });
        assert!(with > 1e-4 && without > 1e-4, "{with:e} {without:e}");
    }

    #[test]
    fn there_are_never_more_sampled_children_than_tokens() {
        for (replacement, width) in [(Replacement::With, 9), (Replacement::Without, 9)] {
            let draw = DraftDraw::Sampled(replacement);
            let mut tree = TokenTree::new(TokenId(0));
            assert_eq!(draw_children(&mut tree, ROOT, &q(), draw, 0, key(1), 0), 0);
            assert_eq!(
                tree.sampled(ROOT),
                None,
                "nothing is recorded for no children"
            );
            assert_eq!(
                draw_children(&mut tree, ROOT, &q(), draw, width, key(1), 0),
                4
            );
            // q on a token that is there already: nothing to draw.
            let child = NodeIndex(1);
            tree.push(child, TokenId(3), 0, 1.0);
            let one_hot = Distribution::one_hot(TokenId(3));
            assert_eq!(
                draw_children(&mut tree, child, &one_hot, draw, 2, key(1), 0),
                0
            );
        }
    }
}
