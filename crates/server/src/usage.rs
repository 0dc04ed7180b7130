//! Tokens counted, as OpenAI counts them.

use foredraft_engine::Completion;
use serde::Serialize;
use utoipa::ToSchema;

/// Tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Usage {
    /// Of its prompts, each counted once however many answers it has.
    prompt_tokens: usize,
    /// Of all answers, the tokens that end texts included.
    completion_tokens: usize,
    /// Both.
    total_tokens: usize,
    /// More about the prompts.
    prompt_tokens_details: PromptTokensDetails,
}

/// More about the prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
struct PromptTokensDetails {
    /// Tokens whose keys and values were there already.
    cached_tokens: usize,
}

impl Usage {
    /// Of the answers to prompts that have `n` each, in order.
    pub(crate) fn new(completions: &[Completion], n: u32) -> Self {
        let prompts = || completions.iter().step_by(n.max(1) as usize);
        let prompt_tokens = prompts().map(|first| first.usage.prompt_tokens).sum();
        let cached_tokens = prompts().map(|first| first.usage.cached_tokens).sum();
        let answers = completions.iter();
        let completion_tokens = answers.map(|answer| answer.usage.completion_tokens).sum();
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens },
        }
    }
}
