//! Loading: a program and a checkpoint become an executor.

use std::sync::{Arc, Mutex, OnceLock};

use foredraft_formats::Checkpoint;
use foredraft_model::{Backend, Executor, ExecutorOptions, LoadError, LoadWatch, Memory, Program};

use crate::executor::{CpuExecutor, Space};
use crate::kernels::activations::ActivationBuffer;
use crate::kv::KvStore;
use crate::packing::load_weights;
use crate::pages;
use crate::path::{CpuPath, Isa};
use crate::pool::Pool;
use crate::reader::Reader;
use crate::sizes::{is_streamed, part_elements, rows, tap_width, widest_input};
use crate::storage::PageKind;
use crate::weights::{bytes_for, check_shape, find};

/// Why the CPU backend could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// No thread cannot compute.
    #[error("0 threads cannot compute: give at least 1, or leave the number out")]
    NoThreads,
    /// More threads than the limit.
    #[error(
        "{threads} threads are more than the limit of {limit}: more than there are processors only slows down"
    )]
    TooManyThreads {
        /// Asked for.
        threads: usize,
        /// The most.
        limit: usize,
    },
    /// The processor lacks an instruction set.
    #[error(
        "this processor does not have what `{path}` needs: leave the path out to have one chosen"
    )]
    Path {
        /// Asked for.
        path: CpuPath,
    },
    /// The system gave no thread.
    #[error("the system gave no thread: {0}")]
    Threads(#[from] std::io::Error),
}

/// More threads than this are a typing error.
const MAX_THREADS: usize = 1024;

/// Runs programs on the CPU. Models that are loaded by one backend share its threads.
pub struct CpuBackend {
    isa: Isa,
    threads: usize,
    pool: Arc<Mutex<Pool>>,
    /// Measured when it is first wanted.
    faster_pages: OnceLock<PageKind>,
}

impl CpuBackend {
    /// A backend with its own threads.
    ///
    /// # Errors
    /// When the number of threads or the path cannot be had.
    pub fn new(threads: usize, path: CpuPath) -> Result<Self, CpuError> {
        match threads {
            0 => return Err(CpuError::NoThreads),
            1..=MAX_THREADS => {}
            _ => {
                return Err(CpuError::TooManyThreads {
                    threads,
                    limit: MAX_THREADS,
                });
            }
        }
        Ok(Self {
            isa: Isa::new(path).ok_or(CpuError::Path { path })?,
            threads,
            pool: Arc::new(Mutex::new(Pool::new(threads)?)),
            faster_pages: OnceLock::new(),
        })
    }

    /// Threads of a pass.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set in use.
    pub fn path(&self) -> CpuPath {
        self.isa.path()
    }

    /// The kind of pages that `bytes` of weights are put in: the one that reads faster with these threads, measured
    /// once. For less memory than the measurement itself takes, large ones.
    pub fn pages_for(&self, bytes: u64) -> PageKind {
        if bytes < pages::SAMPLE_BYTES as u64 {
            return PageKind::Large;
        }
        *self
            .faster_pages
            .get_or_init(|| pages::faster(self.isa, &self.pool))
    }

    /// A reader of `bytes` of memory, to measure what a pass that only streamed its weights would take.
    ///
    /// # Errors
    /// When the system gives no memory.
    pub fn reader(&self, bytes: usize) -> Result<Reader, LoadError> {
        let pages = self.pages_for(bytes as u64);
        Reader::new(bytes, pages, self.isa, Arc::clone(&self.pool))
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        "cpu"
    }

    fn memory(
        &self,
        program: &Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
    ) -> Result<Memory, LoadError> {
        let mut memory = Memory::default();
        for (index, spec) in program.matrices.iter().enumerate() {
            let tensor = find(weights, &spec.name)?;
            check_shape(&spec.name, &tensor, spec.rows, spec.width)?;
            let bytes = bytes_for(tensor.kind, spec.rows, spec.width);
            memory.weights_bytes += bytes;
            if is_streamed(program, index) {
                memory.streamed_bytes += bytes;
            }
        }
        for spec in &program.vectors {
            memory.weights_bytes += 4 * spec.len as u64;
        }
        for (group, pages) in program.kv_groups.iter().zip(&options.pages) {
            memory.kv_bytes += KvStore::pool_bytes(group, options.kv_type, *pages);
            memory.scratch_bytes +=
                KvStore::scratch_bytes(group, options.kv_type, options.max_slots);
        }
        for buffer in &program.buffers {
            memory.scratch_bytes += 4 * (buffer.width * rows(buffer.rows, options)) as u64;
        }
        memory.scratch_bytes +=
            4 * (program.taps.len() * tap_width(program) * options.max_rows) as u64;
        for rope in &program.ropes {
            memory.scratch_bytes += 8 * (rope.pairs() * options.context_tokens) as u64;
        }
        memory.scratch_bytes +=
            ActivationBuffer::bytes_for(widest_input(program) * options.max_rows);
        memory.scratch_bytes += 4 * part_elements(program, options) as u64;
        memory.scratch_bytes += Space::bytes_for(program) * self.threads as u64;
        Ok(memory)
    }

    fn load(
        &self,
        program: Program,
        weights: &Checkpoint,
        options: &ExecutorOptions,
        watch: LoadWatch<'_>,
    ) -> Result<Box<dyn Executor>, LoadError> {
        let memory = self.memory(&program, weights, options)?;
        let pages = self.pages_for(memory.weights_bytes);
        let weights = load_weights(&program, weights, self.threads, pages, watch)?;
        let executor = CpuExecutor::new(
            program,
            weights,
            options,
            self.isa,
            Arc::clone(&self.pool),
            self.threads,
            memory,
        )?;
        Ok(Box::new(executor))
    }
}
