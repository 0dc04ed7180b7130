//! What the tests share: bytes of hostile files, written field by field, and a small valid model.
#![allow(dead_code)] // each test file uses some of it

use std::path::PathBuf;

use foredraft_formats::write::GgufWriter;
use foredraft_formats::{Checkpoint, FormatError};
use foredraft_quant::WeightType;

/// A GGUF file written field by field, with no check at all.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// The fixed header, version 3.
    pub(crate) fn gguf(tensors: u64, pairs: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(pairs)
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn string(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// A metadata pair of type u32.
    pub(crate) fn pair_u32(self, key: &str, value: u32) -> Self {
        self.string(key).u32(4).u32(value)
    }

    /// A line of the tensor table; dimensions as in the file, innermost first.
    pub(crate) fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let raw = self.string(name).u32(dims.len() as u32);
        dims.iter()
            .fold(raw, |raw, &dim| raw.u64(dim))
            .u32(kind)
            .u64(offset)
    }

    /// Pads to the default alignment and appends `length` bytes of data.
    pub(crate) fn data(mut self, length: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + length, 0);
        self
    }

    pub(crate) fn open(self) -> Result<Checkpoint, FormatError> {
        Checkpoint::from_bytes(self.0)
    }
}

/// The message of a failure, which must name the file and everything in `parts`.
#[track_caller]
pub(crate) fn refused(result: Result<Checkpoint, FormatError>, parts: &[&str]) -> String {
    let message = result.expect_err("this file must be refused").to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    for part in ["(bytes in memory)"].iter().chain(parts) {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    message
}

/// The metadata of a small llama.
pub(crate) fn small_llama() -> GgufWriter<'static> {
    let mut writer = GgufWriter::new();
    writer
        .str("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .u32("llama.embedding_length", 64)
        .u32("llama.feed_forward_length", 96)
        .u32("llama.attention.head_count", 4)
        .u32("llama.attention.head_count_kv", 2)
        .u32("llama.context_length", 128)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5)
        .tensor(
            "token_embd.weight",
            WeightType::F32,
            &[10, 64],
            vec![1; 10 * 64 * 4],
        );
    writer
}

/// A safetensors file: the JSON header, then `data` bytes of zeros.
pub(crate) fn safetensors(json: &str, data: usize) -> Vec<u8> {
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.extend(json.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

/// A `config.json` of a small llama, with more keys (`"key": value`, comma first) appended.
pub(crate) fn hf_config(more: &str) -> String {
    format!(
        r#"{{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "vocab_size": 10, "max_position_embeddings": 128, "rms_norm_eps": 1e-5{more}}}"#
    )
}

/// stories260K as GGUF.
pub(crate) fn stories_gguf() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../foredraft/assets/stories260K.f32.gguf"
    ))
}

/// stories260K as a Hugging Face directory.
pub(crate) fn stories_hf() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/stories260k-hf"
    ))
}

/// Touches every byte of every tensor and asks for everything: what a user of a checkpoint may do.
pub(crate) fn use_all(model: &Checkpoint) -> u64 {
    let mut sum = 0u64;
    for tensor in model.raw_tensors() {
        let row = tensor
            .element
            .row_bytes(tensor.shape.width())
            .expect("whole blocks");
        assert_eq!(
            tensor.data.len(),
            row * tensor.shape.rows(),
            "{}",
            tensor.name
        );
        sum += tensor.data.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        assert!(
            model
                .raw_tensor(tensor.name)
                .is_some_and(|found| found.shape == tensor.shape)
        );
    }
    for tensor in model.tensors() {
        assert!(
            model
                .tensor(tensor.name)
                .is_some_and(|found| found.kind == tensor.kind)
        );
    }
    if let Some(metadata) = model.metadata() {
        for (key, value) in metadata.iter() {
            sum += value.to_string().len() as u64;
            let _ = (
                metadata.str(key),
                metadata.u32(key),
                metadata.f32(key),
                metadata.bool(key),
            );
            let _ = (
                metadata.str_array(key),
                metadata.f32_array(key),
                metadata.i32_array(key),
            );
        }
        assert_eq!(metadata.iter().count(), metadata.len());
    }
    let _ = (
        model.config().is_ok(),
        model.vocabulary(),
        model.file_bytes(),
    );
    sum
}
