//! One opened model.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::quote;
use crate::gguf::{self, SplitName};
use crate::storage::Storage;
use crate::tensor::TensorTable;
use crate::{FormatError, Metadata, ModelConfig, RawTensor, Tensor, hf};

/// One opened model: a GGUF file (or its splits), a Hugging Face directory, or bytes in memory.
///
/// Opening checks every header field and every tensor's place; what can be asked afterwards cannot
/// fail for reasons of the file, except where a `Result` says so.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    source: Source,
    tensors: TensorTable,
    /// The error is kept, not raised at opening: a file with only a vocabulary has no hyperparameters
    /// to speak of, and can still be inspected and tokenized with.
    config: Result<ModelConfig, FormatError>,
}

/// What kind of files the checkpoint came from.
#[derive(Debug)]
enum Source {
    Gguf { metadata: Metadata, version: u32 },
    HuggingFace { directory: Option<PathBuf> },
}

/// Where a checkpoint's vocabulary is.
#[derive(Debug, Clone, Copy)]
pub enum VocabularySource<'a> {
    /// In the metadata of the GGUF file, under `tokenizer.*`.
    Gguf(&'a Metadata),
    /// In `tokenizer.json` and its companions in this directory.
    HuggingFace {
        /// The model's directory.
        directory: &'a Path,
    },
    /// Nowhere: a GGUF file without `tokenizer.ggml.model`, or bytes in memory.
    None,
}

impl Checkpoint {
    /// Opens a `.gguf` file (the first, if the model is split), a directory with `config.json` and
    /// `*.safetensors`, or a directory that holds exactly one GGUF model.
    ///
    /// # Errors
    /// When the path is none of these, or any header field is wrong.
    pub fn open(path: &Path) -> Result<Self, FormatError> {
        let file = path.display().to_string();
        let facts = path
            .metadata()
            .map_err(|e| FormatError::io(&file, "open the model", &e))?;
        if facts.is_dir() {
            return Self::open_directory(path, &file);
        }
        if path
            .extension()
            .is_some_and(|extension| extension == "safetensors")
        {
            return Err(FormatError::NotAModel {
                file,
                problem: "weights without their configuration".to_owned(),
                remedy: "give the directory that holds this file and its config.json",
            });
        }
        Self::parse_gguf(path.to_owned(), Some(path), Storage::open(path)?)
    }

    /// Opens a GGUF model that is part of the program; `name` stands for the path.
    ///
    /// # Errors
    /// When any header field is wrong.
    pub fn from_static(name: &str, bytes: &'static [u8]) -> Result<Self, FormatError> {
        Self::parse_gguf(PathBuf::from(name), None, Storage::Static(bytes))
    }

