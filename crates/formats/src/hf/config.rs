//! Hyperparameters from a Hugging Face `config.json`.
//!
//! Key names and defaults: the configuration classes of `transformers` (`LlamaConfig`, `MistralConfig`,
//! `Qwen2Config`, `Qwen3Config`) and its `modeling_rope_utils.py`, in the forms of versions 4 and 5.

use super::json::Json;
use crate::error::quote;
use crate::gguf::{width_of_head, yarn_magnitude};
use crate::tensor::TensorTable;
use crate::{FormatError, ModelConfig, RopeConfig, RopeLayout, RopeScaling};

/// What to do when a hyperparameter is missing.
const REFETCH: &str = "fetch config.json again from where the model came from";

/// A parsed `config.json`.
#[derive(Debug)]
pub(crate) struct HfConfig {
    file: String,
    /// The whole object.
    root: Vec<(String, Json)>,
}

/// An object of the configuration, with the words to name its fields.
#[derive(Clone, Copy)]
struct Section<'a> {
    file: &'a str,
    /// The object's own name with a dot, or nothing for the root.
    prefix: &'a str,
    pairs: &'a [(String, Json)],
}

impl<'a> Section<'a> {
    /// The value of `key`; null counts as absent.
    fn get(&self, key: &str) -> Option<&'a Json> {
        let (_, value) = self.pairs.iter().find(|(name, _)| name == key)?;
        (*value != Json::Null).then_some(value)
    }

    fn field(&self, key: &str) -> String {
        quote(&format!("{}{key}", self.prefix))
    }

    fn wrong(&self, key: &str, found: &Json, expected: &'static str) -> FormatError {
        FormatError::WrongType {
            file: self.file.to_owned(),
            field: self.field(key),
            found: found.describe(),
            expected,
        }
    }

    fn missing(&self, key: &str) -> FormatError {
        FormatError::missing(self.file, self.field(key), REFETCH)
    }

    fn unsupported(
        &self,
        key: &str,
        found: impl ToString,
        supported: impl ToString,
    ) -> FormatError {
        FormatError::unsupported(self.file, self.field(key), found, supported)
    }

    fn count(&self, key: &str) -> Result<Option<usize>, FormatError> {
        self.typed(key, "a count", |value| match value {
            Json::Integer(value) => usize::try_from(*value).ok(),
            _ => None,
        })
    }

    fn needed_count(&self, key: &str) -> Result<usize, FormatError> {
        self.count(key)?.ok_or_else(|| self.missing(key))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, FormatError> {
        self.typed(key, "a number", |value| match value {
            Json::Integer(value) => Some(*value as f64),
            Json::Number(value) => Some(*value),
            _ => None,
        })
    }

    fn needed_f32(&self, key: &str) -> Result<f32, FormatError> {
        self.number(key)?
            .map(|value| value as f32)
            .ok_or_else(|| self.missing(key))
    }

    fn bool(&self, key: &str) -> Result<Option<bool>, FormatError> {
        self.typed(key, "true or false", |value| match value {
            Json::Bool(value) => Some(*value),
            _ => None,
        })
    }

    fn str(&self, key: &str) -> Result<Option<&'a str>, FormatError> {
        self.typed(key, "a string", |value| match value {
            Json::String(value) => Some(value.as_str()),
            _ => None,
        })
    }

    fn strings(&self, key: &str) -> Result<Option<&'a [String]>, FormatError> {
        self.typed(key, "an array of strings", |value| match value {
            Json::Strings(values) => Some(values.as_slice()),
            _ => None,
        })
    }

    fn object(&self, key: &str, prefix: &'a str) -> Result<Option<Section<'a>>, FormatError> {
        self.typed(key, "an object", |value| match value {
            Json::Object(pairs) => Some(Section {
                file: self.file,
                prefix,
                pairs,
            }),
            _ => None,
        })
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Json) -> Option<T>,
    ) -> Result<Option<T>, FormatError>
    where
        Self: 'a,
    {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        convert(value)
            .map(Some)
            .ok_or_else(|| self.wrong(key, value, expected))
    }
}

