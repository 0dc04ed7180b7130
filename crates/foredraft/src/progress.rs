//! Progress of a download or of loading on stderr: a bar in a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use foredraft::pull::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{interrupt, output};

/// Without a terminal, how often a line is printed.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows [`Progress`] to a person.
pub(crate) struct Stderr {
    terminal: bool,
    state: Mutex<State>,
}

struct State {
    bar: Option<ProgressBar>,
    what: String,
    total: Option<u64>,
    last_line: Instant,
}

impl Stderr {
    /// Looks once whether stderr is a terminal.
    pub(crate) fn new() -> Self {
        let state = State {
            bar: None,
            what: String::new(),
            total: None,
            last_line: Instant::now(),
        };
        Stderr {
            terminal: std::io::stderr().is_terminal(),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Progress for Stderr {
    fn note(&self, line: &str) {
        let line = output::one_line(line);
        match &self.state().bar {
            Some(bar) => bar.suspend(|| output::stderr_line(&line)),
            None => output::stderr_line(&line),
        }
    }

    fn begin(&self, what: &str, position: u64, total: Option<u64>) {
        let mut state = self.state();
        if let Some(old) = state.bar.take() {
            old.finish_and_clear();
        }
        state.what = output::one_line(what);
        state.total = total;
        state.last_line = Instant::now();
        if self.terminal {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            bar.set_style(style(total.is_some()));
            bar.set_message(state.what.clone());
            bar.set_position(position);
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(200));
            state.bar = Some(bar);
        } else {
            output::stderr_line(&plain_line(&state, position));
        }
    }

    fn at(&self, position: u64) {
        let mut state = self.state();
        if let Some(bar) = &state.bar {
            bar.set_position(position);
        } else if state.last_line.elapsed() >= LINE_EVERY {
            state.last_line = Instant::now();
            output::stderr_line(&plain_line(&state, position));
        }
    }

    fn end(&self) {
        if let Some(bar) = self.state().bar.take() {
            bar.finish_and_clear();
        }
    }

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }
}

fn style(total_known: bool) -> ProgressStyle {
    let template = if total_known {
        "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}"
    } else {
        "{msg} {spinner} {decimal_bytes} {decimal_bytes_per_sec}"
    };
    // The templates are constants, tried by a test.
    ProgressStyle::with_template(template)
        .map(|style| style.progress_chars("=> "))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn plain_line(state: &State, position: u64) -> String {
    match state.total {
        Some(total) if total > 0 => {
            let percent = position.min(total).saturating_mul(100) / total;
            format!(
                "{}: {} of {} ({percent} %)",
                state.what,
                output::bytes(position),
                output::bytes(total)
            )
        }
        _ => format!("{}: {}", state.what, output::bytes(position)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_count() {
        let state = State {
            bar: None,
            what: "m".into(),
            total: Some(2000),
            last_line: Instant::now(),
        };
        assert_eq!(plain_line(&state, 500), "m: 500 B of 2.0 kB (25 %)");
        let unknown = State {
            total: None,
            ..state
        };
        assert_eq!(plain_line(&unknown, 500), "m: 500 B");
    }
}
