//! `foredraft inspect MODEL`: what is in a model file.

mod report;
mod show;

use clap::Args;
use foredraft::models;

use crate::exit::Exit;
use crate::progress::Stderr;
use crate::{interrupt, output};

/// Options of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft inspect smollm2-135m
  foredraft inspect model.gguf --tensors
  foredraft inspect stories260k --json")]
pub(crate) struct InspectArgs {
    /// Alias, .gguf file, Hugging Face directory, or hf:owner/repo[:file]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    model: String,

    /// List every tensor
    #[arg(long)]
    tensors: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the file. What this version cannot run is shown all the same, with the reason.
pub(crate) fn run(args: InspectArgs) -> Result<(), Exit> {
    interrupt::install();
    let model = models::resolve(&args.model, &Stderr::new())?;
    let checkpoint = model.open()?;
    let report = report::Report::of(&model.name, &checkpoint, args.tensors);
    if args.json {
        output::stdout_json(&report)
    } else {
        output::stdout(&show::text(&report))
    }
}
