//! Naming a model, and having its file here.
//!
//! A *model spec* is what people type: an alias of the [`catalogue`], a path, or `hf:owner/repo[:file]`.
//! [`resolve`] turns it into something that can be opened, and fetches it into the [`Store`] first
//! when it is not here.

pub mod catalogue;
mod error;
pub(crate) mod spec;
pub(crate) mod store;

use std::path::PathBuf;

use foredraft_formats::{Checkpoint, FormatError};

pub use catalogue::{CATALOGUE, Contents, Entry};
pub use error::{Fault, ModelError};
pub use spec::ModelSpec;
pub use store::Store;

use crate::pull::{self, Progress};

/// A model that is here.
#[derive(Debug, Clone)]
pub struct ResolvedModel {
    /// What to call it: the alias, `owner/repo`, or the file's name.
    pub name: String,
    /// Where its bytes are.
    pub source: CheckpointSource,
    /// Its entry in the catalogue, when it was named by alias.
    pub entry: Option<&'static Entry>,
}

/// Where the bytes of a model are.
#[derive(Debug, Clone)]
pub enum CheckpointSource {
    /// A `.gguf` file, or a Hugging Face directory.
    Path(PathBuf),
    /// In the program itself, as GGUF.
    BuiltIn(&'static [u8]),
}

impl ResolvedModel {
    /// Opens the model's file and checks its headers.
    ///
    /// # Errors
    /// Whatever is wrong with the file.
    pub fn open(&self) -> Result<Checkpoint, FormatError> {
        match &self.source {
            CheckpointSource::Path(path) => Checkpoint::open(path),
            CheckpointSource::BuiltIn(bytes) => Checkpoint::from_static(&self.name, bytes),
        }
    }
}

/// Makes a model available: finds it, and fetches it when it is an alias or a hub file that is not here.
///
/// # Errors
/// See [`ModelError`]; [`ModelError::fault`] says whose fault it is.
pub fn resolve(spec: &str, progress: &dyn Progress) -> Result<ResolvedModel, ModelError> {
    resolve_with(spec, &pull::Settings::from_env(), progress)
}

/// [`resolve`] with other settings than the environment's.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_with(
    spec: &str,
    settings: &pull::Settings,
    progress: &dyn Progress,
) -> Result<ResolvedModel, ModelError> {
    let spec = spec.parse::<ModelSpec>()?;
    let name = spec.name();
    let (source, entry) = match spec {
        ModelSpec::Path(path) => (CheckpointSource::Path(path), None),
        ModelSpec::Alias(entry) => {
            let source = match &entry.contents {
                Contents::BuiltIn(bytes) => CheckpointSource::BuiltIn(bytes),
                Contents::Download(_) => {
                    let pulled = pull::pull_entry(entry, &Store::from_env()?, settings, progress)?;
                    CheckpointSource::Path(pulled.path)
                }
            };
            (source, Some(entry))
        }
        ModelSpec::Hub { repo, file } => {
            let store = Store::from_env()?;
            let pulled = pull::pull_hub(&repo, file.as_deref(), &store, settings, progress)?;
            (CheckpointSource::Path(pulled.path), None)
        }
    };
    Ok(ResolvedModel {
        name,
        source,
        entry,
    })
}
