//! Another program, run for us: killed when it is no longer wanted, quoted when it fails.

use std::io::Read;
use std::process::{Child, Command, ExitStatus};

/// Bytes of a program's complaints that are kept, from the end.
const COMPLAINT_BYTES: usize = 64 << 10;

/// A program that is killed when it is no longer wanted, and whose complaints are collected.
pub(super) struct Running {
    child: Child,
    complaints: Option<std::thread::JoinHandle<String>>,
}

impl Running {
    /// Starts it; its stderr must be piped to be collected.
    pub(super) fn start(mut command: Command) -> std::io::Result<Self> {
        // In a group of its own: Ctrl-C in the terminal is for us, who then end it in good order.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let complaints = child
            .stderr
            .take()
            .map(|stderr| std::thread::spawn(move || tail(stderr)));
        Ok(Running { child, complaints })
    }

    /// Whether it has ended, and how.
    pub(super) fn ended(&mut self) -> std::io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait()
    }

    /// What it writes to stdout, if that is piped; once.
    pub(super) fn output(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// What it wrote to stderr, once it has ended.
    pub(super) fn complaints(&mut self) -> String {
        self.complaints
            .take()
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The end of what a stream says, read until it closes.
fn tail(mut stream: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..read]);
        if kept.len() > 2 * COMPLAINT_BYTES {
            kept.drain(..kept.len() - COMPLAINT_BYTES);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The line that says most: pip's last `ERROR:`, else the last line that is not a notice.
pub(super) fn last_complaint(complaints: &str, status: ExitStatus) -> String {
    let lines = || {
        complaints
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let error = lines()
        .filter_map(|line| line.strip_prefix("ERROR: "))
        .next_back();
    let other =
        || lines().rfind(|line| !line.starts_with("[notice]") && !line.starts_with("WARNING:"));
    error
        .or_else(other)
        .map_or_else(|| format!("it ended with {status}"), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn pip_is_quoted_by_its_last_error() {
        use std::os::unix::process::ExitStatusExt;
        let status = ExitStatus::from_raw(256);
        let said = "WARNING: retrying\nERROR: Could not find a version\nERROR: No matching distribution found for x==1\n[notice] new pip\n";
        assert_eq!(
            last_complaint(said, status),
            "No matching distribution found for x==1"
        );
        assert_eq!(
            last_complaint("/usr/bin/python3: No module named pip\n", status),
            "/usr/bin/python3: No module named pip"
        );
        assert!(last_complaint("", status).contains('1'));
    }
}
