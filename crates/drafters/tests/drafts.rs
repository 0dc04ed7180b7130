//! What is drafted: the model's own distributions, level by level, within budget and context.

mod common;

use common::{
    Plain, Text, drafter, drafter_with, first_chain, grow, grow_within, ids, ranked, story,
    verdict, views,
};
use foredraft_common::TokenId;
use foredraft_drafters::copies;
use foredraft_formats::Checkpoint;
use foredraft_speculate::{
    DraftDraw, Drafter, NodeBudget, NodeIndex, Replacement, SamplingSettings, TokenTree,
};
use foredraft_testing::stories260k;

const SAMPLED: DraftDraw = DraftDraw::Sampled(Replacement::Without);

#[test]
fn a_model_that_drafts_for_itself_is_always_right_at_temperature_0() {
    let model = stories260k();
    let (mut plain, mut drafter) = (Plain::new(&model), drafter(&model));
    let mut text = Text::greedy(1, &story());
    for _ in 0..10 {
        let tree = grow(&mut drafter, &[&text], 1, 8, 1).remove(0);
        assert_eq!(tree.len(), 9);
        let chain = first_chain(&tree);
        let mut expected = text.tokens.clone();
        for &node in &chain {
            let next = plain.greedy(&expected);
            assert_eq!(tree.token(node), next, "after {} tokens", expected.len());
            expected.push(next);
        }
        // All eight are accepted, and the target adds one.
        let verdict = verdict(chain, plain.greedy(&expected));
        drafter.observe(&views(&[&text]), std::slice::from_ref(&verdict));
        text.emit(&tree, &verdict);
    }
    assert_eq!(text.tokens.len(), story().len() + 90);
}

#[test]
fn a_tree_holds_the_best_children_of_each_of_its_nodes() {
    let model = stories260k();
    let (mut plain, mut drafter) = (Plain::new(&model), drafter(&model));
    let text = Text::greedy(1, &story());
    let tree = grow(&mut drafter, &[&text], 2, 2, 4).remove(0);
    assert_eq!(tree.len(), 1 + 2 + 4);
    for node in tree.nodes().filter(|&node| tree.depth(node) < 2) {
        let mut path = Vec::new();
        tree.path(node, &mut path);
        let best = ranked(&plain.logits(&[&text.tokens[..], &path].concat()));
        let children: Vec<TokenId> = tree.children(node).map(|child| tree.token(child)).collect();
        assert_eq!(children, best[..2], "of node {}", node.0);
    }
}

/// The q that is recorded is, bit for bit, the model's own distribution after the node's path: the same transforms, with
/// the penalties of what was drafted before.
#[test]
fn what_is_drawn_from_is_the_models_own_distribution_at_the_node() {
    let model = stories260k();
    let mut plain = Plain::new(&model);
    let settings = SamplingSettings {
        temperature: 0.7,
        repeat_penalty: 1.3,
        frequency_penalty: 0.5,
        presence_penalty: 0.2,
        top_k: 50,
        top_p: 0.95,
        logit_bias: vec![(TokenId(300), 2.0)],
        ..SamplingSettings::unchanged()
    };
    for sampling in [settings, SamplingSettings::unchanged()] {
        let mut text = Text::new(1, &story(), 1.0, SAMPLED);
        text.sampling = sampling;
        text.allowed.ban(TokenId(261));
        let tree = grow(&mut drafter(&model), &[&text], 3, 3, 100).remove(0);
        let mut inner = 0;
        for node in tree.nodes().filter(|&node| tree.depth(node) < 3) {
            let (q, _) = tree.sampled(node).expect("a q");
            assert_eq!(
                *q,
                text.distribution(&mut plain, &tree, node),
                "node {}",
                node.0
            );
            assert_eq!(q.probability(TokenId(261)), 0.0);
            inner += 1;
        }
        assert_eq!(inner, 1 + 3 + 9);
    }
}

#[test]
fn a_coupled_draft_of_the_model_itself_is_what_plain_decoding_draws() {
    let model = stories260k();
    let mut plain = Plain::new(&model);
    let mut text = Text::new(1, &story(), 1.0, DraftDraw::Coupled);
    let tree = grow(&mut drafter(&model), &[&text], 1, 8, 1).remove(0);
    assert_eq!(tree.len(), 9);
    for &node in &first_chain(&tree) {
        let alone = TokenTree::new(TokenId(0));
        let p = text.distribution(&mut plain, &alone, NodeIndex::ROOT);
        let drawn = foredraft_speculate::sample(&p, &text.view().key);
        assert_eq!(tree.token(node), drawn);
        text.push(drawn);
    }
}

