//! What the tests share: a drafter over a model, texts with their views, trees grown and verdicts made up, and the
//! model itself in the plainest way, to compare with.
#![allow(dead_code)] // each test file uses its part

use std::sync::{Arc, Mutex};

use foredraft_common::{Position, TokenId};
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_drafters::{DraftSizes, ModelDrafter, executor_options};
use foredraft_formats::Checkpoint;
use foredraft_model::kv::KvType;
use foredraft_model::{
    Backend, Batch, Commit, Executor, ExecutorOptions, ForwardError, Memory, PageCopy, Program,
    ProgramOptions, TapHandle, TapId, program_for, unwatched,
};
use foredraft_speculate::{
    AllowedTokens, Distribution, DraftDraw, Drafter, History, NodeBudget, NodeIndex, NoiseKey,
    Origin, SamplingSettings, SequenceId, SequenceView, TokenTree, Transforms, Verdict,
};

pub(crate) const SIZES: DraftSizes = DraftSizes {
    context_tokens: 256,
    sequences: 2,
    draft_max: 16,
    kv_type: KvType::F16,
};

pub(crate) fn ids(values: &[u32]) -> Vec<TokenId> {
    values.iter().copied().map(TokenId).collect()
}

/// `Once upon a time` and a little more, as stories260K's ids.
pub(crate) fn story() -> Vec<TokenId> {
    ids(&[1, 403, 407, 261, 378, 432, 383, 286])
}

fn load(
    model: &Checkpoint,
    options: impl FnOnce(ExecutorOptions) -> ExecutorOptions,
) -> (Box<dyn Executor>, ExecutorOptions) {
    let backend = CpuBackend::new(1, CpuPath::detect()).expect("a backend");
    let program = program_for(model, &ProgramOptions::default()).expect("a program");
    let options = options(executor_options(&program, &SIZES));
    let executor = backend
        .load(program, model, &options, &mut unwatched)
        .expect("an executor");
    (executor, options)
}

/// A drafter over a model, with options of one's own.
pub(crate) fn drafter_with(
    model: &Checkpoint,
    change: impl FnOnce(&mut ExecutorOptions),
) -> ModelDrafter {
    let (executor, options) = load(model, |mut options| {
        change(&mut options);
        options
    });
    ModelDrafter::new("model:test", 3, executor, options)
}

/// A drafter that notes the rows of each of its passes.
pub(crate) fn counted_drafter(model: &Checkpoint) -> (ModelDrafter, Arc<Mutex<Vec<usize>>>) {
    counted_drafter_with(model, |_| {})
}

/// The same, with options of one's own.
pub(crate) fn counted_drafter_with(
    model: &Checkpoint,
    change: impl FnOnce(&mut ExecutorOptions),
) -> (ModelDrafter, Arc<Mutex<Vec<usize>>>) {
    let (inner, options) = load(model, |mut options| {
        change(&mut options);
        options
    });
    let passes = Arc::default();
    let counted = Counted {
        inner,
        passes: Arc::clone(&passes),
    };
    let drafter = ModelDrafter::new("model:counted", 3, Box::new(counted), options);
    (drafter, passes)
}

struct Counted {
    inner: Box<dyn Executor>,
    passes: Arc<Mutex<Vec<usize>>>,
}

impl Executor for Counted {
    fn program(&self) -> &Program {
        self.inner.program()
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        let mut passes = self.passes.lock().expect("no panic while it was held");
        passes.push(batch.rows().len());
        self.inner.forward(batch)
    }

    fn logits(&self, index: usize) -> &[f32] {
        self.inner.logits(index)
    }

    fn commit(&mut self, commit: Commit<'_>) {
        self.inner.commit(commit);
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) {
        self.inner.copy_pages(copies);
    }

    fn tap(&self, tap: TapId) -> TapHandle {
        self.inner.tap(tap)
    }

    fn read_tap(&self, handle: TapHandle, row: usize) -> Option<&[f32]> {
        self.inner.read_tap(handle, row)
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }
}

pub(crate) fn drafter(model: &Checkpoint) -> ModelDrafter {
    drafter_with(model, |_| {})
}

/// The model in one pass over the whole text, with nothing kept.
pub(crate) struct Plain(Box<dyn Executor>);

impl Plain {
    pub(crate) fn new(model: &Checkpoint) -> Self {
        Self(load(model, |options| options).0)
    }

    /// The logits of the token after `text`, which has at most 256 tokens.
    pub(crate) fn logits(&mut self, text: &[TokenId]) -> Vec<f32> {
        let mut batch = Batch::new();
        let tables = vec![&[][..]; self.0.program().kv_groups.len()];
        let index = batch.add_sequence(0, tables);
        let mut parent = None;
        for (i, &token) in text.iter().enumerate() {
            parent = Some(batch.push(index, token, parent, i + 1 == text.len()));
        }
        self.0.forward(&batch).expect("a pass");
        self.0.logits(0).to_vec()
    }

    /// The most probable next token.
    pub(crate) fn greedy(&mut self, text: &[TokenId]) -> TokenId {
        ranked(&self.logits(text))[0]
    }
}

