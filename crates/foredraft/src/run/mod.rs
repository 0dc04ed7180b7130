//! What `foredraft run` does: load, read the prompt, answer once or chat.

mod chat;
mod prompt;
mod report;
mod show;
mod trace;

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft::engine::{Completion, Engine, Event, FinishReason, Request, Speculation};
use foredraft::models;
use foredraft::speculate::SamplingSettings;
use foredraft::text::{Message, Tokenizer};

use crate::commands::run::{Colours, RunArgs};
use crate::exit::Exit;
use crate::load::{self, Drafts, engine_error};
use crate::progress::Stderr;
use crate::{interrupt, output};
use trace::Trace;

/// Answers one prompt, or chats.
pub(crate) fn run(args: &RunArgs) -> Result<(), Exit> {
    interrupt::install();
    let settings = args.sampling.settings();
    settings.validate().map_err(Exit::input)?;
    args.sampling.warn();
    let (drafts, speculation) = (args.draft.drafts()?, args.draft.speculation());
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
    let names = drafts.iter().map(ToString::to_string).collect();
    let trace = args.trace.as_deref();
    let trace = trace.map(|path| Trace::create(path, names)).transpose()?;
    let drafts = Drafts::open(drafts, speculation.nodes(), &tokenizer)?;
    let loaded = load::load_with_drafts(&checkpoint, &tokenizer, &args.options, drafts)?;
    drop(checkpoint);
    let mut session = Session {
        engine: loaded.engine,
        tokenizer,
        settings,
        speculation,
        max_tokens: args.sampling.max_tokens,
        stop: args.sampling.stop.clone(),
        json: args.json,
        coloured: match args.show_draft {
            Some(Colours::Always) => true,
            Some(Colours::Auto) => std::io::stdout().is_terminal(),
            None => false,
        },
        trace,
    };
    if session.coloured && !session.json {
        output::stderr_line(&format!("colours: {}", show::LEGEND));
    }
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
    speculation: Speculation,
    max_tokens: Option<usize>,
    stop: Vec<String>,
    json: bool,
    coloured: bool,
    trace: Option<Trace>,
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
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
            speculation: self.speculation,
            ..Request::new(prompt, self.settings.clone())
        };
        let mut stream = show::Stream::new(!self.json, self.coloured);
        let (trace, tokenizer) = (&mut self.trace, &self.tokenizer);
        let result = self.engine.generate(&request, &mut |event| {
            if let (Event::Step(report), Some(trace)) = (event, trace.as_mut()) {
                trace.write(report, tokenizer);
            }
            stream.show(event);
            if interrupt::requested() || stream.failed() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        stream.end()?;
        if let Some(trace) = &mut self.trace {
            trace.flush()?;
        }
        result.map_err(engine_error)
    }
}
