//! What `foredraft run` does: load, read the prompt, answer once or chat.

mod chat;
mod memory;
mod prompt;
mod report;
mod show;

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft::cpu::{self, CpuBackend, CpuError};
use foredraft::engine::{Completion, Engine, EngineError, EngineOptions, FinishReason, Request};
use foredraft::models;
use foredraft::speculate::SamplingSettings;
use foredraft::text::{Message, Tokenizer};

use crate::args::{CpuPath, ModelOptions};
use crate::commands::run::RunArgs;
use crate::exit::Exit;
use crate::progress::Stderr;
use crate::{interrupt, output};

/// Answers one prompt, or chats.
pub(crate) fn run(args: &RunArgs) -> Result<(), Exit> {
    args.sampling.warn();
    interrupt::install();
    let settings = args.sampling.settings();
    settings.validate().map_err(Exit::input)?;
    let wants_chat = args.prompt.is_none() && std::io::stdin().is_terminal();
    if wants_chat && (args.raw || args.json) {
        return Err(Exit::input(anyhow::anyhow!(
            "--raw and --json need a prompt: give one, or - to read standard input"
        )));
    }
    // Read before the model is loaded: a bad prompt is told at once.
    let text = if wants_chat {
        None
    } else {
        Some(prompt::read(args.prompt.as_deref())?)
    };
    let model = models::resolve(&args.model, &Stderr::new())?;
    let checkpoint = model.open()?;
    let tokenizer = Arc::new(Tokenizer::open(checkpoint.vocabulary())?);
    let mut session = Session {
        engine: load(&checkpoint, &tokenizer, &args.options)?,
        tokenizer,
        settings,
        max_tokens: args.sampling.max_tokens,
        stop: args.sampling.stop.clone(),
        json: args.json,
    };
    drop(checkpoint);
    match text {
        None => chat::chat(&mut session, args.system.as_deref(), &model.name),
        Some(text) => session.once(&text, args),
    }
}

/// A loaded model and how it is asked.
struct Session {
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    settings: SamplingSettings,
    max_tokens: Option<usize>,
    stop: Vec<String>,
    json: bool,
}

impl Session {
    /// One answer on stdout, and a summary on stderr.
    fn once(&mut self, text: &str, args: &RunArgs) -> Result<(), Exit> {
        let tokens =
            if args.raw || (self.tokenizer.chat_template().is_none() && args.system.is_none()) {
                prompt::raw(&self.tokenizer, text)?
            } else {
                let mut messages: Vec<Message> = args.system.iter().map(Message::system).collect();
                messages.push(Message::user(text));
                prompt::rendered(&self.tokenizer, &messages)?
            };
        let completion = self.answer(tokens)?;
        if self.json {
            output::stdout_json(&report::RunReport::new(&args.model, &completion))?;
        } else {
            output::stderr_line(&report::summary(&completion));
        }
        match completion.finish_reason {
            FinishReason::Cancelled => Err(Exit::Interrupted),
            _ => Ok(()),
        }
    }

    /// Streams an answer to stdout (unless it will be JSON); Ctrl-C ends it early.
    fn answer(&mut self, prompt: Vec<foredraft::common::TokenId>) -> Result<Completion, Exit> {
        let request = Request {
            prompt,
            sampling: self.settings.clone(),
            choice: 0,
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
        };
        let mut stream = show::Stream::new(!self.json);
        let result = self.engine.generate(&request, &mut |event| {
            stream.show(event);
            if interrupt::requested() || stream.failed() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        stream.end()?;
        result.map_err(engine_error)
    }
}

fn load(
    checkpoint: &foredraft::formats::Checkpoint,
    tokenizer: &Arc<Tokenizer>,
    options: &ModelOptions,
) -> Result<Engine, Exit> {
    let path = match options.cpu_path {
        CpuPath::Auto => cpu::CpuPath::detect(),
        CpuPath::Avx512 => cpu::CpuPath::Avx512,
        CpuPath::Avx2 => cpu::CpuPath::Avx2,
        CpuPath::Portable => cpu::CpuPath::Portable,
    };
    let threads = options.threads.unwrap_or_else(cpu::available_threads);
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
    Engine::load(checkpoint, Arc::clone(tokenizer), &backend, &engine_options).map_err(engine_error)
}

/// A file that holds no usable model, or a request that it cannot serve, is the input's fault.
fn engine_error(error: EngineError) -> Exit {
    match error {
        EngineError::Pages => Exit::failed(error),
        _ => Exit::input(error),
    }
}
