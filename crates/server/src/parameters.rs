//! The fields that chats and completions share, and what they mean to the engine.
//!
//! Unknown fields are ignored. OpenAI refuses them ("Unrecognized request argument"), but clients send each other's
//! extensions, and other servers of open models (vLLM, llama.cpp) ignore them, so refusing would turn away clients that work
//! everywhere else. What would change the *form* of an answer and is not served yet is refused by name (`refuse_later`):
//! a client that asked for JSON must not get prose.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use foredraft_common::TokenId;
use foredraft_engine::{EngineError, Request, Speculation};
use foredraft_speculate::{SamplingSettings, Verify};
use foredraft_text::StopMatcher;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::options::Defaults;
use crate::speculation::SpeculationParameters;
use crate::state::Model;

/// The most answers to one prompt, as OpenAI has it.
const MAX_N: u32 = 128;

/// Fields of chats and completions. Each may be null or left out.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
pub(crate) struct Parameters {
    /// The model, by a name that /v1/models lists; this server has one.
    pub(crate) model: Option<String>,
    /// 0 takes the likeliest token every time; higher is more varied. Default 1.
    #[schema(minimum = 0, maximum = 100)]
    temperature: Option<f32>,
    /// Choose among the likeliest tokens that together have this probability. Default 1: all.
    #[schema(minimum = 0, maximum = 1)]
    top_p: Option<f32>,
    /// Choose among this many of the likeliest tokens; 0 and -1 are all of them. Default 40.
    #[schema(minimum = -1, maximum = 4_294_967_295_i64)]
    top_k: Option<i64>,
    /// Drop tokens less likely than this times the likeliest. Default 0.05.
    #[schema(minimum = 0, maximum = 1)]
    min_p: Option<f32>,
    /// Subtracted from the logit of every token that was said.
    #[schema(minimum = -2, maximum = 2)]
    presence_penalty: Option<f32>,
    /// Subtracted from the logit of a token for each time it was said.
    #[schema(minimum = -2, maximum = 2)]
    frequency_penalty: Option<f32>,
    /// Divides the positive logits of tokens that were read or said, multiplies the negative ones. Default 1.
    #[serde(alias = "repeat_penalty")]
    #[schema(minimum = 0.01, maximum = 100)]
    repetition_penalty: Option<f32>,
    /// Token ids, each with what is added to its logit: -100 to 100.
    logit_bias: Option<BTreeMap<String, f32>>,
    /// Makes the answer repeatable: the same seed gives the same text. The response names the one that was drawn where
    /// none is given.
    #[schema(value_type = Option<i64>)]
    seed: Option<Seed>,
    /// Answers to each prompt.
    #[schema(minimum = 1, maximum = 128)]
    n: Option<u32>,
    /// The most tokens of an answer.
    #[schema(minimum = 0)]
    max_tokens: Option<usize>,
    /// Texts that end an answer; they are not part of it.
    stop: Option<Stop>,
    /// Send the answer as it is made, as server-sent events.
    pub(crate) stream: Option<bool>,
    /// How to stream.
    pub(crate) stream_options: Option<StreamOptions>,
    /// Whom the request is for; ignored.
    #[serde(rename = "user")]
    _user: Option<String>,
    /// How drafts are used. They change the speed, never what is said.
    pub(crate) speculation: Option<SpeculationParameters>,
}

/// A seed: any whole number of 64 bits. A negative one is another name of the number with the same bits.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "a whole number of 64 bits")]
enum Seed {
    Positive(u64),
    Negative(i64),
}

/// One text or several.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a text, or a list of texts")]
enum Stop {
    /// One.
    One(String),
    /// Several, at most 64.
    Several(Vec<String>),
}

/// How to stream.
#[derive(Debug, Clone, Copy, Default, Deserialize, ToSchema)]
pub(crate) struct StreamOptions {
    /// End with a chunk without choices that counts the tokens.
    pub(crate) include_usage: Option<bool>,
}

/// What all answers to a request have in common.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    /// Without a prompt.
    request: Request,
    /// Answers to each prompt.
    pub(crate) n: u32,
    /// The seed of all of them.
    pub(crate) seed: u64,
    /// Send the answer as it is made.
    pub(crate) stream: bool,
    /// End a stream with a chunk that counts.
    pub(crate) include_usage: bool,
}

impl Common {
    /// Whether log probabilities were asked for.
    pub(crate) fn wants_logprobs(&self) -> bool {
        self.request.logprobs.is_some()
    }

    /// The `n` requests of a prompt; the same seed, numbered by choice.
    pub(crate) fn requests(&self, prompt: Vec<TokenId>) -> impl Iterator<Item = Request> {
        (0..self.n).map(move |choice| Request {
            prompt: prompt.clone(),
            choice,
            ..self.request.clone()
        })
    }
}

