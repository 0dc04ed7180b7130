//! How a command ends: the exit codes, and the one line that an error is.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | done (also when the reader of stdout went away, as `head` does) |
//! | 1 | the work failed: network, disk, memory |
//! | 2 | the command line or an input was wrong |
//! | 130 | interrupted (128 + SIGINT) |

use std::process::ExitCode;

use foredraft::formats::FormatError;
use foredraft::text::TextError;

use crate::output;

/// Why a command stopped before its natural end.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The command line or an input file was wrong: the user can mend it.
    Input(anyhow::Error),
    /// The command was right and the world failed.
    Failed(anyhow::Error),
    /// Ctrl-C.
    Interrupted,
    /// Whoever read stdout has closed it: nothing is left to do, and nothing went wrong.
    ClosedPipe,
    /// `--help` or `--version` was asked, and printed.
    Help,
}

impl Exit {
    /// A wrong command line or input.
    pub(crate) fn input(error: impl Into<anyhow::Error>) -> Self {
        Exit::Input(error.into())
    }

    /// A failure of the world.
    pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Self {
        Exit::Failed(error.into())
    }

    /// The process's exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Exit::Help | Exit::ClosedPipe => 0,
            Exit::Failed(_) => 1,
            Exit::Input(_) => 2,
            Exit::Interrupted => 130,
        }
    }
}

/// A failed write to stdout.
impl From<std::io::Error> for Exit {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Exit::ClosedPipe,
            _ => Exit::Failed(anyhow::Error::new(error).context("cannot write to standard output")),
        }
    }
}

impl From<foredraft::models::ModelError> for Exit {
    fn from(error: foredraft::models::ModelError) -> Self {
        use foredraft::models::Fault;
        match error.fault() {
            Fault::Input => Exit::Input(error.into()),
            Fault::World => Exit::Failed(error.into()),
            Fault::Cancelled => Exit::Interrupted,
        }
    }
}

/// A model file that cannot be used: its own fault, or the user's who named it, unless the disk failed.
impl From<FormatError> for Exit {
    fn from(error: FormatError) -> Self {
        use std::io::ErrorKind;
        match &error {
            FormatError::Io {
                kind: ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::InvalidInput,
                ..
            } => Exit::Input(error.into()),
            FormatError::Io { .. } => Exit::Failed(error.into()),
            _ => Exit::Input(error.into()),
        }
    }
}

/// A vocabulary, template or text that cannot be used.
impl From<TextError> for Exit {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Format(error) => error.into(),
            error => Exit::Input(error.into()),
        }
    }
}

/// Prints the error, if there is one, and gives the code that the process ends with.
pub(crate) fn report(outcome: Result<(), Exit>) -> ExitCode {
    let Err(exit) = outcome else {
        return ExitCode::SUCCESS;
    };
    match &exit {
        Exit::Input(error) | Exit::Failed(error) => output::stderr_line(&error_line(error)),
        Exit::Interrupted => output::stderr_line("interrupted"),
        Exit::ClosedPipe | Exit::Help => {}
    }
    ExitCode::from(exit.code())
}

/// `error: what: why: why`, on one line whatever the messages hold.
///
/// A cause that its parent's message already quotes is not said twice.
pub(crate) fn error_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line.push_str(": ");
            line.push_str(&cause);
        }
    }
    format!("error: {}", output::one_line(&line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_that_says_nothing_twice() {
        let disk = std::io::Error::other("No space\nleft");
        let error = anyhow::Error::new(disk).context("cannot write m.gguf");
        assert_eq!(
            error_line(&error),
            "error: cannot write m.gguf: No space left"
        );

        let quoted = anyhow::anyhow!("inner").context("outer: inner");
        assert_eq!(error_line(&quoted), "error: outer: inner");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = Exit::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert_eq!(closed.code(), 0);
        let full = Exit::from(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert_eq!(full.code(), 1);
    }
}
