//! The text side of an answer: tokens in, text out, ended where a stop text begins.

use std::sync::Arc;

use foredraft_common::TokenId;
use foredraft_text::{Detokenizer, StopMatcher, StopOutcome, TextError, Tokenizer};

/// Turns tokens into text that may be shown.
pub(crate) struct Output {
    detokenizer: Detokenizer<Arc<Tokenizer>>,
    stop: StopMatcher,
    /// All text shown so far.
    text: String,
    /// Where the text that was not reported yet begins.
    reported: usize,
    stopped: bool,
}

impl Output {
    /// `continues`: whether text came before, so that a leading space belongs to the answer.
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        stop: Vec<String>,
        continues: bool,
    ) -> Result<Self, TextError> {
        let detokenizer = if continues {
            Detokenizer::resume(tokenizer)
        } else {
            Detokenizer::new(tokenizer)
        };
        Ok(Self {
            detokenizer,
            stop: StopMatcher::new(stop)?,
            text: String::new(),
            reported: 0,
            stopped: false,
        })
    }

    /// Takes a token; `true` when a stop text was found.
    pub(crate) fn push(&mut self, token: TokenId) -> bool {
        let outcome = self.stop.push(self.detokenizer.push(token));
        self.take(outcome);
        self.stopped
    }

    /// Text since the last call.
    pub(crate) fn fresh(&mut self) -> &str {
        let start = std::mem::replace(&mut self.reported, self.text.len());
        &self.text[start..]
    }

    /// No token comes any more: releases what was held back. `true` when a stop text was found in it.
    pub(crate) fn finish(&mut self) -> bool {
        if !self.stopped {
            let rest = self.detokenizer.finish();
            let outcome = self.stop.push(&rest);
            self.take(outcome);
        }
        if !self.stopped {
            let outcome = self.stop.clone().finish();
            self.take(outcome);
        }
        self.stopped
    }

    fn take(&mut self, outcome: StopOutcome) {
        match outcome {
            StopOutcome::Emit { text } => self.text.push_str(&text),
            StopOutcome::Stopped { text, .. } => {
                self.text.push_str(&text);
                self.stopped = true;
            }
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}
