//! The drafter by hand, against a search of the text, and through steps that reject.

#![allow(clippy::unwrap_used)] // a test that cannot go on should stop

use foredraft_common::Position;
use proptest::prelude::*;

use super::search::{continuations_by_search, longest_match_by_search};
use super::*;
use crate::{DraftDraw, History, NoiseKey, SamplingSettings};

const PLENTY: usize = 100_000;

/// A sequence as the engine would hold it.
struct Text {
    id: SequenceId,
    tokens: Vec<TokenId>,
    history: History,
    sampling: SamplingSettings,
    allowed: AllowedTokens,
}

impl Text {
    fn new(id: u64, ids: &[u32]) -> Self {
        Self {
            id: SequenceId(id),
            tokens: ids.iter().copied().map(TokenId).collect(),
            history: History::default(),
            sampling: SamplingSettings::default(),
            allowed: AllowedTokens::all(1000),
        }
    }

    fn view(&self) -> SequenceView<'_> {
        SequenceView {
            id: self.id,
            tokens: &self.tokens,
            history: &self.history,
            sampling: &self.sampling,
            allowed: &self.allowed,
            key: NoiseKey {
                seed: 0,
                choice: 0,
                position: Position(self.tokens.len() as u32),
            },
            draw: DraftDraw::Ranked,
        }
    }

    fn root(&self) -> TokenTree {
        TokenTree::new(self.tokens.last().copied().unwrap_or(TokenId(0)))
    }
}

/// Grows the tree of each text by one level for each of `budgets`, in one step.
fn draft_all(lookup: &mut Lookup, texts: &[&Text], budgets: &[NodeBudget]) -> Vec<TokenTree> {
    let views: Vec<_> = texts.iter().map(|text| text.view()).collect();
    let mut trees: Vec<_> = texts.iter().map(|text| text.root()).collect();
    lookup.begin(&views).unwrap();
    for &budget in budgets {
        lookup
            .extend(&views, &mut trees, &vec![budget; texts.len()])
            .unwrap();
    }
    trees
}

fn draft(lookup: &mut Lookup, text: &Text, budgets: &[NodeBudget]) -> TokenTree {
    draft_all(lookup, &[text], budgets).remove(0)
}

fn levels(count: usize, nodes: usize, width: usize) -> Vec<NodeBudget> {
    vec![NodeBudget { nodes, width }; count]
}

/// Parent, token and confidence of every drafted node.
fn nodes(tree: &TokenTree) -> Vec<(u32, u32, f32)> {
    let drafted = tree.nodes().skip(1);
    drafted
        .map(|index| {
            let node = tree.node(index);
            (node.parent.0, node.token.0, node.confidence)
        })
        .collect()
}

fn chain(ids: &[u32], len: usize) -> Vec<u32> {
    let tree = draft(&mut Lookup::new(0), &Text::new(1, ids), &levels(len, 1, 1));
    assert!(tree.is_chain());
    nodes(&tree).iter().map(|node| node.1).collect()
}

#[test]
fn a_chain_continues_the_longest_match() {
    // The match is "10 11", for which 2 * 2 tokens may be drafted.
    let text = [10, 11, 12, 13, 14, 15, 16, 17, 50, 10, 11];
    assert_eq!(chain(&text, 9), [12, 13, 14, 15]);
    assert_eq!(chain(&text, 3), [12, 13, 14]);
    // One token that stood before is a match too.
    assert_eq!(chain(&[7, 8, 9, 7], 9), [8, 9]);
    // "1 2 8" stood before 9, though "2 8" stood before 7 more often and later.
    assert_eq!(chain(&[1, 2, 8, 9, 2, 8, 7, 2, 8, 7, 1, 2, 8], 1), [9]);
}

#[test]
fn a_period_goes_on_past_the_text_that_is_known() {
    // The match is "1 2 3", for which 2 * 3 tokens may be drafted.
    assert_eq!(chain(&[1, 2, 3, 1, 2, 3], 9), [1, 2, 3, 1, 2, 3]);
    assert_eq!(chain(&[4, 4, 4], 9), [4; 4]);
}

#[test]
fn no_match_no_nodes() {
    for ids in [&[][..], &[1], &[1, 2, 3], &[1, 1, 2]] {
        assert_eq!(chain(ids, 4), [0; 0], "{ids:?}");
    }
}

#[test]
fn a_draft_is_never_longer_than_the_longest() {
    let drafted = chain(&[7; 3000], 600);
    assert_eq!(drafted.len(), LONGEST_DRAFT as usize);
}

