//! What `foredraft bench` does: plain decoding, the prompt, the curve T(M), and the memory's roof, in one run.

mod measure;
mod plot;
mod report;

use std::sync::Arc;

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
    let Loaded { engine, backend } = load::load(&checkpoint, &tokenizer, &args.options)?;
    drop(checkpoint);
    let mut bench = measure::Bench::new(engine, backend, args.tokens)?;
    for round in 0..args.repeat {
        output::stderr_line(&format!("round {} of {}", round + 1, args.repeat));
        bench.round()?;
        if interrupt::requested() {
            return Err(Exit::Interrupted);
        }
    }
    let report = bench.report(&args.model);
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
