//! How far an audit is, on stderr: a bar in a terminal, a line now and then elsewhere.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Without a terminal, how often a line is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Counts checks.
pub(super) struct Steps {
    what: &'static str,
    total: usize,
    done: Cell<usize>,
    started: Instant,
    last_line: Cell<Instant>,
    bar: Option<ProgressBar>,
}

impl Steps {
    pub(super) fn new(what: &'static str, total: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(total as u64), target);
            let style = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {eta}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            bar.set_message(what);
            bar
        });
        Self {
            what,
            total,
            done: Cell::new(0),
            started: Instant::now(),
            last_line: Cell::new(Instant::now()),
            bar,
        }
    }

    /// One more is done.
    pub(super) fn one(&self) {
        let done = self.done.get() + 1;
        self.done.set(done);
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
        } else if self.last_line.get().elapsed() >= LINE_EVERY {
            self.last_line.set(Instant::now());
            output::stderr_line(&format!("{}: {done} of {}", self.what, self.total));
        }
    }

    /// All are done: says how long it took.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        output::stderr_line(&format!(
            "{}: {} in {:.1} s",
            self.what,
            self.done.get(),
            self.started.elapsed().as_secs_f64()
        ));
    }
}
