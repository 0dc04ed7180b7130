//! `foredraft run MODEL [PROMPT]`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::args::{DraftOptions, ModelOptions, SamplingOptions};
use crate::exit::Exit;

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft run stories260k --raw \"Once upon a time\"
  foredraft run smollm2-135m \"Name three colours.\" -n 40
  foredraft run smollm2-135m                       a chat, when started in a terminal
  git diff | foredraft run qwen2.5-coder-1.5b -    the prompt from standard input
  foredraft run smollm2-135m --draft lookup --show-draft \"Say it twice: one two three.\"
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

    /// Colour the answer by where its tokens came from: drafted and accepted, corrected, one more than drafted;
    /// =always also where stdout is no terminal
    #[arg(long, value_enum, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    pub(crate) show_draft: Option<Colours>,

    /// Write every step to this file, a line of JSON each: what was drafted, what became of it, what it took
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) sampling: SamplingOptions,

    #[command(flatten)]
    pub(crate) draft: DraftOptions,

    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colours {
    /// On a terminal
    Auto,
    /// Always
    Always,
}

/// Answers.
pub(crate) fn run(args: RunArgs) -> Result<(), Exit> {
    crate::run::run(&args)
}
