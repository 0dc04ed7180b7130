//! `foredraft inspect MODEL`: what is in a model file.

use clap::Args;

use crate::exit::Exit;

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

/// Shows the file.
pub(crate) fn run(args: InspectArgs) -> Result<(), Exit> {
    let _ = (args.model, args.tensors, args.json);
    Err(Exit::Failed(anyhow::anyhow!(
        "`inspect` is not in this build yet"
    )))
}
