//! The largest sizes that are believed. All in one place, each with its reason.
//!
//! A count from a file is checked against these *and* against the bytes that are left in the file
//! before anything is allocated for it; so a file of n bytes never makes a parser claim more than a
//! small multiple of n.

/// Dimensions of a tensor (ggml's `GGML_MAX_DIMS`).
pub(crate) const DIMENSIONS: usize = 4;
/// Metadata keys of one GGUF file; real ones have some thirty.
pub(crate) const METADATA_KEYS: u64 = 1 << 16;
/// Bytes of a metadata key; the GGUF specification says 2^16 - 1.
pub(crate) const KEY_BYTES: u64 = (1 << 16) - 1;
/// Bytes of a tensor's name; ggml's own limit is 64, Hugging Face names reach about 100.
pub(crate) const NAME_BYTES: u64 = 512;
/// Tensors of a checkpoint; a mixture of 256 experts in 61 layers has about 90,000.
pub(crate) const TENSORS: u64 = 1 << 18;
/// Files of a split or sharded checkpoint.
pub(crate) const PARTS: u64 = 1024;
/// `general.alignment` of a GGUF file: 32 unless stated. The specification asks for a multiple of 8;
/// ggml asks for a power of two; beyond a 64 KiB page it could only be meant to waste memory.
pub(crate) const ALIGNMENT: std::ops::RangeInclusive<u32> = 8..=1 << 16;
/// Bytes of a safetensors JSON header (the format's own limit, 100 MB).
pub(crate) const SAFETENSORS_HEADER_BYTES: u64 = 100_000_000;
/// Bytes of `model.safetensors.index.json`; 90,000 tensors take about 10 MB.
pub(crate) const INDEX_BYTES: u64 = 64 << 20;
/// Bytes of `config.json`; real ones have one or two thousand.
pub(crate) const CONFIG_BYTES: u64 = 1 << 20;

/// Transformer layers.
pub(crate) const LAYERS: usize = 1024;
/// Width of the residual stream, and of all heads together.
pub(crate) const WIDTH: usize = 1 << 20;
/// Width of a feed-forward layer.
pub(crate) const FFN_WIDTH: usize = 1 << 22;
/// Attention heads.
pub(crate) const HEADS: usize = 1 << 12;
/// Width of one head.
pub(crate) const HEAD_DIM: usize = 1 << 12;
/// Rows of the embedding; token ids are 32-bit, real vocabularies stay below 2^19.
pub(crate) const VOCABULARY: usize = 1 << 24;
/// Positions; the longest context advertised so far is 10 million.
pub(crate) const CONTEXT_TOKENS: usize = 1 << 28;
