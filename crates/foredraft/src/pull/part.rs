//! The `.part` file: what has arrived so far, and its sha256.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{PullError, SourceError, Stop};
use super::progress::Progress;

/// Bytes read and written at a time.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// The sha256 of a file, as 64 hex digits.
///
/// # Errors
/// When it cannot be read.
pub fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

/// A prefix of a file, growing. Invariant: the hash covers exactly the bytes that are in the file.
pub(super) struct PartFile {
    path: PathBuf,
    file: File,
    hash: Sha256,
    position: u64,
    /// Size of the whole, when known.
    total: Option<u64>,
}

impl PartFile {
    /// Opens what an earlier fetch left, or a new file; reads it through once for the hash.
    pub(super) fn open(
        path: &Path,
        total: Option<u64>,
        progress: &dyn Progress,
    ) -> Result<Self, PullError> {
        let failed = |source| PullError::disk("open", path, total, source);
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut part = PartFile {
            path: path.to_path_buf(),
            file,
            hash: Sha256::new(),
            position: 0,
            total,
        };
        if total.is_some_and(|total| length > total) {
            // Longer than the whole: not ours.
            part.restart()?;
        } else if length > 0 {
            part.read_through(length, progress)?;
        }
        Ok(part)
    }

    fn read_through(&mut self, length: u64, progress: &dyn Progress) -> Result<(), PullError> {
        progress.begin("checking what is here", 0, Some(length));
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut rest = (&self.file).take(length);
        loop {
            if progress.cancelled() {
                return Err(PullError::Cancelled);
            }
            let read = rest
                .read(&mut buffer)
                .map_err(|source| PullError::disk("read", &self.path, None, source))?;
            if read == 0 {
                break;
            }
            self.hash.update(&buffer[..read]);
            self.position += read as u64;
            progress.at(self.position);
        }
        progress.end();
        Ok(())
    }

    /// Bytes that are here.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Size of the whole, when known.
    pub(super) fn total(&self) -> Option<u64> {
        self.total
    }

    /// Notes the size of the whole, once a source has told it.
    pub(super) fn set_total(&mut self, total: u64) {
        self.total = Some(total);
    }

    /// Appends.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), PullError> {
        if let Err(source) = self.file.write_all(bytes) {
            // Some of it may be in the file and not in the hash: cut it off again.
            let _ = self.file.set_len(self.position);
            return Err(PullError::disk("write", &self.path, self.total, source));
        }
        self.hash.update(bytes);
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Forgets everything: the source begins at the beginning.
    pub(super) fn restart(&mut self) -> Result<(), PullError> {
        let emptied = self
            .file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(|source| PullError::disk("empty", &self.path, self.total, source))?;
        self.hash = Sha256::new();
        self.position = 0;
        Ok(())
    }

    /// Gives the file its name if it has the sha256 that is expected, and removes it otherwise. Gives
    /// the sha256.
    pub(super) fn finish(self, destination: &Path, expected: Option<&str>) -> Result<String, Stop> {
        let found = hexadecimal(&self.hash.finalize());
        if let Some(expected) = expected
            && !expected.eq_ignore_ascii_case(&found)
        {
            drop(self.file);
            let _ = std::fs::remove_file(&self.path);
            return Err(SourceError::Checksum {
                expected: expected.to_string(),
                found,
            }
            .into());
        }
        let failed = |source: io::Error| PullError::disk("write", destination, self.total, source);
        // The bytes reach the disk before the name does: after a power cut the name means a whole file.
        self.file.sync_all().map_err(failed)?;
        drop(self.file);
        std::fs::rename(&self.path, destination).map_err(failed)?;
        Ok(found)
    }
}

/// A part file without a byte is nothing worth keeping.
pub(super) fn remove_if_empty(path: &Path) {
    if std::fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
    {
        let _ = std::fs::remove_file(path);
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pull::Silent;

    // FIPS 180-2, appendix B.1: the sha256 of "abc".
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn goes_on_where_it_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, destination) = (folder.path().join("x.part"), folder.path().join("x"));
        let mut part = PartFile::open(&path, Some(3), &Silent).expect("opens");
        part.write(b"ab").expect("writes");
        drop(part);

        let mut part = PartFile::open(&path, Some(3), &Silent).expect("opens again");
        assert_eq!(part.position(), 2);
        part.write(b"c").expect("writes");
        let found = part.finish(&destination, Some(&ABC.to_uppercase()));
        assert!(matches!(found, Ok(hash) if hash == ABC));
        assert_eq!(std::fs::read(&destination).expect("is there"), b"abc");
        assert!(!path.exists());
    }

    #[test]
    fn wrong_bytes_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, destination) = (folder.path().join("x.part"), folder.path().join("x"));
        let mut part = PartFile::open(&path, None, &Silent).expect("opens");
        part.write(b"abd").expect("writes");
        let refused = part.finish(&destination, Some(ABC));
        assert!(
            matches!(refused, Err(Stop::Source(SourceError::Checksum { expected, .. })) if expected == ABC)
        );
        assert!(!path.exists() && !destination.exists());
    }

    #[test]
    fn a_part_longer_than_the_whole_is_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.part");
        std::fs::write(&path, b"abcd").expect("writes");
        let part = PartFile::open(&path, Some(3), &Silent).expect("opens");
        assert_eq!(part.position(), 0);
    }
}
