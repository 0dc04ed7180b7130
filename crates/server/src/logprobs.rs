//! Log probabilities in the two shapes of OpenAI's interfaces.
//!
//! They are those of the model's own distribution, before bias, penalties, temperature and truncation. The token that ends
//! a text has none: it is not part of the text.

use std::collections::BTreeMap;

use foredraft_common::TokenId;
use foredraft_engine::{Completion, TokenLogprob};
use foredraft_text::Tokenizer;
use serde::Serialize;
use utoipa::ToSchema;

use crate::listener::Emitted;

/// What stands for the logarithm of 0, which JSON cannot write: OpenAI's number.
const IMPOSSIBLE: f32 = -9999.0;

/// The most rivals that are told of each token.
pub(crate) const MAX_TOP: u32 = 20;

/// Log probabilities of a chat's answer.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct ChatLogprobs {
    /// One for each token of the text.
    content: Vec<ChatTokenLogprob>,
}

/// A token of a chat's answer.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
struct ChatTokenLogprob {
    #[serde(flatten)]
    token: RankedToken,
    /// The likeliest tokens in its place, the likeliest first.
    top_logprobs: Vec<RankedToken>,
}

/// A token and its log probability.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
struct RankedToken {
    /// Its text; parts of characters are shown as U+FFFD, see `bytes`.
    token: String,
    /// The natural logarithm of its probability.
    logprob: f32,
    /// Its bytes: those of several tokens may make one character. Null for a token that is no text.
    #[schema(required)]
    bytes: Option<Vec<u8>>,
}

/// Log probabilities of a completion.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub(crate) struct CompletionLogprobs {
    /// The tokens of the text; one that is not whole characters is written `bytes:\xe2\x82`.
    tokens: Vec<String>,
    /// Their log probabilities.
    token_logprobs: Vec<f32>,
    /// The likeliest tokens in the place of each, and itself.
    top_logprobs: Vec<BTreeMap<String, f32>>,
    /// Where each begins, in characters from the beginning of the text.
    text_offset: Vec<usize>,
}

/// The tokens of an answer and their log probabilities, if those were asked for.
pub(crate) fn emitted(completion: &Completion) -> Vec<Emitted> {
    let tokens = completion.tokens.iter().zip(&completion.logprobs);
    let emitted = tokens.map(|(&token, logprob)| Emitted {
        token,
        logprob: Some(logprob.clone()),
    });
    emitted.collect()
}

/// Those tokens that are text and have a log probability.
fn told<'e>(
    tokenizer: &Tokenizer,
    emitted: &'e [Emitted],
) -> impl Iterator<Item = (TokenId, &'e TokenLogprob)> {
    emitted
        .iter()
        .filter(|emitted| !tokenizer.is_end_of_text(emitted.token))
        .filter_map(|emitted| Some((emitted.token, emitted.logprob.as_ref()?)))
}

impl ChatLogprobs {
    pub(crate) fn new(tokenizer: &Tokenizer, tokens: &[Emitted]) -> Self {
        let ranked = |token, logprob| RankedToken::new(tokenizer, token, logprob);
        let content = told(tokenizer, tokens).map(|(token, logprob)| ChatTokenLogprob {
            token: ranked(token, logprob.log_probability),
            top_logprobs: logprob.top.iter().map(|&(t, p)| ranked(t, p)).collect(),
        });
        Self {
            content: content.collect(),
        }
    }
}

impl RankedToken {
    fn new(tokenizer: &Tokenizer, token: TokenId, logprob: f32) -> Self {
        let bytes = tokenizer.token_bytes(token);
        Self {
            token: match bytes {
                [] => tokenizer.token_text(token).to_owned(),
                bytes => String::from_utf8_lossy(bytes).into_owned(),
            },
            logprob: logprob.max(IMPOSSIBLE),
            bytes: (!bytes.is_empty()).then(|| bytes.to_vec()),
        }
    }
}

