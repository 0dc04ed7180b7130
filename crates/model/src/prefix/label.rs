//! The tokens of a node, in an order in which those that begin alike are neighbours.

use foredraft_common::TokenId;

use crate::kv::PAGE_POSITIONS;

/// Up to 16 tokens, ordered as words in a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Label {
    /// Filled up with the lowest id, so that the derived order is that of a dictionary.
    tokens: [TokenId; PAGE_POSITIONS],
    len: usize,
}

impl Label {
    /// A label of at most 16 tokens.
    pub(super) fn new(tokens: &[TokenId]) -> Self {
        let mut label = Self {
            tokens: [TokenId(0); PAGE_POSITIONS],
            len: tokens.len(),
        };
        label.tokens[..tokens.len()].copy_from_slice(tokens);
        label
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many tokens both begin with.
    pub(super) fn agreement(&self, other: &Self) -> usize {
        let both = self.tokens[..self.len]
            .iter()
            .zip(&other.tokens[..other.len]);
        both.take_while(|(a, b)| a == b).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_ordered_as_words_in_a_dictionary() {
        let words: [&[u32]; 8] = [
            &[],
            &[0],
            &[0, 0],
            &[0, 0, 7],
            &[0, 1],
            &[1],
            &[1, 0],
            &[1, 0, 0],
        ];
        let labels = words.map(|word| {
            let tokens: Vec<TokenId> = word.iter().copied().map(TokenId).collect();
            Label::new(&tokens)
        });
        assert!(labels.is_sorted_by(|a, b| a < b));
        assert_eq!(labels[2].agreement(&labels[3]), 2);
        assert_eq!(
            labels[0].agreement(&labels[1]),
            0,
            "what fills it up does not count"
        );
    }
}
