//! Byte-level BPE, and every other BPE that a `tokenizer.json` can describe, run by the `tokenizers` crate.
//!
//! The crate's own `encode` has one switch for special tokens, set on the shared tokenizer. To serve both kinds of
//! text from one vocabulary, its stages are called here one by one, with one of two small tables of added tokens.
//! Post-processing (BOS, truncation, padding) is not applied: who builds a prompt decides that.

use crate::pretokenizer::PreTokenizer;
use crate::tokenizer::Special;
use crate::{TextError, byte_level};
use foredraft_common::TokenId;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, AddedVocabulary, Model, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer as _, PreTokenizerWrapper, SplitDelimiterBehavior,
};

/// A `tokenizers` pipeline that can read control tokens in a text, or not.
pub(crate) struct BytePairEncoder {
    inner: tokenizers::Tokenizer,
    /// The added tokens with the special ones switched off.
    without_special: AddedVocabulary,
    /// Which bytes of UTF-8 the vocabulary cannot express; mostly none.
    missing: Option<Box<[bool; 256]>>,
}

impl std::fmt::Debug for BytePairEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BytePairEncoder").finish_non_exhaustive()
    }
}

/// The token that an encoder of GGUF data has to recognise as a whole.
pub(crate) struct WholeToken {
    /// Its text.
    pub(crate) text: String,
    /// Only recognised with [`Special::Parse`].
    pub(crate) special: bool,
}

impl BytePairEncoder {
    /// Wraps a pipeline. `loses_bytes`: its model drops bytes that it has no token for.
    pub(crate) fn from_pipeline(inner: tokenizers::Tokenizer, loses_bytes: bool) -> Self {
        let mut without_special = inner.get_added_vocabulary().clone();
        without_special.set_encode_special_tokens(true);
        let has = |name: &str| inner.get_model().token_to_id(name).is_some();
        let missing = if loses_bytes {
            missing_bytes(has)
        } else {
            None
        };
        Self {
            inner,
            without_special,
            missing,
        }
    }

    /// Builds the pipeline of a GGUF file. Every merge joins two tokens of the vocabulary to a third (the caller has
    /// checked that; the crate would panic or refuse).
    pub(crate) fn from_parts(
        vocabulary: Vocab,
        merges: Vec<(String, String)>,
        whole: Vec<WholeToken>,
        pre: PreTokenizer,
    ) -> Result<Self, TextError> {
        let refused = |error: tokenizers::Error| TextError::Vocabulary(error.to_string());
        let model = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .ignore_merges(pre.ignores_merges)
            .build()
            .map_err(refused)?;
        let mut stages: Vec<PreTokenizerWrapper> = Vec::with_capacity(pre.patterns.len() + 1);
        for pattern in pre.patterns {
            let pattern = SplitPattern::Regex((*pattern).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            stages.push(split.map_err(refused)?.into());
        }
        stages.push(ByteLevel::new(false, false, false).into());
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_pre_tokenizer(Some(Sequence::new(stages)));
        let added = whole
            .into_iter()
            .map(|token| AddedToken::from(token.text, token.special).normalized(false));
        inner.add_tokens(added).map_err(refused)?;
        Ok(Self::from_pipeline(inner, true))
    }

    /// See [`crate::Tokenizer::encode`].
    pub(crate) fn encode(&self, text: &str, special: Special) -> Result<Vec<TokenId>, TextError> {
        let added = match special {
            Special::Parse => self.inner.get_added_vocabulary(),
            Special::AsText => &self.without_special,
        };
        self.encode_pieces(added.extract_and_normalize(self.inner.get_normalizer(), text))
    }

    /// See [`crate::Tokenizer::encode_marked`].
    pub(crate) fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<TokenId>, TextError> {
        let added = self.inner.get_added_vocabulary();
        let mut pieces = added.extract_and_normalize(self.inner.get_normalizer(), text);
        let without_mark = pieces.normalize(|piece| piece.replace(mark, ""));
        without_mark.map_err(|error| TextError::Encode(error.to_string()))?;
        self.encode_pieces(pieces)
    }

    /// Cuts what is no token yet into words and merges them.
    fn encode_pieces(&self, mut pieces: PreTokenizedString) -> Result<Vec<TokenId>, TextError> {
        let refused = |error: tokenizers::Error| TextError::Encode(error.to_string());
        self.check_bytes(&pieces)?;
        if let Some(pre) = self.inner.get_pre_tokenizer() {
            pre.pre_tokenize(&mut pieces).map_err(refused)?;
        }
        let model = self.inner.get_model();
        pieces
            .tokenize(|piece| model.tokenize(piece.get()))
            .map_err(refused)?;
        let mut ids = Vec::new();
        for (_, _, tokens) in pieces.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            ids.extend(tokens.iter().flatten().map(|token| TokenId(token.id)));
        }
        Ok(ids)
    }

    /// The `tokenizers` crate drops what a vocabulary without an unknown-token cannot express. A prompt that loses
    /// characters silently is worse than an error.
    fn check_bytes(&self, pieces: &PreTokenizedString) -> Result<(), TextError> {
        let Some(missing) = &self.missing else {
            return Ok(());
        };
        let lacks = |byte: &u8| missing.get(usize::from(*byte)) == Some(&true);
        let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        let texts = splits
            .into_iter()
            .filter(|(_, _, tokens)| tokens.is_none())
            .map(|(text, _, _)| text);
        for character in texts.flat_map(str::chars) {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            if let Some(&byte) = bytes.iter().find(|byte| lacks(byte)) {
                return Err(TextError::NoToken { character, byte });
            }
        }
        Ok(())
    }
}

/// Which bytes that occur in UTF-8 have no token; `None` when all have one.
fn missing_bytes(has: impl Fn(&str) -> bool) -> Option<Box<[bool; 256]>> {
    let mut missing = Box::new([false; 256]);
    for (byte, lacks) in (0..=255u8).zip(missing.iter_mut()) {
        let mut buffer = [0; 4];
        let name = byte_level::byte_to_char(byte).encode_utf8(&mut buffer);
        *lacks = byte_level::occurs_in_utf8(byte) && !has(name);
    }
    missing.contains(&true).then_some(missing)
}
