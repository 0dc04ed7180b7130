//! Hugging Face checkpoints: a directory with `config.json` and safetensors files.

mod config;
mod index;
mod json;
mod names;
mod rope;
mod section;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use crate::error::quote;
use crate::safetensors::Header;
use crate::storage::Storage;
use crate::tensor::{Entry, TensorTable};
use crate::{FormatError, limits};

pub(crate) use config::HfConfig;

/// The name of the file that says which tensor is in which shard.
const INDEX: &str = "model.safetensors.index.json";
/// The name of the only weight file of a model that is not sharded.
const SINGLE: &str = "model.safetensors";

/// What a model's directory holds, as far as it matters here.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) has_config: bool,
    has_index: bool,
    has_pickles: bool,
    /// Names of `*.safetensors`, sorted.
    pub(crate) safetensors: Vec<String>,
    /// Names of `*.gguf`, sorted.
    pub(crate) ggufs: Vec<String>,
}

impl Listing {
    /// Lists the directory at `path`, which messages call `file`.
    pub(crate) fn read(path: &Path, file: &str) -> Result<Self, FormatError> {
        let error = |e: &std::io::Error| FormatError::io(file, "list the directory", e);
        let mut listing = Self::default();
        for entry in path.read_dir().map_err(|e| error(&e))? {
            let name = entry.map_err(|e| error(&e))?.file_name();
            let Some(name) = name.to_str() else { continue };
            match name {
                "config.json" => listing.has_config = true,
                INDEX => listing.has_index = true,
                _ if name.starts_with('.') => {} // what other systems leave beside a file
                _ if name.ends_with(".safetensors") => listing.safetensors.push(name.to_owned()),
                _ if name.ends_with(".gguf") => listing.ggufs.push(name.to_owned()),
                _ if name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") => {
                    listing.has_pickles = true;
                }
                _ => {}
            }
        }
        listing.safetensors.sort_unstable();
        listing.ggufs.sort_unstable();
        Ok(listing)
    }

    /// Why this directory is no model.
    pub(crate) fn what_is_missing(&self) -> &'static str {
        match self {
            Self {
                has_config: false,
                safetensors,
                ..
            } if !safetensors.is_empty() => "a directory with safetensors but without config.json",
            Self {
                has_config: true,
                has_pickles: true,
                ..
            } => {
                "a directory whose weights are pickles (.bin, .pt), which are programs and never read here"
            }
            Self {
                has_config: true, ..
            } => "a directory with config.json but without safetensors",
            _ => "a directory without a model",
        }
    }
}

/// One safetensors file with its checked header.
#[derive(Debug)]
pub(crate) struct Shard {
    file: String,
    storage: Arc<Storage>,
    entries: Vec<Entry>,
}

impl Shard {
    /// Parses the header; `file` names the file in messages.
    pub(crate) fn parse(file: String, storage: Storage) -> Result<Self, FormatError> {
        let entries = Header::parse_named(&file, storage.bytes())?.into_entries();
        Ok(Self {
            file,
            storage: Arc::new(storage),
            entries,
        })
    }

    fn open(path: &Path) -> Result<Self, FormatError> {
        Self::parse(path.display().to_string(), Storage::open(path)?)
    }
}

/// Opens the weight files of a directory: those of the index; else `model.safetensors`; else the only
/// one there is.
pub(crate) fn open_shards(directory: &Path, listing: &Listing) -> Result<Vec<Shard>, FormatError> {
    if listing.has_index {
        return index::open(&directory.join(INDEX), directory);
    }
    let name = match &listing.safetensors[..] {
        [only] => only,
        names if names.iter().any(|name| name == SINGLE) => SINGLE,
        _ => {
            return Err(FormatError::missing(
                &directory.display().to_string(),
                format!(
                    "the list of its several safetensors files, {}",
                    quote(INDEX)
                ),
                "fetch that file too",
            ));
        }
    };
    Ok(vec![Shard::open(&directory.join(name))?])
}

/// All tensors of the shards under their canonical names.
///
/// `tied` is what the configuration says about the output layer: when it is the embedding, an output
/// layer in the file has no meaning and is left out.
pub(crate) fn tensor_table(
    file: &str,
    shards: Vec<Shard>,
    tied: Option<bool>,
) -> Result<TensorTable, FormatError> {
    if shards.len() as u64 > limits::PARTS {
        let count = shards.len() as u64;
        return Err(FormatError::too_large(
            file,
            "the number of shards",
            count,
            limits::PARTS,
        ));
    }
    let mut parts = Vec::with_capacity(shards.len());
    let mut entries = Vec::with_capacity(shards.iter().map(|shard| shard.entries.len()).sum());
    for (part, shard) in shards.into_iter().enumerate() {
        for entry in shard.entries {
            let name = names::canonical(&entry.name);
            if names::is_derived(&entry.name) || (tied == Some(true) && &*name == "output.weight") {
                continue;
            }
            entries.push(Entry {
                name: name.into_owned().into(),
                part: part as u32,
                ..entry
            });
        }
        parts.push(shard.storage);
    }
    TensorTable::new(file, parts, entries)
}

/// The text of a small file beside the weights.
pub(crate) fn read_text(path: &Path, limit: u64) -> Result<String, FormatError> {
    let file = path.display().to_string();
    let error = |e: std::io::Error| FormatError::io(&file, "read the file", &e);
    let facts = path.metadata().map_err(error)?;
    if !facts.is_file() {
        return Err(FormatError::damaged(
            &file,
            "the file",
            "it is not a regular file",
        ));
    }
    if facts.len() > limit {
        return Err(FormatError::too_large(
            &file,
            "the size of the file",
            facts.len(),
            limit,
        ));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(error)?
        .take(limit)
        .read_to_end(&mut bytes)
        .map_err(error)?;
    String::from_utf8(bytes).map_err(|e| FormatError::damaged(&file, "the text", e))
}
