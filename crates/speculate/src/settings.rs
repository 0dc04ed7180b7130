//! What a request asks of the sampler, and the range of each field.

use std::ops::RangeInclusive;

use foredraft_common::TokenId;
use serde::{Deserialize, Serialize};

/// How the next token is chosen. The transforms run in the order of the fields below (see
/// [`Transforms`](crate::Transforms)); each has a value at which it does nothing.
///
/// The defaults are those that local engines have settled on (llama.cpp, Ollama): temperature 0.8,
/// top-k 40, top-p 0.95, min-p 0.05, no penalties, no bias, no fixed seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingSettings {
    /// Added to the logits of these tokens, each named at most once; -100 to 100 (as in OpenAI's interface).
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Divides positive logits of tokens seen in the prompt or the output, and multiplies negative ones
    /// (Keskar et al. 2019, as transformers and vLLM do); 0.01 to 100, 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once for each occurrence of the token in the output; -2 to 2, 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once when the token occurs in the output; -2 to 2, 0 is off.
    pub presence_penalty: f32,
    /// Divides the logits; 0 to 100. 0 takes the most probable token, 1 is the model's own distribution.
    pub temperature: f32,
    /// Keeps this many of the most probable tokens; 0 is off.
    pub top_k: u32,
    /// Keeps the fewest most probable tokens whose mass reaches this share; 0 to 1, 1 is off.
    pub top_p: f32,
    /// Keeps tokens at least this times as probable as the most probable one; 0 to 1, 0 is off.
    pub min_p: f32,
    /// Makes the draw repeatable. Without one, the caller draws a seed from the system and reports it.
    pub seed: Option<u64>,
}

impl Default for SamplingSettings {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            ..Self::unchanged()
        }
    }
}

/// A sampling setting outside of its range. The message names the field, its value and the range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A number outside of its range (or NaN).
    #[error("{field} is {value}; it must lie between {minimum} and {maximum}")]
    OutOfRange {
        /// The name of the field.
        field: &'static str,
        /// What was given.
        value: f32,
        /// The smallest value allowed.
        minimum: f32,
        /// The largest value allowed.
        maximum: f32,
    },
    /// A bias outside of its range (or NaN).
    #[error("logit_bias of token {token} is {value}; it must lie between -100 and 100")]
    BiasOutOfRange {
        /// The token whose bias it is.
        token: TokenId,
        /// What was given.
        value: f32,
    },
    /// Two biases for one token.
    #[error("logit_bias names token {token} more than once; give one value for each token")]
    RepeatedBias {
        /// The token named twice.
        token: TokenId,
    },
    /// A bias for a token that the model does not have.
    #[error("logit_bias names token {token}, but the vocabulary ends at token {last}", last = vocabulary_len.saturating_sub(1))]
    BiasBeyondVocabulary {
        /// The token named.
        token: TokenId,
        /// Tokens of the vocabulary.
        vocabulary_len: usize,
    },
}

const BIAS_RANGE: RangeInclusive<f32> = -100.0..=100.0;

impl SamplingSettings {
    /// The model's own distribution: temperature 1 and every other transform off.
    pub const fn unchanged() -> Self {
        Self {
            logit_bias: Vec::new(),
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: None,
        }
    }

    /// Temperature 0: the most probable token, the lowest id among equals.
    pub fn greedy() -> Self {
        Self {
            temperature: 0.0,
            ..Self::unchanged()
        }
    }

