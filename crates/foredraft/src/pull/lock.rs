//! One fetch of a file at a time.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use super::{Progress, PullError};

/// How often a waiting fetch looks again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Held while a file is fetched. The system lets go of it when the process ends, however it ends.
pub(super) struct Lock<'a> {
    path: &'a Path,
    _file: Option<File>,
}

impl<'a> Lock<'a> {
    /// Takes the lock, waiting for another fetch of `name` to end.
    pub(super) fn take(
        path: &'a Path,
        name: &str,
        progress: &dyn Progress,
    ) -> Result<Self, PullError> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|source| PullError::disk("create", path, None, source))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => {
                    return Ok(Lock {
                        path,
                        _file: Some(file),
                    });
                }
                // A file system without locks: better to fetch than to refuse.
                Err(TryLockError::Error(_)) => return Ok(Lock { path, _file: None }),
                Err(TryLockError::WouldBlock) => {}
            }
            if progress.cancelled() {
                return Err(PullError::Cancelled);
            }
            if !told {
                progress.note(&format!(
                    "another foredraft is fetching {name}; waiting for it"
                ));
                told = true;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Removes the lock file, now that the fetched file is in place.
    ///
    /// Only then: of two fetches that hold two lock files of this name, both find the fetched file.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(self.path);
    }
}
