//! What `bench` says: JSON (docs/json.md) and a table.

use foredraft::engine::Phases;
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
    /// Empty where drafts were compared and no curve was asked for.
    pub(super) forward: Vec<ForwardReport>,
    pub(super) parts: Vec<PartReport>,
    /// Comparisons with drafts.
    pub(super) drafts: Vec<DraftReport>,
}

/// Plain decoding against one draft.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DraftReport {
    pub(super) draft: String,
    /// The rule of acceptance: `rejection`, `coupled` or `block`.
    pub(super) verify: &'static str,
    /// `chain` or `WxD`.
    pub(super) tree: String,
    /// The most nodes of a step.
    pub(super) draft_max: usize,
    /// Sequences at a time.
    pub(super) batch: usize,
    pub(super) temperature: f32,
    pub(super) seed: Option<u64>,
    /// The file, or `built in`.
    pub(super) prompts: String,
    pub(super) prompt_count: usize,
    /// Without the draft, over the prompts.
    pub(super) plain_tokens_per_s: Spread,
    /// With it.
    pub(super) tokens_per_s: Spread,
    /// With over without it, of each prompt.
    pub(super) ratio: Spread,
    /// Whether all answers were the same token for token; null where nothing promises that.
    pub(super) identical: Option<bool>,
    pub(super) tokens_per_step: f64,
    /// accepted / drafted.
    pub(super) acceptance_rate: f64,
    /// For each depth from 1 on: of the steps that drafted so deep, the share that accepted as deep.
    pub(super) accepted_by_depth: Vec<f64>,
    /// Where the time of a plain step goes, and that of a drafted one.
    pub(super) plain_step: StepReport,
    pub(super) step: StepReport,
}

/// What a step takes on average, and what share of it each phase has.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct StepReport {
    /// Steps after the prompt's.
    pub(super) steps: usize,
    /// Of one step.
    pub(super) seconds: f64,
    pub(super) draft_share: f64,
    pub(super) forward_share: f64,
    pub(super) verify_share: f64,
    pub(super) other_share: f64,
}

impl StepReport {
    pub(super) fn new(steps: usize, phases: &Phases) -> Self {
        let Phases {
            draft_seconds,
            forward_seconds,
            verify_seconds,
            other_seconds,
        } = *phases;
        let sum = draft_seconds + forward_seconds + verify_seconds + other_seconds;
        let share = |seconds: f64| if sum > 0.0 { seconds / sum } else { 0.0 };
        Self {
            steps,
            seconds: sum / steps.max(1) as f64,
            draft_share: share(draft_seconds),
            forward_share: share(forward_seconds),
            verify_share: share(verify_seconds),
            other_share: share(other_seconds),
        }
    }
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

/// What a part of a pass takes, as one thread sees it: the median over the rounds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PartReport {
    /// New tokens of the pass.
    pub(super) rows: usize,
    /// Which part.
    pub(super) part: &'static str,
    /// Of work.
    pub(super) seconds: f64,
    /// Of waiting for the other threads after it.
    pub(super) waiting_seconds: f64,
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
         plain    {}, {:.0} % of the bandwidth\nprefill  {} of {} tokens\n",
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
    if !report.forward.is_empty() {
        text.push('\n');
        text.push_str(&curve(&report.forward));
        text.push('\n');
        text.push_str(&parts(&report.parts));
    }
    for draft in &report.drafts {
        text.push('\n');
        text.push_str(&comparison(draft));
    }
    text
}

fn curve(forward: &[ForwardReport]) -> String {
    let mut rows = vec![
        ["M", "T(M) ms", "min", "max", "T(M)/T(1)"]
            .map(String::from)
            .to_vec(),
    ];
    for point in forward {
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
    output::table(&rows)
}

fn parts(parts: &[PartReport]) -> String {
    let mut rows = vec![["M", "part", "ms", "waiting"].map(String::from).to_vec()];
    for part in parts {
        rows.push(vec![
            part.rows.to_string(),
            part.part.to_owned(),
            format!("{:.2}", 1e3 * part.seconds),
            format!("{:.2}", 1e3 * part.waiting_seconds),
        ]);
    }
    output::table(&rows)
}

fn comparison(report: &DraftReport) -> String {
    let identical = match report.identical {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "not promised without a seed, or by this rule",
    };
    let depths: Vec<String> = report
        .accepted_by_depth
        .iter()
        .map(|share| format!("{share:.2}"))
        .collect();
    let mut text = format!(
        "{}, {} of up to {}, {}, temperature {}, {} prompts ({})\n\
         plain      {}\nwith draft {}\nratio      {:.2} ({:.2} to {:.2}), identical: {identical}\n\
         {:.2} tokens a step, {:.0} % of what was drafted accepted; by depth: {}\n",
        output::printable(&report.draft),
        report.tree,
        report.draft_max,
        report.verify,
        report.temperature,
        report.prompt_count,
        output::printable(&report.prompts),
        report.plain_tokens_per_s.rate(),
        report.tokens_per_s.rate(),
        report.ratio.median,
        report.ratio.min,
        report.ratio.max,
        report.tokens_per_step,
        100.0 * report.acceptance_rate,
        depths.join(" "),
    );
    let mut rows = vec![
        ["step", "ms", "draft", "forward", "verify", "other"]
            .map(String::from)
            .to_vec(),
    ];
    for (name, step) in [("plain", &report.plain_step), ("drafted", &report.step)] {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        rows.push(vec![
            name.to_owned(),
            format!("{:.2}", 1e3 * step.seconds),
            percent(step.draft_share),
            percent(step.forward_share),
            percent(step.verify_share),
            percent(step.other_share),
        ]);
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
