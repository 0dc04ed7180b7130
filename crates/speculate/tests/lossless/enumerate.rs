//! Every outcome of a step with its probability, lazily along the walk.
//!
//! A script holds one option for each random decision. A run follows it, takes the first option wherever it goes on
//! beyond the script, and the next run changes the last decision that has an option left. Children of a node are
//! drawn when the verifier first asks for the node: until then its target refuses, the node gets its children, and
//! verification starts afresh with the same decisions. So branches that nobody visits are never drawn.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use foredraft_common::TokenId;
use foredraft_speculate::{
    Chance, Distribution, DistributionError, Draw, NodeIndex, Origin, Replacement, Target,
    TokenTree, Verdict, Verifier,
};

use crate::model::{Model, Pair, Plan, share};

const ROOT: TokenId = TokenId(0);

#[derive(Default)]
struct Script {
    /// For each decision the options that are possible with their probabilities, and the one taken.
    decisions: Vec<(Vec<(usize, f64)>, usize)>,
    next: usize,
    weight: f64,
}

impl Script {
    /// Decides between options by their probabilities.
    fn choose(&mut self, probabilities: impl Iterator<Item = f64>) -> usize {
        if self.next == self.decisions.len() {
            let possible = probabilities.enumerate().filter(|&(_, p)| p > 0.0);
            self.decisions.push((possible.collect(), 0));
        }
        let (options, taken) = &self.decisions[self.next];
        self.next += 1;
        let (option, probability) = options[*taken];
        self.weight *= probability;
        option
    }

    /// Starts a run.
    fn start(&mut self) {
        self.next = 0;
        self.weight = 1.0;
    }

    /// Goes on to the next script; false when all have been.
    fn advance(&mut self) -> bool {
        while let Some((options, taken)) = self.decisions.last_mut() {
            *taken += 1;
            if *taken < options.len() {
                return true;
            }
            self.decisions.pop();
        }
        false
    }
}

/// Decides by the script; what has been decided in this run stays.
struct Scripted<'a> {
    script: &'a mut Script,
    decided: &'a mut HashMap<(Option<Draw>, u32, u32), usize>,
}

impl Chance for Scripted<'_> {
    fn accept(&mut self, depth: u32, attempt: u32, p: f64, q: f64) -> bool {
        let chance = if p >= q { 1.0 } else { p / q };
        let options = [1.0 - chance, chance];
        let Self { script, decided } = self;
        let decision = decided.entry((None, depth, attempt));
        *decision.or_insert_with(|| script.choose(options.into_iter())) == 1
    }

    fn draw(&mut self, depth: u32, kind: Draw, from: &Distribution) -> TokenId {
        let Self { script, decided } = self;
        let shares = from.support().iter().map(|&token| share(from, token));
        let decision = decided.entry((Some(kind), depth, 0));
        from.support()[*decision.or_insert_with(|| script.choose(shares))]
    }
}

/// p of nodes that have their children; of any other it notes that it was asked.
struct Lazy<'a> {
    model: &'a Model,
    grown: &'a [NodeIndex],
    asked: Option<NodeIndex>,
    pair: Option<Rc<Pair>>,
}

impl Target for Lazy<'_> {
    fn distribution(
        &mut self,
        tree: &TokenTree,
        node: NodeIndex,
    ) -> Result<&Distribution, DistributionError> {
        if !self.grown.contains(&node) {
            self.asked = Some(node);
            return Err(DistributionError::NothingPossible);
        }
        Ok(&self.pair.insert(self.model.pair(&path_of(tree, node))).p)
    }
}

fn path_of(tree: &TokenTree, node: NodeIndex) -> Vec<TokenId> {
    let mut path = Vec::new();
    tree.path(node, &mut path);
    path
}

/// Decides between options by their probabilities.
pub(crate) type Choose<'a> = &'a mut dyn FnMut(&[f64]) -> usize;

/// Adds the children of a node after a path, the sampled ones as chosen.
pub(crate) type Grow<'a> = Box<dyn Fn(&mut TokenTree, NodeIndex, &[TokenId], Choose<'_>) + 'a>;

/// The law of a step: what was emitted, and where its last token came from.
pub(crate) type Law = BTreeMap<(Vec<TokenId>, bool), f64>;

/// The law of what `verifier` emits in one step over trees that `grow` grows. The key's flag says whether the
/// last token is a correction.
pub(crate) fn law(model: &Model, grow: &Grow<'_>, verifier: &mut dyn Verifier) -> Law {
    let mut law = Law::new();
    let mut script = Script::default();
    let mut tree = TokenTree::new(ROOT);
    loop {
        script.start();
        tree.reset(ROOT);
        let verdict = run(model, grow, verifier, &mut tree, &mut script);
        let mut emitted = path_of(&tree, verdict.last());
        emitted.push(verdict.next);
        *law.entry((emitted, verdict.origin == Origin::Corrected))
            .or_default() += script.weight;
        if !script.advance() {
            return law;
        }
    }
}

fn run(
    model: &Model,
    grow: &Grow<'_>,
    verifier: &mut dyn Verifier,
    tree: &mut TokenTree,
    script: &mut Script,
) -> Verdict {
    let mut verdict = Verdict::new();
    let mut decided = HashMap::new();
    let mut grown = Vec::new();
    loop {
        let mut target = Lazy {
            model,
            grown: &grown,
            asked: None,
            pair: None,
        };
        let mut chance = Scripted {
            script,
            decided: &mut decided,
        };
        if verifier
            .verify(tree, &mut target, &mut chance, &mut verdict)
            .is_ok()
        {
            return verdict;
        }
        let node = target.asked.expect("only the lazy target refuses");
        let path = path_of(tree, node);
        grow(tree, node, &path, &mut |options| {
            script.choose(options.iter().copied())
        });
        grown.push(node);
    }
}

/// Grows what a plan says.
pub(crate) fn by_plan(model: &Model, plan: Plan) -> Grow<'_> {
    Box::new(move |tree, node, path, choose| {
        let (deterministic, sampled) = plan.widths(model, path, path.len() as u32);
        plan.push_deterministic(model, tree, node, path, deterministic);
        if sampled > 0 {
            let q = &model.pair(path).q;
            draw_sampled(tree, node, q, plan.replacement, sampled, choose);
        }
    })
}

/// Draws children from q as the definition of a draw with or without replacement says.
pub(crate) fn draw_sampled(
    tree: &mut TokenTree,
    node: NodeIndex,
    q: &Distribution,
    replacement: Replacement,
    count: usize,
    choose: Choose<'_>,
) {
    let Some(q) = tree.record(node, q, replacement).cloned() else {
        return;
    };
    let mut weights: Vec<f64> = q.probabilities().iter().map(|&q| f64::from(q)).collect();
    for _ in 0..count.min(q.support().len()) {
        let sum: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        let drawn = choose(&shares);
        tree.push_sampled(node, q.support()[drawn], 1);
        if replacement == Replacement::Without {
            weights[drawn] = 0.0;
        }
    }
}
