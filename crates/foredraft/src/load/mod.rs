//! From a checkpoint and the options to an engine: what every command that computes begins with.

mod memory;

use std::sync::Arc;

use foredraft::cpu::{self, CpuBackend, CpuError};
use foredraft::engine::{BudgetError, Engine, EngineError, EngineOptions};
use foredraft::formats::Checkpoint;
use foredraft::model::LoadError;
use foredraft::text::Tokenizer;

use crate::args::{CpuPath, ModelOptions};
use crate::exit::Exit;
use crate::output;

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
    let available = cpu::available_threads();
    let threads = options.threads.unwrap_or(available);
    if threads > available {
        output::warn(&format!(
            "{threads} threads on {available} processors wait for each other: give --threads {available}"
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
    let engine = Engine::load(checkpoint, Arc::clone(tokenizer), &backend, &engine_options)
        .map_err(engine_error)?;
    Ok(Loaded { engine, backend })
}

/// A file that holds no usable model, or a request that it cannot serve, is the input's fault.
pub(crate) fn engine_error(error: EngineError) -> Exit {
    match error {
        EngineError::Pages | EngineError::Budget(BudgetError::Load(LoadError::NoMemory { .. })) => {
            Exit::failed(error)
        }
        _ => Exit::input(error),
    }
}
