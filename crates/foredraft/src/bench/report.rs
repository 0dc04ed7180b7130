//! What `bench` says: JSON (docs/json.md) and a table.

use serde::Serialize;

use crate::output;

/// The JSON of `bench`.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    /// As it was named on the command line.
    pub(super) model: String,
    pub(super) threads: usize,
    /// The instruction set of the kernels.
    pub(super) cpu_path: &'static str,
    /// The kind of pages that weights are in: `large` or `ordinary`.
    pub(super) pages: &'static str,
    /// The best of repeated reads of `weight_bytes` by the same threads in the same run.
    pub(super) bandwidth_bytes_per_s: f64,
    /// Bytes of weights that every pass reads.
    pub(super) weight_bytes: u64,
    pub(super) plain: PlainReport,
    pub(super) prefill: PrefillReport,
    pub(super) forward: Vec<ForwardReport>,
    /// Comparisons with drafts; none in this version.
    pub(super) drafts: [(); 0],
}

/// Plain decoding.
#[derive(Debug, Serialize)]
pub(super) struct PlainReport {
    /// Tokens decoded.
    pub(super) tokens: usize,
    pub(super) tokens_per_s: Spread,
    /// Bytes read a second by the roof's; above 1, weights come out of a cache.
    pub(super) bandwidth_share: f64,
}

/// Reading a prompt.
#[derive(Debug, Serialize)]
pub(super) struct PrefillReport {
    pub(super) tokens: usize,
    pub(super) tokens_per_s: Spread,
}

/// One point of the curve T(M).
#[derive(Debug, Serialize)]
pub(super) struct ForwardReport {
    /// New tokens of the pass, all logits asked for.
    pub(super) rows: usize,
    /// Tokens before them.
    pub(super) context: usize,
    pub(super) seconds: Spread,
    /// Median seconds over those of one row.
    pub(super) ratio: f64,
}

/// Several measurements of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |i: usize| sorted.get(i).copied().unwrap_or(0.0);
        let half = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            at(half)
        } else {
            (at(half.saturating_sub(1)) + at(half)) / 2.0
        };
        Self {
            median,
            min: at(0),
            max: at(sorted.len().saturating_sub(1)),
        }
    }

    fn rate(&self) -> String {
        format!(
            "{:.1} tokens/s ({:.1} to {:.1})",
            self.median, self.min, self.max
        )
    }
}

/// For people.
pub(super) fn table(report: &BenchReport) -> String {
    let mut text = format!(
        "{}, {} threads, {}, {} pages\nweights read by a pass: {}, memory: {:.1} GB/s\n\
         plain    {}, {:.0} % of the bandwidth\nprefill  {} of {} tokens\n\n",
        output::printable(&report.model),
        report.threads,
        report.cpu_path,
        report.pages,
        output::bytes(report.weight_bytes),
        report.bandwidth_bytes_per_s / 1e9,
        report.plain.tokens_per_s.rate(),
        100.0 * report.plain.bandwidth_share,
        report.prefill.tokens_per_s.rate(),
        report.prefill.tokens,
    );
    let mut rows = vec![
        ["M", "T(M) ms", "min", "max", "T(M)/T(1)"]
            .map(String::from)
            .to_vec(),
    ];
    for point in &report.forward {
        let shown = point.rows <= 10 || point.rows % 4 == 0;
        if shown {
            let ms = |seconds: f64| format!("{:.2}", 1e3 * seconds);
            let s = &point.seconds;
            rows.push(vec![
                point.rows.to_string(),
                ms(s.median),
                ms(s.min),
                ms(s.max),
                format!("{:.2}", point.ratio),
            ]);
        }
    }
    text.push_str(&output::table(&rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        let spread = |values: &[f64]| Spread::of(values);
        assert_eq!(
            (
                spread(&[3.0, 1.0, 2.0]).median,
                spread(&[3.0, 1.0, 2.0]).max
            ),
            (2.0, 3.0)
        );
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(spread(&[]).median, 0.0);
    }
}
