//! Test support, linked by no product: tiny seeded models of every weight type and architecture, and the small
//! real model that the repository carries.

mod random;
mod tiny;
mod variants;

use std::io::Write;
use std::path::PathBuf;

use foredraft_formats::Checkpoint;

pub use random::Random;
pub use tiny::TinyModel;
pub use variants::stories260k_with;

/// Says that a test did not run its real work, and why. Straight to the process's stderr: the test runner hides what a
/// passing test prints.
pub fn skipped(why: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// stories260K as GGUF, the file that the binary carries.
pub fn stories260k_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../foredraft/assets/stories260K.f32.gguf")
}

/// The stories260K model.
///
/// # Panics
/// When the repository's copy does not open.
pub fn stories260k() -> Checkpoint {
    Checkpoint::open(&stories260k_path()).expect("the repository carries stories260K")
}
