//! The signals that end a server.

/// Ctrl-C, and SIGTERM where there is one.
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// From now on they no longer end the process by themselves.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    /// Ctrl-C is taken over when it is waited for.
    ///
    /// # Errors
    /// Never.
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next one.
    pub(super) async fn next(&mut self) {
        // A system without Ctrl-C ends the process some other way.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }
}
