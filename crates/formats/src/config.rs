//! The hyperparameters of a model, checked, whichever file they came from.

use crate::error::quote;
use crate::hf::HfConfig;
use crate::{FormatError, limits};

/// The shape of a decoder-only transformer and the constants of its layers.
///
/// Everything here has been validated: counts are nonzero and below the limits of this crate, heads
/// divide evenly, floats are finite. What an architecture additionally demands is for the model crate.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The architecture by its GGUF name (`llama`, `qwen2`, `qwen3`); others as found in the file.
    pub architecture: String,
    /// The model's own name, if the file states one.
    pub name: Option<String>,
    /// Transformer layers.
    pub layers: usize,
    /// Width of the residual stream (hidden size).
    pub width: usize,
    /// Width of the feed-forward layers.
    pub ffn_width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head, of queries, keys and values alike. Not always `width / heads`.
    pub head_dim: usize,
    /// Rows of the embedding and of the logits. A tokenizer may know fewer tokens.
    pub vocabulary: usize,
    /// The context that the model was made for, in tokens.
    pub context_tokens: usize,
    /// The epsilon of the RMS norms.
    pub norm_eps: f32,
    /// Rotary position embedding.
    pub rope: RopeConfig,
    /// Sliding-window attention, the same in all layers: a token sees itself and `window - 1` before.
    pub window: Option<u32>,
    /// Whether the output layer is the embedding.
    pub tied_embeddings: bool,
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// The base of the angles' geometric series (theta).
    pub base: f64,
    /// How many dimensions of a head are rotated, from the first on: even, usually all.
    pub dims: usize,
    /// Which two dimensions make a pair.
    pub layout: RopeLayout,
    /// How a context longer than the original is squeezed in.
    pub scaling: RopeScaling,
}

/// Which two dimensions rotate together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeLayout {
    /// Dimensions `2i` and `2i + 1`: `llama` GGUF files, whose converter permutes q and k.
    Interleaved,
    /// Dimensions `i` and `i + dims / 2`: Hugging Face checkpoints, `qwen2` and `qwen3` GGUF files.
    Halves,
}

/// How rotary angles are scaled for contexts longer than the original.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All frequencies are divided by `factor`.
    Linear {
        /// Above zero.
        factor: f32,
    },
    /// Llama 3.1's interpolation by wavelength.
    Llama3 {
        /// Divisor of the frequencies whose wavelength is long.
        factor: f32,
        /// Wavelengths above `original_context / low_freq_factor` are long.
        low_freq_factor: f32,
        /// Wavelengths below `original_context / high_freq_factor` are left alone.
        high_freq_factor: f32,
        /// The context before scaling, in tokens.
        original_context: usize,
    },
    /// YaRN (2309.00071).
    Yarn {
        /// Divisor of the low frequencies.
        factor: f32,
        /// The context before scaling, in tokens.
        original_context: usize,
        /// Rotations over the original context above which a dimension is left alone.
        beta_fast: f32,
        /// Rotations below which it is fully interpolated.
        beta_slow: f32,
        /// What cosines and sines are multiplied with; `None`: `0.1 ln(factor) + 1`.
        attention_factor: Option<f32>,
    },
    /// One divisor per pair of dimensions, `dims / 2` of them, finite and above zero (the GGUF tensor
    /// `rope_freqs.weight`).
    Factors(Vec<f32>),
}

/// Checks one number against its limit, with names for the message.
struct Check<'a> {
    file: &'a str,
}

impl Check<'_> {
    fn bad(&self, field: &str, problem: impl ToString) -> FormatError {
        FormatError::damaged(self.file, field, problem)
    }

    fn count(&self, field: &str, value: usize, limit: usize) -> Result<(), FormatError> {
        match value {
            0 => Err(self.bad(field, "it is zero")),
            _ if value > limit => Err(FormatError::too_large(
                self.file,
                field,
                value as u64,
                limit as u64,
            )),
            _ => Ok(()),
        }
    }

    fn positive(&self, field: &str, value: f64) -> Result<(), FormatError> {
        if value.is_finite() && value > 0.0 {
            return Ok(());
        }
        Err(self.bad(field, format!("{value} is not a finite number above zero")))
    }
}

/// Architectures whose hyperparameters this crate can read, by their GGUF names.
pub(crate) const ARCHITECTURES: [&str; 3] = ["llama", "qwen2", "qwen3"];

