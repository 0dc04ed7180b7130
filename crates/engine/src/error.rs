//! Why a model cannot be loaded, or a request not be answered.

use foredraft_model::{ForwardError, ModelError};
use foredraft_speculate::{DistributionError, SettingsError};
use foredraft_text::TextError;

use crate::budget::BudgetError;

/// Why a model could not be loaded or a request not be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Not a model that this build runs.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It does not fit, or not with these settings.
    #[error(transparent)]
    Budget(#[from] BudgetError),
    /// The tokenizer has ids that the model has no embedding for.
    #[error(
        "the tokenizer has {tokens} tokens, the model only {embeddings} embeddings: they do not belong together"
    )]
    Vocabulary {
        /// Entries of the tokenizer.
        tokens: usize,
        /// Rows of the embedding table.
        embeddings: usize,
    },
    /// A sampling setting is out of its range.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A text setting is wrong.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Nothing to continue.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// A prompt that leaves no room for an answer.
    #[error(
        "the prompt has {prompt} tokens, the context holds {context}: shorten the prompt or give a longer context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// The prompt's ids are not the model's.
    #[error(transparent)]
    Forward(#[from] ForwardError),
    /// A tree larger than what was reserved.
    #[error(
        "a step of {asked} drafted tokens is beyond the {reserved} that were reserved when the model was loaded: ask for fewer, or reserve more (EngineOptions::max_draft_nodes)"
    )]
    DraftNodes {
        /// Asked for.
        asked: usize,
        /// Reserved.
        reserved: usize,
    },
    /// The model's logits are not numbers.
    #[error("the model gave no usable logits at position {position}: {source}")]
    Logits {
        /// Of the token to be emitted.
        position: usize,
        /// What was wrong.
        source: DistributionError,
    },
    /// The page pool is smaller than the context: a defect, for what does not fit is refused at load.
    #[error("the KV page pool of {pages} pages is too small for one sequence")]
    Pages {
        /// Pages of the smallest pool.
        pages: usize,
    },
    /// What computes or hears this request's answer panicked; the other requests go on.
    #[error("a defect ended this request: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
}

/// Runs what belongs to one request: a panic in it becomes that request's error.
///
/// What `work` has changed so far stays changed; the caller throws the request's state away.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    result.unwrap_or_else(|payload| {
        Err(EngineError::Panicked {
            message: panic_message(payload.as_ref()),
        })
    })
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it panicked").to_owned()
}
