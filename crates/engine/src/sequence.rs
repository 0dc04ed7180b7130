//! A sequence: its tokens, and the pages that hold their keys and values.

use foredraft_common::TokenId;
use foredraft_model::kv::PageId;
use foredraft_model::{PageCopy, PagePool, PageTables};

/// Tokens and where their keys and values are.
///
/// Invariant: the committed tokens are a prefix of the tokens.
#[derive(Debug, Default)]
pub(crate) struct Sequence {
    tokens: Vec<TokenId>,
    pages: PageTables,
}

impl Sequence {
    pub(crate) fn new(groups: usize) -> Self {
        Self {
            tokens: Vec::new(),
            pages: PageTables::new(groups),
        }
    }

    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Tokens whose keys and values are in pages.
    pub(crate) fn committed(&self) -> usize {
        self.pages.committed()
    }

    pub(crate) fn tables(&self) -> &[Vec<PageId>] {
        self.pages.tables()
    }

    /// Tokens that have not been through the model yet.
    pub(crate) fn pending(&self) -> &[TokenId] {
        &self.tokens[self.committed()..]
    }

    pub(crate) fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
    }

    /// Takes over a prompt: tokens that it shares with what is here stay committed, the rest is let go. The
    /// last token of the prompt always goes through the model, since its logits are wanted.
    pub(crate) fn restart(&mut self, prompt: &[TokenId], pools: &mut [PagePool]) {
        let shared = self
            .tokens
            .iter()
            .zip(prompt)
            .take_while(|(a, b)| a == b)
            .count();
        let keep = shared.min(prompt.len().saturating_sub(1));
        self.pages.truncate(keep, pools);
        self.tokens.clear();
        self.tokens.extend_from_slice(prompt);
    }

    /// See [`PageTables::reserve`].
    pub(crate) fn reserve(
        &mut self,
        more: usize,
        pools: &mut [PagePool],
        copies: &mut Vec<PageCopy>,
    ) -> bool {
        self.pages.reserve(more, pools, copies)
    }

    /// Counts `more` tokens as committed; their pages are reserved and written.
    pub(crate) fn commit(&mut self, more: usize) {
        self.pages.commit(more);
        debug_assert!(self.committed() <= self.tokens.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: std::ops::Range<u32>) -> Vec<TokenId> {
        range.map(TokenId).collect()
    }

    #[test]
    fn a_new_prompt_keeps_the_shared_pages_and_releases_the_rest() {
        let mut pools = [PagePool::new(8), PagePool::new(8)];
        let mut sequence = Sequence::new(2);
        sequence.restart(&ids(0..40), &mut pools);
        assert!(sequence.reserve(40, &mut pools, &mut Vec::new()));
        sequence.commit(40);
        assert_eq!((pools[0].used(), pools[1].used()), (3, 3));

        let mut prompt = ids(0..20);
        prompt.extend(ids(100..110));
        sequence.restart(&prompt, &mut pools);
        assert_eq!((sequence.committed(), pools[0].used()), (20, 2));
        assert_eq!(sequence.pending(), &ids(100..110)[..]);

        sequence.restart(&ids(0..20), &mut pools);
        assert_eq!(
            sequence.pending(),
            &ids(19..20)[..],
            "one token is left for its logits"
        );
    }
}
