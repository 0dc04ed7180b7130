//! Hyperparameters from GGUF metadata.
//!
//! Key names and defaults: the GGUF specification, and llama.cpp where it is silent (`llama-arch.cpp`,
//! `llama-model.cpp`; for YaRN's magnitude `ggml_rope_yarn`).

use foredraft_quant::WeightType;

use crate::config::{ARCHITECTURES, unknown_architecture};
use crate::error::quote;
use crate::tensor::TensorTable;
use crate::value::Value;
use crate::{FormatError, Metadata, ModelConfig, RopeConfig, RopeLayout, RopeScaling};

/// What to do when a hyperparameter is missing.
const RECONVERT: &str = "convert the model again with a current converter";

/// Metadata keys below the architecture's name.
struct Keys<'a> {
    metadata: &'a Metadata,
    architecture: &'a str,
}

impl<'a> Keys<'a> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn missing(&self, name: &str) -> FormatError {
        FormatError::missing(
            self.metadata.file(),
            format!("metadata {}", quote(&self.key(name))),
            RECONVERT,
        )
    }

    fn f32(&self, name: &str) -> Result<Option<f32>, FormatError> {
        self.metadata.f32(&self.key(name))
    }

    fn str(&self, name: &str) -> Result<Option<&'a str>, FormatError> {
        self.metadata.str(&self.key(name))
    }

    /// A count, or an array with one count per layer as long as all are equal.
    fn count(&self, name: &str) -> Result<Option<usize>, FormatError> {
        let key = self.key(name);
        let Some(Value::Array(_)) = self.metadata.value(&key) else {
            return self.metadata.usize(&key);
        };
        let counts = self.metadata.u32_array(&key)?.unwrap_or_default();
        let Some((&first, rest)) = counts.split_first() else {
            return Err(FormatError::damaged(
                self.metadata.file(),
                quote(&key),
                "the array is empty",
            ));
        };
        if rest.iter().any(|&count| count != first) {
            let found = "with a different value in each layer";
            let supported = "one value for all layers";
            return Err(FormatError::unsupported(
                self.metadata.file(),
                quote(&key),
                found,
                supported,
            ));
        }
        Ok(Some(first as usize))
    }

    fn needed(&self, name: &str) -> Result<usize, FormatError> {
        self.count(name)?.ok_or_else(|| self.missing(name))
    }

    fn unsupported(&self, name: &str, found: impl ToString, supported: &str) -> FormatError {
        let field = format!("metadata {}", quote(&self.key(name)));
        FormatError::unsupported(self.metadata.file(), field, found, supported)
    }
}

/// The hyperparameters; `tensors` supplies the size of the vocabulary and the rope factors.
pub(crate) fn model_config(
    metadata: &Metadata,
    tensors: &TensorTable,
) -> Result<ModelConfig, FormatError> {
    let file = metadata.file();
    let architecture = metadata
        .str("general.architecture")?
        .ok_or_else(|| FormatError::missing(file, "metadata `general.architecture`", RECONVERT))?;
    match read(
        &Keys {
            metadata,
            architecture,
        },
        tensors,
    ) {
        // A model of another kind fails on some key or other; what the user needs to hear is this.
        Err(_) if !ARCHITECTURES.contains(&architecture) => {
            Err(unknown_architecture(file, architecture))
        }
        config => config,
    }
}

fn read(keys: &Keys<'_>, tensors: &TensorTable) -> Result<ModelConfig, FormatError> {
    if let Some(experts) = keys.count("expert_count")?.filter(|&experts| experts > 0) {
        return Err(keys.unsupported("expert_count", experts, "models without experts"));
    }
    let width = keys.needed("embedding_length")?;
    let heads = keys.needed("attention.head_count")?;
    let head_dim = head_dim(keys, width, heads)?;
    let config = ModelConfig {
        architecture: keys.architecture.to_owned(),
        name: keys.metadata.str("general.name")?.map(str::to_owned),
        layers: keys.needed("block_count")?,
        width,
        ffn_width: keys.needed("feed_forward_length")?,
        heads,
        kv_heads: keys.count("attention.head_count_kv")?.unwrap_or(heads),
        head_dim,
        vocabulary: vocabulary(keys, tensors)?,
        context_tokens: keys.needed("context_length")?,
        norm_eps: keys
            .f32("attention.layer_norm_rms_epsilon")?
            .ok_or_else(|| keys.missing("attention.layer_norm_rms_epsilon"))?,
        rope: rope(keys, head_dim, tensors)?,
        window: keys
            .metadata
            .u32(&keys.key("attention.sliding_window"))?
            .filter(|&window| window > 0),
        tied_embeddings: tensors.weight("output.weight").is_none(),
    };
    config.validate(keys.metadata.file())?;
    Ok(config)
}

fn head_dim(keys: &Keys<'_>, width: usize, heads: usize) -> Result<usize, FormatError> {
    let key_length = match keys.count("attention.key_length")? {
        Some(length) => length,
        None => width_of_head(keys.metadata.file(), width, heads)?,
    };
    match keys.count("attention.value_length")? {
        Some(length) if length != key_length => {
            let supported = format!("the width of keys, {key_length}");
            Err(keys.unsupported("attention.value_length", length, &supported))
        }
        _ => Ok(key_length),
    }
}

