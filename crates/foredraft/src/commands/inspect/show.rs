//! A [`Report`] for people.

use super::report::{Hyperparameters, Report, Token, Vocabulary};
use crate::output::{bytes, printable, table};

/// Special tokens that are listed; more are counted.
const TOKENS_SHOWN: usize = 12;

/// The report as lines. Everything that comes out of the file is made safe to print.
pub(super) fn text(report: &Report) -> String {
    let mut rows = vec![
        row("model", printable(&report.model)),
        row(
            "file",
            format!(
                "{} ({}, {})",
                printable(&report.path),
                report.format,
                bytes(report.file_bytes)
            ),
        ),
        row("parameters", grouped(report.parameters)),
    ];
    match (&report.hyperparameters, &report.hyperparameters_problem) {
        (Some(known), _) => network(known, &mut rows),
        (None, problem) => rows.push(row("network", unknown(problem))),
    }
    match (&report.vocabulary, &report.vocabulary_problem) {
        (Some(known), _) => vocabulary(known, &mut rows),
        (None, problem) => rows.push(row("vocabulary", unknown(problem))),
    }
    let mut text = table(&rows);
    text.push('\n');
    text.push_str(&types(report));
    if let Some(tensors) = &report.tensors {
        let mut rows = vec![
            ["TENSOR", "TYPE", "SHAPE", "BYTES"]
                .map(String::from)
                .to_vec(),
        ];
        for tensor in tensors {
            let shape = format!("{:?}", tensor.shape);
            rows.push(vec![
                printable(&tensor.name),
                tensor.kind.to_string(),
                shape,
                grouped(tensor.bytes),
            ]);
        }
        text.push('\n');
        text.push_str(&table(&rows));
    }
    if let Some(against) = &report.against {
        text.push('\n');
        text.push_str(&against.text());
    }
    text
}

pub(super) fn row(key: &str, value: String) -> Vec<String> {
    vec![key.to_string(), value]
}

fn unknown(problem: &Option<String>) -> String {
    printable(problem.as_deref().unwrap_or("not in the file"))
}

fn network(known: &Hyperparameters, rows: &mut Vec<Vec<String>>) {
    let Hyperparameters {
        layers,
        width,
        ffn_width,
        heads,
        kv_heads,
        head_dim,
        ..
    } = known;
    if let Some(name) = &known.name {
        rows.push(row("name", printable(name)));
    }
    rows.push(row("architecture", printable(&known.architecture)));
    rows.push(row(
        "layers",
        format!("{layers}, width {width}, feed-forward {ffn_width}"),
    ));
    rows.push(row(
        "attention",
        format!("{heads} heads of {head_dim}, {kv_heads} for keys and values"),
    ));
    let window = known
        .window
        .map(|window| format!(", sliding window {window}"))
        .unwrap_or_default();
    rows.push(row(
        "context",
        format!("{} tokens{window}", known.context_tokens),
    ));
    let rope = (
        known.rope_base,
        known.rope_dims,
        known.rope_layout,
        known.rope_scaling,
    );
    rows.push(row(
        "rope",
        format!(
            "base {}, {} dimensions, {}, scaling {}",
            rope.0, rope.1, rope.2, rope.3
        ),
    ));
    rows.push(row("norm epsilon", format!("{:e}", known.norm_epsilon)));
    let output = if known.tied_embeddings {
        "the embedding"
    } else {
        "a layer of its own"
    };
    rows.push(row(
        "output layer",
        format!("{output}, {} rows", known.vocabulary_rows),
    ));
}

fn vocabulary(known: &Vocabulary, rows: &mut Vec<Vec<String>>) {
    let pre = known
        .pre_tokenizer
        .as_deref()
        .map(|pre| format!(", pre-tokenizer {}", printable(pre)))
        .unwrap_or_default();
    rows.push(row(
        "vocabulary",
        format!("{} tokens, {}{pre}", known.tokens, printable(&known.model)),
    ));
    if let Some(bos) = &known.bos {
        let used = if known.adds_bos {
            ""
        } else {
            " (not added to prompts)"
        };
        rows.push(row("begin of text", format!("{}{used}", one(bos))));
    }
    rows.push(row("end of text", list(&known.end_of_text)));
    rows.push(row("special tokens", list(&known.special)));
    let template = match (&known.chat_template_problem, known.chat_template) {
        (Some(problem), _) => printable(problem),
        (None, true) => "in the file".to_string(),
        (None, false) => "none: prompts are raw text".to_string(),
    };
    rows.push(row("chat template", template));
}

fn one(token: &Token) -> String {
    format!("{} {}", token.id, printable(&token.text))
}

fn list(tokens: &[Token]) -> String {
    if tokens.is_empty() {
        return "none".to_string();
    }
    let shown: Vec<String> = tokens.iter().take(TOKENS_SHOWN).map(one).collect();
    let more = match tokens.len() - shown.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}

fn types(report: &Report) -> String {
    let all: u64 = report.types.iter().map(|share| share.bytes).sum();
    let mut rows = vec![
        ["TYPE", "TENSORS", "ELEMENTS", "BYTES", "SHARE"]
            .map(String::from)
            .to_vec(),
    ];
    for share in &report.types {
        let percent = 100.0 * share.bytes as f64 / all.max(1) as f64;
        rows.push(vec![
            share.name.to_string(),
            share.tensors.to_string(),
            grouped(share.elements),
            grouped(share.bytes),
            format!("{percent:.1} %"),
        ]);
    }
    table(&rows)
}

/// A count with its thousands apart: `1,117,320,768`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_117_320_768), "1,117,320,768");
    }
}
