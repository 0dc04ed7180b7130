//! The executor: a program with its weights, KV pages, scratch and buffers, run over batches.

mod attention;
mod linear;
mod pass;
mod sharing;
mod steps;
mod times;

use std::sync::{Arc, Mutex, PoisonError};

use foredraft_model::{
    Batch, Commit, Executor, ExecutorOptions, ForwardError, LoadError, Memory, PageCopy, PartTime,
    Program, TapHandle, TapId,
};

use crate::kernels::activations::ActivationBuffer;
use crate::kernels::attention::{SPLIT, Workspace};
use crate::kv::KvStore;
use crate::packing::Weights;
use crate::path::Isa;
use crate::pool::Pool;
use crate::shared::Shared;
use crate::sizes::{part_elements, rows, tap_width, widest_head, widest_input};
use crate::storage::Storage;
use crate::weights::Matrix;
pub(crate) use linear::InputSpace;
use steps::{Step, steps};
use times::Times;

/// Cosines and sines, each `[positions, pairs]`.
struct Angles {
    cosines: Vec<f32>,
    sines: Vec<f32>,
}

/// What never changes after loading.
struct Model {
    program: Program,
    steps: Vec<Step>,
    matrices: Vec<Matrix>,
    vectors: Vec<Vec<f32>>,
    angles: Vec<Angles>,
    /// Where each of the program's buffers begins in the arena.
    buffer_starts: Vec<usize>,
    /// Where each of its taps begins in the arena, `[reserved rows, width]` each.
    tap_starts: Vec<usize>,
    /// Where the results of parts of contexts begin in the arena, and the most that a context has.
    parts_start: usize,
    most_parts: usize,
    isa: Isa,
}

/// What a worker has for itself.
pub(crate) struct Space {
    attention: Workspace,
    input: InputSpace,
}

impl Space {
    fn new(program: &Program) -> Self {
        Self {
            attention: Workspace::new(widest_head(program)),
            input: InputSpace::new(widest_input(program)),
        }
    }

    pub(crate) fn bytes_for(program: &Program) -> u64 {
        Workspace::bytes_for(widest_head(program)) + InputSpace::bytes_for(widest_input(program))
    }
}

/// A compiled program.
pub(crate) struct CpuExecutor {
    model: Model,
    pool: Arc<Mutex<Pool>>,
    kv: KvStore,
    /// Every buffer and tap.
    arena: Storage,
    activations: ActivationBuffer,
    /// One for each thread.
    spaces: Vec<Space>,
    options: ExecutorOptions,
    /// Counts passes, so that a stale tap is known.
    pass: u64,
    /// Where the time of the passes went, when that was asked for.
    times: Option<Times>,
    /// Rows and outputs of the last pass.
    last: (usize, usize),
    memory: Memory,
}

impl CpuExecutor {
    pub(crate) fn new(
        program: Program,
        weights: Weights,
        options: &ExecutorOptions,
        isa: Isa,
        pool: Arc<Mutex<Pool>>,
        threads: usize,
        memory: Memory,
    ) -> Result<Self, LoadError> {
        let Weights { matrices, vectors } = weights;
        let angles = program
            .ropes
            .iter()
            .map(|rope| {
                let (cosines, sines) = rope.tables(options.context_tokens);
                Angles { cosines, sines }
            })
            .collect();
        let mut elements = 0;
        let mut reserve = |count: usize| {
            let start = elements;
            // Whole lines of memory, so that threads that write neighbours do not share one.
            elements += count.next_multiple_of(16);
            start
        };
        let buffers = program.buffers.iter();
        let buffer_starts = buffers
            .map(|b| reserve(b.width * rows(b.rows, options)))
            .collect();
        let taps = program.taps.iter();
        let tap_starts = taps
            .map(|_| reserve(tap_width(&program) * options.max_rows))
            .collect();
        let parts_start = reserve(part_elements(&program, options));
        Ok(Self {
            kv: KvStore::new(
                &program.kv_groups,
                options.kv_type,
                &options.pages,
                options.max_slots,
            )?,
            activations: ActivationBuffer::new(widest_input(&program) * options.max_rows),
            spaces: (0..threads).map(|_| Space::new(&program)).collect(),
            model: Model {
                steps: steps(&program, |matrix| matrices[matrix].kind.is_quantized()),
                program,
                matrices,
                vectors,
                angles,
                buffer_starts,
                tap_starts,
                parts_start,
                most_parts: options.context_tokens.div_ceil(SPLIT),
                isa,
            },
            pool,
            arena: Storage::new(4 * elements)?,
            options: options.clone(),
            pass: 0,
            times: None,
            last: (0, 0),
            memory,
        })
    }

