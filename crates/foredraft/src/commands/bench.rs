//! `foredraft bench MODEL`.

use std::path::PathBuf;

use clap::Args;

use crate::args::ModelOptions;
use crate::args::values;
use crate::exit::Exit;

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft bench smollm2-135m
  foredraft bench model.gguf --threads 1 --json
  foredraft bench smollm2-135m --plot curve.svg

Everything is measured several times, interleaved, in one run; medians are given with the spread. A share of
the bandwidth above 1 means that weights come out of a cache.")]
pub(crate) struct BenchArgs {
    /// Alias, .gguf file, Hugging Face directory, or hf:owner/repo[:file]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) model: String,

    /// Tokens that an answer is decoded for, at least 2
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = values::several)]
    pub(crate) tokens: usize,

    /// Times that everything is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = values::count::<100>)]
    pub(crate) repeat: usize,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw the curve T(M)/T(1)
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// Measures.
pub(crate) fn run(args: BenchArgs) -> Result<(), Exit> {
    crate::bench::run(&args)
}
