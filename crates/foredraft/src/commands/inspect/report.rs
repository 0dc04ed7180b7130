//! The facts of a model file, as `inspect --json` prints them.

use foredraft::formats::{Checkpoint, ModelConfig, RopeLayout, RopeScaling, VocabularySource};
use foredraft::text::{TokenId, TokenKind, Tokenizer};
use serde::Serialize;

use super::against::Against;

/// `inspect --json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Alias, repository or file name.
    pub(super) model: String,
    /// Where the file is; the alias for a model that is built in.
    pub(super) path: String,
    /// `GGUF v3` and the like.
    pub(super) format: &'static str,
    /// All files of the model together, headers included.
    pub(super) file_bytes: u64,
    /// Weights; a tied output layer is counted once.
    pub(super) parameters: u64,
    /// Null when the file has none that this version understands.
    pub(super) hyperparameters: Option<Hyperparameters>,
    /// Why there are none.
    pub(super) hyperparameters_problem: Option<String>,
    /// What the tensors' bytes are, most bytes first.
    pub(super) types: Vec<TypeShare>,
    /// Null when the file has none that this version understands.
    pub(super) vocabulary: Option<Vocabulary>,
    /// Why there is none.
    pub(super) vocabulary_problem: Option<String>,
    /// With `--tensors`, every tensor in file order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tensors: Option<Vec<TensorLine>>,
    /// With `--against`, the vocabulary compared with another model's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) against: Option<Against>,
}

/// The shape of the network.
#[derive(Debug, Serialize)]
pub(super) struct Hyperparameters {
    pub(super) architecture: String,
    /// The model's own name.
    pub(super) name: Option<String>,
    pub(super) layers: usize,
    pub(super) width: usize,
    pub(super) ffn_width: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// Rows of the embedding and of the logits.
    pub(super) vocabulary_rows: usize,
    pub(super) context_tokens: usize,
    pub(super) norm_epsilon: f32,
    pub(super) rope_base: f64,
    pub(super) rope_dims: usize,
    /// `interleaved` or `halves`
    pub(super) rope_layout: &'static str,
    /// `none`, `linear`, `llama3`, `yarn` or `factors`
    pub(super) rope_scaling: &'static str,
    /// Sliding window in tokens.
    pub(super) window: Option<u32>,
    pub(super) tied_embeddings: bool,
}

/// All tensors of one type.
#[derive(Debug, Serialize)]
pub(super) struct TypeShare {
    #[serde(rename = "type")]
    pub(super) name: &'static str,
    pub(super) tensors: usize,
    pub(super) elements: u64,
    pub(super) bytes: u64,
}

/// The tokens.
#[derive(Debug, Serialize)]
pub(super) struct Vocabulary {
    /// `gpt2` (byte-level BPE), `llama` (SentencePiece BPE), or `tokenizer.json`
    pub(super) model: String,
    /// The pre-tokenizer that a GGUF file names.
    pub(super) pre_tokenizer: Option<String>,
    /// Tokens without padding at the end.
    pub(super) tokens: usize,
    /// The token that begins a text.
    pub(super) bos: Option<Token>,
    /// Whether prompts begin with it.
    pub(super) adds_bos: bool,
    /// The tokens that end an answer.
    pub(super) end_of_text: Vec<Token>,
    /// Every control token.
    pub(super) special: Vec<Token>,
    /// Whether the file has a chat template.
    pub(super) chat_template: bool,
    /// Why the template cannot be used, if it cannot.
    pub(super) chat_template_problem: Option<String>,
}

/// A token and its name.
#[derive(Debug, Serialize)]
pub(super) struct Token {
    pub(super) id: u32,
    pub(super) text: String,
}

/// A tensor.
#[derive(Debug, Serialize)]
pub(super) struct TensorLine {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// Outermost dimension first.
    pub(super) shape: Vec<usize>,
    pub(super) bytes: u64,
}

