//! What is kept between steps: caught up, rolled back, shared by nobody, released.

mod common;

use common::{
    Text, anatomy, counted_drafter, drafter, drafter_with, first_chain, grow, grow_within, ids,
    story, verdict, views,
};
use foredraft_common::TokenId;
use foredraft_model::kv::pages_for;
use foredraft_speculate::{
    DraftDraw, Drafter, NodeBudget, NodeIndex, Replacement, SequenceId, TokenTree, Verdict,
};
use foredraft_testing::{Random, stories260k};

const SAMPLED: DraftDraw = DraftDraw::Sampled(Replacement::Without);

/// A path down the tree: any node's.
fn any_path(tree: &TokenTree, random: &mut Random) -> Vec<NodeIndex> {
    let node = NodeIndex(random.below(tree.len()) as u32);
    let up = std::iter::successors(Some(node), |&node| tree.parent(node));
    let mut path: Vec<NodeIndex> = up.filter(|&node| node != NodeIndex::ROOT).collect();
    path.reverse();
    path
}

#[test]
fn after_any_step_the_drafts_are_those_of_a_fresh_drafter() {
    let model = stories260k();
    let mut random = Random::new(5);
    let mut kept = drafter(&model);
    let mut text = Text::new(1, &story(), 0.9, SAMPLED);
    let mut lengths = [0; 4];
    for step in 0..60 {
        let (width, levels) = [(1, 3), (2, 2), (3, 2), (1, 1)][random.below(4)];
        let tree = grow(&mut kept, &[&text], width, levels, 100).remove(0);
        let fresh = grow(&mut drafter(&model), &[&text], width, levels, 100).remove(0);
        assert_eq!(anatomy(&tree), anatomy(&fresh), "step {step}");
        // Those of the text, and those that the cache keeps of others.
        let (used, own) = (kept.pages_used()[0], pages_for(text.tokens.len()));
        assert!((own..=own + kept.pages_cached()).contains(&used));
        let accepted = any_path(&tree, &mut random);
        lengths[accepted.len()] += 1;
        let verdict = verdict(accepted, TokenId(3 + random.below(500) as u32));
        match random.below(8) {
            // Another request with the same beginning, longer or shorter than what was there.
            0 => {
                let keep = 1 + random.below(text.tokens.len() - 1);
                let mut cut = text.tokens[..keep].to_vec();
                for _ in 0..1 + random.below(30) {
                    cut.push(TokenId(3 + random.below(500) as u32));
                }
                text = Text::new(1, &cut, 0.9, SAMPLED);
            }
            // The step fails after the draft: nobody observes.
            1 => text.emit(&tree, &verdict),
            // A step is repeated.
            2 => kept.observe(&views(&[&text]), &[verdict]),
            _ => {
                kept.observe(&views(&[&text]), std::slice::from_ref(&verdict));
                text.emit(&tree, &verdict);
            }
        }
    }
    assert!(lengths.iter().all(|&count| count > 0), "{lengths:?}");
}

#[test]
fn no_token_goes_through_the_model_twice_and_no_leaf_at_all() {
    let model = stories260k();
    let (mut drafter, passes) = counted_drafter(&model);
    let taken = || std::mem::take(&mut *passes.lock().expect("no panic while it was held"));
    let (mut a, b) = (Text::greedy(1, &story()), Text::greedy(2, &ids(&[6; 5])));
    let mut step = |texts: &[&Text], width, levels, accepted: usize| {
        let trees = grow(&mut drafter, texts, width, levels, 4);
        let verdicts: Vec<Verdict> = trees
            .iter()
            .map(|tree| verdict(first_chain(tree)[..accepted].to_vec(), TokenId(9)))
            .collect();
        drafter.observe(&views(texts), &verdicts);
        (
            trees.into_iter().next().expect("a tree"),
            verdicts[0].clone(),
        )
    };
    // The prompt of 8, then three nodes in flight; the fourth is a leaf.
    let (tree, verdict) = step(&[&a], 1, 4, 4);
    assert_eq!(taken(), [8, 1, 1, 1]);
    a.emit(&tree, &verdict);
    // The leaf and the token after it; then two sequences share every pass, of levels of 2 nodes each.
    let (tree, verdict) = step(&[&a, &b], 2, 2, 1);
    assert_eq!(taken(), [2 + 5, 2 + 2]);
    a.emit(&tree, &verdict);
    // The accepted node had been through the model; the corrected token had not. Without a level there is no pass.
    let (tree, verdict) = step(&[&a], 1, 1, 0);
    assert_eq!(taken(), [1]);
    a.emit(&tree, &verdict);
    // Another request, 11 of whose tokens are there.
    let other = [&a.tokens[..11], &ids(&[70, 71, 72])].concat();
    step(&[&Text::greedy(1, &other)], 1, 1, 0);
    assert_eq!(taken(), [3]);
    // Two nodes and room for one child: of ranked ones it is drawn, of sampled ones none, so nothing is run.
    for (draw, runs) in [(DraftDraw::Ranked, vec![1, 2]), (SAMPLED, vec![1])] {
        let text = Text::new(1, &other, 1.0, draw);
        let budgets = [2, 1].map(|nodes| NodeBudget { nodes, width: 2 });
        grow_within(&mut drafter, &[&text], &budgets);
        assert_eq!(taken(), runs);
    }
}

