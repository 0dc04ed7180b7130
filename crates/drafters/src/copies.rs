//! Cheaper and worse copies of a model, as GGUF files in memory: every model can so be its own draft.
//!
//! An audit needs drafts that are sometimes right for models that have no small sibling: a copy without some layers is
//! what a draft is in practice (cheap, mostly right), a copy with noise in its weights is wrong as often as one likes.
//! They work on users' models as well as in tests, so they are here and not in test support.

use std::borrow::Cow;

use foredraft_formats::write::GgufWriter;
use foredraft_formats::{Checkpoint, ElementType, FormatError, RawTensor};
use foredraft_quant::{WeightType, decode, encode};
use foredraft_speculate::philox4x32_10;

/// Why a model cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Its metadata are not GGUF's.
    #[error("only GGUF models can be copied, and {path} is none: give the model as a .gguf file")]
    NotGguf {
        /// What was opened.
        path: String,
    },
    /// No layer was to be kept.
    #[error("a copy needs at least one of the model's {layers} layers")]
    NoLayers {
        /// Layers of the model.
        layers: usize,
    },
    /// A layer that there is not.
    #[error("layer {asked} does not exist: the model has {layers}, counted from 0")]
    NoSuchLayer {
        /// The number given.
        asked: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// Noise that is no number.
    #[error("the noise is {0}; give a number from 0 up")]
    Noise(f32),
    /// The file cannot be read or written.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// The model with only these of its layers, in this order, as a GGUF file: `blk.N` are numbered anew, and everything
/// else (vocabulary, embeddings, output) is as it was.
///
/// # Errors
/// When the model is not GGUF, or a layer does not exist.
pub fn with_layers(model: &Checkpoint, kept: &[usize]) -> Result<Vec<u8>, CopyError> {
    let layers = model.config()?.layers;
    if kept.is_empty() {
        return Err(CopyError::NoLayers { layers });
    }
    if let Some(&asked) = kept.iter().find(|&&layer| layer >= layers) {
        return Err(CopyError::NoSuchLayer { asked, layers });
    }
    let mut writer = writer_like(model)?;
    let architecture = &model.config()?.architecture;
    writer.u32(&format!("{architecture}.block_count"), kept.len() as u32);
    for tensor in model.raw_tensors() {
        let Some((layer, part)) = layer_of(tensor.name) else {
            add(&mut writer, tensor.name, &tensor, tensor.data.into());
            continue;
        };
        for (new, _) in kept.iter().enumerate().filter(|&(_, &old)| old == layer) {
            let name = format!("blk.{new}.{part}");
            add(&mut writer, &name, &tensor, tensor.data.into());
        }
    }
    Ok(writer.finish()?)
}

/// The model with noise in every matrix, as a GGUF file: to each weight is added a number from a uniform distribution
/// of mean 0 and standard deviation `noise` times the root mean square of its matrix, drawn from `seed` and the place
/// of the weight alone. Quantized weights are decoded and encoded again in their own type.
///
/// # Errors
/// When the model is not GGUF, or `noise` is no number from 0 up.
pub fn with_noise(model: &Checkpoint, noise: f32, seed: u64) -> Result<Vec<u8>, CopyError> {
    if !(noise >= 0.0 && noise.is_finite()) {
        return Err(CopyError::Noise(noise));
    }
    let mut writer = writer_like(model)?;
    for (number, tensor) in (0u32..).zip(model.raw_tensors()) {
        let data: Cow<'_, [u8]> = match tensor.element {
            ElementType::Weight(kind) if tensor.shape.rank() == 2 => {
                noisy(&tensor, kind, noise, seed, number).into()
            }
            _ => tensor.data.into(),
        };
        add(&mut writer, tensor.name, &tensor, data);
    }
    Ok(writer.finish()?)
}

/// A writer with the model's metadata, those of a split into several files left out.
fn writer_like<'a>(model: &Checkpoint) -> Result<GgufWriter<'a>, CopyError> {
    let Some(metadata) = model.metadata() else {
        let path = model.path().display().to_string();
        return Err(CopyError::NotGguf { path });
    };
    let mut writer = GgufWriter::new();
    writer.copy(metadata, |key| !key.starts_with("split."));
    Ok(writer)
}

fn add<'a>(writer: &mut GgufWriter<'a>, name: &str, tensor: &RawTensor<'_>, data: Cow<'a, [u8]>) {
    writer.raw_tensor(name, tensor.element, tensor.shape.dims(), data);
}