#[test]
fn several_continuations_are_branches_by_count_and_then_the_latest_first() {
    let mut text = Text::new(1, &[1, 2, 3, 6, 1, 2, 4, 7, 1, 2, 3, 8, 1, 2, 5, 9, 1, 2]);
    let mut lookup = Lookup::new(3);
    // 3 twice, 4 and 5 once each of 4; of a match of two tokens 2/3 is believed.
    let share = |count: f32, total: f32| count / total * (2.0 / 3.0);
    let expected = [
        (0, 3, share(2.0, 4.0)),
        (0, 5, share(1.0, 4.0)),
        (0, 4, share(1.0, 4.0)),
    ];
    let tree = draft(&mut lookup, &text, &levels(1, PLENTY, 4));
    assert_eq!(nodes(&tree), expected);
    assert!(tree.sampled(NodeIndex::ROOT).is_none());
    assert!(tree.nodes().skip(1).all(|n| tree.node(n).source == 3));
    assert_eq!(
        nodes(&draft(&mut lookup, &text, &levels(1, PLENTY, 2))),
        expected[..2]
    );
    assert_eq!(
        nodes(&draft(&mut lookup, &text, &levels(1, 1, 2))),
        expected[..1]
    );
    assert_eq!(nodes(&draft(&mut lookup, &text, &levels(1, 0, 2))), []);
    assert_eq!(nodes(&draft(&mut lookup, &text, &levels(1, 2, 0))), []);

    // What may not be emitted is neither drafted nor counted.
    text.allowed.ban(TokenId(3));
    let expected = [(0, 5, share(1.0, 2.0)), (0, 4, share(1.0, 2.0))];
    assert_eq!(
        nodes(&draft(&mut lookup, &text, &levels(1, PLENTY, 4))),
        expected
    );
}

#[test]
fn a_small_budget_goes_to_the_most_probable_nodes_of_the_level() {
    // "1 2" before 3 (three times) and 4 (twice); "1 2 3" before 5, 6 and 7; "1 2 4" before 8, twice.
    let text = [
        1, 2, 3, 5, 20, 1, 2, 4, 8, 21, 1, 2, 3, 6, 22, 1, 2, 4, 8, 23, 1, 2, 3, 7, 24, 1, 2,
    ];
    let tree = draft(&mut Lookup::new(0), &Text::new(1, &text), &levels(2, 2, 3));
    let drafted: Vec<_> = nodes(&tree).iter().map(|node| (node.0, node.1)).collect();
    // 3 is worth 3/5 * 2/3 = 0.4 and 4 is worth 0.27; below them 8 is worth 0.27 * 3/4 = 0.2, 5, 6 and 7 each 0.4 *
    // 1/3 * 3/4 = 0.1.
    assert_eq!(drafted, [(0, 3), (0, 4), (2, 8), (1, 7)]);
}

#[test]
fn what_another_drafter_added_is_shared_and_below_sampled_children_nothing_is_added() {
    let text = Text::new(1, &[1, 2, 3, 4, 9, 1, 2]);
    let views = [text.view()];
    let mut lookup = Lookup::new(1);
    lookup.begin(&views).unwrap();
    let mut trees = [text.root()];
    trees[0].push(NodeIndex::ROOT, TokenId(3), 0, 0.5);
    for _ in 0..2 {
        lookup.extend(&views, &mut trees, &levels(1, 1, 1)).unwrap();
    }
    assert_eq!(nodes(&trees[0]), [(0, 3, 0.5), (1, 4, 3.0 / 4.0)]);

    let q = crate::Distribution::one_hot(TokenId(5));
    let mut trees = [text.root()];
    trees[0].record(NodeIndex::ROOT, &q, crate::Replacement::With);
    lookup.begin(&views).unwrap();
    lookup.extend(&views, &mut trees, &levels(1, 1, 1)).unwrap();
    assert_eq!(trees[0].len(), 1);
}

#[test]
fn sequences_are_apart_and_a_forgotten_one_is_gone() {
    let (a, b) = (
        Text::new(1, &[1, 2, 3, 1, 2]),
        Text::new(2, &[1, 2, 7, 1, 2]),
    );
    let mut lookup = Lookup::new(0);
    let trees = draft_all(&mut lookup, &[&a, &b], &levels(1, 1, 1));
    assert_eq!((nodes(&trees[0])[0].1, nodes(&trees[1])[0].1), (3, 7));
    let both = lookup.bytes();
    lookup.forget(a.id);
    let one = lookup.bytes();
    assert!(one < both);
    lookup.forget(b.id);
    assert!(lookup.bytes() < one);
    // Without `begin` nothing is known of it.
    let mut trees = [b.root()];
    lookup
        .extend(&[b.view()], &mut trees, &levels(1, 1, 1))
        .unwrap();
    assert_eq!(trees[0].len(), 1);
}

#[test]
fn drafting_again_takes_no_more_memory() {
    let text = Text::new(1, &[1, 2, 3, 1, 2, 4, 1, 2, 3, 3, 1, 2]);
    let mut lookup = Lookup::new(0);
    let first = draft(&mut lookup, &text, &levels(5, PLENTY, 3));
    let bytes = lookup.bytes();
    for _ in 0..20 {
        assert_eq!(
            nodes(&draft(&mut lookup, &text, &levels(5, PLENTY, 3))),
            nodes(&first)
        );
        assert_eq!(lookup.bytes(), bytes);
    }
}