    /// Opens a GGUF model that was made or fetched at run time.
    ///
    /// # Errors
    /// When any header field is wrong.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, FormatError> {
        Self::parse_gguf(
            PathBuf::from("(bytes in memory)"),
            None,
            Storage::Owned(bytes),
        )
    }

    /// Opens a Hugging Face checkpoint in memory: the text of `config.json` and the bytes of its
    /// safetensors files.
    ///
    /// # Errors
    /// When any header field is wrong, or `config` is not JSON.
    pub fn from_safetensors(config: &str, shards: Vec<Vec<u8>>) -> Result<Self, FormatError> {
        let file = "(bytes in memory)";
        let shards = shards
            .into_iter()
            .enumerate()
            .map(|(index, bytes)| {
                hf::Shard::parse(format!("shard {index} {file}"), Storage::Owned(bytes))
            })
            .collect::<Result<_, _>>()?;
        Self::parse_hf(PathBuf::from(file), None, config, shards)
    }

    fn open_directory(path: &Path, file: &str) -> Result<Self, FormatError> {
        let listing = hf::Listing::read(path, file)?;
        if listing.has_config && !listing.safetensors.is_empty() {
            let config = hf::read_text(&path.join("config.json"), crate::limits::CONFIG_BYTES)?;
            let shards = hf::open_shards(path, &listing)?;
            return Self::parse_hf(path.to_owned(), Some(path.to_owned()), &config, shards);
        }
        let firsts: Vec<&String> = listing
            .ggufs
            .iter()
            .filter(|name| SplitName::parse(name).is_none_or(|split| split.number == 1))
            .collect();
        match firsts[..] {
            [name] => Self::open(&path.join(name)),
            [] => Err(FormatError::NotAModel {
                file: file.to_owned(),
                problem: listing.what_is_missing().to_owned(),
                remedy: "give a directory with config.json and *.safetensors, or a .gguf file",
            }),
            [first, second, ..] => Err(FormatError::NotAModel {
                file: file.to_owned(),
                problem: format!(
                    "several GGUF models, among them {} and {}",
                    quote(first),
                    quote(second)
                ),
                remedy: "give one of the files",
            }),
        }
    }

    fn parse_gguf(
        path: PathBuf,
        on_disk: Option<&Path>,
        storage: Storage,
    ) -> Result<Self, FormatError> {
        let file = path.display().to_string();
        let storage = Arc::new(storage);
        let mut first = gguf::parse(&file, &storage)?;
        let (others, entries) = gguf::open_splits(&file, on_disk, &mut first)?;
        let parts = std::iter::once(storage).chain(others).collect();
        let tensors = TensorTable::new(&file, parts, entries)?;
        let config = gguf::model_config(&first.metadata, &tensors);
        let source = Source::Gguf {
            metadata: first.metadata,
            version: first.version,
        };
        Ok(Self {
            path,
            source,
            tensors,
            config,
        })
    }

    fn parse_hf(
        path: PathBuf,
        directory: Option<PathBuf>,
        config: &str,
        shards: Vec<hf::Shard>,
    ) -> Result<Self, FormatError> {
        let file = path.display().to_string();
        let config_file = match &directory {
            Some(directory) => directory.join("config.json").display().to_string(),
            None => "config.json".to_owned(),
        };
        let config = hf::HfConfig::parse(&config_file, config)?;
        let tensors = hf::tensor_table(&file, shards, config.tied())?;
        let config = config.model_config(Some(&tensors));
        Ok(Self {
            path,
            source: Source::HuggingFace { directory },
            tensors,
            config,
        })
    }

    /// The hyperparameters, all of them checked.
    ///
    /// # Errors
    /// When one is missing, impossible or not supported, naming it.
    pub fn config(&self) -> Result<&ModelConfig, FormatError> {
        self.config.as_ref().map_err(FormatError::clone)
    }

    /// The weight with this canonical (GGUF) name, for example `blk.0.attn_q.weight`; the names of
    /// Hugging Face checkpoints are translated. Other tensors keep the names they have.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.tensors.weight(name)
    }

    /// The weight with this name, which must exist and have this shape (outermost dimension first).
    ///
    /// # Errors
    /// When it is missing or has another shape.
    pub fn tensor_of_shape(&self, name: &str, dims: &[usize]) -> Result<Tensor<'_>, FormatError> {
        let file = || self.path.display().to_string();
        let field = || format!("tensor {}", quote(name));
        let Some(tensor) = self.tensor(name) else {
            return Err(FormatError::missing(
                &file(),
                field(),
                "fetch or convert the model again",
            ));
        };
        if tensor.shape.dims() != dims {
            let problem = format!(
                "its shape is {}, the configuration asks for {dims:?}",
                tensor.shape
            );
            return Err(FormatError::damaged(&file(), field(), problem));
        }
        Ok(tensor)
    }

    /// All weights, in file order.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.tensors.weights()
    }

    /// The tensor with this name, of any element type (`d2t` of an EAGLE-3 head is I64).
    pub fn raw_tensor(&self, name: &str) -> Option<RawTensor<'_>> {
        self.tensors.raw(name)
    }

    /// All tensors, of any element type, in file order.
    pub fn raw_tensors(&self) -> impl Iterator<Item = RawTensor<'_>> {
        self.tensors.raws()
    }

    /// Says that these bytes of a tensor's data have been copied elsewhere (packed), so that the memory their
    /// part of the file took can be given to others, that of their close neighbours too. All stay readable, slowly. Without effect on models that are not mapped files.
    pub fn release(&self, name: &str, bytes: Range<usize>) {
        self.tensors.release(name, bytes);
    }

    /// Where the vocabulary is.
    pub fn vocabulary(&self) -> VocabularySource<'_> {
        match &self.source {
            Source::Gguf { metadata, .. } if metadata.find("tokenizer.ggml.model").is_some() => {
                VocabularySource::Gguf(metadata)
            }
            Source::HuggingFace {
                directory: Some(directory),
            } => VocabularySource::HuggingFace { directory },
            _ => VocabularySource::None,
        }
    }

    /// The metadata of a GGUF file.
    pub fn metadata(&self) -> Option<&Metadata> {
        match &self.source {
            Source::Gguf { metadata, .. } => Some(metadata),
            Source::HuggingFace { .. } => None,
        }
    }

    /// The path that was opened, or the name given to bytes in memory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of all weight files together, headers included, in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.tensors.file_bytes()
    }

    /// The format in words, for `inspect`.
    pub fn format_name(&self) -> &'static str {
        match self.source {
            Source::Gguf { version: 2, .. } => "GGUF v2",
            Source::Gguf { .. } => "GGUF v3",
            Source::HuggingFace { .. } => "safetensors",
        }
    }
}
