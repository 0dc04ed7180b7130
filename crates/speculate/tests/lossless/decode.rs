//! Generation step by step, through the product's draws and keyed noise.

use std::rc::Rc;

use foredraft_common::{Position, TokenId};
use foredraft_speculate::{
    Chance, Distribution, DistributionError, DraftDraw, KeyedChance, NodeIndex, NoiseKey, Target,
    TokenTree, Verdict, Verifier, draw_children,
};

use crate::model::{Model, Pair, Plan};

/// A node about to get its children.
pub(crate) struct Parent<'a> {
    pub(crate) tree: &'a mut TokenTree,
    pub(crate) node: NodeIndex,
    pub(crate) depth: u32,
    /// All tokens before the children.
    pub(crate) context: &'a [TokenId],
    /// The key of the token after the root.
    pub(crate) root: NoiseKey,
}

/// Adds the children of a node.
pub(crate) type Draft<'a> = &'a dyn Fn(&Model, Parent<'_>);

/// Drafts what a plan says, drawn as `draw` says.
pub(crate) fn by_plan(plan: Plan, draw: DraftDraw) -> impl Fn(&Model, Parent<'_>) {
    move |model, parent| {
        let Parent {
            tree,
            node,
            depth,
            context,
            root,
        } = parent;
        let (deterministic, drawn) = plan.widths(model, context, depth);
        plan.push_deterministic(model, tree, node, context, deterministic);
        draw_children(tree, node, &model.pair(context).q, draw, drawn, root, 1);
    }
}

/// p after the emitted tokens and a node's path.
struct Rows<'a> {
    model: &'a Model,
    emitted: &'a [TokenId],
    pair: Option<Rc<Pair>>,
}

impl Target for Rows<'_> {
    fn distribution(
        &mut self,
        tree: &TokenTree,
        node: NodeIndex,
    ) -> Result<&Distribution, DistributionError> {
        let context = context_of(self.emitted, tree, node);
        Ok(&self.pair.insert(self.model.pair(&context)).p)
    }
}

fn context_of(emitted: &[TokenId], tree: &TokenTree, node: NodeIndex) -> Vec<TokenId> {
    let mut path = Vec::new();
    tree.path(node, &mut path);
    [emitted, &path].concat()
}

/// What generates.
pub(crate) struct Decoder<'a> {
    pub(crate) model: &'a Model,
    /// Levels drafted in a step.
    pub(crate) depth: u32,
    pub(crate) draft: Draft<'a>,
    pub(crate) verifier: Box<dyn Verifier + 'a>,
    pub(crate) chance: fn(NoiseKey) -> Box<dyn Chance>,
}

pub(crate) fn keyed(root: NoiseKey) -> Box<dyn Chance> {
    Box::new(KeyedChance(root))
}

/// The key of the token after `emitted` tokens.
pub(crate) fn key(seed: u64, emitted: usize) -> NoiseKey {
    NoiseKey {
        seed,
        choice: 0,
        position: Position(100 + emitted as u32),
    }
}

impl Decoder<'_> {
    /// The first tokens that a seed gives.
    pub(crate) fn generate(&mut self, seed: u64, count: usize) -> Vec<TokenId> {
        let mut emitted = Vec::new();
        while emitted.len() < count {
            let (tree, verdict) = self.step(seed, &emitted);
            emitted = context_of(&emitted, &tree, verdict.last());
            emitted.push(verdict.next);
        }
        emitted.truncate(count);
        emitted
    }

    /// One step after what has been emitted.
    pub(crate) fn step(&mut self, seed: u64, emitted: &[TokenId]) -> (TokenTree, Verdict) {
        let root = key(seed, emitted.len());
        let mut tree = TokenTree::new(TokenId(0));
        for depth in 0..self.depth {
            for node in tree.at_depth(depth).collect::<Vec<_>>() {
                let context = context_of(emitted, &tree, node);
                let parent = Parent {
                    tree: &mut tree,
                    node,
                    depth,
                    context: &context,
                    root,
                };
                (self.draft)(self.model, parent);
            }
        }
        let mut verdict = Verdict::new();
        let mut target = Rows {
            model: self.model,
            emitted,
            pair: None,
        };
        let mut chance = (self.chance)(root);
        self.verifier
            .verify(&tree, &mut target, chance.as_mut(), &mut verdict)
            .expect("a verdict");
        (tree, verdict)
    }
}
