//! What `foredraft run` does: load, read the prompt, answer once or chat.

mod chat;
mod prompt;
mod report;
mod show;

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft::engine::{Completion, Engine, FinishReason, Request};
use foredraft::models;
use foredraft::speculate::SamplingSettings;
use foredraft::text::{Message, Tokenizer};

use crate::commands::run::RunArgs;
use crate::exit::Exit;
use crate::load::{self, engine_error};
use crate::progress::Stderr;
use crate::{interrupt, output};

/// Answers one prompt, or chats.
pub(crate) fn run(args: &RunArgs) -> Result<(), Exit> {
    interrupt::install();
    let settings = args.sampling.settings();
    settings.validate().map_err(Exit::input)?;
    args.sampling.warn();
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
    if wants_chat && tokenizer.chat_template().is_none() {
        return Err(Exit::input(anyhow::anyhow!(
            "{} has no chat template, so there is no chat with it: give a prompt to continue",
            output::printable(&model.name)
        )));
    }
    let mut session = Session {
        engine: load::load(&checkpoint, &tokenizer, &args.options)?.engine,
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
