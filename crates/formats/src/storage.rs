//! Where the bytes of a checkpoint are: in a mapped file, in memory, or in the program itself.

use std::path::Path;

use crate::FormatError;
use crate::mmap::Mapping;

/// The bytes of one file. Immutable for as long as anything refers to them.
#[derive(Debug)]
pub(crate) enum Storage {
    /// A file, mapped into memory and read on first touch.
    Mapped(Mapping),
    /// Bytes made or fetched at run time.
    Owned(Vec<u8>),
    /// Bytes that are part of the program.
    Static(&'static [u8]),
}

impl Storage {
    /// Maps the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, FormatError> {
        Mapping::open(path).map(Self::Mapped)
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping.bytes(),
            Self::Owned(bytes) => bytes,
            Self::Static(bytes) => bytes,
        }
    }

    /// Tells the system that the bytes in `range` will not be read again soon, so that their memory
    /// can be given to others. They stay readable. Does nothing where that is not a mapped file.
    pub(crate) fn release(&self, range: std::ops::Range<usize>) {
        if let Self::Mapped(mapping) = self {
            mapping.release(range);
        }
    }
}
