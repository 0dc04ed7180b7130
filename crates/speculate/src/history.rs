//! The tokens that the penalties look at.

use std::collections::HashMap;

use foredraft_common::TokenId;

/// How often a token has occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenCounts {
    /// Occurrences in the prompt.
    pub prompt: u32,
    /// Occurrences in the output so far.
    pub output: u32,
}

/// How often each token has occurred in a sequence's prompt and output. A token is added in O(1).
///
/// Counts only, no order: that is all the penalties need. Distinct tokens are kept in a list in
/// order of first occurrence, so walking them is a plain loop.
#[derive(Debug, Clone, Default)]
pub struct History {
    entries: Vec<(TokenId, TokenCounts)>,
    index: HashMap<TokenId, usize>,
}

impl History {
    /// The history of a sequence whose output is still empty.
    pub fn new(prompt: &[TokenId]) -> Self {
        let mut history = Self::default();
        for &token in prompt {
            let counts = history.entry(token);
            counts.prompt = counts.prompt.saturating_add(1);
        }
        history
    }

    /// Adds an emitted token. Drafted tokens are never added: see [`with_path`](Self::with_path).
    pub fn push(&mut self, token: TokenId) {
        let counts = self.entry(token);
        counts.output = counts.output.saturating_add(1);
    }

    /// The history as it is.
    pub fn view(&self) -> HistoryView<'_> {
        self.with_path(&[])
    }

    /// The history as if the tokens of `path` had been emitted after it: what the distribution of a
    /// tree node sees, whose ancestors are drafted and not yet accepted. Costs nothing to make.
    pub fn with_path<'a>(&'a self, path: &'a [TokenId]) -> HistoryView<'a> {
        HistoryView {
            history: self,
            path,
        }
    }

    fn entry(&mut self, token: TokenId) -> &mut TokenCounts {
        let next = self.entries.len();
        let slot = *self.index.entry(token).or_insert(next);
        if slot == next {
            self.entries.push((token, TokenCounts::default()));
        }
        // The map holds positions in the list only, and the list never shrinks.
        &mut self.entries[slot].1
    }
}

/// A [`History`] and a path of tokens that follow it.
#[derive(Debug, Clone, Copy)]
pub struct HistoryView<'a> {
    history: &'a History,
    path: &'a [TokenId],
}

impl<'a> HistoryView<'a> {
    /// How often `token` has occurred, the path (which counts as output) included.
    pub fn counts(&self, token: TokenId) -> TokenCounts {
        let slot = self.history.index.get(&token);
        let mut counts = slot.map_or_else(TokenCounts::default, |&i| self.history.entries[i].1);
        let on_path = self.path.iter().filter(|&&t| t == token).count();
        counts.output = counts
            .output
            .saturating_add(on_path.min(u32::MAX as usize) as u32);
        counts
    }

    /// The distinct tokens of prompt and output with their counts, the path left out.
    pub(crate) fn entries(&self) -> &'a [(TokenId, TokenCounts)] {
        &self.history.entries
    }

    /// The tokens that follow the history.
    pub(crate) fn path(&self) -> &'a [TokenId] {
        self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().map(|&id| TokenId(id)).collect()
    }

    #[test]
    fn prompt_output_and_path_are_counted_apart() {
        let mut history = History::new(&tokens(&[5, 9, 5]));
        for id in [9, 7, 9] {
            history.push(TokenId(id));
        }
        let counts = |view: HistoryView<'_>, id| {
            let c = view.counts(TokenId(id));
            (c.prompt, c.output)
        };
        assert_eq!(
            [5, 7, 9, 1].map(|id| counts(history.view(), id)),
            [(2, 0), (0, 1), (1, 2), (0, 0)]
        );
        let path = tokens(&[1, 9, 1]);
        let view = history.with_path(&path);
        assert_eq!(
            [5, 7, 9, 1].map(|id| counts(view, id)),
            [(2, 0), (0, 1), (1, 3), (0, 2)]
        );
        // The view has left no trace.
        assert_eq!(counts(history.view(), 1), (0, 0));
    }
}
