//! Where fetched models are kept.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::catalogue::{Contents, Entry};
use super::error::ModelError;

/// A folder of models: `models/<alias>/<file>` and `models/hf/<owner>/<repo>/<file>`.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The user's store: `$FOREDRAFT_HOME`, or `foredraft` in the user's cache folder.
    ///
    /// # Errors
    /// [`ModelError::NoStore`] when no variable says where that is.
    pub fn from_env() -> Result<Self, ModelError> {
        root(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
            .map(Store::at)
            .ok_or(ModelError::NoStore)
    }

    /// A store below this folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Store { root: root.into() }
    }

    /// Where the file of this entry is, or would be.
    pub fn path(&self, entry: &Entry) -> PathBuf {
        self.root.join("models").join(entry.alias).join(entry.file)
    }

    /// Where files of this hub repository (`owner/repo`, checked) are, or would be.
    pub fn hub_folder(&self, repo: &str) -> PathBuf {
        repo.split('/')
            .fold(self.root.join("models").join("hf"), |folder, part| {
                folder.join(part)
            })
    }

    /// The entry's file, if it is here whole.
    pub fn find(&self, entry: &Entry) -> Option<PathBuf> {
        let Contents::Download(download) = &entry.contents else {
            return None;
        };
        let path = self.path(entry);
        has_size(&path, download.bytes).then_some(path)
    }
}

/// Whether a file of this size is there. Its sha256 was checked before it got its name.
pub(crate) fn has_size(path: &Path, bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes)
}

fn root(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(home) = variable("FOREDRAFT_HOME") {
        return Some(home.into());
    }
    let cache = if let Some(cache) = variable("XDG_CACHE_HOME") {
        PathBuf::from(cache)
    } else if cfg!(windows) {
        PathBuf::from(variable("LOCALAPPDATA")?)
    } else if cfg!(target_os = "macos") {
        PathBuf::from(variable("HOME")?)
            .join("Library")
            .join("Caches")
    } else {
        PathBuf::from(variable("HOME")?).join(".cache")
    };
    Some(cache.join("foredraft"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_first_variable_that_is_set_wins() {
        let with = |set: &[(&str, &str)]| {
            root(|name| {
                set.iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.into())
            })
        };
        assert_eq!(with(&[("HOME", "/h")]), Some("/h/.cache/foredraft".into()));
        assert_eq!(
            with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]),
            Some("/c/foredraft".into())
        );
        assert_eq!(
            with(&[
                ("HOME", "/h"),
                ("FOREDRAFT_HOME", "/f"),
                ("XDG_CACHE_HOME", "/c")
            ]),
            Some("/f".into())
        );
        assert_eq!(with(&[]), None);
    }
}
