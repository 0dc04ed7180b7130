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

use crate::args::values::Draft;
use crate::commands::bench::BenchArgs;
use crate::exit::Exit;
use crate::load::{self, Drafts, Loaded};
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
    // Whether they can draft is told before anything is measured.
    let open = |draft: &Draft| {
        Drafts::open(
            vec![draft.clone()],
            args.draft.speculation().nodes(),
            &tokenizer,
        )
    };
    let opened = drafts.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut report = measured(args, &checkpoint, &tokenizer)?;
    if let Some(comparison) = comparison {
        for (draft, opened) in drafts.iter().zip(opened) {
            let compared = comparison.run(draft, opened, &checkpoint, &tokenizer)?;
            report.drafts.push(compared);
        }
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
