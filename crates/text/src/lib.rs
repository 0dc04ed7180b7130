//! Text in, tokens out, and back: tokenizers, chat templates, incremental detokenizer, stop strings.
//!
//! The way of a request through this crate:
//!
//! ```text
//! messages --ChatTemplate::render--> prompt text --Tokenizer::encode--> token ids --> (engine)
//! (engine) --> token id --Detokenizer::push--> whole characters --StopMatcher::push--> text that may be shown
//! ```
//!
//! # Which tokenizers
//! A [`Tokenizer`] is built from GGUF metadata ([`Tokenizer::from_gguf`]) or from a Hugging Face directory
//! ([`Tokenizer::from_json_directory`]). Three encoders stand behind it:
//!
//! * byte-level BPE from a GGUF file (`tokenizer.ggml.model` = `gpt2`): run by the `tokenizers` crate, with the
//!   pre-tokenizer that `tokenizer.ggml.pre` names ([`pretokenizer`]);
//! * SentencePiece BPE from a GGUF file (`llama`): our own merge by scores ([`sentencepiece`] says why);
//! * whatever a `tokenizer.json` describes, as long as its model is BPE and its decoder is one of the two
//!   kinds above.
//!
//! # Invariants
//! * Text never injects control tokens unless the caller asks for it ([`Special`]).
//! * [`Tokenizer::token_bytes`] is the only source of output text: a token's bytes do not depend on its
//!   neighbours, so a burst of several accepted tokens reads as the same tokens one by one.
//! * What a [`Detokenizer`] emits, concatenated, is the lossy UTF-8 decoding of all bytes, however they were split.
//! * An id for which [`Tokenizer::can_emit`] is false is padding of the embedding table: no sampler may draw it.
//! * Files are untrusted: a bad vocabulary, `tokenizer.json` or template is an error, never a panic; a template
//!   can neither loop for ever nor fill the memory.

mod byte_level;
mod byte_pair;
mod chat;
mod comparison;
mod detokenize;
mod directory;
mod error;
mod extras;
mod gguf;
pub mod pretokenizer;
pub mod sentencepiece;
mod stop;
pub mod template;
mod token_table;
mod tokenizer;
mod vocabulary;

pub use comparison::{
    TokenMeaning, TokenRole, VocabularyComparison, VocabularyDifference, VocabularyMismatch,
};
pub use detokenize::Detokenizer;
pub use error::TextError;
pub use foredraft_common::TokenId;
pub use stop::{MAX_STOP_BYTES, MAX_STOP_STRINGS, StopMatcher, StopOutcome};
pub use template::{ChatRequest, ChatTemplate, Message};
pub use token_table::TokenKind;
pub use tokenizer::{Special, Tokenizer};
pub use vocabulary::GgufVocabulary;
