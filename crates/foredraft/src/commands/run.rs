//! `foredraft run MODEL [PROMPT]`.

use clap::Args;

use crate::args::{DraftOptions, ModelOptions, SamplingOptions};
use crate::exit::Exit;

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft run stories260k --raw \"Once upon a time\"
  foredraft run smollm2-135m \"Name three colours.\" -n 40
  foredraft run smollm2-135m                       a chat, when started in a terminal
  git diff | foredraft run qwen2.5-coder-1.5b -    the prompt from standard input
  foredraft run model.gguf \"Hi\" -t 0.8 --top-p 0.95 --seed 7 --json")]
pub(crate) struct RunArgs {
    /// Alias, .gguf file, Hugging Face directory, or hf:owner/repo[:file]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) model: String,

    /// What to say to the model; - reads standard input; without it, a chat in the terminal
    pub(crate) prompt: Option<String>,

    /// Give the prompt to the model as it is, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,

    /// The system message, which tells the model how to behave
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub(crate) system: Option<String>,

    /// Print one JSON object instead of streaming text
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,

    #[command(flatten)]
    pub(crate) draft: DraftOptions,

    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// Answers.
pub(crate) fn run(args: RunArgs) -> Result<(), Exit> {
    crate::run::run(&args)
}
