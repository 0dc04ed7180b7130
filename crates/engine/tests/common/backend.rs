//! A backend that watches the CPU's, and can spoil its logits.

use std::sync::{Arc, Mutex};

use foredraft_common::TokenId;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_formats::Checkpoint;
use foredraft_model::{
    Backend, Batch, Commit, Executor, ExecutorOptions, ForwardError, LoadError, LoadWatch, Memory,
    PageCopy, PartTime, Program, TapHandle, TapId,
};

/// What an executor was asked to do.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Rows of each pass.
    pub(crate) passes: Vec<usize>,
    /// Every token that was fed.
    pub(crate) tokens: Vec<TokenId>,
    /// Nodes committed by each commit.
    pub(crate) commits: Vec<usize>,
    /// Rows at this position get logits of NaN: all, or that of one token.
    pub(crate) spoiled_position: Option<usize>,
    /// The next pass fails, or panics.
    pub(crate) next_pass_fails: bool,
    pub(crate) next_pass_panics: bool,
    /// With it only the row of this token.
    pub(crate) spoiled_token: Option<TokenId>,
}

/// The CPU's backend, watched.
pub(crate) struct Watched {
    cpu: CpuBackend,
    pub(crate) seen: Arc<Mutex<Seen>>,
}

impl Watched {
    pub(crate) fn new() -> Self {
        Self {
            cpu: CpuBackend::new(1, CpuPath::detect()).expect("a backend"),
            seen: Arc::default(),
        }
    }
}

impl Backend for Watched {
    fn name(&self) -> &str {
        "watched"
    }

    fn memory(
        &self,
        program: &Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
    ) -> Result<Memory, LoadError> {
        self.cpu.memory(program, weights, options)
    }

    fn load(
        &self,
        program: Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
        watch: LoadWatch<'_>,
    ) -> Result<Box<dyn Executor>, LoadError> {
        Ok(Box::new(WatchedExecutor {
            inner: self.cpu.load(program, weights, options, watch)?,
            seen: Arc::clone(&self.seen),
            spoiled: Vec::new(),
        }))
    }
}

struct WatchedExecutor {
    inner: Box<dyn Executor>,
    seen: Arc<Mutex<Seen>>,
    /// Of the last pass's outputs those that are spoiled.
    spoiled: Vec<Option<Vec<f32>>>,
}

impl Executor for WatchedExecutor {
    fn program(&self) -> &Program {
        self.inner.program()
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        let mut seen = self.seen.lock().expect("no test panicked in it");
        if std::mem::take(&mut seen.next_pass_panics) {
            drop(seen);
            panic!("as planned");
        }
        if std::mem::take(&mut seen.next_pass_fails) {
            return Err(ForwardError::Pages { committed: 0 });
        }
        seen.passes.push(batch.rows().len());
        seen.tokens.extend(batch.rows().iter().map(|row| row.token));
        let rows = batch
            .outputs()
            .iter()
            .map(|&row| &batch.rows()[row as usize]);
        let spoiled: Vec<bool> = rows
            .map(|row| Some(row.position.index()) == seen.spoiled_position)
            .collect();
        self.inner.forward(batch)?;
        let spoil = |(output, &is_spoiled): (usize, &bool)| {
            let mut row = is_spoiled.then(|| self.inner.logits(output).to_vec())?;
            match seen.spoiled_token {
                Some(token) => row[token.index()] = f32::NAN,
                None => row.fill(f32::NAN),
            }
            Some(row)
        };
        self.spoiled = spoiled.iter().enumerate().map(spoil).collect();
        Ok(())
    }

    fn logits(&self, index: usize) -> &[f32] {
        match &self.spoiled[index] {
            Some(row) => row,
            None => self.inner.logits(index),
        }
    }

    fn commit(&mut self, commit: Commit<'_>) {
        let mut seen = self.seen.lock().expect("no test panicked in it");
        seen.commits.push(commit.slots.len());
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

    fn time_parts(&mut self, on: bool) {
        self.inner.time_parts(on);
    }

    fn part_times(&self) -> &[PartTime] {
        self.inner.part_times()
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }
}
