//! What each token is and which bytes it contributes: one flat table, filled at load, read in the hot loop.

use foredraft_common::TokenId;

/// The kind of a token, numbered as in GGUF's `tokenizer.ggml.token_type` (after SentencePiece's piece types).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of text (1).
    Normal,
    /// Stands for what the vocabulary cannot express (2).
    Unknown,
    /// Steers the model and is no text: `<s>`, `<|im_end|>` (3).
    Control,
    /// Text that is always one token: `<tool_call>` (4).
    UserDefined,
    /// In the table, but never read or written: padding (5).
    Unused,
    /// A single byte: `<0x0A>` (6).
    Byte,
}

impl TokenKind {
    /// The kind with this number in a GGUF file; numbers that nobody has defined read as text, as in llama.cpp.
    pub fn from_gguf(number: i32) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }
}

/// Names, kinds and bytes of all tokens; ids index it.
#[derive(Debug, Default)]
pub(crate) struct TokenTable {
    names: Vec<Box<str>>,
    kinds: Vec<TokenKind>,
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where the bytes of token i end; they begin where those of i - 1 end.
    ends: Vec<usize>,
    /// One past the last token that is not padding.
    vocabulary_len: usize,
}

impl TokenTable {
    /// Appends the token with the next id. Its bytes are what text it adds to an output.
    pub(crate) fn push(
        &mut self,
        name: &str,
        kind: TokenKind,
        write_bytes: impl FnOnce(&mut Vec<u8>),
    ) {
        write_bytes(&mut self.bytes);
        self.ends.push(self.bytes.len());
        self.names.push(name.into());
        self.kinds.push(kind);
        if kind != TokenKind::Unused {
            self.vocabulary_len = self.names.len();
        }
    }

    /// One past the last id that is not padding.
    pub(crate) fn vocabulary_len(&self) -> usize {
        self.vocabulary_len
    }

    /// The name in the file; `None` beyond the table.
    pub(crate) fn name(&self, id: TokenId) -> Option<&str> {
        self.names.get(id.index()).map(AsRef::as_ref)
    }

    /// The kind; ids beyond the table are unused.
    pub(crate) fn kind(&self, id: TokenId) -> TokenKind {
        self.kinds
            .get(id.index())
            .copied()
            .unwrap_or(TokenKind::Unused)
    }

    /// The bytes; ids beyond the table have none.
    pub(crate) fn bytes(&self, id: TokenId) -> &[u8] {
        let Some(&end) = self.ends.get(id.index()) else {
            return &[];
        };
        let start = match id.index().checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(end),
            None => 0,
        };
        self.bytes.get(start..end).unwrap_or(&[])
    }

    /// All tokens in order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TokenId, &str, TokenKind)> {
        (0u32..)
            .map(TokenId)
            .zip(self.names.iter().zip(&self.kinds))
            .map(|(id, (name, &kind))| (id, name.as_ref(), kind))
    }
}

/// Whether `name` is what converters write for id `id` when the embedding table is longer than the vocabulary:
/// `[PAD151646]`, whatever type they give it.
pub(crate) fn is_padding_name(name: &str, id: usize) -> bool {
    name.strip_prefix("[PAD")
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|digits| digits.parse() == Ok(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_beyond_the_table_are_unused_and_silent() {
        let mut table = TokenTable::default();
        table.push("a", TokenKind::Normal, |b| b.push(b'a'));
        table.push("<s>", TokenKind::Control, |_| {});
        table.push("bc", TokenKind::Normal, |b| b.extend(b"bc"));
        table.push("[PAD3]", TokenKind::Unused, |_| {});
        assert_eq!(table.bytes(TokenId(0)), b"a");
        assert_eq!(table.bytes(TokenId(1)), b"");
        assert_eq!(table.bytes(TokenId(2)), b"bc");
        assert_eq!(table.bytes(TokenId(u32::MAX)), b"");
        assert_eq!(table.kind(TokenId(4)), TokenKind::Unused);
        assert_eq!(table.name(TokenId(4)), None);
        assert_eq!(table.vocabulary_len(), 3);
    }

    #[test]
    fn padding_is_recognised_only_under_its_own_id() {
        assert!(is_padding_name("[PAD151646]", 151_646));
        assert!(!is_padding_name("[PAD151646]", 7));
        assert!(!is_padding_name("[PAD]", 7));
    }
}
