//! Files mapped into memory. The only unsafe code of this crate.
#![allow(unsafe_code)] // mapping a file is unsafe by nature; the reasons stand at each use

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::FormatError;

/// Bytes that one read of a mapped file may bring in. Linux maps whole folios of its page cache: up to 2 MiB were seen.
#[cfg(unix)]
const AROUND: usize = 2 << 20;

/// A regular file, mapped for reading.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// `None` for an empty file, which cannot be mapped.
    map: Option<Mmap>,
}

impl Mapping {
    /// Maps the regular file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, FormatError> {
        let name = path.display().to_string();
        // Looked at before it is opened, because opening a pipe would wait for a writer.
        let facts = path
            .metadata()
            .map_err(|e| FormatError::io(&name, "open the file", &e))?;
        let file = File::open(path).map_err(|e| FormatError::io(&name, "open the file", &e))?;
        if !facts.is_file() {
            return Err(FormatError::NotAModel {
                file: name,
                problem: "not a regular file".to_owned(),
                remedy: "give a .gguf file or a model's directory",
            });
        }
        if facts.len() == 0 {
            return Ok(Self { map: None });
        }
        // SAFETY: the mapping is read-only and only ever handed out as `&[u8]`, whose every bit
        // pattern is valid; the parsers copy each header field once and check the copy. What cannot
        // be excluded is that another process rewrites or truncates the file meanwhile: rewriting
        // changes weights (wrong numbers, still bytes), truncating makes the system end the process
        // (SIGBUS). That is the price of every engine that maps weights; the README tells users to
        // replace model files by renaming, as `pull` does.
        let map =
            unsafe { Mmap::map(&file) }.map_err(|e| FormatError::io(&name, "map the file", &e))?;
        Ok(Self { map: Some(map) })
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// Lets the system take back the memory of `range`, a best effort. The bytes stay readable.
    ///
    /// What lies around it is given back as well ([`AROUND`]): a read beside a part that was given back before may
    /// have brought that in again.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = &self.map {
            let start = range.start / AROUND * AROUND;
            let end = range.end.min(map.len());
            let end = end
                .checked_next_multiple_of(AROUND)
                .unwrap_or(end)
                .min(map.len());
            if let Some(length) = end.checked_sub(start).filter(|&length| length > 0) {
                // SAFETY: MADV_DONTNEED discards private changes; this is a read-only mapping of a
                // file, has none, and is filled from the file again when read again.
                let _ = unsafe {
                    map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, length)
                };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_bytes_can_be_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..40_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let mapping = Mapping::open(&path).unwrap();
        assert_eq!(mapping.bytes(), content);
        mapping.release(100..30_000);
        mapping.release(30_000..usize::MAX);
        mapping.release(50_000..60_000);
        assert_eq!(mapping.bytes(), content);
    }

    #[test]
    fn what_is_not_a_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = Mapping::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        let error = Mapping::open(&directory.path().join("absent"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("absent: cannot open the file"), "{error}");
        let empty = directory.path().join("empty");
        std::fs::write(&empty, b"").unwrap();
        assert_eq!(Mapping::open(&empty).unwrap().bytes(), b"");
    }
}