#[test]
fn accepted_keys_and_values_are_kept_and_rejected_ones_are_not() {
    let model = stories260k();
    let mut drafter = drafter(&model);
    let text = Text::greedy(1, &ids(&[7; 14]));
    let tree = grow(&mut drafter, &[&text], 1, 5, 1).remove(0);
    let chain = first_chain(&tree);
    assert_eq!(
        drafter.pages_used(),
        [1],
        "14 tokens; the 4 in flight are in no page"
    );
    // All five: the last was never run, so 14 + 4 tokens are in pages.
    drafter.observe(&views(&[&text]), &[verdict(chain, TokenId(9))]);
    assert_eq!((drafter.pages_used(), drafter.pages_cached()), (vec![2], 1));

    let tree = grow(&mut drafter, &[&text], 1, 5, 1).remove(0);
    let chain = first_chain(&tree)[..2].to_vec();
    drafter.observe(&views(&[&text]), &[verdict(chain, TokenId(9))]);
    assert_eq!(
        (drafter.pages_used(), drafter.pages_cached()),
        (vec![2], 1),
        "16 tokens in a page of its own, and the cache's"
    );
}

#[test]
fn sequences_in_one_call_draft_as_each_alone_whatever_the_passes() {
    let model = stories260k();
    let mut other = ids(&[1, 403]);
    other.extend((0..40).map(|i| TokenId(20 + 11 * i)));
    let mut texts = [
        Text::new(1, &story(), 0.9, SAMPLED),
        Text::new(2, &other, 1.2, DraftDraw::Coupled),
    ];
    let mut alone = [drafter(&model), drafter(&model)];
    let mut together = [
        drafter(&model),
        drafter_with(&model, |options| options.max_rows = 7),
        drafter_with(&model, |options| options.max_outputs = 1),
        drafter_with(&model, |options| {
            (options.max_rows, options.max_outputs) = (5, 3)
        }),
    ];
    for step in 0..4 {
        let [a, b] = &texts;
        let own: Vec<TokenTree> = [a, b]
            .iter()
            .zip(&mut alone)
            .map(|(text, drafter)| grow(drafter, &[text], 2, 2, 4).remove(0))
            .collect();
        let verdicts = [0, 1].map(|i| {
            let chain = first_chain(&own[i])[..(step + i) % 3].to_vec();
            verdict(chain, TokenId(30 + step as u32))
        });
        for (text, (drafter, verdict)) in texts.iter().zip(alone.iter_mut().zip(&verdicts)) {
            drafter.observe(&views(&[text]), std::slice::from_ref(verdict));
        }
        for drafter in &mut together {
            let both = grow(drafter, &[a, b], 2, 2, 4);
            for i in [0, 1] {
                assert_eq!(
                    anatomy(&both[i]),
                    anatomy(&own[i]),
                    "sequence {i}, step {step}"
                );
            }
            drafter.observe(&views(&[a, b]), &verdicts);
        }
        for (text, (tree, verdict)) in texts.iter_mut().zip(own.iter().zip(&verdicts)) {
            text.emit(tree, verdict);
        }
    }
}

#[test]
fn a_sequence_that_ends_leaves_its_pages_to_the_cache_alone() {
    let model = stories260k();
    let mut drafter = drafter(&model);
    let (a, b) = (Text::greedy(1, &story()), Text::greedy(2, &ids(&[6; 40])));
    let empty = drafter.bytes();
    let trees = grow(&mut drafter, &[&a, &b], 2, 3, 4);
    // The 40 tokens of the second fill two pages.
    assert_eq!((drafter.pages_used(), drafter.pages_cached()), (vec![4], 2));
    assert!(drafter.bytes() > empty);
    // Ended between draft and verdict.
    drafter.forget(a.id);
    assert_eq!((drafter.pages_used(), drafter.pages_cached()), (vec![4], 3));
    let verdicts = [
        verdict(Vec::new(), TokenId(5)),
        verdict(first_chain(&trees[1]), TokenId(5)),
    ];
    drafter.observe(&views(&[&a, &b]), &verdicts);
    drafter.forget(b.id);
    drafter.forget(SequenceId(77));
    assert_eq!((drafter.pages_used(), drafter.pages_cached()), (vec![4], 4));
    assert_eq!(drafter.bytes(), empty);
}

#[test]
fn a_level_beyond_what_was_reserved_is_an_error_and_the_text_goes_on() {
    let model = stories260k();
    let mut drafter = drafter_with(&model, |options| options.max_slots = 8);
    let mut text = Text::greedy(1, &story());
    let mut trees = vec![TokenTree::new(text.tokens[7])];
    drafter.begin(&views(&[&text])).expect("it begins");
    let extend = |trees: &mut Vec<TokenTree>, drafter: &mut foredraft_drafters::ModelDrafter| {
        let budget = NodeBudget { nodes: 6, width: 6 };
        drafter.extend(&views(&[&text]), trees, &[budget])
    };
    extend(&mut trees, &mut drafter).expect("6 nodes");
    extend(&mut trees, &mut drafter).expect("6 more, 6 in flight");
    assert!(extend(&mut trees, &mut drafter).is_err(), "12 in flight");
    let accepted = first_chain(&trees[0]);
    let verdict = verdict(accepted, TokenId(8));
    drafter.observe(&views(&[&text]), std::slice::from_ref(&verdict));
    text.emit(&trees[0], &verdict);
    let tree = grow(&mut drafter, &[&text], 1, 3, 1).remove(0);
    let fresh = grow(&mut common::drafter(&model), &[&text], 1, 3, 1).remove(0);
    assert_eq!(anatomy(&tree), anatomy(&fresh));
}
