//! An answer while it is made: text to stdout, progress of a long prompt to stderr.

use std::io::{IsTerminal, Write};

use foredraft::engine::{Event, TokenOrigin};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::Exit;
use crate::output;

/// Shorter prompts are read before a bar would be seen.
const BAR_FROM_TOKENS: usize = 1024;

/// What the colours of `--show-draft` mean.
pub(super) const LEGEND: &str = "\x1b[32mdrafted and accepted\x1b[0m, \x1b[33mcorrected\x1b[0m, \x1b[36mone more than drafted\x1b[0m, without a draft";

/// The colour of a token; none is the terminal's own.
fn colour(origin: TokenOrigin) -> Option<&'static str> {
    match origin {
        TokenOrigin::Plain => None,
        TokenOrigin::Accepted => Some("\x1b[32m"),
        TokenOrigin::Corrected => Some("\x1b[33m"),
        TokenOrigin::Bonus => Some("\x1b[36m"),
    }
}

/// Shows events.
pub(super) struct Stream {
    /// Whether text goes to stdout as it comes.
    live: bool,
    /// Whether it is coloured; and the colour of the token at hand. (Text that was held back has the colour of the
    /// token that released it.)
    coloured: bool,
    colour: Option<&'static str>,
    bar: Option<ProgressBar>,
    bar_allowed: bool,
    ends_with_newline: bool,
    error: Option<std::io::Error>,
}

impl Stream {
    pub(super) fn new(live: bool, coloured: bool) -> Self {
        Self {
            live,
            coloured,
            colour: None,
            bar: None,
            bar_allowed: std::io::stderr().is_terminal(),
            ends_with_newline: true,
            error: None,
        }
    }

    pub(super) fn show(&mut self, event: Event<'_>) {
        match event {
            Event::Prefill { done, total } => self.prefill(done, total),
            Event::Text(text) if self.live => {
                self.ends_with_newline = text.ends_with('\n');
                match self.colour {
                    Some(colour) => self.write(&format!("{colour}{text}\x1b[0m")),
                    None => self.write(text),
                }
            }
            Event::Token { origin, .. } if self.coloured => self.colour = colour(origin),
            Event::Warning(text) => output::warn(&output::printable(text)),
            Event::Text(_) | Event::Token { .. } | Event::Step(_) => {}
        }
    }

    /// Whether stdout cannot be written any more.
    pub(super) fn failed(&self) -> bool {
        self.error.is_some()
    }

    /// Ends the last line.
    pub(super) fn end(mut self) -> Result<(), Exit> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if !self.ends_with_newline {
            self.write("\n");
        }
        match self.error {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn write(&mut self, text: &str) {
        let mut out = std::io::stdout().lock();
        if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            self.error.get_or_insert(error);
        }
    }

    fn prefill(&mut self, done: usize, total: usize) {
        if done >= total {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
        } else if self.bar_allowed && total >= BAR_FROM_TOKENS {
            let bar = self.bar.get_or_insert_with(|| {
                let bar =
                    ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
                let style = ProgressStyle::with_template(
                    "reading the prompt [{bar:30}] {pos}/{len} tokens {eta}",
                );
                bar.set_style(
                    style
                        .unwrap_or_else(|_| ProgressStyle::default_bar())
                        .progress_chars("=> "),
                );
                bar
            });
            bar.set_position(done as u64);
        }
    }
}
