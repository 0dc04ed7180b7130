//! The tokenizer that everybody holds: an encoder, the table of tokens, and what the vocabulary says of itself.

use crate::byte_pair::BytePairEncoder;
use crate::extras::Extras;
use crate::sentencepiece::SentencePieceEncoder;
use crate::template::ChatTemplate;
use crate::token_table::{TokenKind, TokenTable};
use crate::vocabulary::GgufVocabulary;
use crate::{TextError, directory};
use foredraft_common::TokenId;
use foredraft_formats::{Metadata, VocabularySource};
use std::path::Path;

/// What [`Tokenizer::encode`] makes of the names of control tokens (`<|im_start|>`, `</s>`) in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// They become the control tokens: for what a chat template wrote, and for raw prompts.
    Parse,
    /// They are text like any other: for what a user wrote. (Tokens that the vocabulary defines as text, such as
    /// `<tool_call>`, are still one token.)
    AsText,
}

/// How text becomes token ids.
#[derive(Debug)]
pub(crate) enum Encoder {
    BytePair(Box<BytePairEncoder>),
    SentencePiece(Box<SentencePieceEncoder>),
}

/// The vocabulary of a model: encodes text and knows what each token is.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) encoder: Encoder,
    pub(crate) table: TokenTable,
    pub(crate) bos: Option<TokenId>,
    pub(crate) adds_bos: bool,
    pub(crate) adds_space_prefix: bool,
    /// Sorted.
    pub(crate) end_of_text: Vec<TokenId>,
    pub(crate) chat_template: Option<ChatTemplate>,
}

