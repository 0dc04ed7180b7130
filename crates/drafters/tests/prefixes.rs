//! Pages shared between sequences, kept after their end, and used up: what is drafted is the same in every case.

mod common;

use common::{
    Text, anatomy, counted_drafter, counted_drafter_with, drafter, drafter_with, first_chain, grow,
    ids, story, verdict, views,
};
use foredraft_common::TokenId;
use foredraft_drafters::ModelDrafter;
use foredraft_formats::Checkpoint;
use foredraft_model::kv::pages_for;
use foredraft_speculate::{DraftDraw, Drafter, Replacement, TokenTree};
use foredraft_testing::{Random, stories260k};

const SAMPLED: DraftDraw = DraftDraw::Sampled(Replacement::Without);

/// What a drafter that knows nothing drafts.
fn fresh(model: &Checkpoint, text: &Text) -> TokenTree {
    grow(&mut drafter(model), &[text], 2, 2, 4).remove(0)
}

/// A step whose first drafted tokens are accepted.
fn step(drafter: &mut ModelDrafter, text: &mut Text, accepted: usize) -> TokenTree {
    let tree = grow(drafter, &[text], 2, 2, 4).remove(0);
    let accepted = first_chain(&tree).into_iter().take(accepted).collect();
    let verdict = verdict(accepted, TokenId(9));
    drafter.observe(&views(&[text]), std::slice::from_ref(&verdict));
    text.emit(&tree, &verdict);
    tree
}

/// The turns of a chat, each a request of its own: its prompt is the text so far and something new.
#[test]
fn a_turn_of_a_chat_prefills_only_what_is_new() {
    let model = stories260k();
    let (mut drafter, passes) = counted_drafter(&model);
    let taken = || std::mem::take(&mut *passes.lock().expect("no panic while it was held"));
    let mut text = Text::new(0, &story(), 0.9, SAMPLED);
    // Tokens of the text that have been through the draft.
    let mut known = 0;
    for turn in 0..6 {
        text.id.0 = turn;
        for i in 0..13 {
            text.push(TokenId(20 + 7 * turn as u32 + i));
        }
        let new = text.tokens.len() - known;
        let expected = fresh(&model, &text);
        let tree = step(&mut drafter, &mut text, 1);
        assert_eq!(anatomy(&tree), anatomy(&expected), "turn {turn}");
        // What is new, then the two nodes of the first level.
        assert_eq!(taken(), [new, 2], "turn {turn}");
        // The accepted node went through the model, the token after it did not.
        known = text.tokens.len() - 1;
        drafter.forget(text.id);
        // Nothing is held but by the cache, and that once.
        assert_eq!(drafter.pages_used(), [pages_for(known)]);
        assert_eq!(drafter.pages_cached(), pages_for(known));
    }
    let figures = drafter.prefix_figures();
    assert_eq!((figures.lookups, figures.evicted_pages), (6, 0));
    // Of every turn's text all but the 13 new tokens and the last one, which was never read.
    assert_eq!(
        figures.tokens_found,
        figures.tokens_asked - 5 * 13 - (8 + 12)
    );
}

