//! What `foredraft bench` does: plain decoding, the prompt, the curve T(M), the memory's roof, and plain decoding against
//! each draft.

mod compare;
mod measure;
mod plot;
mod prompts;
mod report;

use std::sync::Arc;

use foredraft::formats::Checkpoint;
use foredraft::models;
use foredraft::text::Tokenizer;

use crate::commands::bench::BenchArgs;
use crate::exit::Exit;
use crate::load::{self, Loaded};
use crate::progress::Stderr;
use crate::{interrupt, output};

/// Measures a model and prints what was found.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Exit> {
    interrupt::install();
    let model = models::resolve(&args.model, &Stderr::new())?;
    let checkpoint = model.open()?;
    let tokenizer = Arc::new(Tokenizer::open(checkpoint.vocabulary())?);
    let drafts = args.draft.drafts()?;
    let comparison = match drafts.is_empty() {
        true => None,
        false => Some(compare::Comparison::new(args, &tokenizer)?),
    };
    let mut report = measured(args, &checkpoint, &tokenizer)?;
    for (comparison, draft) in comparison
        .iter()
        .flat_map(|c| drafts.iter().map(move |d| (c, d)))
    {
        let compared = comparison.run(draft, &checkpoint, &tokenizer)?;
        report.drafts.push(compared);
    }
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(&report)).map_err(|error| {
            Exit::failed(
                anyhow::Error::new(error).context(format!("cannot write {}", path.display())),
            )
        })?;
    }
    if args.json {
        output::stdout_json(&report)
    } else {
        output::stdout(&report::table(&report))
    }
}

/// The model alone. It is released before it is loaded with a draft.
fn measured(
    args: &BenchArgs,
    checkpoint: &Checkpoint,
    tokenizer: &Arc<Tokenizer>,
) -> Result<report::BenchReport, Exit> {
    let Loaded { engine, backend } = load::load(checkpoint, tokenizer, &args.options)?;
    let mut bench = measure::Bench::new(engine, backend, args.tokens, args.after)?;
    let rounds = args.rounds();
    for round in 0..rounds {
        output::stderr_line(&format!("round {} of {rounds}", round + 1));
        bench.round(args.wants_curve())?;
        if interrupt::requested() {
            return Err(Exit::Interrupted);
        }
    }
    Ok(bench.report(&args.model))
}
