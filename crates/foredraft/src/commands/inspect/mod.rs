//! `foredraft inspect MODEL`: what is in a model file, and whether another may draft for it.

mod against;
mod report;
mod show;

use clap::Args;
use foredraft::models;
use foredraft::text::{Tokenizer, VocabularyComparison};

use crate::exit::Exit;
use crate::progress::Stderr;
use crate::{interrupt, output};

/// Options of `inspect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  foredraft inspect smollm2-135m
  foredraft inspect model.gguf --tensors
  foredraft inspect qwen2.5-coder-1.5b --against qwen2.5-coder-0.5b
  foredraft inspect stories260k --json")]
pub(crate) struct InspectArgs {
    /// Alias, .gguf file, Hugging Face directory, or hf:owner/repo[:file]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    model: String,

    /// List every tensor
    #[arg(long)]
    tensors: bool,

    /// Compare the vocabulary with this model's, token by token: may one draft for the other? Exits with 1 when not
    #[arg(long, value_name = "MODEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    against: Option<String>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows the file. What this version cannot run is shown all the same, with the reason. Vocabularies that do not match
/// are shown, and then the command fails.
pub(crate) fn run(args: InspectArgs) -> Result<(), Exit> {
    interrupt::install();
    let model = models::resolve(&args.model, &Stderr::new())?;
    let checkpoint = model.open()?;
    let mut report = report::Report::of(&model.name, &checkpoint, args.tensors);
    let mut verdict = Ok(());
    if let Some(other) = &args.against {
        let other = models::resolve(other, &Stderr::new())?;
        let comparison = VocabularyComparison::new(
            &Tokenizer::open(checkpoint.vocabulary())?,
            &Tokenizer::open(other.open()?.vocabulary())?,
        );
        report.against = Some(against::Against::of(&other.name, &comparison));
        verdict = comparison.check().map_err(Exit::failed);
    }
    if args.json {
        output::stdout_json(&report)?;
    } else {
        output::stdout(&show::text(&report))?;
    }
    verdict
}