/// `blk.12.attn_q.weight` is (12, `attn_q.weight`).
fn layer_of(name: &str) -> Option<(usize, &str)> {
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

fn noisy(tensor: &RawTensor<'_>, kind: WeightType, noise: f32, seed: u64, number: u32) -> Vec<u8> {
    let mut weights = vec![0.0; tensor.shape.elements()];
    decode(kind, tensor.data, &mut weights);
    let squares: f64 = weights.iter().map(|&w| f64::from(w) * f64::from(w)).sum();
    let scale = noise * (squares / weights.len().max(1) as f64).sqrt() as f32;
    let key = [seed as u32, (seed >> 32) as u32];
    for (block, four) in (0u64..).zip(weights.chunks_mut(4)) {
        let words = philox4x32_10([block as u32, (block >> 32) as u32, number, 0], key);
        for (weight, word) in four.iter_mut().zip(words) {
            // Uniform in (-1, 1) has the variance 1/3.
            let uniform = (f64::from(word) + 0.5) / f64::from(1u32 << 31) - 1.0;
            *weight += scale * (3f64.sqrt() * uniform) as f32;
        }
    }
    let mut bytes = Vec::with_capacity(tensor.data.len());
    encode(kind, &weights, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use foredraft_testing::{TinyModel, stories260k};

    #[test]
    fn a_copy_keeps_the_layers_asked_for_and_everything_else() {
        let model = stories260k();
        let copy = Checkpoint::from_bytes(with_layers(&model, &[0, 3]).expect("a copy"))
            .expect("it opens");
        assert_eq!(copy.config().expect("a config").layers, 2);
        let data = |of: &Checkpoint, name: &str| of.tensor(name).map(|tensor| tensor.data.to_vec());
        for part in ["attn_q.weight", "ffn_down.weight", "ffn_norm.weight"] {
            let (new, old) = (format!("blk.1.{part}"), format!("blk.3.{part}"));
            assert!(data(&model, &old).is_some());
            assert_eq!(data(&copy, &new), data(&model, &old));
            assert_eq!(data(&copy, &old), None);
        }
        let embedding = "token_embd.weight";
        assert_eq!(data(&copy, embedding), data(&model, embedding));
        let keys = |of: &Checkpoint| of.metadata().map(|metadata| metadata.len());
        assert_eq!(keys(&copy), keys(&model));
    }

    #[test]
    fn layers_that_do_not_exist_are_refused() {
        let model = stories260k();
        let told = |kept: &[usize]| with_layers(&model, kept).expect_err("refused").to_string();
        assert!(told(&[]).contains("at least one"));
        assert!(told(&[0, 5]).contains("layer 5"), "{}", told(&[0, 5]));
    }

    #[test]
    fn noise_has_the_size_asked_for_and_repeats() {
        let model = stories260k();
        let bytes = with_noise(&model, 0.1, 7).expect("a copy");
        assert_eq!(bytes, with_noise(&model, 0.1, 7).expect("a copy"));
        assert_ne!(bytes, with_noise(&model, 0.1, 8).expect("a copy"));
        let copy = Checkpoint::from_bytes(bytes).expect("it opens");
        let weights = |of: &Checkpoint, name: &str| {
            let tensor = of.tensor(name).expect("a tensor");
            let mut weights = vec![0.0; tensor.shape.elements()];
            decode(tensor.kind, tensor.data, &mut weights);
            weights
        };
        let size = |values: &[f32]| values.iter().map(|v| v * v).sum::<f32>().sqrt();
        for name in ["token_embd.weight", "blk.2.ffn_up.weight"] {
            let (before, after) = (weights(&model, name), weights(&copy, name));
            let added: Vec<f32> = before.iter().zip(&after).map(|(b, a)| a - b).collect();
            // Of some ten thousand numbers the size is known to 1 %.
            let ratio = size(&added) / size(&before);
            assert!((ratio - 0.1).abs() < 0.003, "{name}: {ratio}");
        }
        let norm = "output_norm.weight";
        assert_eq!(weights(&copy, norm), weights(&model, norm));
    }

    #[test]
    fn quantized_models_keep_their_types() {
        let model = TinyModel::of_type(WeightType::Q4_K).checkpoint();
        let copy =
            Checkpoint::from_bytes(with_noise(&model, 0.5, 1).expect("a copy")).expect("it opens");
        for (old, new) in model.tensors().zip(copy.tensors()) {
            assert_eq!(
                (old.name, old.kind, old.shape),
                (new.name, new.kind, new.shape)
            );
            assert_eq!(old.data == new.data, old.shape.rank() == 1, "{}", old.name);
        }
    }
}