impl CompletionLogprobs {
    /// `offset`: characters of the text before these tokens; it is moved behind them.
    pub(crate) fn new(tokenizer: &Tokenizer, tokens: &[Emitted], offset: &mut usize) -> Self {
        let mut logprobs = Self::default();
        for (token, logprob) in told(tokenizer, tokens) {
            let own = logprob.log_probability.max(IMPOSSIBLE);
            let top = logprob.top.iter();
            let top = top.map(|&(t, p)| (written(tokenizer, t), p.max(IMPOSSIBLE)));
            let mut top: BTreeMap<String, f32> = top.collect();
            let name = written(tokenizer, token);
            if !logprob.top.is_empty() {
                top.insert(name.clone(), own);
            }
            logprobs.tokens.push(name);
            logprobs.token_logprobs.push(own);
            logprobs.top_logprobs.push(top);
            logprobs.text_offset.push(*offset);
            let bytes = tokenizer.token_bytes(token);
            // A character counts where it begins.
            *offset += bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
        }
        logprobs
    }
}

/// A token as completions write it: different tokens look different.
fn written(tokenizer: &Tokenizer, token: TokenId) -> String {
    match tokenizer.token_bytes(token) {
        [] => tokenizer.token_text(token).to_owned(),
        bytes => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => {
                let escaped = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
                format!("bytes:{}", escaped.collect::<String>())
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foredraft_text::GgufVocabulary;
    use serde_json::json;

    /// A byte for each token, and behind them one that ends a text.
    fn tokenizer() -> Tokenizer {
        let bytes = (0..=255u8).map(|byte| format!("<0x{byte:02X}>"));
        let tokens: Vec<String> = bytes.chain(["</s>".to_owned()]).collect();
        let vocabulary = GgufVocabulary {
            model: "llama".into(),
            types: (0..257).map(|id| if id < 256 { 6 } else { 3 }).collect(),
            scores: vec![0.0; tokens.len()],
            tokens,
            eos: Some(256),
            ..GgufVocabulary::default()
        };
        Tokenizer::from_vocabulary(vocabulary).expect("a vocabulary")
    }

    fn emitted(token: u32, logprob: f32, top: &[(u32, f32)]) -> Emitted {
        Emitted {
            token: TokenId(token),
            logprob: Some(TokenLogprob {
                log_probability: logprob,
                top: top.iter().map(|&(id, p)| (TokenId(id), p)).collect(),
            }),
        }
    }

    /// "aé" in bytes, and the end of the text.
    fn text() -> Vec<Emitted> {
        vec![
            emitted(97, -0.5, &[(97, -0.5), (256, -2.0)]),
            emitted(0xC3, -1.0, &[(97, -0.75), (0xC3, -1.0)]),
            emitted(
                0xA9,
                f32::NEG_INFINITY,
                &[(97, -0.25), (98, f32::NEG_INFINITY)],
            ),
            emitted(256, -0.125, &[]),
        ]
    }

    #[test]
    fn completions_tell_tokens_apart_and_where_they_begin() {
        let mut offset = 10;
        let logprobs = CompletionLogprobs::new(&tokenizer(), &text(), &mut offset);
        let expected = json!({
            "tokens": ["a", "bytes:\\xc3", "bytes:\\xa9"],
            "token_logprobs": [-0.5, -1.0, -9999.0],
            "top_logprobs": [
                {"a": -0.5, "</s>": -2.0},
                {"a": -0.75, "bytes:\\xc3": -1.0},
                {"a": -0.25, "b": -9999.0, "bytes:\\xa9": -9999.0},
            ],
            "text_offset": [10, 11, 12],
        });
        assert_eq!(json!(logprobs), expected);
        assert_eq!(offset, 12, "two characters");
    }

    #[test]
    fn chats_tell_the_bytes() {
        let logprobs = json!(ChatLogprobs::new(&tokenizer(), &text()));
        let content = logprobs["content"].as_array().expect("a list");
        assert_eq!(content.len(), 3, "the end is no text");
        let first = json!({
            "token": "a", "logprob": -0.5, "bytes": [97],
            "top_logprobs": [
                {"token": "a", "logprob": -0.5, "bytes": [97]},
                {"token": "</s>", "logprob": -2.0, "bytes": null},
            ],
        });
        assert_eq!(content[0], first);
        assert_eq!(
            (&content[1]["token"], &content[1]["bytes"]),
            (&json!("\u{FFFD}"), &json!([0xC3]))
        );
        assert_eq!(content[2]["logprob"], -9999.0);
    }
}
