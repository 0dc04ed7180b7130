//! Memory for weights and KV pages: anonymous pages, large ones where they are wanted and the system gives them.

use foredraft_model::LoadError;
use memmap2::MmapMut;

/// No system's pages are smaller.
const LEAST_PAGE_BYTES: usize = 4096;

/// What pages memory is asked for in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageKind {
    /// Large ones (2 MiB on x86-64), as far as the system has them together: the processor walks fewer tables.
    Large,
    /// The system's ordinary ones (4 KiB on x86-64).
    Ordinary,
}

impl PageKind {
    /// A word for reports.
    pub const fn name(self) -> &'static str {
        match self {
            PageKind::Large => "large",
            PageKind::Ordinary => "ordinary",
        }
    }
}

/// Bytes that start at a page border and are zero at first.
pub(crate) struct Storage(Option<MmapMut>);

impl Storage {
    /// Reserves `bytes` in large pages; a page costs memory from its first use on.
    pub(crate) fn new(bytes: usize) -> Result<Self, LoadError> {
        Self::with_pages(bytes, PageKind::Large)
    }

    /// Reserves `bytes` in pages of this kind; a page costs memory from its first use on.
    pub(crate) fn with_pages(bytes: usize, kind: PageKind) -> Result<Self, LoadError> {
        if bytes == 0 {
            return Ok(Self(None));
        }
        let map = MmapMut::map_anon(bytes).map_err(|error| LoadError::NoMemory {
            bytes: bytes as u64,
            reason: error.to_string(),
        })?;
        // A system without a choice says no, and nothing is lost.
        #[cfg(target_os = "linux")]
        let _ = map.advise(match kind {
            PageKind::Large => memmap2::Advice::HugePage,
            PageKind::Ordinary => memmap2::Advice::NoHugePage,
        });
        #[cfg(not(target_os = "linux"))]
        let _ = kind;
        Ok(Self(Some(map)))
    }

    /// Makes every page a page of its own: one that was never written is the one zero page of the system.
    pub(crate) fn populate(&mut self) {
        // In one call where Linux has it (since 5.14) instead of a fault for each page.
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.0 {
            let _ = map.advise(memmap2::Advice::PopulateWrite);
        }
        for page in self.bytes_mut().chunks_mut(LEAST_PAGE_BYTES) {
            page[0] = 1;
        }
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or(&mut [])
    }
}
