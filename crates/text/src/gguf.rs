//! Reads the vocabulary out of GGUF metadata (the keys that llama.cpp defines).

use crate::{GgufVocabulary, TextError};
use foredraft_formats::{FormatError, Metadata};

/// Keys of single tokens that end an answer, besides `eos` and `eot`.
const MORE_ENDS: [&str; 1] = ["tokenizer.ggml.eom_token_id"];

impl GgufVocabulary {
    /// The vocabulary that these metadata describe, not checked yet.
    ///
    /// # Errors
    /// [`TextError::NoVocabulary`] without `tokenizer.ggml.model`, [`TextError::Format`] for a key of the wrong type.
    pub fn read(metadata: &Metadata) -> Result<Self, TextError> {
        let text = |key| Ok::<_, FormatError>(metadata.str(key)?.map(str::to_owned));
        let texts = |key| {
            let array = metadata.str_array(key)?.unwrap_or_default();
            Ok::<Vec<String>, FormatError>(array.into_iter().map(str::to_owned).collect())
        };
        let Some(model) = text("tokenizer.ggml.model")? else {
            return Err(TextError::NoVocabulary);
        };
        let id = |key| token_id(metadata, key);
        let mut end_of_generation = Vec::new();
        for key in MORE_ENDS {
            end_of_generation.extend(id(key)?);
        }
        let needs_scores = model == "llama";
        let scores = match metadata.f32_array("tokenizer.ggml.scores") {
            Err(error) if needs_scores => return Err(error.into()),
            scores => scores.ok().flatten().unwrap_or_default(),
        };
        Ok(Self {
            pre: text("tokenizer.ggml.pre")?,
            tokens: texts("tokenizer.ggml.tokens")?,
            types: metadata
                .i32_array("tokenizer.ggml.token_type")?
                .unwrap_or_default(),
            scores,
            merges: texts("tokenizer.ggml.merges")?,
            bos: id("tokenizer.ggml.bos_token_id")?,
            eos: id("tokenizer.ggml.eos_token_id")?,
            eot: id("tokenizer.ggml.eot_token_id")?,
            unk: id("tokenizer.ggml.unknown_token_id")?,
            pad: id("tokenizer.ggml.padding_token_id")?,
            end_of_generation,
            add_bos: metadata.bool("tokenizer.ggml.add_bos_token")?,
            add_space_prefix: metadata
                .bool("tokenizer.ggml.add_space_prefix")?
                .unwrap_or(true),
            chat_template: text("tokenizer.chat_template")?,
            tool_template: text("tokenizer.chat_template.tool_use")?,
            model,
        })
    }
}

/// A token's id; -1 (in whatever width) says "none".
fn token_id(metadata: &Metadata, key: &str) -> Result<Option<u32>, FormatError> {
    if metadata.i64(key)? == Some(-1) {
        return Ok(None);
    }
    metadata.u32(key)
}