impl Tokenizer {
    /// The tokenizer of a GGUF file.
    ///
    /// # Errors
    /// When the metadata lacks a vocabulary, contradicts itself, or names a kind or pre-tokenizer that is not
    /// supported.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TextError> {
        Self::from_vocabulary(GgufVocabulary::read(metadata)?)
    }

    /// The tokenizer of a vocabulary as GGUF stores it.
    ///
    /// # Errors
    /// As [`Tokenizer::from_gguf`].
    pub fn from_vocabulary(vocabulary: GgufVocabulary) -> Result<Self, TextError> {
        vocabulary.into_tokenizer()
    }

    /// The tokenizer of a Hugging Face directory: `tokenizer.json`, and what `tokenizer_config.json`,
    /// `special_tokens_map.json`, `generation_config.json`, `config.json` and `chat_template.jinja` add, where
    /// they exist.
    ///
    /// # Errors
    /// When a file cannot be read or does not describe a BPE tokenizer that this crate can decode.
    pub fn from_json_directory(directory: &Path) -> Result<Self, TextError> {
        directory::load(directory)
    }

    /// The tokenizer that a `tokenizer.json` alone describes: without what the files beside it add (BOS and
    /// end-of-text tokens of unusual names, chat template).
    ///
    /// # Errors
    /// [`TextError::TokenizerJson`] when it does not describe a BPE tokenizer that this crate can decode.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TextError> {
        directory::from_json(bytes, &Extras::default()).map_err(TextError::TokenizerJson)
    }

    /// The tokenizer that a model's files bring.
    ///
    /// # Errors
    /// As [`Tokenizer::from_gguf`] and [`Tokenizer::from_json_directory`]; [`TextError::NoVocabulary`] if there is
    /// none.
    pub fn open(source: VocabularySource<'_>) -> Result<Self, TextError> {
        match source {
            VocabularySource::Gguf(metadata) => Self::from_gguf(metadata),
            VocabularySource::HuggingFace { directory } => Self::from_json_directory(directory),
            VocabularySource::None => Err(TextError::NoVocabulary),
        }
    }

    /// The token ids of `text`, without a BOS token (see [`Tokenizer::encode_prompt`]). Takes time in proportion
    /// to the length of the text, up to a logarithm.
    ///
    /// # Errors
    /// When the vocabulary cannot express a character.
    pub fn encode(&self, text: &str, special: Special) -> Result<Vec<TokenId>, TextError> {
        match &self.encoder {
            Encoder::BytePair(encoder) => encoder.encode(text, special),
            Encoder::SentencePiece(encoder) => encoder.encode(text, special),
        }
    }

    /// The token ids that a model should read for `text`: [`Tokenizer::encode`] with BOS in front if the
    /// vocabulary wants one and the text (a chat template often does) did not bring it.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, text: &str, special: Special) -> Result<Vec<TokenId>, TextError> {
        Ok(self.with_bos(self.encode(text, special)?))
    }

    /// `ids` with BOS in front, if the vocabulary wants one and it is not there.
    pub(crate) fn with_bos(&self, mut ids: Vec<TokenId>) -> Vec<TokenId> {
        if let (true, Some(bos)) = (self.adds_bos, self.bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// [`Tokenizer::encode`] with [`Special::Parse`], of a text whose `mark`s break up names of control tokens that
    /// are text: they are taken out once the control tokens are found.
    pub(crate) fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<TokenId>, TextError> {
        match &self.encoder {
            Encoder::BytePair(encoder) => encoder.encode_marked(text, mark),
            Encoder::SentencePiece(encoder) => encoder.encode_marked(text, mark),
        }
    }

    /// The names of all tokens that only [`Special::Parse`] reads.
    pub(crate) fn control_names(&self) -> impl Iterator<Item = &str> {
        let is_control = |kind| matches!(kind, TokenKind::Control | TokenKind::Unknown);
        self.table
            .iter()
            .filter(move |(_, name, kind)| is_control(*kind) && !name.is_empty())
            .map(|(_, name, _)| name)
    }

    /// The token that begins a text, if the vocabulary has one.
    pub fn bos(&self) -> Option<TokenId> {
        self.bos
    }

    /// Whether a text must begin with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// Whether the encoder puts a space before a text's first word (SentencePiece's dummy prefix).
    pub fn adds_space_prefix(&self) -> bool {
        self.adds_space_prefix
    }

    /// Whether this token ends an answer: end of text, of a turn, or of a message.
    pub fn is_end_of_text(&self, id: TokenId) -> bool {
        self.end_of_text.binary_search(&id).is_ok()
    }

    /// All tokens that end an answer, in order of their ids.
    pub fn end_of_text_ids(&self) -> &[TokenId] {
        &self.end_of_text
    }

    /// One past the last real token. The embedding table of a model is often longer.
    pub fn vocabulary_len(&self) -> usize {
        self.table.vocabulary_len()
    }

    /// Whether a model may emit this id: false beyond the vocabulary and for padding inside it (unused tokens,
    /// `[PAD151646]`).
    pub fn can_emit(&self, id: TokenId) -> bool {
        self.table.kind(id) != TokenKind::Unused
    }

    /// The bytes that this token adds to an output; they need not be whole characters. Empty for control and
    /// unknown tokens and for ids that cannot be emitted.
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.table.bytes(id)
    }

    /// The token's name as the file writes it (`Ġthe`, `▁the`, `<|im_end|>`), for display; empty beyond the table.
    pub fn token_text(&self, id: TokenId) -> &str {
        self.table.name(id).unwrap_or_default()
    }

    /// What kind of token this is; ids beyond the table are [`TokenKind::Unused`].
    pub fn token_kind(&self, id: TokenId) -> TokenKind {
        self.table.kind(id)
    }

    /// Whether this is a control token, which is no text.
    pub fn is_special(&self, id: TokenId) -> bool {
        matches!(self.table.kind(id), TokenKind::Control | TokenKind::Unknown)
    }

    /// The model's chat template, if it brings one.
    pub fn chat_template(&self) -> Option<&ChatTemplate> {
        self.chat_template.as_ref()
    }

    /// A tokenizer with one token per byte, for tests of other modules.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let tokens: Vec<String> = (0..=255u8).map(|b| format!("<0x{b:02X}>")).collect();
        let vocabulary = GgufVocabulary {
            model: "llama".into(),
            types: vec![6; tokens.len()],
            scores: vec![0.0; tokens.len()],
            tokens,
            add_space_prefix: false,
            ..GgufVocabulary::default()
        };
        Self::from_vocabulary(vocabulary).expect("a byte vocabulary")
    }
}
