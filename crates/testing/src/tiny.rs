//! Tiny models with random weights.

use foredraft_formats::Checkpoint;
use foredraft_formats::write::GgufWriter;
use foredraft_quant::{WeightType, encode};

use crate::Random;

/// What a tiny model looks like. The default has two layers of width 256, a feed-forward width of 768, an odd
/// vocabulary, and six query heads over two KV heads; every width is a whole number of 256-blocks.
#[derive(Debug, Clone)]
pub struct TinyModel {
    /// `llama`, `qwen2` or `qwen3`.
    pub architecture: &'static str,
    /// The type of every matrix; vectors are F32.
    pub kind: WeightType,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Width of the feed-forward layers.
    pub ffn_width: usize,
    /// Query heads.
    pub heads: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Width of a head: its own number.
    pub head_dim: usize,
    /// Tokens.
    pub vocabulary: usize,
    /// Context.
    pub context_tokens: usize,
    /// Of the weights.
    pub seed: u64,
}

impl Default for TinyModel {
    fn default() -> Self {
        Self {
            architecture: "llama",
            kind: WeightType::F32,
            layers: 2,
            width: 256,
            ffn_width: 768,
            heads: 6,
            kv_heads: 2,
            head_dim: 128,
            vocabulary: 331,
            context_tokens: 256,
            seed: 1,
        }
    }
}

impl TinyModel {
    /// A tiny Llama whose matrices have this type.
    pub fn of_type(kind: WeightType) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    /// The model as a GGUF file.
    ///
    /// # Panics
    /// When the writer refuses it.
    pub fn gguf(&self) -> Vec<u8> {
        let mut writer = GgufWriter::new();
        self.write_metadata(&mut writer);
        let mut random = Random::new(self.seed);
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        self.matrix(
            &mut writer,
            &mut random,
            "token_embd",
            self.vocabulary,
            self.width,
        );
        self.vector(&mut writer, &mut random, "output_norm.weight", self.width);
        self.matrix(
            &mut writer,
            &mut random,
            "output",
            self.vocabulary,
            self.width,
        );
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}");
            self.vector(
                &mut writer,
                &mut random,
                &name("attn_norm.weight"),
                self.width,
            );
            self.vector(
                &mut writer,
                &mut random,
                &name("ffn_norm.weight"),
                self.width,
            );
            for (part, rows, width) in [
                ("attn_q", q, self.width),
                ("attn_k", kv, self.width),
                ("attn_v", kv, self.width),
                ("attn_output", self.width, q),
                ("ffn_gate", self.ffn_width, self.width),
                ("ffn_up", self.ffn_width, self.width),
                ("ffn_down", self.width, self.ffn_width),
            ] {
                self.matrix(&mut writer, &mut random, &name(part), rows, width);
            }
            if self.architecture == "qwen2" {
                for (part, rows) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
                    self.vector(
                        &mut writer,
                        &mut random,
                        &name(&format!("{part}.bias")),
                        rows,
                    );
                }
            }
            if self.architecture == "qwen3" {
                for part in ["attn_q_norm.weight", "attn_k_norm.weight"] {
                    self.vector(&mut writer, &mut random, &name(part), self.head_dim);
                }
            }
        }
        writer.finish().expect("a tiny model can be written")
    }

    /// The model, opened.
    ///
    /// # Panics
    /// When the file does not open.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::from_bytes(self.gguf()).expect("a tiny model opens")
    }

    fn write_metadata(&self, writer: &mut GgufWriter<'_>) {
        let key = |name: &str| format!("{}.{name}", self.architecture);
        writer.str("general.architecture", self.architecture);
        for (name, value) in [
            ("block_count", self.layers),
            ("context_length", self.context_tokens),
            ("embedding_length", self.width),
            ("feed_forward_length", self.ffn_width),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_dim),
            ("attention.value_length", self.head_dim),
            ("rope.dimension_count", self.head_dim),
            ("vocab_size", self.vocabulary),
        ] {
            writer.u32(&key(name), value as u32);
        }
        writer.f32(&key("attention.layer_norm_rms_epsilon"), 1e-5);
        writer.f32(&key("rope.freq_base"), 10_000.0);
    }

    /// Weights with a standard deviation of 1 / sqrt(width): activations keep their size.
    fn matrix(
        &self,
        writer: &mut GgufWriter<'_>,
        random: &mut Random,
        name: &str,
        rows: usize,
        width: usize,
    ) {
        let deviation = 1.0 / (width as f32).sqrt();
        let values: Vec<f32> = (0..rows * width)
            .map(|_| random.normal() * deviation)
            .collect();
        let mut bytes = Vec::new();
        encode(self.kind, &values, &mut bytes);
        writer.tensor(&format!("{name}.weight"), self.kind, &[rows, width], bytes);
    }

    /// Values around 1: a norm's weights (or a bias that matters).
    fn vector(&self, writer: &mut GgufWriter<'_>, random: &mut Random, name: &str, len: usize) {
        let bytes: Vec<u8> = (0..len)
            .flat_map(|_| (1.0 + 0.1 * random.normal()).to_le_bytes())
            .collect();
        writer.tensor(name, WeightType::F32, &[len], bytes);
    }
}