#[test]
fn sequences_with_one_beginning_share_it_and_part() {
    let model = stories260k();
    let (mut drafter, passes) = counted_drafter(&model);
    let taken = || std::mem::take(&mut *passes.lock().expect("no panic while it was held"));
    // 37 tokens: two pages, and 5 tokens of a third.
    let prompt: Vec<TokenId> = (0..37).map(|i| TokenId(30 + 11 * i)).collect();
    let mut first = Text::new(0, &prompt, 0.9, SAMPLED);
    step(&mut drafter, &mut first, 0);
    drafter.forget(first.id);
    assert_eq!((taken(), drafter.pages_used()), (vec![37, 2], vec![3]));

    let mut texts: Vec<Text> = (1..4)
        .map(|id| {
            let mut text = Text::new(id, &prompt, 0.9, SAMPLED);
            text.push(TokenId(100 + id as u32));
            text
        })
        .collect();
    for turn in 0..3 {
        let expected: Vec<TokenTree> = texts.iter().map(|text| fresh(&model, text)).collect();
        let all: Vec<&Text> = texts.iter().collect();
        let trees = grow(&mut drafter, &all, 2, 2, 4);
        for (tree, expected) in trees.iter().zip(&expected) {
            assert_eq!(anatomy(tree), anatomy(expected), "turn {turn}");
        }
        // One token each: the first time its own after the prompt, then the one that the target chose.
        assert_eq!(taken(), [3, 6]);
        let verdicts: Vec<_> = trees
            .iter()
            .map(|tree| verdict(first_chain(tree)[..1].to_vec(), TokenId(8)))
            .collect();
        drafter.observe(&views(&all), &verdicts);
        for (text, (tree, verdict)) in texts.iter_mut().zip(trees.iter().zip(&verdicts)) {
            text.emit(tree, verdict);
        }
        // The two full pages are one for all; each has its own third page, and the cache has one.
        assert_eq!(drafter.pages_used(), [2 + 3 + 1]);
    }
    for text in &texts {
        drafter.forget(text.id);
    }
    // The first goes on where the cache's third page ended, and takes its place; the others part from it.
    assert_eq!(drafter.pages_used(), [2 + 3]);
    assert_eq!(drafter.pages_cached(), 2 + 3);
}

/// The choices of one request: the second begins with the full pages of the first, which still goes on.
#[test]
fn a_running_sequence_shares_its_full_pages() {
    let model = stories260k();
    let (mut drafter, passes) = counted_drafter(&model);
    let taken = || std::mem::take(&mut *passes.lock().expect("no panic while it was held"));
    let prompt: Vec<TokenId> = (0..37).map(|i| TokenId(30 + 11 * i)).collect();
    let [first, second] = [0, 1].map(|id| Text::new(id, &prompt, 0.9, SAMPLED));
    grow(&mut drafter, &[&first], 2, 2, 4);
    assert_eq!((taken(), drafter.pages_used()), (vec![37, 2], vec![3]));
    let tree = grow(&mut drafter, &[&first, &second], 2, 2, 4).remove(1);
    assert_eq!(anatomy(&tree), anatomy(&fresh(&model, &second)));
    // Of the first the last token, whose logits are wanted again; of the second what is not in full pages. Then two nodes
    // of each.
    assert_eq!(taken(), [1 + 5, 4]);
    assert_eq!(drafter.pages_used(), [2 + 2]);
}

#[test]
fn several_sequences_are_caught_up_with_in_the_same_passes() {
    let model = stories260k();
    let (mut drafter, passes) = counted_drafter_with(&model, |options| options.max_rows = 32);
    let texts: Vec<Text> = [10, 30, 20]
        .iter()
        .zip(1..)
        .map(|(&length, id)| Text::greedy(id, &ids(&vec![50 + id as u32; length])))
        .collect();
    let all: Vec<&Text> = texts.iter().collect();
    grow(&mut drafter, &all, 1, 2, 1);
    let passes = passes.lock().expect("no panic while it was held");
    assert_eq!(*passes, [32, 28, 3], "60 tokens, then a node of each");
}

