//! The prompts of a completion, in any of the forms that OpenAI knows.

use foredraft_common::TokenId;
use foredraft_text::{Special, Tokenizer};
use serde::Deserialize;
use utoipa::ToSchema;

use super::infill::Infill;
use crate::error::ApiError;
use crate::prompt::check_ids;
use crate::state::Model;

/// One prompt or several, as text or as tokens. In a text the names of special tokens are special.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "a text, a list of texts, a list of token ids, or a list of such lists"
)]
pub(super) enum Prompt {
    /// A text.
    Text(String),
    /// The tokens of a text.
    Tokens(Vec<u32>),
    /// Texts.
    Texts(Vec<String>),
    /// The tokens of texts.
    TokenLists(Vec<Vec<u32>>),
}

/// A prompt that the engine can read.
#[derive(Debug, PartialEq)]
pub(super) struct ReadPrompt {
    pub(super) tokens: Vec<TokenId>,
    /// What the answer begins with: the prompt, or nothing.
    pub(super) echo: String,
}

impl Prompt {
    /// How many prompts there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) => 1,
            Self::Texts(texts) => texts.len(),
            Self::TokenLists(lists) => lists.len(),
        }
    }

    /// The prompts as tokens.
    ///
    /// # Errors
    /// 400: no prompt, a text that the vocabulary cannot express, tokens that it does not have, or a suffix for a model
    /// that does not fill in.
    pub(super) fn read(
        &self,
        suffix: Option<&str>,
        echo: bool,
        model: &Model,
    ) -> Result<Vec<ReadPrompt>, ApiError> {
        // Editors send an empty suffix when there is nothing behind the cursor.
        let suffix = suffix.filter(|suffix| !suffix.is_empty());
        let text = |text: &String| of_text(text, suffix, echo, &model.tokenizer);
        let tokens = |ids: &Vec<u32>| match suffix {
            None => of_tokens(ids, echo, model),
            Some(_) => Err(ApiError::invalid(
                "suffix",
                "a suffix goes with a prompt of text: with tokens, write the model's own fill-in tokens",
            )),
        };
        match self {
            Self::Text(one) => Ok(vec![text(one)?]),
            Self::Tokens(one) => Ok(vec![tokens(one)?]),
            Self::Texts(several) if !several.is_empty() => several.iter().map(text).collect(),
            Self::TokenLists(several) if !several.is_empty() => {
                several.iter().map(tokens).collect()
            }
            Self::Texts(_) | Self::TokenLists(_) => {
                Err(ApiError::invalid("prompt", "the list of prompts is empty"))
            }
        }
    }
}

fn of_text(
    text: &str,
    suffix: Option<&str>,
    echo: bool,
    tokenizer: &Tokenizer,
) -> Result<ReadPrompt, ApiError> {
    let tokens = match suffix {
        None => tokenizer.encode_prompt(text, Special::Parse)?,
        Some(suffix) => Infill::of(tokenizer)?.prompt(text, suffix, tokenizer)?,
    };
    Ok(ReadPrompt {
        tokens,
        echo: if echo { text.to_owned() } else { String::new() },
    })
}

fn of_tokens(ids: &[u32], echo: bool, model: &Model) -> Result<ReadPrompt, ApiError> {
    let tokens: Vec<TokenId> = ids.iter().copied().map(TokenId).collect();
    check_ids(&tokens, model, "prompt")?;
    let echo = match echo {
        true => crate::tokenize::text(&model.tokenizer, &tokens),
        false => String::new(),
    };
    Ok(ReadPrompt { tokens, echo })
}
