//! The `model` drafter: an independent small model with its own paged KV (Leviathan 2211.17192, Chen 2302.01318).
//!
//! A step, for all sequences at once:
//!
//! ```text
//! read     tokens of a text that the target is still reading --pass--> pages
//! begin    tokens that are not in the pages --pass--> pages; logits of the last token --> q of the root
//! extend   q of the level's nodes --draw_children--> the next level               (the first level needs no pass)
//! extend   the level's tokens, children of nodes in flight --pass--> q --draw_children--> the next level
//! observe  keys and values of the accepted path: scratch --> pages; the rest is forgotten
//! ```
//!
//! The nodes of the last level are drawn but never run: only an `extend` that goes on from them would need their
//! logits. If one of them is accepted, it is caught up with by the next `begin`, together with the token that the target
//! added: two rows in one pass, which cost about what one does.
//!
//! A sequence that the draft cannot follow (longer than its context, or with a token that it has no embedding for) gets
//! no children, and loses nothing else. So does one that finds no pages, because other sequences hold too many of them.
//!
//! Full pages of a sequence, and all pages of one that has ended, are kept for the next that begins with the same tokens,
//! until they are needed.

mod catch_up;
mod level;
mod pages;
mod sequence;
mod sizes;

use std::collections::HashMap;

use foredraft_common::TokenId;
use foredraft_model::{
    Batch, Commit, Executor, ExecutorOptions, ForwardError, Memory, PagePool, PrefixFigures, Slot,
};
use foredraft_speculate::{
    DistributionError, DraftDraw, DraftError, Drafter, KeptTokens, NodeBudget, NodeIndex,
    SamplingSettings, SequenceId, SequenceView, TokenTree, Transforms, Verdict,
};

use level::LevelRow;
use pages::Pages;
use sequence::Sequence;
pub use sizes::{DraftSizes, executor_options};

/// Tokens that are ranked at temperature 0; a node has no more children than that. They hold nearly all mass, so that
/// a child's confidence is its probability.
const RANKED_TOKENS: u32 = 64;

/// A model that drafts. See the module's text.
pub struct ModelDrafter {
    name: String,
    source: u8,
    executor: Box<dyn Executor>,
    options: ExecutorOptions,
    pages: Pages,
    sequences: HashMap<SequenceId, Sequence>,
    /// The nodes in flight of the step.
    batch: Batch,
    transforms: Transforms,
    /// Settings to rank with, where the request's say nothing of the second best.
    ranking: SamplingSettings,
    /// Scratch: what goes through the model in this level.
    rows: Vec<LevelRow>,
    /// Scratch: the next level of a tree.
    next: Vec<NodeIndex>,
    /// Scratch: nodes of a pass or of an accepted path, in order.
    slots: Vec<Slot>,
    /// Scratch: the tokens from a root (excluded) to a node.
    path: Vec<TokenId>,
}

impl ModelDrafter {
    /// A drafter over a loaded model; `options` are those that it was loaded with (see [`executor_options`]). Its nodes
    /// carry `source`.
    pub fn new(
        name: impl Into<String>,
        source: u8,
        executor: Box<dyn Executor>,
        options: ExecutorOptions,
    ) -> Self {
        Self {
            name: name.into(),
            source,
            executor,
            pages: Pages::new(&options.pages),
            options,
            sequences: HashMap::new(),
            batch: Batch::new(),
            transforms: Transforms::new(),
            ranking: SamplingSettings::greedy(),
            rows: Vec::new(),
            next: Vec::new(),
            slots: Vec::new(),
            path: Vec::new(),
        }
    }

    /// What the executor holds: weights, KV pools, scratch.
    pub fn memory(&self) -> Memory {
        self.executor.memory()
    }

    /// Bytes held in all, the distributions of the step included (but not the texts of the cached pages, a few percent of
    /// those).
    pub fn bytes(&self) -> u64 {
        let sequences: usize = self.sequences.values().map(Sequence::bytes).sum();
        self.memory().total_bytes() + sequences as u64
    }

    /// KV pages in use, in each layer group: by sequences, by the cache of past texts, or by both.
    pub fn pages_used(&self) -> Vec<usize> {
        self.pages.pools.iter().map(PagePool::used).collect()
    }

    /// KV pages that the cache of past texts holds, over all layer groups.
    pub fn pages_cached(&self) -> usize {
        self.pages.cache.pages()
    }

    /// What was looked up in the cache of past texts, and found.
    pub fn prefix_figures(&self) -> PrefixFigures {
        self.pages.cache.figures()
    }

