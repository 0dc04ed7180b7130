//! Filling in: what a model reads that shall write what stands between a prefix and a suffix.
//!
//! Models trained for it (Bavarian et al. 2022, arXiv 2207.14255: "prefix, suffix, middle") have three control tokens of
//! their own names. What stands between them is code, not a prompt: names of control tokens in it are text.

use foredraft_common::TokenId;
use foredraft_text::{Special, TextError, Tokenizer};

use crate::error::ApiError;

/// Prefix, suffix, middle, by the names that families of models give them.
const NAMES: [[&str; 3]; 4] = [
    // Qwen2.5-Coder, CodeGemma.
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
    // StarCoder, Granite.
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
    // DeepSeek-Coder.
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
];

/// A model's tokens for filling in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Infill {
    prefix: TokenId,
    suffix: TokenId,
    middle: TokenId,
}

impl Infill {
    /// The model's.
    ///
    /// # Errors
    /// 400 when it has none.
    pub(super) fn of(tokenizer: &Tokenizer) -> Result<Self, ApiError> {
        let found = NAMES.iter().find_map(|names| Self::named(names, tokenizer));
        found.ok_or_else(|| {
            ApiError::unsupported(
                "suffix",
                "this model has no fill-in-the-middle tokens: leave suffix out",
            )
        })
    }

    fn named([prefix, suffix, middle]: &[&str; 3], tokenizer: &Tokenizer) -> Option<Self> {
        // A name is one token only where the vocabulary has it as a token.
        let token = |name: &str| match tokenizer.encode(name, Special::Parse).as_deref() {
            Ok([token]) => Some(*token),
            _ => None,
        };
        Some(Self {
            prefix: token(prefix)?,
            suffix: token(suffix)?,
            middle: token(middle)?,
        })
    }

    /// What the model reads.
    ///
    /// # Errors
    /// When the vocabulary cannot express the texts.
    pub(super) fn prompt(
        self,
        before: &str,
        after: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<TokenId>, TextError> {
        let mut tokens = Vec::new();
        if let (true, Some(bos)) = (tokenizer.adds_bos(), tokenizer.bos()) {
            tokens.push(bos);
        }
        tokens.push(self.prefix);
        tokens.extend(tokenizer.encode(before, Special::AsText)?);
        tokens.push(self.suffix);
        tokens.extend(tokenizer.encode(after, Special::AsText)?);
        tokens.push(self.middle);
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foredraft_text::GgufVocabulary;

    /// A byte for each token, and the names behind them.
    fn tokenizer(names: &[&str]) -> Tokenizer {
        let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
        let tokens: Vec<String> = bytes.chain(names.iter().map(ToString::to_string)).collect();
        let vocabulary = GgufVocabulary {
            model: "llama".into(),
            types: (0..tokens.len())
                .map(|id| if id < 256 { 6 } else { 3 })
                .collect(),
            scores: vec![0.0; tokens.len()],
            tokens,
            add_bos: Some(false),
            add_space_prefix: false,
            ..GgufVocabulary::default()
        };
        Tokenizer::from_vocabulary(vocabulary).expect("a vocabulary")
    }

    #[test]
    fn the_models_own_names_are_found() {
        for names in &NAMES {
            let tokenizer = tokenizer(names);
            let infill = Infill::of(&tokenizer).expect("they are there");
            let ids = infill.prompt("a", "b<|fim_middle|>", &tokenizer);
            let ids: Vec<u32> = ids.expect("text").iter().map(|id| id.0).collect();
            // The name inside the suffix is 14 bytes of text.
            assert_eq!(ids[..4], [256, 97, 257, 98]);
            assert_eq!(ids[4..].len(), 15);
            assert_eq!(ids.last(), Some(&258));
        }
    }

    #[test]
    fn a_model_without_them_is_told() {
        for names in [&[][..], &["<|fim_prefix|>", "<|fim_suffix|>"]] {
            let error = Infill::of(&tokenizer(names)).expect_err("incomplete");
            assert_eq!(error.detail.param.as_deref(), Some("suffix"));
        }
    }
}
