//! Which architectures there are, and what distinguishes them.

use foredraft_formats::{Checkpoint, FormatError, ModelConfig};

use crate::decoder;
use crate::program::{Program, TapPoint};

/// Why a checkpoint is not a model that this build can run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The configuration itself is wrong.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// An architecture that is not written here.
    #[error(
        "architecture `{name}` is not supported; this version runs {}",
        supported()
    )]
    Architecture {
        /// As the file names it.
        name: String,
    },
    /// Explicit rotary factors that do not fit the head.
    #[error("`rope_freqs.weight` has {found} factors, the model's heads need {expected}")]
    RopeFactors {
        /// In the file.
        found: usize,
        /// Pairs of a head.
        expected: usize,
    },
    /// A tensor that the architecture always has is not there.
    #[error("architecture `{architecture}` needs the tensor `{name}`: the file is incomplete")]
    MissingTensor {
        /// As the file names it.
        architecture: String,
        /// Canonical name.
        name: String,
    },
}

/// What a decoder-only transformer of the Llama family may have beside the common parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    /// Query, key and value have biases, always.
    pub(crate) qkv_bias: bool,
    /// Query and key heads are normalised before they are rotated.
    pub(crate) qk_norm: bool,
}

const ARCHITECTURES: [(&str, Features); 3] = [
    // Llama 1-3, Mistral, SmolLM2, TinyLlama.
    (
        "llama",
        Features {
            qkv_bias: false,
            qk_norm: false,
        },
    ),
    (
        "qwen2",
        Features {
            qkv_bias: true,
            qk_norm: false,
        },
    ),
    (
        "qwen3",
        Features {
            qkv_bias: false,
            qk_norm: true,
        },
    ),
];

fn supported() -> String {
    ARCHITECTURES.map(|(name, _)| name).join(", ")
}

/// What a program should keep beside its logits.
#[derive(Debug, Clone, Default)]
pub struct ProgramOptions {
    /// Hidden states for draft heads.
    pub taps: Vec<TapPoint>,
}

/// The program of the model in a checkpoint.
///
/// # Errors
/// When the configuration is invalid, the architecture unknown, or a tensor that distinguishes it is missing.
pub fn program_for(
    checkpoint: &Checkpoint,
    options: &ProgramOptions,
) -> Result<Program, ModelError> {
    let config: &ModelConfig = checkpoint.config()?;
    let features = ARCHITECTURES
        .iter()
        .find(|(name, _)| *name == config.architecture)
        .map(|(_, features)| *features)
        .ok_or_else(|| ModelError::Architecture {
            name: config.architecture.clone(),
        })?;
    decoder::program(checkpoint, config, features, options)
}
