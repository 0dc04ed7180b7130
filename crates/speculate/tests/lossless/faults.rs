//! Faults planted on purpose: each is found at p < 1e-9, with the harness in which the product passes.

use foredraft_common::TokenId;
use foredraft_speculate::{
    Block, Chance, Distribution, DraftDraw, Draw, KeyedChance, NodeIndex, NoiseKey, Rejection,
    Replacement, TokenTree, Verifier, draw_children, sample,
};

use crate::decode::{Decoder, Draft, Parent, by_plan, keyed};
use crate::draws::p_value;
use crate::model::{Model, Plan, Shape, distribution};
use crate::reference::{Fault, Reference};

/// Generations whose frequencies are tested.
const GENERATIONS: u64 = 20_000;
const FOUND: f64 = 1e-9;

struct Harness {
    model: Model,
    depth: u32,
    chance: fn(NoiseKey) -> Box<dyn Chance>,
    generations: u64,
}

impl Harness {
    fn new(depth: u32) -> Self {
        Self {
            model: Model::new(4, 4, Some(Shape::Smooth)),
            depth,
            chance: keyed,
            generations: GENERATIONS,
        }
    }

    fn p_value(&self, draft: Draft<'_>, verifier: impl Verifier + 'static) -> f64 {
        let mut decoder = Decoder {
            model: &self.model,
            depth: self.depth,
            draft,
            verifier: Box::new(verifier),
            chance: self.chance,
        };
        p_value(&mut decoder, 0..self.generations)
    }
}

/// The fault is found, and its absence is not.
#[track_caller]
fn assert_found(fault: f64, sound: f64) {
    println!("with the fault p = {fault:.3e}, without {sound:.3e}");
    assert!(fault < FOUND, "went unnoticed: p = {fault:e}");
    assert!(
        sound > 1e-4,
        "the harness rejects what is sound: p = {sound:e}"
    );
}

fn sampled(depth: u32, width: usize, replacement: Replacement) -> impl Fn(&Model, Parent<'_>) {
    let plan = Plan::sampled(depth, width, replacement);
    by_plan(plan, DraftDraw::Sampled(replacement))
}

const WITH: Replacement = Replacement::With;
const WITHOUT: Replacement = Replacement::Without;

/// Draws one child from `drawn` (as the product draws) but records `recorded`.
fn draw_and_record(parent: Parent<'_>, drawn: &Distribution, recorded: &Distribution) {
    let mut aside = parent.tree.clone();
    draw_children(
        &mut aside,
        parent.node,
        drawn,
        DraftDraw::Sampled(WITH),
        1,
        parent.root,
        0,
    );
    let token = aside
        .children(parent.node)
        .map(|child| aside.token(child))
        .next();
    parent.tree.record(parent.node, recorded, WITH);
    parent
        .tree
        .push_sampled(parent.node, token.expect("a child"), 0);
}

#[test]
fn q_of_the_wrong_row() {
    let harness = Harness::new(2);
    let wrong = |model: &Model, parent: Parent<'_>| {
        // An off-by-one: the row of the node before.
        let before = &parent.context[..parent.context.len().saturating_sub(1)];
        let (drawn, recorded) = (model.pair(parent.context), model.pair(before));
        draw_and_record(parent, &drawn.q, &recorded.q);
    };
    assert_found(
        harness.p_value(&wrong, Rejection::new()),
        harness.p_value(&sampled(2, 1, WITH), Rejection::new()),
    );
}

#[test]
fn q_before_the_transforms() {
    let harness = Harness::new(2);
    // Drawn at temperature 0.7, compared as if at 1.
    let cold = |q: &Distribution| {
        distribution((0..4).map(|id| f64::from(q.probability(TokenId(id))).powf(1.0 / 0.7)))
    };
    let wrong = |model: &Model, parent: Parent<'_>| {
        let pair = model.pair(parent.context);
        draw_and_record(parent, &cold(&pair.q), &pair.q);
    };
    let sound = |model: &Model, parent: Parent<'_>| {
        let q = cold(&model.pair(parent.context).q);
        draw_and_record(parent, &q, &q);
    };
    assert_found(
        harness.p_value(&wrong, Rejection::new()),
        harness.p_value(&sound, Rejection::new()),
    );
}

#[test]
fn residual_not_clamped() {
    let harness = Harness::new(1);
    let draft = sampled(1, 1, WITH);
    assert_found(
        harness.p_value(&draft, Reference::new(Fault::ResidualNotClamped)),
        harness.p_value(&draft, Reference::new(Fault::None)),
    );
}

#[test]
fn no_renormalisation() {
    for replacement in [WITH, WITHOUT] {
        let harness = Harness::new(1);
        let draft = sampled(1, 3, replacement);
        assert_found(
            harness.p_value(&draft, Reference::new(Fault::NoRenormalisation)),
            harness.p_value(&draft, Reference::new(Fault::None)),
        );
    }
}

#[test]
fn bonus_from_the_wrong_row() {
    let harness = Harness::new(1);
    let draft = sampled(1, 1, WITH);
    assert_found(
        harness.p_value(&draft, Reference::new(Fault::BonusOfWrongRow)),
        harness.p_value(&draft, Reference::new(Fault::None)),
    );
}

