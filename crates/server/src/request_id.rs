//! A name for every request: in its response, in the header `x-request-id`, and in the log.

use std::fmt::{Display, Formatter, Result};

use crate::parameters::random_bits;

/// A name that no other request has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestId(u64, u64);

impl RequestId {
    /// A new one.
    pub(crate) fn new() -> Self {
        Self(random_bits(), random_bits())
    }
}

impl Display for RequestId {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}