    fn failed(&self, error: ForwardError) -> DraftError {
        DraftError::Failed {
            drafter: self.name.clone(),
            source: Box::new(error),
        }
    }

    /// Makes of a row of logits the distribution of a sequence's node at `place` of its level; the node's tokens from the
    /// root are in `self.path`. When no token is possible (the draft has none of the allowed ones), the node has no
    /// distribution, and will have no children.
    fn read_logits(
        &mut self,
        output: usize,
        view: &SequenceView<'_>,
        place: usize,
    ) -> Result<(), DraftError> {
        let Some(sequence) = self.sequences.get_mut(&view.id) else {
            return Ok(());
        };
        let settings = if view.draw == DraftDraw::Ranked && view.sampling.temperature == 0.0 {
            // The distribution at temperature 0 is one token. Its rivals and its confidence are those of temperature 1.
            self.ranking.clone_from(view.sampling);
            self.ranking.temperature = 1.0;
            self.ranking.top_k = RANKED_TOKENS;
            (self.ranking.top_p, self.ranking.min_p) = (1.0, 0.0);
            &self.ranking
        } else {
            view.sampling
        };
        let leaf = sequence.leaf_mut(place);
        let made = self.transforms.apply(
            self.executor.logits(output),
            settings,
            view.history.with_path(&self.path),
            view.allowed,
            &mut leaf.q,
        );
        leaf.is_known = made.is_ok();
        match made {
            Ok(()) | Err(DistributionError::NothingPossible) => Ok(()),
            Err(source) => Err(DraftError::Distribution {
                drafter: self.name.clone(),
                sequence: view.id,
                source,
            }),
        }
    }
}

impl Drafter for ModelDrafter {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self, sequences: &[SequenceView<'_>]) -> Result<(), DraftError> {
        self.catch_up(sequences, false)
    }

    fn begin(&mut self, sequences: &[SequenceView<'_>]) -> Result<(), DraftError> {
        self.catch_up(sequences, true)?;
        // What is in the pages now is the context of the trees.
        self.batch.clear();
        for view in sequences {
            let Some(sequence) = self.sequences.get_mut(&view.id) else {
                continue;
            };
            if sequence.follows(view.tokens) {
                let tables = sequence.pages.tables().iter().map(Vec::as_slice);
                let committed = sequence.pages.committed();
                sequence.index = Some(self.batch.add_sequence(committed, tables));
            }
        }
        Ok(())
    }

    /// Adds one level to each tree that has a budget. Under a sampled draw all nodes of a level get equally many
    /// children, as many as the budget allows for all of them; otherwise a budget too small for all takes the most
    /// probable, the path included.
    fn extend(
        &mut self,
        sequences: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        budgets: &[NodeBudget],
    ) -> Result<(), DraftError> {
        self.schedule(sequences, trees, budgets);
        self.run_level(sequences, trees)?;
        for ((view, tree), budget) in sequences.iter().zip(trees).zip(budgets) {
            if let Some(sequence) = self.sequences.get_mut(&view.id) {
                sequence.draw(view, tree, *budget, self.source);
            }
        }
        Ok(())
    }

    fn observe(&mut self, sequences: &[SequenceView<'_>], verdicts: &[Verdict]) {
        for (view, verdict) in sequences.iter().zip(verdicts) {
            let Some(sequence) = self.sequences.get_mut(&view.id) else {
                continue;
            };
            sequence.accept(verdict, &mut self.slots, &mut self.path);
            // Without pages nothing is lost: `begin` catches up, if it finds any.
            let executor = self.executor.as_mut();
            let accepted = self.slots.len();
            if self.pages.reserve(&mut sequence.pages, accepted, executor) {
                let committed = sequence.pages.committed();
                executor.commit(Commit {
                    slots: &self.slots,
                    committed,
                    tables: sequence.pages.tables(),
                });
                sequence.commit(&self.path);
                self.pages.show(sequence, committed);
            }
            sequence.end_step();
        }
    }

    fn forget(&mut self, sequence: SequenceId) {
        if let Some(mut sequence) = self.sequences.remove(&sequence) {
            self.pages.keep(&mut sequence);
        }
    }

    fn clear(&mut self) {
        let Pages { pools, cache, .. } = &mut self.pages;
        cache.clear(pools);
    }

    fn kept_tokens(&self) -> KeptTokens {
        let figures = self.prefix_figures();
        KeptTokens {
            asked: figures.tokens_asked,
            found: figures.tokens_found,
        }
    }
}