    fn arena(&self) -> &[f32] {
        bytemuck::cast_slice(self.arena.bytes())
    }

    /// Checks a batch against what was reserved, so that the kernels need not.
    fn check(&self, batch: &Batch) -> Result<(), ForwardError> {
        let options = &self.options;
        let (rows, outputs, slots) = (batch.rows().len(), batch.outputs().len(), batch.slots());
        if rows > options.max_rows || outputs > options.max_outputs || slots > options.max_slots {
            return Err(ForwardError::TooLarge {
                rows,
                outputs,
                slots,
            });
        }
        for row in batch.rows() {
            if row.token.index() >= self.model.program.vocabulary {
                return Err(ForwardError::Token {
                    token: row.token,
                    vocabulary: self.model.program.vocabulary,
                });
            }
            if row.position.index() >= options.context_tokens {
                return Err(ForwardError::Context {
                    position: row.position.index(),
                    context_tokens: options.context_tokens,
                });
            }
            let committed = batch.committed(row.sequence);
            let needed = foredraft_model::kv::pages_for(committed);
            for group in 0..self.kv.groups.len() {
                let (pages, limit) = (batch.pages(row.sequence, group), self.kv.pages(group));
                if pages.len() < needed || pages[..needed].iter().any(|p| p.index() >= limit) {
                    return Err(ForwardError::Pages { committed });
                }
            }
        }
        Ok(())
    }
}

impl Executor for CpuExecutor {
    fn program(&self) -> &Program {
        &self.model.program
    }

    fn forward(&mut self, batch: &Batch) -> Result<(), ForwardError> {
        self.check(batch)?;
        self.pass += 1;
        self.last = (batch.rows().len(), batch.outputs().len());
        let pass = pass::Pass {
            model: &self.model,
            batch,
            kv_type: self.kv.kind,
            kv: self.kv.share(),
            arena: Shared::new(bytemuck::cast_slice_mut(self.arena.bytes_mut())),
            activations: self.activations.share(),
            spaces: Shared::new(&mut self.spaces),
        };
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut self.times {
            None => pool.run(&|worker| pass.walk(worker)),
            Some(times) => {
                let times = Shared::new(std::slice::from_mut(times));
                pool.run(&|worker| pass.walk_timed(worker, times));
            }
        }
        Ok(())
    }

    fn logits(&self, index: usize) -> &[f32] {
        assert!(
            index < self.last.1,
            "the last pass had {} outputs, not {index}",
            self.last.1
        );
        match self.model.program.logits {
            Some(id) => {
                let width = self.model.program.logits_width();
                let start = self.model.buffer_starts[id.index()] + index * width;
                &self.arena()[start..start + width]
            }
            None => &[],
        }
    }

    fn commit(&mut self, commit: Commit<'_>) {
        self.kv.commit(&commit);
    }

    fn copy_pages(&mut self, copies: &[PageCopy]) {
        self.kv.copy_pages(copies);
    }

    fn tap(&self, tap: TapId) -> TapHandle {
        TapHandle {
            tap,
            pass: self.pass,
        }
    }

    fn read_tap(&self, handle: TapHandle, row: usize) -> Option<&[f32]> {
        let width = tap_width(&self.model.program);
        if handle.pass != self.pass || row >= self.last.0 {
            return None;
        }
        let start = self.model.tap_starts.get(handle.tap.index())? + row * width;
        self.arena().get(start..start + width)
    }

    fn time_parts(&mut self, on: bool) {
        self.times = on.then(Times::default);
    }

    fn part_times(&self) -> &[PartTime] {
        self.times.as_ref().map_or(&[], Times::parts)
    }

    fn memory(&self) -> Memory {
        self.memory
    }
}
