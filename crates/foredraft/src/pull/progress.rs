//! What a fetch tells while it runs, and how it is asked to stop.

/// A listener to a fetch.
pub trait Progress: Sync {
    /// One line worth reading.
    fn note(&self, line: &str);
    /// A transfer begins (or goes on) at `position` of `total` bytes.
    fn begin(&self, what: &str, position: u64, total: Option<u64>);
    /// The transfer is at this byte.
    fn at(&self, position: u64);
    /// The transfer is over, well or badly.
    fn end(&self);
    /// Whether to stop; asked many times a second.
    fn cancelled(&self) -> bool;
}

/// Listens to nothing and never stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn note(&self, _: &str) {}
    fn begin(&self, _: &str, _: u64, _: Option<u64>) {}
    fn at(&self, _: u64) {}
    fn end(&self) {}
    fn cancelled(&self) -> bool {
        false
    }
}
