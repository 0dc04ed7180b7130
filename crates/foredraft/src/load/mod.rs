//! From a checkpoint and the options to an engine: what every command that computes begins with.

mod drafts;
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

pub(crate) use drafts::{Drafts, open_model};

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
    load_with_drafts(checkpoint, tokenizer, options, Drafts::default())
}

/// Loads the model of a checkpoint and what drafts for it, within one budget.
pub(crate) fn load_with_drafts(
    checkpoint: &Checkpoint,
    tokenizer: &Arc<Tokenizer>,
    options: &ModelOptions,
    drafts: Drafts,
) -> Result<Loaded, Exit> {
    let engine_options = engine_options(options);
    load_with_options(checkpoint, tokenizer, options, engine_options, drafts)
}

/// [`load_with_drafts`] with more to say to the engine.
pub(crate) fn load_with_options(
    checkpoint: &Checkpoint,
    tokenizer: &Arc<Tokenizer>,
    options: &ModelOptions,
    mut engine_options: EngineOptions,
    drafts: Drafts,
) -> Result<Loaded, Exit> {
    let backend = backend(options)?;
    if let Some(most) = drafts.most_nodes {
        engine_options.max_draft_nodes = most;
    }
    let progress = Stderr::new();
    let loaded = Engine::load_with_drafts(
        checkpoint,
        &drafts.checkpoints(),
        Arc::clone(tokenizer),
        &backend,
        &engine_options,
        &mut |at: LoadProgress| show(&progress, at),
    );
    progress.end();
    let (mut engine, models) = loaded.map_err(engine_error)?;
    engine.set_drafters(drafts.drafters(models));
    Ok(Loaded { engine, backend })
}

/// What the options ask of the engine.
pub(crate) fn engine_options(options: &ModelOptions) -> EngineOptions {
    let memory = options.memory.map(|size| size.bytes);
    EngineOptions {
        context_tokens: options.context,
        memory_bytes: memory.or_else(memory::budget),
        kv_type: options.kv.into(),
        ..EngineOptions::default()
    }
}

/// The backend that the options name.
pub(crate) fn backend(options: &ModelOptions) -> Result<CpuBackend, Exit> {
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
    CpuBackend::new(threads, path).map_err(|error| match error {
        CpuError::Threads(_) => Exit::failed(error),
        _ => Exit::input(error),
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
        EngineError::Pages { .. }
        | EngineError::Panicked { .. }
        | EngineError::Budget(BudgetError::Load(LoadError::NoMemory { .. })) => Exit::failed(error),
        _ => Exit::input(error),
    }
}
