//! One file a command: its options and what it does with them.

pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod inspect;
pub(crate) mod pull;
pub(crate) mod run;
pub(crate) mod serve;

use crate::args::Command;
use crate::exit::Exit;

/// Runs the command that was asked for.
pub(crate) fn dispatch(command: Command) -> Result<(), Exit> {
    match command {
        Command::Run(args) => run::run(*args),
        Command::Serve(args) => serve::run(*args),
        Command::Audit(args) => audit::run(*args),
        Command::Bench(args) => bench::run(*args),
        Command::Pull(args) => pull::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Completions(args) => completions::run(args),
    }
}
