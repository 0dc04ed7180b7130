//! What is said and when it ends: sampling and stopping options.

use clap::Args;
use foredraft::speculate::SamplingSettings;

use super::values::{self, LogitBias};
use crate::output;

/// How the next token is chosen, and when to stop.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling options")]
pub(crate) struct SamplingOptions {
    /// Most tokens to say [default: until the model ends its text or the context is full]
    #[arg(short = 'n', long, value_name = "N", value_parser = values::count::<{ 1 << 24 }>)]
    pub(crate) max_tokens: Option<usize>,

    /// 0 takes the likeliest token every time; higher is more varied
    #[arg(short, long, visible_alias = "temp", value_name = "X", default_value_t = SamplingSettings::default().temperature, value_parser = values::at_least::<0>, allow_negative_numbers = true)]
    pub(crate) temperature: f32,

    /// Choose among the K likeliest tokens; 0 is all of them
    #[arg(long, value_name = "K", default_value_t = SamplingSettings::default().top_k)]
    pub(crate) top_k: u32,

    /// Choose among the likeliest tokens that together have probability P; 1 is all of them
    #[arg(long, value_name = "P", default_value_t = SamplingSettings::default().top_p, value_parser = values::probability)]
    pub(crate) top_p: f32,

    /// Drop tokens less likely than P times the likeliest; 0 drops none
    #[arg(long, value_name = "P", default_value_t = SamplingSettings::default().min_p, value_parser = values::probability)]
    pub(crate) min_p: f32,

    /// Divide the positive logits of tokens that were seen by X, multiply the negative ones; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = values::positive)]
    pub(crate) repeat_penalty: f32,

    /// Subtract X from the logit of every token that was said; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = values::finite, allow_negative_numbers = true)]
    pub(crate) presence_penalty: f32,

    /// Subtract X from the logit of a token for each time it was said; 0 is off
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = values::finite, allow_negative_numbers = true)]
    pub(crate) frequency_penalty: f32,

    /// Add X, -100 to 100, to the logit of token ID (repeatable)
    #[arg(long, value_name = "ID=X")]
    pub(crate) logit_bias: Vec<LogitBias>,

    /// Makes the text repeatable [default: drawn from the system, and reported]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,

    /// End the answer before this text (repeatable)
    #[arg(long, value_name = "TEXT", value_parser = values::some_text)]
    pub(crate) stop: Vec<String>,
}

impl SamplingOptions {
    /// As the sampler takes them.
    pub(crate) fn settings(&self) -> SamplingSettings {
        SamplingSettings {
            logit_bias: self.logit_bias.iter().map(|b| (b.token, b.bias)).collect(),
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
        }
    }

    /// Says what looks like a slip of the finger.
    pub(crate) fn warn(&self) {
        if self.temperature > 5.0 {
            output::warn(&format!(
                "temperature {} makes the text random; -t is the temperature, threads are --threads",
                self.temperature
            ));
        }
    }
}
