//! What can be wrong with a vocabulary, a text, a template or a stop string.

use std::path::PathBuf;

/// An error of this crate. The message names what is wrong, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The model brings no vocabulary at all.
    #[error(
        "the model has no vocabulary: a GGUF file needs `tokenizer.ggml.*` metadata, a Hugging Face \
         directory a tokenizer.json"
    )]
    NoVocabulary,

    /// `tokenizer.ggml.model` names a kind that is not built in.
    #[error(
        "tokenizer model `{name}` is not supported; supported are `gpt2` (byte-level BPE) and `llama` \
         (SentencePiece BPE)"
    )]
    UnsupportedTokenizer {
        /// The kind that the file names.
        name: String,
    },

    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not in [`crate::pretokenizer`].
    #[error(
        "pre-tokenizer `{name}` (metadata key `tokenizer.ggml.pre`) is not supported: without it the text \
         would be cut at the wrong places and the model would read other tokens than it was trained on"
    )]
    UnsupportedPreTokenizer {
        /// The name in the file.
        name: String,
    },

    /// A metadata key that the tokenizer needs is missing or has another type.
    #[error("vocabulary: metadata key `{key}` {problem}")]
    Metadata {
        /// The key.
        key: &'static str,
        /// What is wrong with its value.
        problem: String,
    },

    /// The metadata of a GGUF file could not be read.
    #[error(transparent)]
    Format(#[from] foredraft_formats::FormatError),

    /// The vocabulary contradicts itself.
    #[error("vocabulary: {0}")]
    Vocabulary(String),

    /// A file of a Hugging Face directory could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },

    /// A file of a Hugging Face directory does not hold what it should.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// A tokenizer.json given as bytes does not hold what it should.
    #[error("tokenizer.json: {0}")]
    TokenizerJson(String),

    /// The vocabulary cannot express a character of the text.
    #[error(
        "the vocabulary has no token for {character:?} (byte 0x{byte:02X}) and no unknown-token to stand for \
         it; remove the character from the text"
    )]
    NoToken {
        /// The character.
        character: char,
        /// The first of its bytes that has no token.
        byte: u8,
    },

    /// The `tokenizers` crate refused the text.
    #[error("cannot tokenize the text: {0}")]
    Encode(String),

    /// The model has no chat template, or none of the name asked for.
    #[error("the model has no chat template; give the prompt as raw text (`--raw`)")]
    NoTemplate,

    /// The chat template is not valid Jinja, or too large.
    #[error("the model's chat template does not compile: {0}; use `--raw` to prompt without it")]
    TemplateSyntax(String),

    /// The chat template itself refused the conversation with `raise_exception`.
    #[error("the model's chat template refuses this conversation: {0}")]
    TemplateRefused(String),

    /// Rendering took more steps or memory than a chat template may.
    #[error(
        "the model's chat template exceeded its budget of {fuel} steps: it loops for ever or makes too \
         much text"
    )]
    TemplateBudget {
        /// The steps it was given (about one instruction or 64 bytes each).
        fuel: u64,
    },

    /// Rendering failed.
    #[error("the model's chat template failed: {0}")]
    TemplateFailed(String),

    /// A stop string that cannot be matched.
    #[error("stop string: {0}")]
    StopString(String),
}