/// Draws everything with the noise of the emitted token.
struct SharedNoise(KeyedChance);

impl Chance for SharedNoise {
    fn accept(&mut self, depth: u32, attempt: u32, p: f64, q: f64) -> bool {
        self.0.accept(depth, attempt, p, q)
    }

    fn draw(&mut self, depth: u32, _: Draw, from: &Distribution) -> TokenId {
        self.0.draw(depth, Draw::Token, from)
    }
}

/// The draft is drawn with the target's noise, and then judged by p / q as if it were independent of the residual's.
#[test]
fn shared_noise_under_the_ratio_test() {
    let mut harness = Harness::new(1);
    let shared = |model: &Model, parent: Parent<'_>| {
        let q = &model.pair(parent.context).q;
        let token = sample(q, &parent.root.later(parent.depth));
        parent.tree.record(parent.node, q, WITH);
        parent.tree.push_sampled(parent.node, token, 0);
    };
    // The residual's own noise makes the same drafts sound.
    let sound = harness.p_value(&shared, Rejection::new());
    harness.chance = |root| Box::new(SharedNoise(KeyedChance(root)));
    assert_found(harness.p_value(&shared, Rejection::new()), sound);
}

#[test]
fn a_sampled_draft_dropped_for_low_confidence() {
    let harness = Harness::new(2);
    let wrong = |model: &Model, parent: Parent<'_>| {
        let pair = model.pair(parent.context);
        let mut aside = parent.tree.clone();
        draw_children(
            &mut aside,
            parent.node,
            &pair.q,
            DraftDraw::Sampled(WITH),
            1,
            parent.root,
            0,
        );
        let child = aside.children(parent.node).next().expect("a child");
        if aside.node(child).confidence > 0.3 {
            *parent.tree = aside;
        }
    };
    // Not drafting where q is flat is no fault: that is known before the draw.
    let sound = |model: &Model, parent: Parent<'_>| {
        let pair = model.pair(parent.context);
        let width = usize::from(pair.q.max_probability() > 0.5);
        draw_children(
            parent.tree,
            parent.node,
            &pair.q,
            DraftDraw::Sampled(WITH),
            width,
            parent.root,
            0,
        );
    };
    assert_found(
        harness.p_value(&wrong, Rejection::new()),
        harness.p_value(&sound, Rejection::new()),
    );
}

#[test]
fn duplicate_children_merged_after_the_draw() {
    let harness = Harness::new(1);
    let merged = |model: &Model, parent: Parent<'_>| {
        let mut aside = parent.tree.clone();
        let q = &model.pair(parent.context).q;
        draw_children(
            &mut aside,
            parent.node,
            q,
            DraftDraw::Sampled(WITH),
            3,
            parent.root,
            0,
        );
        parent.tree.record(parent.node, q, WITH);
        for child in aside.children(parent.node) {
            if parent
                .tree
                .child_of(parent.node, aside.token(child))
                .is_none()
            {
                parent.tree.push_sampled(parent.node, aside.token(child), 0);
            }
        }
    };
    assert_found(
        harness.p_value(&merged, Rejection::new()),
        harness.p_value(&sampled(1, 3, WITH), Rejection::new()),
    );
}

/// Noise keyed by the position alone: a later step that drafts a position again meets the numbers that an earlier
/// one has looked at. Rejection stops at the first it refuses, block verification has looked beyond.
#[test]
fn noise_of_a_position_used_again_by_the_next_step_under_block() {
    let mut harness = Harness::new(3);
    // The bias is small.
    harness.generations *= 3;
    let by_position = |model: &Model, parent: Parent<'_>| {
        // The product's draw as of a root at this very position.
        let mut aside = TokenTree::new(TokenId(0));
        let q = &model.pair(parent.context).q;
        let here = parent.root.later(parent.depth);
        draw_children(
            &mut aside,
            NodeIndex::ROOT,
            q,
            DraftDraw::Sampled(WITH),
            1,
            here,
            0,
        );
        let token = aside.token(NodeIndex(1));
        parent.tree.record(parent.node, q, WITH);
        parent.tree.push_sampled(parent.node, token, 0);
    };
    harness.chance = |root| Box::new(ByPosition(root));
    assert_found(
        harness.p_value(&by_position, Block::new()),
        harness.p_value(&by_position, Rejection::new()),
    );
    harness.chance = keyed;
    assert!(harness.p_value(&sampled(3, 1, WITH), Block::new()) > 1e-4);
}

/// Decisions that know their position, not how far ahead of the root it is.
struct ByPosition(NoiseKey);

impl Chance for ByPosition {
    fn accept(&mut self, depth: u32, attempt: u32, p: f64, q: f64) -> bool {
        KeyedChance(self.0.later(depth)).accept(0, attempt, p, q)
    }

    fn draw(&mut self, depth: u32, kind: Draw, from: &Distribution) -> TokenId {
        KeyedChance(self.0.later(depth)).draw(0, kind, from)
    }
}