/// Tokens by logit, the largest first, the lowest id among equals.
pub(crate) fn ranked(logits: &[f32]) -> Vec<TokenId> {
    let mut tokens: Vec<TokenId> = (0..logits.len() as u32).map(TokenId).collect();
    tokens.sort_by(|a, b| logits[b.index()].total_cmp(&logits[a.index()]));
    tokens
}

/// A sequence as the engine would hold it.
#[derive(Clone)]
pub(crate) struct Text {
    pub(crate) id: SequenceId,
    pub(crate) tokens: Vec<TokenId>,
    pub(crate) history: History,
    pub(crate) sampling: SamplingSettings,
    pub(crate) allowed: AllowedTokens,
    pub(crate) draw: DraftDraw,
}

impl Text {
    pub(crate) fn new(id: u64, prompt: &[TokenId], temperature: f32, draw: DraftDraw) -> Self {
        Self {
            id: SequenceId(id),
            tokens: prompt.to_vec(),
            history: History::new(prompt),
            sampling: SamplingSettings {
                temperature,
                ..SamplingSettings::unchanged()
            },
            allowed: AllowedTokens::all(512),
            draw,
        }
    }

    pub(crate) fn greedy(id: u64, prompt: &[TokenId]) -> Self {
        Self::new(id, prompt, 0.0, DraftDraw::Ranked)
    }

    pub(crate) fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.history.push(token);
    }

    /// Emits what a verdict says.
    pub(crate) fn emit(&mut self, tree: &TokenTree, verdict: &Verdict) {
        for &node in &verdict.accepted {
            self.push(tree.token(node));
        }
        self.push(verdict.next);
    }

    pub(crate) fn view(&self) -> SequenceView<'_> {
        SequenceView {
            id: self.id,
            tokens: &self.tokens,
            history: &self.history,
            sampling: &self.sampling,
            allowed: &self.allowed,
            key: NoiseKey {
                seed: 11,
                choice: 0,
                position: Position(self.tokens.len() as u32),
            },
            draw: self.draw,
        }
    }

    /// The distribution that the plain model gives after the path to `node`.
    pub(crate) fn distribution(
        &self,
        plain: &mut Plain,
        tree: &TokenTree,
        node: NodeIndex,
    ) -> Distribution {
        let mut path = Vec::new();
        tree.path(node, &mut path);
        let text = [&self.tokens[..], &path].concat();
        let mut q = Distribution::one_hot(TokenId(0));
        Transforms::new()
            .apply(
                &plain.logits(&text),
                &self.sampling,
                self.history.with_path(&path),
                &self.allowed,
                &mut q,
            )
            .expect("a distribution");
        q
    }
}

pub(crate) fn views<'a>(texts: &'a [&Text]) -> Vec<SequenceView<'a>> {
    texts.iter().map(|text| text.view()).collect()
}

/// A step up to the drafted trees: a level for each budget, the same for all trees.
pub(crate) fn grow_within(
    drafter: &mut ModelDrafter,
    texts: &[&Text],
    budgets: &[NodeBudget],
) -> Vec<TokenTree> {
    let views = views(texts);
    let root = |text: &&Text| text.tokens.last().copied().unwrap_or(TokenId(0));
    let mut trees: Vec<TokenTree> = texts.iter().map(root).map(TokenTree::new).collect();
    drafter.begin(&views).expect("it begins");
    for &budget in budgets {
        let before: Vec<usize> = trees.iter().map(TokenTree::len).collect();
        drafter
            .extend(&views, &mut trees, &vec![budget; texts.len()])
            .expect("a level");
        for (tree, before) in trees.iter().zip(before) {
            assert!(tree.len() - before <= budget.nodes, "beyond the budget");
        }
    }
    trees
}

/// A step up to the drafted trees: `levels` levels of `width` children, `nodes` at most in each level.
pub(crate) fn grow(
    drafter: &mut ModelDrafter,
    texts: &[&Text],
    width: usize,
    levels: usize,
    nodes: usize,
) -> Vec<TokenTree> {
    grow_within(drafter, texts, &vec![NodeBudget { nodes, width }; levels])
}

/// The tokens down the first children.
pub(crate) fn first_chain(tree: &TokenTree) -> Vec<NodeIndex> {
    let first = |&node: &NodeIndex| tree.children(node).next();
    std::iter::successors(Some(NodeIndex::ROOT), first)
        .skip(1)
        .collect()
}

pub(crate) fn verdict(accepted: Vec<NodeIndex>, next: TokenId) -> Verdict {
    Verdict {
        accepted,
        next,
        origin: Origin::Bonus,
    }
}

/// All that can be told of a tree, floats as bits.
pub(crate) type Anatomy = Vec<(u32, TokenId, u32, Option<Vec<(TokenId, u32)>>)>;

pub(crate) fn anatomy(tree: &TokenTree) -> Anatomy {
    let bits = |q: &Distribution| q.iter().map(|(token, p)| (token, p.to_bits())).collect();
    let of = |node: NodeIndex| {
        let known = tree.node(node);
        let q = tree.sampled(node).map(|(q, _)| bits(q));
        (known.parent.0, known.token, known.confidence.to_bits(), q)
    };
    tree.nodes().map(of).collect()
}
