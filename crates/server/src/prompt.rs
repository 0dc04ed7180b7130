//! What a prompt must be before the engine sees it: errors here have a status, later ones could only break a stream.

use foredraft_common::TokenId;

use crate::error::ApiError;
use crate::options::Limits;
use crate::state::Model;

/// Checks the tokens of a prompt, which is in this field of the request.
///
/// # Errors
/// 400: empty, too long, or not the model's.
pub(crate) fn check(prompt: &[TokenId], model: &Model, param: &str) -> Result<(), ApiError> {
    let context = model.context_tokens;
    if prompt.is_empty() {
        let message = "the prompt is empty: give at least one token";
        return Err(ApiError::invalid(param, message));
    }
    if prompt.len() >= context {
        return Err(ApiError::prompt_too_long(prompt.len(), context).at(param));
    }
    check_ids(prompt, model, param)
}

/// Checks that the vocabulary has these tokens.
///
/// # Errors
/// 400, naming the first that it has not.
pub(crate) fn check_ids(tokens: &[TokenId], model: &Model, param: &str) -> Result<(), ApiError> {
    let tokenizer = &model.tokenizer;
    match tokens.iter().find(|id| !tokenizer.can_emit(**id)) {
        None => Ok(()),
        Some(id) => Err(ApiError::invalid(
            param,
            format!(
                "token {id} is not in the vocabulary, which has {} tokens",
                tokenizer.vocabulary_len()
            ),
        )),
    }
}

/// Checks how many answers are asked for: prompts times `n`.
///
/// # Errors
/// 400 when there are more than one request may have.
pub(crate) fn check_choices(choices: usize, limits: &Limits) -> Result<(), ApiError> {
    if choices <= limits.choices {
        return Ok(());
    }
    let message = format!(
        "{choices} answers are asked for, prompts times n; a request may have {}",
        limits.choices
    );
    Err(ApiError::invalid("n", message))
}
