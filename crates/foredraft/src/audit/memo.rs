//! A backend that computes the logits of a context once.
//!
//! A context's logits are the same bits whenever and with whatever beside them they are computed (`cpu/tests/bits.rs`), so
//! twenty thousand draws of a few tokens need far fewer passes than draws. The engine, its drafters and their
//! pages run over a [`MemoBackend`] as over any other; it follows which tokens are in which page, and runs the network for
//! contexts that are new, when somebody reads them.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foredraft::common::TokenId;
use foredraft::formats::Checkpoint;
use foredraft::model::kv::{PAGE_POSITIONS, PageId};
use foredraft::model::{
    Backend, Batch, Commit, Executor, ExecutorOptions, ForwardError, LoadError, LoadWatch, Memory,
    PageCopy, PartTime, Program, Slot, TapHandle, TapId,
};

/// Bytes of logits that a memo keeps; contexts beyond that are computed whenever they are read.
const KEPT_BYTES: usize = 192 << 20;
/// Tokens beyond the committed ones that a pass runs before it is worth committing more.
const LONGEST_TAIL: usize = 16;

/// Wraps a backend: executors that it loads remember.
pub(super) struct MemoBackend<'a> {
    inner: &'a dyn Backend,
    memos: Mutex<Vec<Memo>>,
}

impl<'a> MemoBackend<'a> {
    pub(super) fn new(inner: &'a dyn Backend) -> Self {
        let memos = Mutex::default();
        Self { inner, memos }
    }

    /// What has been loaded, in that order: the target first.
    pub(super) fn memos(&self) -> Vec<Memo> {
        let memos = self.memos.lock().unwrap_or_else(PoisonError::into_inner);
        memos.clone()
    }
}

impl Backend for MemoBackend<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn memory(
        &self,
        program: &Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
    ) -> Result<Memory, LoadError> {
        self.inner.memory(program, weights, options)
    }

    fn load(
        &self,
        program: Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
        watch: LoadWatch<'_>,
    ) -> Result<Box<dyn Executor>, LoadError> {
        let copy = program.clone();
        let inner = self.inner.load(program, weights, options, watch)?;
        let memory = inner.memory();
        let memo = Memo(Arc::new(Mutex::new(Network::new(inner, options))));
        let mut memos = self.memos.lock().unwrap_or_else(PoisonError::into_inner);
        memos.push(memo.clone());
        Ok(Box::new(MemoExecutor {
            memo,
            program: copy,
            memory,
            pages: vec![[TokenId(0); PAGE_POSITIONS]; options.pages.first().map_or(0, |&n| n)],
            in_flight: Vec::new(),
            outputs: Vec::new(),
        }))
    }
}

/// The logits of contexts of one model.
#[derive(Clone)]
pub(super) struct Memo(Arc<Mutex<Network>>);

impl Memo {
    /// The logits of the token after `context`, `[vocabulary]`.
    ///
    /// # Errors
    /// When the network cannot run it: it is longer than what was reserved.
    pub(super) fn logits(&self, context: &[TokenId]) -> Result<Arc<[f32]>, ForwardError> {
        let mut network = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        network.logits(context)
    }

    /// Contexts that the network was run for.
    #[cfg(test)]
    pub(super) fn computed(&self) -> usize {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .computed
    }
}

/// A network and what it has said.
struct Network {
    executor: Box<dyn Executor>,
    batch: Batch,
    /// Tokens a pass may have.
    max_rows: usize,
    /// The tokens in its pages, which are 0, 1, 2... of every layer group.
    committed: Vec<TokenId>,
    tables: Vec<Vec<PageId>>,
    known: HashMap<Vec<TokenId>, Arc<[f32]>>,
    kept_most: usize,
    computed: usize,
}

impl Network {
    fn new(executor: Box<dyn Executor>, options: &ExecutorOptions) -> Self {
        let table = |&pages: &usize| (0..pages as u32).map(PageId).collect();
        let row_bytes = executor.program().vocabulary * size_of::<f32>();
        Self {
            kept_most: KEPT_BYTES / row_bytes.max(1),
            executor,
            batch: Batch::new(),
            max_rows: options.max_rows,
            committed: Vec::new(),
            tables: options.pages.iter().map(table).collect(),
            known: HashMap::new(),
            computed: 0,
        }
    }