/// The model families that are known, by their Hugging Face class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Llama,
    Mistral,
    Qwen,
    Other,
}

impl HfConfig {
    /// Parses the text of a `config.json`; `file` names it in messages.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, FormatError> {
        if text.len() as u64 > crate::limits::CONFIG_BYTES {
            let length = text.len() as u64;
            return Err(FormatError::too_large(
                file,
                "the size of the file",
                length,
                crate::limits::CONFIG_BYTES,
            ));
        }
        let root = Json::parse_object(text)
            .map_err(|error| FormatError::damaged(file, "the JSON text", error))?;
        Ok(Self {
            file: file.to_owned(),
            root,
        })
    }

    fn root(&self) -> Section<'_> {
        Section {
            file: &self.file,
            prefix: "",
            pairs: &self.root,
        }
    }

    /// Whether the output layer is the embedding, if the configuration says so or otherwise.
    pub(crate) fn tied(&self) -> Option<bool> {
        self.root().bool("tie_word_embeddings").ok().flatten() // `model_config` reports a wrong type
    }

    /// The hyperparameters, checked; against the tensors, where there are any.
    pub(crate) fn model_config(
        &self,
        tensors: Option<&TensorTable>,
    ) -> Result<ModelConfig, FormatError> {
        let root = self.root();
        let (architecture, family) = architecture(root)?;
        let config = self.read(architecture, family, tensors);
        match (config, family) {
            // A model of another kind fails on some key or other; what the user needs to hear is this.
            (Err(_), Family::Other) => Err(crate::config::unknown_architecture(
                &self.file,
                architecture,
            )),
            (config, _) => config,
        }
    }

    fn read(
        &self,
        architecture: &str,
        family: Family,
        tensors: Option<&TensorTable>,
    ) -> Result<ModelConfig, FormatError> {
        let root = self.root();
        refuse_what_changes_the_arithmetic(root)?;
        let width = root.needed_count("hidden_size")?;
        let heads = root.needed_count("num_attention_heads")?;
        let layers = root.needed_count("num_hidden_layers")?;
        let context_tokens = root.needed_count("max_position_embeddings")?;
        let head_dim = match root.count("head_dim")? {
            Some(head_dim) => head_dim,
            None => width_of_head(&self.file, width, heads)?,
        };
        let config = ModelConfig {
            architecture: architecture.to_owned(),
            name: root
                .str("_name_or_path")?
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
            layers,
            width,
            ffn_width: root.needed_count("intermediate_size")?,
            heads,
            kv_heads: root.count("num_key_value_heads")?.unwrap_or(heads),
            head_dim,
            vocabulary: root.needed_count("vocab_size")?,
            context_tokens,
            norm_eps: root.needed_f32("rms_norm_eps")?,
            rope: rope(root, head_dim, context_tokens)?,
            window: window(root, family, layers)?,
            tied_embeddings: tied(root, tensors)?,
        };
        config.validate(&self.file)?;
        if let Some(embedding) = tensors.and_then(|tensors| tensors.weight("token_embd.weight")) {
            let rows = embedding.shape.rows();
            if rows != config.vocabulary {
                let problem = format!(
                    "it says {}, the embedding has {rows} rows",
                    config.vocabulary
                );
                return Err(FormatError::damaged(&self.file, "`vocab_size`", problem));
            }
        }
        Ok(config)
    }
}

