//! What the files beside a `tokenizer.json` add: the names of BOS and end-of-text, and the chat template.

use crate::TextError;
use serde_json::Value;
use std::path::Path;

/// The limit for each of these files.
const MAX_CONFIG_BYTES: u64 = 16 << 20;

/// The files beside `tokenizer.json`.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    tokenizer_config: Value,
    special_tokens_map: Value,
    generation_config: Value,
    config: Value,
    /// `chat_template.jinja`, or the text in `chat_template.json`.
    template: Option<String>,
}

impl Extras {
    pub(crate) fn read(directory: &Path) -> Result<Self, TextError> {
        let json = |name: &str| {
            let path = directory.join(name);
            match read(&path, MAX_CONFIG_BYTES)? {
                None => Ok(Value::Null),
                Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| TextError::File {
                    path,
                    problem: format!("is not JSON: {error}"),
                }),
            }
        };
        let path = directory.join("chat_template.jinja");
        let template = match read(&path, MAX_CONFIG_BYTES)? {
            Some(bytes) => Some(String::from_utf8(bytes).map_err(|_| TextError::File {
                path,
                problem: "is not UTF-8".into(),
            })?),
            None => json("chat_template.json")?["chat_template"]
                .as_str()
                .map(str::to_owned),
        };
        Ok(Self {
            tokenizer_config: json("tokenizer_config.json")?,
            special_tokens_map: json("special_tokens_map.json")?,
            generation_config: json("generation_config.json")?,
            config: json("config.json")?,
            template,
        })
    }

    /// A special token's text: a string, or an object with `content`.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        [&self.tokenizer_config, &self.special_tokens_map]
            .into_iter()
            .find_map(|file| {
                let value = &file[key];
                value
                    .as_str()
                    .or_else(|| value["content"].as_str())
                    .map(str::to_owned)
            })
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.tokenizer_config[key].as_bool()
    }

    /// `eos_token_id`: a number or a list of them.
    pub(crate) fn end_of_text_ids(&self) -> Vec<u32> {
        let ids = [&self.generation_config, &self.config]
            .into_iter()
            .flat_map(|file| match &file["eos_token_id"] {
                Value::Array(ids) => ids.iter().filter_map(Value::as_u64).collect(),
                one => one.as_u64().into_iter().collect::<Vec<_>>(),
            });
        ids.filter_map(|id| u32::try_from(id).ok()).collect()
    }

    /// The default template and the one for tools.
    pub(crate) fn chat_template(&self) -> Option<(String, Option<String>)> {
        let named = |list: &Value, name: &str| {
            let entry = list
                .as_array()?
                .iter()
                .find(|entry| entry["name"] == name)?;
            Some(entry["template"].as_str()?.to_owned())
        };
        let inline = &self.tokenizer_config["chat_template"];
        let tool = named(inline, "tool_use");
        let default = self
            .template
            .clone()
            .or_else(|| inline.as_str().map(str::to_owned));
        Some((default.or_else(|| named(inline, "default"))?, tool))
    }
}

/// A file's bytes; `None` if there is no such file.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, TextError> {
    let failed = |source| TextError::Read {
        path: path.to_owned(),
        source,
    };
    let bytes = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(file) => file.len(),
    };
    if bytes > limit {
        let problem = format!("has {bytes} bytes, more than the limit of {limit}");
        return Err(TextError::File {
            path: path.to_owned(),
            problem,
        });
    }
    std::fs::read(path).map(Some).map_err(failed)
}
