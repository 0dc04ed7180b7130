//! What `foredraft audit` does: proves on this model and this machine that drafting changes nothing.
//!
//! | module | holds |
//! | --- | --- |
//! | [`bits`] | answers with a draft against answers without one, bit by bit |
//! | [`distribution`] | frequencies of drawn texts against the model's own probabilities |
//! | [`frequencies`] | the tests of those |
//! | [`memo`] | a backend that computes the logits of a context once |
//! | [`drafts`] | the drafts, copies of the model among them |
//! | [`pairwise`] | small sets of settings in which every two meet |
//!
//! All of it drives an [`Engine`](foredraft::engine::Engine) from outside, with the drafters and verifiers of `run`.

mod bits;
mod distribution;
mod drafts;
mod frequencies;
mod memo;
mod pairwise;
mod report;
mod steps;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use foredraft::cpu;
use foredraft::engine::EngineOptions;
use foredraft::model::Backend;
use foredraft::models;
use foredraft::text::Tokenizer;

use crate::commands::audit::AuditArgs;
use crate::exit::Exit;
use crate::progress::Stderr;
use crate::{interrupt, load, output};
use bits::Bench;
use drafts::{Drafts, Target};
use report::{AuditReport, Check};
use steps::Steps;

/// Tokens of prompt and answer; enough for every prompt of the audit.
const CONTEXT_TOKENS: usize = 512;
/// Nodes of the largest tree, 3x3.
const MOST_NODES: usize = 39;

/// Makes the checks and prints them.
pub(crate) fn run(args: &AuditArgs) -> Result<(), Exit> {
    interrupt::install();
    let started = Instant::now();
    let model = models::resolve(&args.model, &Stderr::new())?;
    let checkpoint = model.open()?;
    let tokenizer = Arc::new(Tokenizer::open(checkpoint.vocabulary())?);
    let target = Target {
        checkpoint,
        tokenizer,
    };
    let drafts = Drafts::open(&args.drafts, &target)?;
    let context = target
        .checkpoint
        .config()?
        .context_tokens
        .min(CONTEXT_TOKENS);
    let options = EngineOptions {
        context_tokens: args.options.context.or(Some(context)),
        max_draft_nodes: MOST_NODES,
        ..load::engine_options(&args.options)
    };
    let most = cpu::available_threads().max(2);
    let mut threads = vec![1, args.options.threads.unwrap_or(most)];
    threads.dedup();
    let backends = threads.into_iter().map(|threads| {
        let options = crate::args::ModelOptions {
            threads: Some(threads),
            ..args.options.clone()
        };
        Ok((threads, load::backend(&options)?))
    });
    let backends = backends.collect::<Result<Vec<_>, Exit>>()?;
    let backends: Vec<(usize, &dyn Backend)> = backends
        .iter()
        .map(|(threads, backend)| (*threads, backend as &dyn Backend))
        .collect();
    let bench = Bench {
        target: &target,
        drafts: &drafts,
        options: &options,
        backends: &backends,
        tokens: bits::TOKENS,
    };
    let (checks, notes) = all_checks(&bench, args.full)?;
    finish(
        AuditReport {
            model: args.model.clone(),
            passed: checks.iter().all(|check| check.passed),
            full: args.full,
            seconds: started.elapsed().as_secs_f64(),
            notes,
            checks,
        },
        args.json,
    )
}

/// Both kinds of checks, and what is to be said of them.
fn all_checks(bench: &Bench<'_>, full: bool) -> Result<(Vec<Check>, Vec<String>), Exit> {
    let sets = bench.drafts.sets().len();
    let mut notes = Vec::new();
    let factors = bits::factors(sets, bench.backends.len());
    let rows: Vec<bits::Row> = rows(&factors, full)
        .map(|row| bits::Row::new(&row))
        .collect();
    let steps = Steps::new("bits", rows.len());
    let mut checks = bits::checks(bench, &rows, &steps)?;
    steps.end();

    let vocabulary = bench.target.tokenizer.vocabulary_len();
    let is_large = vocabulary > distribution::SMALL_VOCABULARY;
    if is_large {
        notes.push(format!(
            "the vocabulary has {vocabulary} tokens: distributions are tried with top-k {} on top of each setting, and in a set in which every two settings meet",
            distribution::LIKELIEST
        ));
    }
    let factors = distribution::factors(sets);
    let rows: Vec<distribution::Row> = rows_of_distribution(&factors, full && !is_large);
    let steps = Steps::new("distribution", rows.len());
    checks.extend(distribution::checks(
        bench,
        &rows,
        distribution::DRAWS,
        &steps,
    )?);
    steps.end();
    Ok((checks, notes))
}

fn rows_of_distribution(factors: &[usize], full: bool) -> Vec<distribution::Row> {
    rows(factors, full)
        .map(|row| distribution::Row::new(&row))
        .collect()
}

fn rows(factors: &[usize], full: bool) -> impl Iterator<Item = Vec<usize>> {
    let rows = match full {
        true => pairwise::every_row(factors),
        false => pairwise::covering_rows(factors),
    };
    rows.into_iter()
}

/// Prints the report and what failed.
fn finish(report: AuditReport, json: bool) -> Result<(), Exit> {
    for note in &report.notes {
        output::stderr_line(&format!("note: {note}"));
    }
    for check in report.checks.iter().filter(|check| !check.passed) {
        let why = check.difference.as_deref().unwrap_or_default();
        output::stderr_line(&output::one_line(&format!("FAILED {}: {why}", check.name)));
    }
    match json {
        true => output::stdout_json(&report)?,
        false => output::stdout(&report::table(&report))?,
    }
    outcome(&report)
}

/// The command fails when a check did.
fn outcome(report: &AuditReport) -> Result<(), Exit> {
    let failed = report.checks.iter().filter(|check| !check.passed).count();
    match failed {
        0 => Ok(()),
        _ => Err(Exit::Failed(anyhow::anyhow!(
            "{failed} of {} checks failed: with a draft this model does not say here what it says without one",
            report.checks.len()
        ))),
    }
}