impl Parameters {
    /// The checked meaning. `max_tokens` is the endpoint's own, `logprobs` as the engine takes it.
    ///
    /// # Errors
    /// 400, naming the field.
    pub(crate) fn resolve(
        &self,
        defaults: &Defaults,
        model: &Model,
        max_tokens: Option<usize>,
        logprobs: Option<usize>,
    ) -> Result<Common, ApiError> {
        let mut sampling = self.sampling(&defaults.sampling)?;
        sampling.validate_for(model.tokenizer.vocabulary_len())?;
        let stop = match &self.stop {
            None => defaults.stop.clone(),
            Some(Stop::One(text)) => vec![text.clone()],
            Some(Stop::Several(texts)) => texts.clone(),
        };
        StopMatcher::new(stop.clone())?;
        let n = self.n.unwrap_or(1);
        if !(1..=MAX_N).contains(&n) {
            let message = format!("n is {n}; it must lie between 1 and {MAX_N}");
            return Err(ApiError::invalid("n", message));
        }
        let stream = self.stream.unwrap_or(false);
        if self.stream_options.is_some() && !stream {
            return Err(ApiError::invalid(
                "stream_options",
                "stream_options are for streams: set stream to true, or leave them out",
            ));
        }
        let mut speculation = match &self.speculation {
            None => defaults.speculation,
            Some(parameters) => parameters.resolve(&defaults.speculation)?,
        };
        let (asked, reserved) = (speculation.nodes(), model.max_draft_nodes);
        if asked > reserved {
            return Err(EngineError::DraftNodes { asked, reserved }.into());
        }
        let seed = seed(&mut sampling, &mut speculation);
        Ok(Common {
            request: Request {
                max_tokens,
                stop,
                logprobs,
                speculation,
                ..Request::new(Vec::new(), sampling)
            },
            n,
            seed,
            stream,
            include_usage: self
                .stream_options
                .and_then(|options| options.include_usage)
                .unwrap_or(false),
        })
    }

