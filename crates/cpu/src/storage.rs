//! Memory for weights and KV pages: anonymous pages, large ones where the system gives them.

use foredraft_model::LoadError;
use memmap2::MmapMut;

/// Bytes that start at a page border and are zero at first.
pub(crate) struct Storage(Option<MmapMut>);

impl Storage {
    /// Reserves `bytes`; a page costs memory from its first use on.
    pub(crate) fn new(bytes: usize) -> Result<Self, LoadError> {
        if bytes == 0 {
            return Ok(Self(None));
        }
        let map = MmapMut::map_anon(bytes).map_err(|error| LoadError::NoMemory {
            bytes: bytes as u64,
            reason: error.to_string(),
        })?;
        // Both are streamed: with large pages the processor walks fewer tables. A system without them says no,
        // and nothing is lost.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self(Some(map)))
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or(&mut [])
    }
}