#[test]
fn a_sequence_without_pages_is_not_drafted_for_and_nothing_fails() {
    let model = stories260k();
    let mut drafter = drafter_with(&model, |options| options.pages = vec![4]);
    let mut first = Text::greedy(1, &ids(&[6; 30]));
    let second = Text::greedy(2, &ids(&[7; 40]));
    let never = Text::greedy(3, &ids(&[8; 65]));
    // Two pages of four are the first one's; the others need three and five.
    for _ in 0..2 {
        let trees = grow(&mut drafter, &[&first, &second, &never], 1, 2, 1);
        assert_eq!([0, 1, 2].map(|i| trees[i].len() - 1), [2, 0, 0]);
        assert_eq!(drafter.pages_used(), [2]);
        let verdicts = [0, 1, 2].map(|_| verdict(Vec::new(), TokenId(9)));
        drafter.observe(&views(&[&first, &second, &never]), &verdicts);
    }
    // An accepted run that finds no page is caught up with when there is one.
    let other = Text::greedy(4, &ids(&[5; 20]));
    grow(&mut drafter, &[&other], 1, 1, 1);
    assert_eq!(drafter.pages_used(), [4]);
    let tree = grow(&mut drafter, &[&first], 1, 4, 1).remove(0);
    let all = verdict(first_chain(&tree), TokenId(9));
    drafter.observe(&views(&[&first]), std::slice::from_ref(&all));
    first.emit(&tree, &all);
    assert_eq!(first.tokens.len(), 35);
    assert_eq!(grow(&mut drafter, &[&first], 1, 2, 1)[0].len(), 1);
    // Without a third page it has let go of two, and waits until another lets go of some.
    // The third is the other's full one.
    assert_eq!(drafter.pages_cached(), 3);
    let lookups = drafter.prefix_figures().lookups;
    assert_eq!(grow(&mut drafter, &[&first], 1, 2, 1)[0].len(), 1);
    assert_eq!(drafter.prefix_figures().lookups, lookups);
    drafter.forget(other.id);
    let tree = grow(&mut drafter, &[&first], 1, 2, 1).remove(0);
    let expected = grow(&mut common::drafter(&model), &[&first], 1, 2, 1).remove(0);
    assert_eq!(anatomy(&tree), anatomy(&expected));
    // The second one's turn: what the first leaves behind is evicted for it.
    drafter.forget(first.id);
    assert_eq!(grow(&mut drafter, &[&second], 1, 2, 1)[0].len(), 3);
    drafter.forget(second.id);
    drafter.forget(never.id);
    assert_eq!(drafter.pages_used(), [drafter.pages_cached()]);
}

/// Requests with common beginnings come, go on, fail and go, in a pool that is too small for them. Whoever is drafted for
/// gets what a drafter without a past gives.
#[test]
fn whatever_was_before_the_drafts_are_those_of_a_fresh_drafter() {
    let model = stories260k();
    let mut random = Random::new(8);
    let mut kept = drafter_with(&model, |options| options.pages = vec![9]);
    let mut texts: Vec<Text> = Vec::new();
    let (mut next_id, mut drafted, mut without) = (0, 0, 0);
    for turn in 0..150 {
        if texts.len() < 4 && random.below(3) == 0 {
            let mut prompt = story();
            prompt.extend((0..random.below(60)).map(|i| TokenId(40 + i as u32)));
            prompt.extend((0..random.below(4)).map(|_| TokenId(3 + random.below(500) as u32)));
            texts.push(Text::new(next_id, &prompt, 0.9, SAMPLED));
            next_id += 1;
        }
        let all: Vec<&Text> = texts.iter().collect();
        let trees = grow(&mut kept, &all, 2, 2, 4);
        let mut verdicts = Vec::new();
        for (text, tree) in texts.iter().zip(&trees) {
            if tree.len() == 1 {
                without += 1;
            } else {
                drafted += 1;
                let expected = fresh(&model, text);
                assert_eq!(anatomy(tree), anatomy(&expected), "turn {turn}");
            }
            let accepted = first_chain(tree);
            let accepted = accepted[..random.below(accepted.len() + 1)].to_vec();
            verdicts.push(verdict(accepted, TokenId(3 + random.below(500) as u32)));
        }
        // Sometimes the step fails after the draft: nobody observes.
        if random.below(10) > 0 {
            kept.observe(&views(&all), &verdicts);
        }
        for (text, (tree, verdict)) in texts.iter_mut().zip(trees.iter().zip(&verdicts)) {
            text.emit(tree, verdict);
        }
        texts.retain(|text| {
            let stays = random.below(8) > 0;
            if !stays {
                kept.forget(text.id);
            }
            stays
        });
    }
    for text in &texts {
        kept.forget(text.id);
    }
    assert_eq!(kept.pages_used(), [kept.pages_cached()]);
    let figures = kept.prefix_figures();
    assert!(
        figures.tokens_found > 500 && figures.evicted_pages > 20,
        "{figures:?}"
    );
    assert!(drafted > 100 && without > 10, "{drafted}, {without}");
}
