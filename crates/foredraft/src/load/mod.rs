//! From a checkpoint and the options to an engine: what every command that computes begins with.

mod memory;

use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft::cpu::{self, CpuBackend, CpuError};
use foredraft::engine::{BudgetError, Engine, EngineError, EngineOptions};
use foredraft::formats::Checkpoint;
use foredraft::model::{LoadError, LoadProgress};
use foredraft::pull::Progress;
use foredraft::text::Tokenizer;

use crate::args::{CpuPath, ModelOptions};
use crate::exit::Exit;
use crate::output;
use crate::progress::Stderr;

/// Fewer bytes of weights than these are in place before anybody has read a bar.
const SHOWN_FROM_BYTES: u64 = 300_000_000;

/// An engine and the backend that it computes on.
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) backend: CpuBackend,
}

/// Loads the model of a checkpoint as the options say.
pub(crate) fn load(
    checkpoint: &Checkpoint,
    tokenizer: &Arc<Tokenizer>,
    options: &ModelOptions,
) -> Result<Loaded, Exit> {
    let path = match options.cpu_path {
        CpuPath::Auto => cpu::CpuPath::detect(),
        CpuPath::Avx512 => cpu::CpuPath::Avx512,
        CpuPath::Avx2 => cpu::CpuPath::Avx2,
        CpuPath::Portable => cpu::CpuPath::Portable,
    };
    let (cores, processors) = (cpu::available_threads(), cpu::available_processors());
    let threads = options.threads.unwrap_or(cores);
    if threads > processors {
        output::warn(&format!(
            "{threads} threads on {processors} processors wait for each other: give --threads {cores}"
        ));
    }
    let backend = CpuBackend::new(threads, path).map_err(|error| match error {
        CpuError::Threads(_) => Exit::failed(error),
        _ => Exit::input(error),
    })?;
    let engine_options = EngineOptions {
        context_tokens: options.context,
        memory_bytes: options
            .memory
            .map(|size| size.bytes)
            .or_else(memory::budget),
    };
    let progress = Stderr::new();
    let mut watch = |at: LoadProgress| show(&progress, at);
    let tokenizer = Arc::clone(tokenizer);
    let engine = Engine::load(checkpoint, tokenizer, &backend, &engine_options, &mut watch);
    progress.end();
    Ok(Loaded {
        engine: engine.map_err(engine_error)?,
        backend,
    })
}

/// Shows how far a large load is; Ctrl-C ends any.
fn show(progress: &impl Progress, at: LoadProgress) -> ControlFlow<()> {
    if at.total_bytes >= SHOWN_FROM_BYTES {
        match at.loaded_bytes {
            0 => progress.begin("loading weights", 0, Some(at.total_bytes)),
            loaded => progress.at(loaded),
        }
    }
    match progress.cancelled() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// A file that holds no usable model, or a request that it cannot serve, is the input's fault.
pub(crate) fn engine_error(error: EngineError) -> Exit {
    match error {
        EngineError::Budget(BudgetError::Load(LoadError::Interrupted)) => Exit::Interrupted,
        EngineError::Pages | EngineError::Budget(BudgetError::Load(LoadError::NoMemory { .. })) => {
            Exit::failed(error)
        }
        _ => Exit::input(error),
    }
}