/// The architecture by its GGUF name, and the family whose rules apply.
fn architecture(root: Section<'_>) -> Result<(&str, Family), FormatError> {
    let class = root
        .strings("architectures")?
        .and_then(|names| names.first())
        .map(String::as_str);
    let name = match class {
        Some(class) => class,
        None => root
            .str("model_type")?
            .ok_or_else(|| root.missing("architectures"))?,
    };
    Ok(match name {
        "LlamaForCausalLM" | "llama" => ("llama", Family::Llama),
        // Mistral is Llama with a window.
        "MistralForCausalLM" | "mistral" => ("llama", Family::Mistral),
        "Qwen2ForCausalLM" | "qwen2" => ("qwen2", Family::Qwen),
        "Qwen3ForCausalLM" | "qwen3" => ("qwen3", Family::Qwen),
        other => (other, Family::Other),
    })
}

/// Keys that would change what a layer computes, or what its bytes mean.
fn refuse_what_changes_the_arithmetic(root: Section<'_>) -> Result<(), FormatError> {
    if let Some(quantization) = root.object("quantization_config", "quantization_config.")? {
        let method = quantization
            .str("quant_method")?
            .unwrap_or("of an unnamed kind");
        return Err(root.unsupported(
            "quantization_config",
            quote(method),
            "weights in F32, F16 or BF16, or a GGUF file",
        ));
    }
    match root.str("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(root.unsupported("hidden_act", quote(other), "silu")),
    }
}

fn tied(root: Section<'_>, tensors: Option<&TensorTable>) -> Result<bool, FormatError> {
    let stated = root.bool("tie_word_embeddings")?;
    let Some(tensors) = tensors.filter(|tensors| tensors.weight("token_embd.weight").is_some())
    else {
        return Ok(stated.unwrap_or(false)); // the default of all families here
    };
    match (stated, tensors.weight("output.weight").is_some()) {
        (Some(false), false) => Err(FormatError::missing(
            root.file,
            "tensor `lm_head.weight`, which tie_word_embeddings = false asks for,",
            "fetch the model's weights again",
        )),
        (Some(stated), _) => Ok(stated),
        (None, has_output) => Ok(!has_output),
    }
}

/// The sliding window that all layers share, if any.
fn window(root: Section<'_>, family: Family, layers: usize) -> Result<Option<u32>, FormatError> {
    let sliding_layers = sliding_layers(root, family, layers)?;
    if sliding_layers == 0 {
        return Ok(None);
    }
    if sliding_layers != layers {
        let found = format!("in {sliding_layers} of {layers} layers");
        return Err(root.unsupported(
            "sliding_window",
            found,
            "one kind of attention in all layers",
        ));
    }
    let window = match root.pairs.iter().any(|(key, _)| key == "sliding_window") {
        true => root.count("sliding_window")?,
        false => Some(4096), // the default of MistralConfig and Qwen2Config; null means none
    };
    let out_of_range = |_| {
        root.wrong(
            "sliding_window",
            &Json::Other("too large"),
            "a number of tokens",
        )
    };
    window
        .map(|window| u32::try_from(window).map_err(out_of_range))
        .transpose()
}

/// How many layers attend through a window.
fn sliding_layers(root: Section<'_>, family: Family, layers: usize) -> Result<usize, FormatError> {
    let applies = match family {
        Family::Mistral => true,
        Family::Qwen => root.bool("use_sliding_window")?.unwrap_or(false),
        Family::Llama | Family::Other => false,
    };
    if let Some(types) = root.strings("layer_types")? {
        let mut sliding = 0;
        for kind in types {
            match kind.as_str() {
                "full_attention" => {}
                "sliding_attention" => sliding += 1,
                other => {
                    let supported = "full_attention, sliding_attention";
                    return Err(root.unsupported("layer_types", quote(other), supported));
                }
            }
        }
        if types.len() != layers {
            let problem = format!("{} entries for {layers} layers", types.len());
            return Err(FormatError::damaged(
                root.file,
                root.field("layer_types"),
                problem,
            ));
        }
        if sliding > 0 && !applies {
            return Err(root.unsupported(
                "layer_types",
                "`sliding_attention` without use_sliding_window",
                "full_attention",
            ));
        }
        return Ok(sliding);
    }
    Ok(match family {
        Family::Qwen if applies => {
            layers.saturating_sub(root.count("max_window_layers")?.unwrap_or(28))
        }
        _ if applies => layers,
        _ => 0,
    })
}

