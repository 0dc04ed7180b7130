//! Ctrl-C.
//!
//! The first one asks: long work looks at [`requested`] and stops where it can keep what it has.
//! A second one, or a command that does not come to a stop within [`GRACE`], ends the process with 130.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// How long a command may take to stop after Ctrl-C; a read from a silent network cannot be woken.
const GRACE: Duration = Duration::from_secs(2);

/// Ctrl-C ends what is under way, not the process: nothing waits to be killed.
static PATIENT: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C for a command that stops by itself when asked.
///
/// Safe for commands whose unfinished work is complete on disk at every moment. If the handler
/// cannot be set, Ctrl-C keeps its usual meaning.
pub(crate) fn install() {
    let _ = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
        if PATIENT.load(Ordering::SeqCst) {
            return;
        }
        std::thread::spawn(|| {
            std::thread::sleep(GRACE);
            std::process::exit(130);
        });
    });
}

/// From now on Ctrl-C ends what is under way (one answer of a chat) and the process goes on. Forgets an earlier one.
pub(crate) fn begin_answer() {
    PATIENT.store(true, Ordering::SeqCst);
    REQUESTED.store(false, Ordering::SeqCst);
}

/// Whether Ctrl-C was pressed.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}
