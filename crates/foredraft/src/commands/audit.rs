//! `foredraft audit MODEL`.

use clap::Args;

use crate::args::ModelOptions;
use crate::args::values::Draft;
use crate::exit::Exit;

/// Options of `audit`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft audit stories260k
  foredraft audit smollm2-135m --draft lookup --draft model:self-layers
  foredraft audit stories260k --full --json

Two kinds of checks are made, with the very code that `run` uses. bits: at temperature 0, and at any
temperature with a seed, tokens, text and log probabilities are those of plain decoding, bit by bit.
distribution: without a seed, thousands of short texts have the frequencies that the model's own
probabilities say. Exit code 1 when a check fails.")]
pub(crate) struct AuditArgs {
    /// Alias, .gguf file, Hugging Face directory, or hf:owner/repo[:file]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) model: String,

    /// What drafts: lookup, model:MODEL, or a copy of the model itself: model:self-noise (with noise in its weights),
    /// model:self-layers (without some of its layers); repeatable: each is tried alone, and all together
    /// [default: lookup and both copies]
    #[arg(long = "draft", value_name = "DRAFT")]
    pub(crate) drafts: Vec<Draft>,

    /// Make every check; otherwise a set in which every two settings meet
    #[arg(long)]
    pub(crate) full: bool,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// Checks.
pub(crate) fn run(args: AuditArgs) -> Result<(), Exit> {
    crate::audit::run(&args)
}
