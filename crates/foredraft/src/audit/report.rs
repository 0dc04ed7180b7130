//! What `audit` says: JSON (docs/json.md) and a table.

use serde::Serialize;

use crate::output;

/// The JSON of `audit`.
#[derive(Debug, Serialize)]
pub(super) struct AuditReport {
    /// As it was named on the command line.
    pub(super) model: String,
    /// Whether all checks passed.
    pub(super) passed: bool,
    /// Whether every check was made, or a covering set.
    pub(super) full: bool,
    pub(super) seconds: f64,
    /// What was not tried, and why.
    pub(super) notes: Vec<String>,
    pub(super) checks: Vec<Check>,
}

/// What a check compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// An answer with the answer of plain decoding.
    Bits,
    /// Frequencies with probabilities.
    Distribution,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Check {
    /// What was set.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) passed: bool,
    /// Of the chi-square test, before Holm's correction; null for bits.
    pub(super) p_value: Option<f64>,
    /// Tokens compared, or texts drawn.
    pub(super) samples: u64,
    /// Tokens drafted meanwhile; of these, tokens emitted.
    pub(super) drafted: u64,
    pub(super) accepted: u64,
    /// Whether it failed at first and this is the repetition with more draws.
    pub(super) repeated: bool,
    /// What was not the same.
    pub(super) difference: Option<String>,
}

/// For people.
pub(super) fn table(report: &AuditReport) -> String {
    let mut rows = vec![
        ["check", "kind", "passed", "p-value", "samples", "accepted"]
            .map(String::from)
            .to_vec(),
    ];
    for check in &report.checks {
        let kind = match check.kind {
            Kind::Bits => "bits",
            Kind::Distribution => "distribution",
        };
        rows.push(vec![
            check.name.clone(),
            kind.to_owned(),
            if check.passed { "yes" } else { "NO" }.to_owned(),
            check.p_value.map_or("-".to_owned(), p_value),
            check.samples.to_string(),
            format!("{} of {}", check.accepted, check.drafted),
        ]);
    }
    let failed = report.checks.iter().filter(|check| !check.passed).count();
    format!(
        "{}\n{}: {} checks, {failed} failed, {:.1} s\n",
        output::table(&rows),
        output::printable(&report.model),
        report.checks.len(),
        report.seconds
    )
}

fn p_value(p: f64) -> String {
    match p < 1e-3 {
        true => format!("{p:.1e}"),
        false => format!("{p:.3}"),
    }
}
