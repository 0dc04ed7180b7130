//! `inspect MODEL --against OTHER`: two vocabularies, token by token.

use foredraft::text::{TokenMeaning, VocabularyComparison};
use serde::Serialize;

use super::show::{grouped, row};
use crate::output::{printable, table};

/// What comparing came to. `here` is the model, `there` the one it is compared with.
#[derive(Debug, Serialize)]
pub(super) struct Against {
    /// The other model.
    model: String,
    /// Whether the one may draft for the other: no shared id differs.
    compatible: bool,
    /// Ids that both models can emit.
    shared: usize,
    /// Of these, ids that stand for different tokens.
    differing: usize,
    /// Ids that only this model can emit.
    only_here: usize,
    /// Ids that only the other can emit.
    only_there: usize,
    /// The first of the ids that differ.
    first_differences: Vec<Difference>,
}

/// An id that stands for different tokens.
#[derive(Debug, Serialize)]
struct Difference {
    id: u32,
    here: Meaning,
    there: Meaning,
}

/// What an id stands for.
#[derive(Debug, Serialize)]
struct Meaning {
    /// The text that it writes; the name of a token that writes none.
    text: String,
    /// `text`, `control`, `unknown` or `end of text`
    role: &'static str,
}

impl Against {
    pub(super) fn of(model: &str, comparison: &VocabularyComparison) -> Self {
        let meaning = |of: &TokenMeaning| Meaning {
            text: of.text.clone(),
            role: of.role.name(),
        };
        let differences = comparison.first_differences.iter();
        Against {
            model: model.to_string(),
            compatible: comparison.is_compatible(),
            shared: comparison.shared,
            differing: comparison.differing,
            only_here: comparison.only_target,
            only_there: comparison.only_draft,
            first_differences: differences
                .map(|of| Difference {
                    id: of.id.0,
                    here: meaning(&of.target),
                    there: meaning(&of.draft),
                })
                .collect(),
        }
    }

    /// The comparison as lines.
    pub(super) fn text(&self) -> String {
        let count = |count: usize| grouped(count as u64);
        let drafting = match self.compatible {
            true => "each may draft for the other",
            false => "neither can draft for the other",
        };
        let mut text = table(&[
            row("against", printable(&self.model)),
            row("drafting", drafting.to_string()),
            row("shared ids", count(self.shared)),
            row("different", count(self.differing)),
            row("only here", count(self.only_here)),
            row("only there", count(self.only_there)),
        ]);
        if self.first_differences.is_empty() {
            return text;
        }
        let mut rows = vec![
            ["ID", "HERE", "ROLE", "THERE", "ROLE"]
                .map(String::from)
                .to_vec(),
        ];
        for of in &self.first_differences {
            let quoted = |side: &Meaning| printable(&format!("{:?}", side.text));
            let role = |side: &Meaning| side.role.to_string();
            rows.push(vec![
                of.id.to_string(),
                quoted(&of.here),
                role(&of.here),
                quoted(&of.there),
                role(&of.there),
            ]);
        }
        let more = self.differing - self.first_differences.len();
        text.push('\n');
        text.push_str(&table(&rows));
        if more > 0 {
            text.push_str(&format!("and {} more\n", count(more)));
        }
        text
    }
}
