//! `foredraft completions SHELL`: the script that teaches a shell our options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Exit;
use crate::output;

/// Options of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft completions bash > ~/.local/share/bash-completion/completions/foredraft
  foredraft completions zsh > ~/.zfunc/_foredraft
  foredraft completions fish > ~/.config/fish/completions/foredraft.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell to write for
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(args: CompletionsArgs) -> Result<(), Exit> {
    // Into memory first: clap_complete panics when its writer fails, and stdout may be closed.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "foredraft", &mut script);
    output::stdout(&String::from_utf8_lossy(&script))
}