    fn sampling(&self, defaults: &SamplingSettings) -> Result<SamplingSettings, ApiError> {
        let top_k = match self.top_k {
            None => defaults.top_k,
            Some(-1) => 0,
            Some(k) => u32::try_from(k).map_err(|_| {
                ApiError::invalid("top_k", format!("top_k is {k}; it must be -1, 0 or more"))
            })?,
        };
        Ok(SamplingSettings {
            logit_bias: match &self.logit_bias {
                None => defaults.logit_bias.clone(),
                Some(biases) => logit_bias(biases)?,
            },
            repeat_penalty: self.repetition_penalty.unwrap_or(defaults.repeat_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(defaults.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(defaults.presence_penalty),
            temperature: self.temperature.unwrap_or(defaults.temperature),
            top_k,
            top_p: self.top_p.unwrap_or(defaults.top_p),
            min_p: self.min_p.unwrap_or(defaults.min_p),
            seed: match self.seed {
                None => defaults.seed,
                Some(Seed::Positive(seed)) => Some(seed),
                Some(Seed::Negative(seed)) => Some(seed as u64),
            },
        })
    }

    /// `max_tokens`, of which the default is the endpoint's.
    pub(crate) fn max_tokens(&self) -> Option<usize> {
        self.max_tokens
    }
}

/// The seed of all answers: the one that was given, or one for all of them from the system. A seed that was only drawn must
/// not change the rule of acceptance, which for a request without a seed is `rejection`.
fn seed(sampling: &mut SamplingSettings, speculation: &mut Speculation) -> u64 {
    *sampling.seed.get_or_insert_with(|| {
        if speculation.verify == Verify::Auto && sampling.temperature != 0.0 {
            speculation.verify = Verify::Rejection;
        }
        random_seed()
    })
}

/// From the system: the standard library's hash keys are drawn from its entropy. 53 bits, so that it survives JSON
/// readers that know only f64.
fn random_seed() -> u64 {
    random_bits() >> 11
}

/// 64 bits from the system.
pub(crate) fn random_bits() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

fn logit_bias(biases: &BTreeMap<String, f32>) -> Result<Vec<(TokenId, f32)>, ApiError> {
    // "7" and "07" are one token: which of the two was meant cannot be known.
    let mut known = BTreeMap::new();
    for (key, &bias) in biases {
        let id: u32 = key.parse().map_err(|_| {
            let shown: String = key.chars().take(40).collect();
            let message = format!("logit_bias has the key '{shown}', which is no token id");
            ApiError::invalid("logit_bias", message)
        })?;
        match known.entry(id) {
            Entry::Vacant(entry) => entry.insert(bias),
            Entry::Occupied(_) => {
                let message = format!("logit_bias names token {id} more than once");
                return Err(ApiError::invalid("logit_bias", message));
            }
        };
    }
    let biases = known.into_iter().map(|(id, bias)| (TokenId(id), bias));
    Ok(biases.collect())
}

/// Refuses what would change the form of an answer and comes in a later version: tools, structured output, other media.
///
/// # Errors
/// 400, naming the field.
pub(crate) fn refuse_later(body: &Value) -> Result<(), ApiError> {
    let later = |field: &str, what: &str| {
        let message = format!("{what} are not in this version: leave {field} out");
        Err(ApiError::unsupported(field, message))
    };
    let is_set = |field: &str| match &body[field] {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => text != "none",
        _ => true,
    };
    for field in ["tools", "functions", "tool_choice", "function_call"] {
        if is_set(field) {
            return later(field, "tools");
        }
    }
    for field in [
        "grammar",
        "json_schema",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "structured_outputs",
    ] {
        if is_set(field) {
            return later(field, "grammars and JSON schemas");
        }
    }
    if is_set("audio") {
        return later("audio", "spoken answers");
    }
    match &body["response_format"] {
        Value::Null => Ok(()),
        format if format["type"] == "text" => Ok(()),
        _ => Err(ApiError::unsupported(
            "response_format",
            "this version answers with response_format {\"type\": \"text\"} only; JSON comes later",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_seed_that_was_only_drawn_does_not_change_the_rule() {
        let rule = |given: Option<u64>, temperature, verify| {
            let mut sampling = SamplingSettings {
                temperature,
                seed: given,
                ..SamplingSettings::default()
            };
            let mut speculation = Speculation {
                verify,
                ..Speculation::default()
            };
            let drawn = seed(&mut sampling, &mut speculation);
            assert_eq!(sampling.seed, Some(drawn));
            assert!(given.is_none_or(|given| given == drawn));
            let greedy = temperature == 0.0;
            speculation.verify.resolve(true, greedy)
        };
        // What `Verify::resolve` says of a request whose seed was given, and of one without.
        use foredraft_speculate::VerifyRule::{Block, Coupled, Rejection};
        assert_eq!(rule(Some(7), 1.0, Verify::Auto), Coupled);
        assert_eq!(rule(None, 1.0, Verify::Auto), Rejection);
        assert_eq!(rule(None, 0.0, Verify::Auto), Coupled);
        assert_eq!(rule(None, 1.0, Verify::Coupled), Coupled);
        assert_eq!(rule(Some(7), 1.0, Verify::Block), Block);
        assert!(random_seed() < 1 << 53 && random_seed() != random_seed());
    }

    #[test]
    fn fields_are_taken_and_defaults_are_kept() {
        let sampling = |fields: Value| {
            let parameters: Parameters = crate::body::fields(&fields).expect("fields");
            parameters.sampling(&Defaults::default().sampling)
        };
        let plain = sampling(json!({"temperature": null})).expect("settings");
        assert_eq!(plain, Defaults::default().sampling);
        assert_eq!((plain.temperature, plain.top_p), (1.0, 1.0));
        assert_eq!((plain.top_k, plain.min_p), (40, 0.05));
        let given = json!({"seed": -1, "top_k": -1, "repeat_penalty": 1.5, "logit_bias": {"7": 1, "3": -2}});
        let given = sampling(given).expect("settings");
        assert_eq!((given.seed, given.top_k), (Some(u64::MAX), 0));
        assert_eq!(given.repeat_penalty, 1.5);
        assert_eq!(given.logit_bias, [(TokenId(3), -2.0), (TokenId(7), 1.0)]);
        let seed = json!({"seed": u64::MAX});
        assert_eq!(sampling(seed).expect("settings").seed, Some(u64::MAX));
        assert!(sampling(json!({"top_k": 4_294_967_296_u64})).is_err());
    }

    #[test]
    fn what_comes_later_is_refused_by_name() {
        let refused = |body: Value| {
            let refused = refuse_later(&body).err();
            refused.and_then(|error| error.detail.param)
        };
        assert_eq!(
            refused(json!({"tools": [], "tool_choice": "none", "audio": null})),
            None
        );
        assert_eq!(refused(json!({"response_format": {"type": "text"}})), None);
        for (field, value) in [
            ("tools", json!([{}])),
            ("functions", json!([{}])),
            ("tool_choice", json!("auto")),
            ("grammar", json!("root ::= x")),
            ("json_schema", json!({})),
            ("audio", json!({})),
            ("response_format", json!({"type": "json_object"})),
            ("response_format", json!("text")),
        ] {
            let mut body = json!({});
            body[field] = value;
            assert_eq!(refused(body).as_deref(), Some(field));
        }
    }
}
