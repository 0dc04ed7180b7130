//! `foredraft bench MODEL`.

use std::path::PathBuf;

use clap::Args;

use crate::args::values;
use crate::args::{DraftOptions, ModelOptions};
use crate::exit::Exit;

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft bench smollm2-135m
  foredraft bench model.gguf --threads 1 --json
  foredraft bench smollm2-135m --plot curve.svg
  foredraft bench smollm2-135m --draft lookup --prompts edits.jsonl --prompt-count 10 --tokens 256
  foredraft bench qwen2.5-coder-1.5b --draft lookup --draft model:qwen2.5-coder-0.5b --draft-max 4

What is compared is measured side by side in one run; medians are given with the spread. A share of the bandwidth above 1
means that weights come out of a cache. Several drafts are compared with plain decoding each on its own.")]
pub(crate) struct BenchArgs {
    /// Alias, .gguf file, Hugging Face directory, or hf:owner/repo[:file]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) model: String,

    /// Tokens that an answer is decoded for, at least 2
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = values::several)]
    pub(crate) tokens: usize,

    /// Times that everything is measured [default: 5; 1 with --draft]
    #[arg(long, value_name = "N", value_parser = values::count::<100>)]
    repeat: Option<usize>,

    /// Measure the curve T(M) beside drafts too; without drafts it is always measured
    #[arg(long)]
    curve: bool,

    /// Tokens in the context of the curve's passes [default: 256]
    #[arg(long, value_name = "N", value_parser = values::count::<{ 1 << 24 }>)]
    pub(crate) after: Option<usize>,

    /// Prompts for comparing drafts: lines of JSON with a "prompt", or with "turns", of which the first is taken
    /// [default: four that are built in]
    #[arg(long, value_name = "FILE.jsonl", requires = "drafts")]
    pub(crate) prompts: Option<PathBuf>,

    /// Prompts to take, from the first on
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = values::count::<{ 1 << 24 }>)]
    pub(crate) prompt_count: usize,

    /// Give prompts to the model as they are, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,

    /// Temperature of the compared answers; without truncation
    #[arg(short, long, visible_alias = "temp", value_name = "X", default_value_t = 0.0, value_parser = values::at_least::<0>, allow_negative_numbers = true)]
    pub(crate) temperature: f32,

    /// Seed of the compared answers: above temperature 0 they can be identical only with one
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the curve T(M)/T(1)
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) draft: DraftOptions,

    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

impl BenchArgs {
    /// Times that everything is measured.
    pub(crate) fn rounds(&self) -> usize {
        let default = if self.draft.is_given() { 1 } else { 5 };
        self.repeat.unwrap_or(default)
    }

    /// Whether the passes of the curve are measured.
    pub(crate) fn wants_curve(&self) -> bool {
        self.curve || self.plot.is_some() || !self.draft.is_given()
    }
}

/// Measures.
pub(crate) fn run(args: BenchArgs) -> Result<(), Exit> {
    crate::bench::run(&args)
}