impl Report {
    /// Reads the facts; nothing of the weights themselves is read.
    pub(super) fn of(model: &str, checkpoint: &Checkpoint, with_tensors: bool) -> Self {
        let (hyperparameters, hyperparameters_problem) = match checkpoint.config() {
            Ok(config) => (Some(Hyperparameters::of(config)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (vocabulary, vocabulary_problem) = match Tokenizer::open(checkpoint.vocabulary()) {
            Ok(tokenizer) => (Some(Vocabulary::of(checkpoint, &tokenizer)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let tensors = || {
            checkpoint.raw_tensors().map(|tensor| TensorLine {
                name: tensor.name.to_string(),
                kind: tensor.element.name(),
                shape: tensor.shape.dims().to_vec(),
                bytes: tensor.data.len() as u64,
            })
        };
        Report {
            model: model.to_string(),
            path: checkpoint.path().display().to_string(),
            format: checkpoint.format_name(),
            file_bytes: checkpoint.file_bytes(),
            parameters: checkpoint
                .tensors()
                .map(|tensor| tensor.shape.elements() as u64)
                .sum(),
            hyperparameters,
            hyperparameters_problem,
            types: types(checkpoint),
            vocabulary,
            vocabulary_problem,
            tensors: with_tensors.then(|| tensors().collect()),
            against: None,
        }
    }
}

fn types(checkpoint: &Checkpoint) -> Vec<TypeShare> {
    let mut types: Vec<TypeShare> = Vec::new();
    for tensor in checkpoint.raw_tensors() {
        let name = tensor.element.name();
        let at = types
            .iter()
            .position(|share| share.name == name)
            .unwrap_or_else(|| {
                types.push(TypeShare {
                    name,
                    tensors: 0,
                    elements: 0,
                    bytes: 0,
                });
                types.len() - 1
            });
        types[at].tensors += 1;
        types[at].elements += tensor.shape.elements() as u64;
        types[at].bytes += tensor.data.len() as u64;
    }
    types.sort_by_key(|share| std::cmp::Reverse(share.bytes));
    types
}

impl Hyperparameters {
    fn of(config: &ModelConfig) -> Self {
        Hyperparameters {
            architecture: config.architecture.clone(),
            name: config.name.clone(),
            layers: config.layers,
            width: config.width,
            ffn_width: config.ffn_width,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            vocabulary_rows: config.vocabulary,
            context_tokens: config.context_tokens,
            norm_epsilon: config.norm_eps,
            rope_base: config.rope.base,
            rope_dims: config.rope.dims,
            rope_layout: match config.rope.layout {
                RopeLayout::Interleaved => "interleaved",
                RopeLayout::Halves => "halves",
            },
            rope_scaling: match config.rope.scaling {
                RopeScaling::None => "none",
                RopeScaling::Linear { .. } => "linear",
                RopeScaling::Llama3 { .. } => "llama3",
                RopeScaling::Yarn { .. } => "yarn",
                RopeScaling::Factors(_) => "factors",
            },
            window: config.window,
            tied_embeddings: config.tied_embeddings,
        }
    }
}

impl Vocabulary {
    fn of(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Self {
        let token = |id: TokenId| Token {
            id: id.0,
            text: tokenizer.token_text(id).to_string(),
        };
        let all = || (0..tokenizer.vocabulary_len() as u32).map(TokenId);
        let key = |key: &str| match checkpoint.vocabulary() {
            VocabularySource::Gguf(metadata) => {
                metadata.str(key).ok().flatten().map(str::to_string)
            }
            _ => None,
        };
        let template = tokenizer.chat_template();
        Vocabulary {
            model: key("tokenizer.ggml.model").unwrap_or_else(|| "tokenizer.json".to_string()),
            // SentencePiece has none, though its files name one.
            pre_tokenizer: key("tokenizer.ggml.pre")
                .filter(|_| key("tokenizer.ggml.model").as_deref() == Some("gpt2")),
            tokens: tokenizer.vocabulary_len(),
            bos: tokenizer.bos().map(token),
            adds_bos: tokenizer.adds_bos(),
            end_of_text: tokenizer
                .end_of_text_ids()
                .iter()
                .copied()
                .map(token)
                .collect(),
            special: all()
                .filter(|&id| tokenizer.token_kind(id) == TokenKind::Control)
                .map(token)
                .collect(),
            chat_template: template.is_some(),
            chat_template_problem: template
                .and_then(|template| template.check().err())
                .map(|error| error.to_string()),
        }
    }
}
