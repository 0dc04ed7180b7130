//! A sequence: its tokens, and the pages that hold their keys and values.

use foredraft_common::TokenId;
use foredraft_model::PageTables;
use foredraft_model::kv::PageId;

/// Tokens and where their keys and values are.
///
/// Invariant: the committed tokens are a prefix of the tokens.
#[derive(Debug)]
pub(crate) struct Sequence {
    tokens: Vec<TokenId>,
    pub(crate) pages: PageTables,
}

impl Sequence {
    /// A sequence without pages, in a program with `groups` layer groups.
    pub(crate) fn new(tokens: Vec<TokenId>, groups: usize) -> Self {
        Self {
            tokens,
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

    /// Tokens that it shares with the beginning of `text`.
    pub(crate) fn agreement(&self, text: &[TokenId]) -> usize {
        let both = self.tokens.iter().zip(text);
        both.take_while(|(a, b)| a == b).count()
    }
}