    /// Checks every field against its range. [`validate_for`](Self::validate_for) also knows the vocabulary.
    pub fn validate(&self) -> Result<(), SettingsError> {
        self.validate_numbers()?;
        for &(token, value) in &self.logit_bias {
            if !BIAS_RANGE.contains(&value) {
                return Err(SettingsError::BiasOutOfRange { token, value });
            }
        }
        let mut tokens: Vec<TokenId> = self.logit_bias.iter().map(|&(token, _)| token).collect();
        tokens.sort_unstable();
        match tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(SettingsError::RepeatedBias { token: pair[0] }),
            None => Ok(()),
        }
    }

    /// [`validate`](Self::validate), and that every token named exists in a vocabulary of this size.
    pub fn validate_for(&self, vocabulary_len: usize) -> Result<(), SettingsError> {
        self.validate()?;
        match self
            .logit_bias
            .iter()
            .find(|(token, _)| token.index() >= vocabulary_len)
        {
            Some(&(token, _)) => Err(SettingsError::BiasBeyondVocabulary {
                token,
                vocabulary_len,
            }),
            None => Ok(()),
        }
    }

    /// The part of [`validate`](Self::validate) that costs nothing: repeated for every row of logits.
    pub(crate) fn validate_numbers(&self) -> Result<(), SettingsError> {
        let ranges = [
            ("temperature", self.temperature, 0.0..=100.0),
            ("top_p", self.top_p, 0.0..=1.0),
            ("min_p", self.min_p, 0.0..=1.0),
            ("repeat_penalty", self.repeat_penalty, 0.01..=100.0),
            ("frequency_penalty", self.frequency_penalty, -2.0..=2.0),
            ("presence_penalty", self.presence_penalty, -2.0..=2.0),
        ];
        for (field, value, range) in ranges {
            // A NaN is in no range.
            if !range.contains(&value) {
                let (minimum, maximum) = range.into_inner();
                return Err(SettingsError::OutOfRange {
                    field,
                    value,
                    minimum,
                    maximum,
                });
            }
        }
        Ok(())
    }

    /// Whether any penalty is on, so that the history matters.
    pub fn has_penalties(&self) -> bool {
        self.repeat_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: impl FnOnce(&mut SamplingSettings)) -> String {
        let mut settings = SamplingSettings::default();
        change(&mut settings);
        settings
            .validate_for(512)
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn the_defaults_are_valid_and_documented() {
        let settings = SamplingSettings::default();
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!((settings.temperature, settings.top_k), (0.8, 40));
        assert_eq!((settings.top_p, settings.min_p), (0.95, 0.05));
        assert!(!settings.has_penalties());
        assert_eq!(SamplingSettings::unchanged().validate(), Ok(()));
        assert_eq!(SamplingSettings::greedy().validate(), Ok(()));
    }

    #[test]
    fn the_ends_of_the_ranges_are_allowed() {
        for (low, high) in [(true, false), (false, true)] {
            let pick = |minimum: f32, maximum: f32| if high { maximum } else { minimum };
            assert!(low != high);
            let settings = SamplingSettings {
                temperature: pick(0.0, 100.0),
                top_p: pick(0.0, 1.0),
                min_p: pick(0.0, 1.0),
                repeat_penalty: pick(0.01, 100.0),
                frequency_penalty: pick(-2.0, 2.0),
                presence_penalty: pick(-2.0, 2.0),
                logit_bias: vec![(TokenId(511), pick(-100.0, 100.0))],
                top_k: if high { u32::MAX } else { 0 },
                seed: Some(u64::MAX),
            };
            assert_eq!(settings.validate_for(512), Ok(()));
        }
    }

    #[test]
    fn an_error_names_the_field_the_value_and_the_range() {
        assert_eq!(
            message(|s| s.top_p = 1.5),
            "top_p is 1.5; it must lie between 0 and 1"
        );
        assert_eq!(
            message(|s| s.temperature = -0.1),
            "temperature is -0.1; it must lie between 0 and 100"
        );
        assert_eq!(
            message(|s| s.logit_bias = vec![(TokenId(3), 100.5)]),
            "logit_bias of token 3 is 100.5; it must lie between -100 and 100"
        );
        assert_eq!(
            message(
                |s| s.logit_bias = vec![(TokenId(7), 1.0), (TokenId(3), 1.0), (TokenId(7), 2.0)]
            ),
            "logit_bias names token 7 more than once; give one value for each token"
        );
        assert_eq!(
            message(|s| s.logit_bias = vec![(TokenId(512), 1.0)]),
            "logit_bias names token 512, but the vocabulary ends at token 511"
        );
    }

    #[test]
    fn every_number_refuses_nan_infinity_and_what_is_outside() {
        type Field = (
            &'static str,
            fn(&mut SamplingSettings) -> &mut f32,
            [f32; 2],
        );
        let fields: [Field; 6] = [
            ("temperature", |s| &mut s.temperature, [-1e-6, 100.1]),
            ("top_p", |s| &mut s.top_p, [-0.1, 1.000_001]),
            ("min_p", |s| &mut s.min_p, [-0.1, 1.1]),
            ("repeat_penalty", |s| &mut s.repeat_penalty, [0.0, -1.0]),
            (
                "frequency_penalty",
                |s| &mut s.frequency_penalty,
                [-2.1, 2.1],
            ),
            ("presence_penalty", |s| &mut s.presence_penalty, [-2.1, 2.1]),
        ];
        for (name, field, outside) in fields {
            for value in [
                f32::NAN,
                f32::INFINITY,
                f32::NEG_INFINITY,
                outside[0],
                outside[1],
            ] {
                let text = message(|s| *field(s) = value);
                assert!(text.starts_with(&format!("{name} is {value};")), "{text}");
            }
        }
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let text = message(|s| s.logit_bias = vec![(TokenId(1), value)]);
            assert!(text.starts_with("logit_bias of token 1"), "{text}");
        }
    }

    #[test]
    fn json_may_leave_out_fields_but_not_misspell_them() {
        let settings: SamplingSettings =
            serde_json::from_str(r#"{"temperature": 0.5, "logit_bias": [[3, -2.0]]}"#)
                .expect("valid");
        assert_eq!(settings.temperature, 0.5);
        assert_eq!(settings.logit_bias, [(TokenId(3), -2.0)]);
        assert_eq!(settings.top_k, 40);
        assert!(serde_json::from_str::<SamplingSettings>(r#"{"temprature": 0.5}"#).is_err());
    }
}
