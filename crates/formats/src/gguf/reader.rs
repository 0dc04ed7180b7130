//! A cursor over untrusted bytes: every read is checked, and names its field when it fails.

use std::fmt::Display;
use std::ops::Range;

use crate::FormatError;

/// Reads little-endian fields one after another.
pub(super) struct Reader<'a> {
    /// The file's name, for messages.
    pub(super) file: &'a str,
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self {
            file,
            bytes,
            position: 0,
        }
    }

    /// Offset of the next byte from the start of the file.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// Bytes that are left.
    pub(super) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.position) as u64 // position never passes the end
    }

    /// Steps over `length` bytes of `field` and says where they were.
    pub(super) fn skip(
        &mut self,
        length: u64,
        field: &dyn Display,
    ) -> Result<Range<usize>, FormatError> {
        if length > self.remaining() {
            return Err(FormatError::Truncated {
                file: self.file.to_owned(),
                field: field.to_string(),
                offset: self.position as u64,
                needed: length,
                available: self.remaining(),
            });
        }
        let start = self.position;
        self.position += length as usize; // at most `remaining`, which came from a usize
        Ok(start..self.position)
    }

    /// The next `length` bytes.
    pub(super) fn take(
        &mut self,
        length: u64,
        field: &dyn Display,
    ) -> Result<&'a [u8], FormatError> {
        let range = self.skip(length, field)?;
        Ok(&self.bytes[range])
    }

    fn array<const N: usize>(&mut self, field: &dyn Display) -> Result<[u8; N], FormatError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, field)?);
        Ok(out)
    }

    pub(super) fn u32(&mut self, field: &dyn Display) -> Result<u32, FormatError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &dyn Display) -> Result<u64, FormatError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A number of things that follow, each of at least `smallest` bytes: refused when the rest of
    /// the file could not hold them, or above `limit`. Whoever allocates for the result therefore
    /// claims a bounded multiple of the file's size.
    pub(super) fn check_count(
        &self,
        count: u64,
        smallest: u64,
        limit: u64,
        field: &dyn Display,
    ) -> Result<usize, FormatError> {
        let possible = (self.remaining() / smallest.max(1)).min(limit);
        if count > possible {
            return Err(FormatError::too_large(self.file, field, count, possible));
        }
        usize::try_from(count)
            .map_err(|_| FormatError::too_large(self.file, field, count, usize::MAX as u64))
    }

    /// A string: a length of 64 bits, then that many bytes of UTF-8, at most `limit`.
    pub(super) fn string(
        &mut self,
        limit: u64,
        field: &dyn Display,
    ) -> Result<&'a str, FormatError> {
        let range = self.string_range(limit, field)?;
        std::str::from_utf8(&self.bytes[range])
            .map_err(|error| FormatError::damaged(self.file, field, format!("not UTF-8: {error}")))
    }

    /// Steps over a string and says where its bytes are; they are not looked at.
    pub(super) fn string_range(
        &mut self,
        limit: u64,
        field: &dyn Display,
    ) -> Result<Range<usize>, FormatError> {
        let length = self.u64(&format_args!("the length of {field}"))?;
        if length > limit {
            let field = format!("the length of {field}");
            return Err(FormatError::too_large(self.file, field, length, limit));
        }
        self.skip(length, field)
    }
}