/// The width of a head where the file does not state it: `width / heads`, which must be even.
pub(crate) fn width_of_head(file: &str, width: usize, heads: usize) -> Result<usize, FormatError> {
    if heads == 0 || !width.is_multiple_of(heads) {
        let problem = format!(
            "the file does not state it, and {heads} heads do not divide the width {width}"
        );
        return Err(FormatError::damaged(file, "the width of a head", problem));
    }
    Ok(width / heads)
}

/// Rows of the embedding; in a file without tensors, what the metadata says.
fn vocabulary(keys: &Keys<'_>, tensors: &TensorTable) -> Result<usize, FormatError> {
    let tokens = keys
        .metadata
        .array("tokenizer.ggml.tokens")?
        .map(|tokens| tokens.len());
    let stated = keys.metadata.usize(&keys.key("vocab_size"))?;
    let Some(embedding) = tensors.weight("token_embd.weight") else {
        return stated.or(tokens).ok_or_else(|| keys.missing("vocab_size"));
    };
    let rows = embedding.shape.rows();
    // More rows than tokens is padding; more tokens than rows would read beyond the embedding.
    if let Some(tokens) = tokens.filter(|&tokens| tokens > rows) {
        let problem = format!("the tokenizer has {tokens} tokens, the embedding {rows} rows");
        let field = "tensor `token_embd.weight`";
        return Err(FormatError::damaged(keys.metadata.file(), field, problem));
    }
    Ok(rows)
}

fn rope(
    keys: &Keys<'_>,
    head_dim: usize,
    tensors: &TensorTable,
) -> Result<RopeConfig, FormatError> {
    if keys
        .metadata
        .find(&keys.key("rope.dimension_sections"))
        .is_some()
    {
        return Err(keys.unsupported(
            "rope.dimension_sections",
            "(mrope)",
            "one position per token",
        ));
    }
    let layout = match keys.architecture {
        // The converter permutes q and k of these so that pairs are adjacent.
        "llama" => RopeLayout::Interleaved,
        _ => RopeLayout::Halves,
    };
    let stated = scaling(keys)?;
    let scaling = match (rope_factors(keys, tensors)?, stated) {
        (None, stated) => stated,
        (Some(factors), RopeScaling::None) => RopeScaling::Factors(factors),
        (Some(_), _) => {
            let found = "together with the tensor `rope_freqs.weight`";
            return Err(keys.unsupported("rope.scaling.type", found, "one of the two"));
        }
    };
    Ok(RopeConfig {
        base: keys.f32("rope.freq_base")?.unwrap_or(10_000.0).into(),
        dims: keys.count("rope.dimension_count")?.unwrap_or(head_dim),
        layout,
        scaling,
    })
}

/// The divisors in `rope_freqs.weight`, which Llama 3.1 files have.
fn rope_factors(keys: &Keys<'_>, tensors: &TensorTable) -> Result<Option<Vec<f32>>, FormatError> {
    let Some(tensor) = tensors.weight("rope_freqs.weight") else {
        return Ok(None);
    };
    if tensor.kind != WeightType::F32 {
        let field = "tensor `rope_freqs.weight`: type";
        return Err(FormatError::unsupported(
            keys.metadata.file(),
            field,
            tensor.kind,
            WeightType::F32,
        ));
    }
    let (factors, _) = tensor.data.as_chunks::<4>();
    Ok(Some(
        factors
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes))
            .collect(),
    ))
}

fn scaling(keys: &Keys<'_>) -> Result<RopeScaling, FormatError> {
    // llama.cpp: `rope.scale_linear` is the older key, a factor of 0 means "not scaled", and a factor
    // without a type is linear.
    let factor = match keys.f32("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        None => keys.f32("rope.scale_linear")?,
    };
    let factor = factor.filter(|&factor| factor != 0.0).unwrap_or(1.0);
    match keys.str("rope.scaling.type")?.unwrap_or("linear") {
        "none" => Ok(RopeScaling::None),
        "linear" if factor == 1.0 => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear { factor }),
        "yarn" => yarn(keys, factor),
        other => Err(keys.unsupported("rope.scaling.type", quote(other), "none, linear, yarn")),
    }
}

fn yarn(keys: &Keys<'_>, factor: f32) -> Result<RopeScaling, FormatError> {
    let extrapolation = keys.f32("rope.scaling.yarn_ext_factor")?.unwrap_or(1.0);
    if extrapolation != 1.0 && extrapolation >= 0.0 {
        return Err(keys.unsupported("rope.scaling.yarn_ext_factor", extrapolation, "1"));
    }
    let original_context = match keys.count("rope.scaling.original_context_length")? {
        Some(tokens) => tokens,
        None => keys.needed("context_length")?,
    };
    // In GGUF these multiply YaRN's own magnitude; in Hugging Face's they replace it.
    let magnitude = match (
        keys.f32("rope.scaling.attn_factor")?,
        keys.f32("rope.scaling.yarn_attn_factor")?,
    ) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(1.0) * b.unwrap_or(1.0)),
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: keys.f32("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
        beta_slow: keys.f32("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
        attention_factor: magnitude
            .filter(|&magnitude| magnitude != 1.0)
            .map(|magnitude| magnitude * yarn_magnitude(factor, 1.0)),
    })
}

/// YaRN's correction of the attention's temperature: `0.1 scale ln(factor) + 1` (2309.00071, section
/// 3.4), 1 where nothing is stretched.
pub(crate) fn yarn_magnitude(factor: f32, scale: f32) -> f32 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * scale * foredraft_common::ln(factor) + 1.0
    }
}
