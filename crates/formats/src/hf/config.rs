//! Hyperparameters from a Hugging Face `config.json`.
//!
//! Key names and defaults: the configuration classes of `transformers` (`LlamaConfig`, `MistralConfig`,
//! `Qwen2Config`, `Qwen3Config`) and its `modeling_rope_utils.py`, in the forms of versions 4 and 5.

use super::json::Json;
use super::rope;
use super::section::Section;
use crate::error::quote;
use crate::gguf::width_of_head;
use crate::tensor::TensorTable;
use crate::{FormatError, ModelConfig};

/// A parsed `config.json`.
#[derive(Debug)]
pub(crate) struct HfConfig {
    file: String,
    /// The whole object.
    root: Vec<(String, Json)>,
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
            rope: rope::read(root, head_dim, context_tokens)?,
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