fn rope(
    root: Section<'_>,
    head_dim: usize,
    context_tokens: usize,
) -> Result<RopeConfig, FormatError> {
    // Version 5 writes one object, version 4 `rope_theta` beside an optional `rope_scaling`.
    let section = match root.object("rope_parameters", "rope_parameters.")? {
        Some(section) => Some(section),
        None => root.object("rope_scaling", "rope_scaling.")?,
    };
    if let Some(section) = section
        && let Some((key, _)) = section
            .pairs
            .iter()
            .find(|(_, value)| matches!(value, Json::Object(_) | Json::Other("an object")))
    {
        return Err(section.unsupported(
            key,
            "(another rotation per kind of layer)",
            "one rotation for all layers",
        ));
    }
    let number = |key: &str| match section
        .map(|section| section.number(key))
        .transpose()?
        .flatten()
    {
        Some(value) => Ok(Some(value)),
        None => root.number(key),
    };
    let rotated = number("partial_rotary_factor")?.unwrap_or(1.0);
    if !(rotated > 0.0 && rotated <= 1.0) {
        let problem = format!("{rotated} is not above 0 and at most 1");
        return Err(FormatError::damaged(
            root.file,
            root.field("partial_rotary_factor"),
            problem,
        ));
    }
    Ok(RopeConfig {
        base: number("rope_theta")?.unwrap_or(10_000.0),
        dims: (head_dim as f64 * rotated) as usize, // truncated, as in transformers
        layout: RopeLayout::Halves,
        scaling: section.map_or(Ok(RopeScaling::None), |section| {
            scaling(root, section, context_tokens)
        })?,
    })
}

fn scaling(
    root: Section<'_>,
    section: Section<'_>,
    context_tokens: usize,
) -> Result<RopeScaling, FormatError> {
    let kind = match section.str("rope_type")? {
        Some(kind) => kind,
        None => section.str("type")?.unwrap_or("default"),
    };
    let original_context = match section.count("original_max_position_embeddings")? {
        Some(tokens) => Some(tokens),
        None => root.count("original_max_position_embeddings")?,
    };
    match kind {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear {
            factor: section.needed_f32("factor")?,
        }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: section.needed_f32("factor")?,
            low_freq_factor: section.needed_f32("low_freq_factor")?,
            high_freq_factor: section.needed_f32("high_freq_factor")?,
            original_context: original_context
                .ok_or_else(|| section.missing("original_max_position_embeddings"))?,
        }),
        "yarn" => yarn(section, original_context.unwrap_or(context_tokens)),
        other => {
            Err(section.unsupported("rope_type", quote(other), "default, linear, llama3, yarn"))
        }
    }
}

fn yarn(section: Section<'_>, original_context: usize) -> Result<RopeScaling, FormatError> {
    if section.bool("truncate")? == Some(false) {
        return Err(section.unsupported("truncate", "false", "true"));
    }
    let factor = section.needed_f32("factor")?;
    let f32 = |key: &str| Ok::<_, FormatError>(section.number(key)?.map(|value| value as f32));
    let attention_factor = match (
        f32("attention_factor")?,
        f32("mscale")?,
        f32("mscale_all_dim")?,
    ) {
        (Some(stated), _, _) => Some(stated),
        (None, Some(numerator), Some(denominator)) if numerator != 0.0 && denominator != 0.0 => {
            Some(yarn_magnitude(factor, numerator) / yarn_magnitude(factor, denominator))
        }
        _ => None,
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: f32("beta_fast")?.unwrap_or(32.0),
        beta_slow: f32("beta_slow")?.unwrap_or(1.0),
        attention_factor,
    })
}
