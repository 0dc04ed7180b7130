//! The log, and the few things that a server says to whoever started it. All of it goes to stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::commands::serve::LogForm;
use crate::exit::Exit;
use crate::output;

/// What is said to whoever started the server, whatever the level of the log. In a log of objects it is an object too, so that
/// every line of stderr is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notes(LogForm);

impl Notes {
    /// Says something.
    pub(super) fn say(self, line: &str) {
        match self.0 {
            LogForm::Text => output::stderr_line(line),
            LogForm::Json => tracing::info!(target: TARGET, "{line}"),
        }
    }

    /// Warns of something.
    pub(super) fn warn(self, line: &str) {
        match self.0 {
            LogForm::Text => output::warn(line),
            LogForm::Json => tracing::warn!(target: TARGET, "{line}"),
        }
    }
}

/// Always let through.
const TARGET: &str = "note";

/// Begins to log. `level`: as in `RUST_LOG`, which holds without one.
///
/// # Errors
/// When the level is none.
pub(super) fn start(form: LogForm, level: Option<&str>) -> Result<Notes, Exit> {
    let (name, directives) = match level {
        Some(level) => ("--log-level", level.to_owned()),
        None => (
            "RUST_LOG",
            std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned()),
        ),
    };
    let wrong = |error: &dyn std::fmt::Display| {
        let directives = output::printable(&directives);
        Exit::input(anyhow::anyhow!(
            "{name} is '{directives}', which is no level: write error, warn, info, debug or trace ({error})"
        ))
    };
    let filter = EnvFilter::try_new(&directives).map_err(|error| wrong(&error))?;
    let note = format!("{TARGET}=info").parse().map_err(Exit::failed)?;
    let builder = fmt()
        .with_env_filter(filter.add_directive(note))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A program that embeds this one may have a log of its own already, which is as good.
    let _ = match form {
        LogForm::Text => builder.try_init(),
        LogForm::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(Notes(form))
}
