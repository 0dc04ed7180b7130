//! What goes wrong between a model's name and its file.

use std::path::PathBuf;

use crate::pull::PullError;

/// Why a model spec did not lead to a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Neither an alias nor anything on disk.
    #[error(
        "there is no model '{spec}'{hint}; `foredraft pull` lists the aliases, and a path or hf:owner/repo[:file] works too"
    )]
    Unknown {
        /// What was typed.
        spec: String,
        /// `: did you mean ...?`, or nothing.
        hint: String,
    },
    /// It looks like a path, and nothing is there.
    #[error("there is no file {}; check the path, or see `foredraft pull` for models that can be fetched", path.display())]
    NoSuchFile {
        /// What was typed.
        path: PathBuf,
    },
    /// The path leads to something else.
    #[error("{} is neither a file nor a directory: a model is a .gguf file or a Hugging Face directory", path.display())]
    NotAFile {
        /// What was typed.
        path: PathBuf,
    },
    /// `hf:` followed by something else than a repository.
    #[error("'{spec}' names no file of the hub: write hf:owner/repo or hf:owner/repo:file.gguf")]
    HubSpec {
        /// What was typed.
        spec: String,
    },
    /// No folder for models could be determined.
    #[error(
        "cannot tell where models are kept: no home folder is set; set FOREDRAFT_HOME to a folder"
    )]
    NoStore,
    /// It could not be fetched.
    #[error(transparent)]
    Pull(#[from] PullError),
}

/// Whose fault an error is; commands make their exit code of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// What was typed, or the file that was named.
    Input,
    /// Network, disk, another program.
    World,
    /// Somebody asked to stop.
    Cancelled,
}

impl ModelError {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            ModelError::Pull(error) => error.fault(),
            ModelError::NoStore => Fault::World,
            _ => Fault::Input,
        }
    }
}