/// The error of a model of another kind.
pub(crate) fn unknown_architecture(file: &str, name: &str) -> FormatError {
    FormatError::unsupported(
        file,
        "the architecture",
        quote(name),
        ARCHITECTURES.join(", "),
    )
}

impl ModelConfig {
    /// Reads the hyperparameters in a Hugging Face `config.json`, given its text.
    ///
    /// # Errors
    /// When the text is not JSON, or a hyperparameter is missing, impossible or not supported.
    pub fn from_hf_json(text: &str) -> Result<Self, FormatError> {
        HfConfig::parse("config.json", text)?.model_config(None)
    }

    /// Checks every number; `file` names the source in messages.
    pub(crate) fn validate(&self, file: &str) -> Result<(), FormatError> {
        let check = Check { file };
        check.count("the number of layers", self.layers, limits::LAYERS)?;
        check.count("the width of the model", self.width, limits::WIDTH)?;
        check.count(
            "the width of the feed-forward layers",
            self.ffn_width,
            limits::FFN_WIDTH,
        )?;
        check.count("the number of heads", self.heads, limits::HEADS)?;
        check.count(
            "the number of key-value heads",
            self.kv_heads,
            limits::HEADS,
        )?;
        check.count("the width of a head", self.head_dim, limits::HEAD_DIM)?;
        check.count(
            "the size of the vocabulary",
            self.vocabulary,
            limits::VOCABULARY,
        )?;
        check.count(
            "the context length",
            self.context_tokens,
            limits::CONTEXT_TOKENS,
        )?;
        // Both below 2^12, so the product cannot overflow.
        check.count(
            "the width of all heads together",
            self.heads * self.head_dim,
            limits::WIDTH,
        )?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            let problem = format!("{} does not divide the {} heads", self.kv_heads, self.heads);
            return Err(check.bad("the number of key-value heads", problem));
        }
        check.positive("the epsilon of the norms", self.norm_eps.into())?;
        if self.norm_eps >= 1.0 {
            return Err(check.bad(
                "the epsilon of the norms",
                format!("{} is not small", self.norm_eps),
            ));
        }
        if let Some(window) = self.window {
            check.count(
                "the sliding window",
                window as usize,
                limits::CONTEXT_TOKENS,
            )?;
        }
        self.rope.validate(&check, self.head_dim)
    }
}

impl RopeConfig {
    fn validate(&self, check: &Check<'_>, head_dim: usize) -> Result<(), FormatError> {
        check.positive("the base of the rotary embedding", self.base)?;
        let dims = self.dims;
        if dims == 0 || !dims.is_multiple_of(2) || dims > head_dim {
            let problem =
                format!("{dims} is not an even number from 2 to the width of a head, {head_dim}");
            return Err(check.bad("the rotated dimensions", problem));
        }
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => {
                check.positive("the rope scaling factor", (*factor).into())
            }
            &RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                check.positive("the rope scaling factor", factor.into())?;
                check.positive(
                    "low_freq_factor of the rope scaling",
                    low_freq_factor.into(),
                )?;
                check.positive(
                    "high_freq_factor of the rope scaling",
                    high_freq_factor.into(),
                )?;
                if high_freq_factor <= low_freq_factor {
                    let problem = format!(
                        "{high_freq_factor} is not above low_freq_factor, {low_freq_factor}"
                    );
                    return Err(check.bad("high_freq_factor of the rope scaling", problem));
                }
                check.count(
                    "the original context of the rope scaling",
                    original_context,
                    limits::CONTEXT_TOKENS,
                )
            }
            &RopeScaling::Yarn {
                factor,
                original_context,
                beta_fast,
                beta_slow,
                attention_factor,
            } => {
                check.positive("the rope scaling factor", factor.into())?;
                check.positive("beta_fast of the rope scaling", beta_fast.into())?;
                check.positive("beta_slow of the rope scaling", beta_slow.into())?;
                check.positive(
                    "attention_factor of the rope scaling",
                    attention_factor.unwrap_or(1.0).into(),
                )?;
                check.count(
                    "the original context of the rope scaling",
                    original_context,
                    limits::CONTEXT_TOKENS,
                )
            }
            RopeScaling::Factors(factors) => {
                if factors.len() != dims / 2 {
                    let problem =
                        format!("{} factors for {dims} rotated dimensions", factors.len());
                    return Err(check.bad("tensor `rope_freqs.weight`", problem));
                }
                factors
                    .iter()
                    .try_for_each(|&f| check.positive("tensor `rope_freqs.weight`", f.into()))
            }
        }
    }
}