#[test]
fn a_sampled_level_gets_equally_many_children_or_none() {
    let model = stories260k();
    let text = Text::new(1, &story(), 1.0, SAMPLED);
    let sizes = |nodes: [usize; 3]| {
        let budgets = nodes.map(|nodes| NodeBudget { nodes, width: 3 });
        let tree = grow_within(&mut drafter(&model), &[&text], &budgets).remove(0);
        let count = |depth| tree.at_depth(depth).count();
        ([1, 2, 3].map(count), tree.leaves().count())
    };
    assert_eq!(sizes([3, 9, 0]).0, [3, 9, 0]);
    // 8 are two for each of three; 5 are less than one for each of six.
    assert_eq!(sizes([3, 8, 5]), ([3, 6, 0], 6));
    // A level for which there was no budget is drawn when there is.
    assert_eq!(sizes([0, 2, 6]).0, [2, 6, 0]);
    assert_eq!(sizes([2, 1, 2]).0, [2, 2, 0]);
}

#[test]
fn of_ranked_children_a_small_budget_takes_the_most_probable() {
    let model = stories260k();
    let text = Text::greedy(1, &story());
    let value = |tree: &TokenTree, node| -> f32 {
        let path = std::iter::successors(Some(node), |&node| tree.parent(node));
        path.map(|node| tree.node(node).confidence).product()
    };
    let second_level = |nodes| {
        let budgets = [4, nodes].map(|nodes| NodeBudget { nodes, width: 4 });
        let tree = grow_within(&mut drafter(&model), &[&text], &budgets).remove(0);
        let path = |node| {
            let mut path = Vec::new();
            tree.path(node, &mut path);
            path
        };
        let mut nodes: Vec<(f32, Vec<TokenId>)> = tree
            .at_depth(2)
            .map(|node| (value(&tree, node), path(node)))
            .collect();
        nodes.sort_by(|a, b| b.0.total_cmp(&a.0));
        nodes
    };
    let all = second_level(16);
    assert_eq!(all.len(), 16);
    for few in [1, 2, 5, 11] {
        assert_eq!(second_level(few), all[..few]);
    }
}

#[test]
fn a_text_that_the_draft_cannot_follow_gets_no_children_and_no_error() {
    let model = stories260k();
    let mut drafter = drafter_with(&model, |options| options.context_tokens = 20);
    let mut text = Text::greedy(1, &story());
    let long = Text::greedy(2, &ids(&[5; 21]));
    let beyond = Text::greedy(3, &ids(&[1, 512, 5]));
    let empty = Text {
        tokens: Vec::new(),
        ..Text::greedy(4, &story())
    };
    // 8 tokens and 12 positions left: the last level is drawn without a pass.
    let trees = grow(&mut drafter, &[&text, &long, &beyond], 1, 20, 1);
    assert_eq!([0, 1, 2].map(|i| trees[i].len() - 1), [13, 0, 0]);
    text.tokens.extend(ids(&[9; 12]));
    text.history = foredraft_speculate::History::new(&text.tokens);
    assert_eq!(grow(&mut drafter, &[&text], 1, 3, 1)[0].len(), 2);
    drafter.begin(&views(&[&empty])).expect("nothing to do");
}

#[test]
fn a_draft_without_an_allowed_token_drafts_nothing() {
    let model = stories260k();
    let mut text = Text::greedy(1, &story());
    text.allowed = foredraft_speculate::AllowedTokens::all(600);
    for id in 0..512 {
        text.allowed.ban(TokenId(id));
    }
    assert_eq!(grow(&mut drafter(&model), &[&text], 2, 3, 9)[0].len(), 1);
}

/// How often the first drafted token is the target's, over 150 greedy tokens.
fn acceptance(target: &Checkpoint, draft: &Checkpoint) -> f64 {
    let (mut plain, mut drafter) = (Plain::new(target), drafter(draft));
    let mut text = Text::greedy(1, &story());
    let mut accepted = 0;
    for _ in 0..150 {
        let tree = grow(&mut drafter, &[&text], 1, 1, 1).remove(0);
        let next = plain.greedy(&text.tokens);
        let child = tree.child_of(NodeIndex::ROOT, next);
        accepted += usize::from(child.is_some());
        drafter.observe(&views(&[&text]), &[verdict(Vec::new(), next)]);
        text.push(next);
    }
    accepted as f64 / 150.0
}

#[test]
fn copies_are_right_sometimes() {
    let model = stories260k();
    let copy = |bytes: Result<Vec<u8>, copies::CopyError>| {
        Checkpoint::from_bytes(bytes.expect("a copy")).expect("it opens")
    };
    assert_eq!(
        acceptance(&model, &copy(copies::with_noise(&model, 0.0, 1))),
        1.0
    );
    let noisy =
        [0.1, 0.3].map(|noise| acceptance(&model, &copy(copies::with_noise(&model, noise, 1))));
    assert!(
        1.0 > noisy[0] && noisy[0] > noisy[1] && noisy[1] > 0.0,
        "{noisy:?}"
    );
    let dropped = acceptance(&model, &copy(copies::with_layers(&model, &[0, 1, 2, 4])));
    assert!(dropped > 0.05 && dropped < 1.0, "{dropped}");
}