/// What the tree below `node` must be, by searching the text: `string` is the match and the path to the node.
fn check_subtree(
    tree: &TokenTree,
    node: NodeIndex,
    text: &[u32],
    string: &[u32],
    width: usize,
    depth: u32,
) -> Result<(), TestCaseError> {
    let matched = longest_match_by_search(text);
    let mut expected = Vec::new();
    if matched >= MIN_MATCH as usize && tree.depth(node) < depth.min(2 * matched as u32) {
        let mut string = string;
        let mut found = continuations_by_search(text, string);
        if found.is_empty() {
            string = &text[text.len() - matched..];
            found = continuations_by_search(text, string);
        }
        let total: u32 = found.values().map(|&(count, _)| count).sum();
        let len = string.len() as f32;
        let believed = |count: u32| count as f32 / total as f32 * (len / (len + 1.0));
        let mut ranked: Vec<_> = found
            .into_iter()
            .map(|(token, worth)| (worth, token))
            .collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        expected.extend(
            ranked
                .iter()
                .take(width)
                .map(|&((count, _), token)| (token, believed(count))),
        );
        for child in tree.children(node) {
            let string = [string, &[tree.token(child).0]].concat();
            check_subtree(tree, child, text, &string, width, depth)?;
        }
    }
    let children: Vec<_> = tree
        .children(node)
        .map(|child| tree.node(child))
        .map(|n| (n.token.0, n.confidence))
        .collect();
    prop_assert_eq!(children, expected);
    Ok(())
}

/// Short enough for all counts to be exact.
fn any_text() -> impl Strategy<Value = Vec<u32>> {
    (2..5u32).prop_flat_map(|letters| prop::collection::vec(0..letters, 1..33))
}

/// "1 2" before various things and at the end, each time after another token: many branches.
fn text_of_blocks() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec((3..6u32, 3..5u32), 1..16).prop_map(|blocks| {
        let blocks = (100..).zip(blocks);
        let mut text: Vec<_> = blocks
            .flat_map(|(mark, (a, b))| [mark, 1, 2, a, b])
            .collect();
        text.extend([99, 1, 2]);
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Growing level by level is the same as searching the text for the whole tree at once.
    #[test]
    fn the_tree_is_what_a_search_of_the_text_gives(
        text in prop_oneof![any_text(), text_of_blocks()],
        width in 1..4usize,
        depth in 1..5u32,
    ) {
        let tree = draft(&mut Lookup::new(0), &Text::new(1, &text), &levels(depth as usize, PLENTY, width));
        let matched = longest_match_by_search(&text);
        check_subtree(&tree, NodeIndex::ROOT, &text, &text[text.len() - matched..], width, depth)?;
    }

    #[test]
    fn budgets_are_kept(
        text in prop::collection::vec(0..3u32, 1..60),
        budgets in prop::collection::vec((0..6usize, 0..4usize), 1..6),
    ) {
        let text = Text::new(1, &text);
        let budgets: Vec<_> = budgets.into_iter().map(|(nodes, width)| NodeBudget { nodes, width }).collect();
        let mut lookup = Lookup::new(0);
        lookup.begin(&[text.view()]).unwrap();
        let mut trees = [text.root()];
        for &budget in &budgets {
            let before = trees[0].len();
            lookup.extend(&[text.view()], &mut trees, &[budget]).unwrap();
            let tree = &trees[0];
            prop_assert!(tree.len() - before <= budget.nodes);
            for node in tree.nodes() {
                let new = tree.children(node).filter(|child| child.index() >= before).count();
                prop_assert!(new <= budget.width);
                prop_assert!(node == NodeIndex::ROOT || (0.0..1.0).contains(&tree.node(node).confidence));
            }
            let depths: Vec<_> = tree.nodes().skip(before).map(|node| tree.depth(node)).collect();
            prop_assert!(depths.windows(2).all(|pair| pair[0] == pair[1]), "more than one level");
        }
    }

    /// Steps that accept a part of what was drafted, add a token of their own, and now and then cut the text: the trees
    /// are those of a drafter that has seen nothing but the text.
    #[test]
    fn rejected_drafts_leave_no_trace(
        prompt in prop::collection::vec(0..3u32, 1..40),
        steps in prop::collection::vec((0..4usize, 0..3u32, 0..12usize), 1..20),
    ) {
        let mut text = Text::new(1, &prompt);
        let mut lookup = Lookup::new(0);
        for (accept, next, cut) in steps {
            let budgets = levels(3, 5, 2);
            let tree = draft(&mut lookup, &text, &budgets);
            prop_assert_eq!(nodes(&tree), nodes(&draft(&mut Lookup::new(0), &text, &budgets)));
            let mut verdict = Verdict { next: TokenId(next), ..Verdict::new() };
            while verdict.accepted.len() < accept
                && let Some(child) = tree.children(verdict.last()).last()
            {
                verdict.accepted.push(child);
            }
            lookup.observe(&[text.view()], std::slice::from_ref(&verdict));
            if cut == 0 {
                text.tokens.truncate(1 + text.tokens.len() / 2);
            }
            text.tokens.extend(verdict.accepted.iter().map(|&node| tree.token(node)));
            text.tokens.push(verdict.next);
        }
    }
}