    fn logits(&mut self, context: &[TokenId]) -> Result<Arc<[f32]>, ForwardError> {
        if let Some(logits) = self.known.get(context) {
            return Ok(Arc::clone(logits));
        }
        let before = &context[..context.len().saturating_sub(1)];
        let both = self.committed.iter().zip(before);
        let shared = both.take_while(|(a, b)| a == b).count();
        self.committed.truncate(shared);
        while before.len() - self.committed.len() > LONGEST_TAIL {
            let end = before.len().min(self.committed.len() + self.max_rows);
            let slots = self.run(&before[self.committed.len()..end])?;
            self.executor.commit(Commit {
                slots: &slots,
                committed: self.committed.len(),
                tables: &self.tables,
            });
            self.committed
                .extend_from_slice(&before[self.committed.len()..end]);
        }
        self.run(&context[self.committed.len()..])?;
        self.computed += 1;
        let logits: Arc<[f32]> = self.executor.logits(0).into();
        if self.known.len() < self.kept_most {
            self.known.insert(context.to_vec(), Arc::clone(&logits));
        }
        Ok(logits)
    }

    /// Runs tokens that follow the committed ones; the logits of the last are output 0.
    fn run(&mut self, tokens: &[TokenId]) -> Result<Vec<Slot>, ForwardError> {
        self.batch.clear();
        let tables = self.tables.iter().map(Vec::as_slice);
        let sequence = self.batch.add_sequence(self.committed.len(), tables);
        let mut slots: Vec<Slot> = Vec::new();
        for (i, &token) in tokens.iter().enumerate() {
            let parent = slots.last().copied();
            let wants_logits = i + 1 == tokens.len();
            slots.push(self.batch.push(sequence, token, parent, wants_logits));
        }
        self.executor.forward(&self.batch)?;
        Ok(slots)
    }
}

/// An output of a pass: the context that it stands for, and its logits once they were read.
struct Output {
    context: Vec<TokenId>,
    logits: OnceCell<Arc<[f32]>>,
}

/// Knows of its pages and nodes in flight only which tokens they stand for.
struct MemoExecutor {
    memo: Memo,
    program: Program,
    memory: Memory,
    /// Of each page of the first layer group the tokens; all groups hold the same.
    pages: Vec<[TokenId; PAGE_POSITIONS]>,
    /// Of each slot its token.
    in_flight: Vec<TokenId>,
    outputs: Vec<Output>,
}

impl Executor for MemoExecutor {
    fn program(&self) -> &Program {
        &self.program
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        self.in_flight.resize(batch.slots(), TokenId(0));
        for row in batch.rows() {
            self.in_flight[row.slot.index()] = row.token;
        }
        self.outputs.clear();
        for &output in batch.outputs() {
            let row = &batch.rows()[output as usize];
            let table = batch.pages(row.sequence, 0);
            let mut context: Vec<TokenId> = Vec::with_capacity(row.position.index() + 1);
            let in_page = |position: usize| {
                self.pages[table[position / PAGE_POSITIONS].index()][position % PAGE_POSITIONS]
            };
            context.extend((0..batch.committed(row.sequence)).map(in_page));
            let path = batch.path(row).iter();
            context.extend(path.map(|slot| self.in_flight[slot.index()]));
            let logits = OnceCell::new();
            self.outputs.push(Output { context, logits });
        }
        Ok(())
    }

    /// A context that cannot be computed has NaN for logits, which the engine refuses.
    fn logits(&self, index: usize) -> &[f32] {
        let output = &self.outputs[index];
        output.logits.get_or_init(|| {
            let computed = self.memo.logits(&output.context);
            computed.unwrap_or_else(|_| vec![f32::NAN; self.program.vocabulary].into())
        })
    }

    fn commit(&mut self, commit: Commit<'_>) {
        let table = commit.tables.first().map_or(&[][..], Vec::as_slice);
        for (position, slot) in (commit.committed..).zip(commit.slots) {
            let page = &mut self.pages[table[position / PAGE_POSITIONS].index()];
            page[position % PAGE_POSITIONS] = self.in_flight[slot.index()];
        }
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) {
        for copy in copies.iter().filter(|copy| copy.group == 0) {
            self.pages[copy.to.index()] = self.pages[copy.from.index()];
        }
    }

    fn tap(&self, tap: TapId) -> TapHandle {
        TapHandle { tap, pass: 0 }
    }

    fn read_tap(&self, _: TapHandle, _: usize) -> Option<&[f32]> {
        None
    }

    fn time_parts(&mut self, _: bool) {}

    fn part_times(&self) -> &[PartTime] {
        &[]
    }

    fn memory(&self) -> Memory {
        self.memory
    }
}
