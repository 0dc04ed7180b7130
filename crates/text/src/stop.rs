//! Stop strings: the output ends before the first of them, wherever token borders fall.
//!
//! Text that could be the beginning of a stop string is held back until the next text decides; everything else is
//! released at once. **Which match counts:** the one that starts first in the text; among those that start at
//! the same place the one given first. Both are properties of the whole text, so the outcome does not depend on how
//! it arrived. (A match is therefore not acted upon while an earlier start is still undecided; [`StopMatcher::finish`]
//! decides then.)

use crate::TextError;

/// How many stop strings one request may have.
pub const MAX_STOP_STRINGS: usize = 64;
/// How long one stop string may be.
pub const MAX_STOP_BYTES: usize = 4096;

/// What a [`StopMatcher`] says about the text it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopOutcome {
    /// No stop string so far; `text` (perhaps empty) can be shown.
    Emit {
        /// Text that no stop string can begin in any more.
        text: String,
    },
    /// A stop string was found.
    Stopped {
        /// The text before it that was not shown yet. Nothing after the stop string is ever shown.
        text: String,
        /// Which of the stop strings, by its place in the list.
        stop: usize,
    },
}

/// Finds stop strings in a text that arrives in pieces.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Text not released yet: empty, or it begins with the beginning of a stop string.
    held: String,
    stopped: Option<usize>,
}

/// What can be said of the stop strings at one place of the text.
enum At {
    /// None can start here.
    None,
    /// This one starts here and is complete, and no earlier one in the list can still become so.
    Match(usize),
    /// One could start here, the text ends too early to tell.
    Undecided,
}

impl StopMatcher {
    /// A matcher for these stop strings; an empty list never stops.
    ///
    /// # Errors
    /// [`TextError::StopString`] for an empty string, one longer than [`MAX_STOP_BYTES`], or more than
    /// [`MAX_STOP_STRINGS`] of them.
    pub fn new(stops: Vec<String>) -> Result<Self, TextError> {
        if stops.len() > MAX_STOP_STRINGS {
            let message = format!(
                "{} were given, at most {MAX_STOP_STRINGS} are allowed",
                stops.len()
            );
            return Err(TextError::StopString(message));
        }
        for (number, stop) in (1..).zip(&stops) {
            if stop.is_empty() {
                let message =
                    format!("number {number} is empty and would stop everything; leave it out");
                return Err(TextError::StopString(message));
            }
            if stop.len() > MAX_STOP_BYTES {
                let message = format!(
                    "number {number} has {} bytes, at most {MAX_STOP_BYTES} are allowed",
                    stop.len()
                );
                return Err(TextError::StopString(message));
            }
        }
        Ok(Self {
            stops,
            held: String::new(),
            stopped: None,
        })
    }

    /// Takes the next piece of text. After a stop was found, everything more is dropped.
    pub fn push(&mut self, text: &str) -> StopOutcome {
        if let Some(stop) = self.stopped {
            return StopOutcome::Stopped {
                text: String::new(),
                stop,
            };
        }
        self.held.push_str(text);
        self.scan(false)
    }

    /// Ends the text: what was held back is released, or a match that had to wait is taken.
    pub fn finish(mut self) -> StopOutcome {
        match self.stopped {
            Some(stop) => StopOutcome::Stopped {
                text: String::new(),
                stop,
            },
            None => self.scan(true),
        }
    }

    /// Whether a stop string has been found.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// The text that is being held back.
    pub fn held(&self) -> &str {
        &self.held
    }

    /// Releases the held text up to the first place where a stop string starts or could start.
    fn scan(&mut self, at_end: bool) -> StopOutcome {
        for (start, _) in self.held.char_indices() {
            match self.look(&self.held[start..], at_end) {
                At::None => {}
                At::Match(stop) => {
                    self.stopped = Some(stop);
                    let mut text = std::mem::take(&mut self.held);
                    text.truncate(start);
                    return StopOutcome::Stopped { text, stop };
                }
                At::Undecided => {
                    let held = self.held.split_off(start);
                    let text = std::mem::replace(&mut self.held, held);
                    return StopOutcome::Emit { text };
                }
            }
        }
        StopOutcome::Emit {
            text: std::mem::take(&mut self.held),
        }
    }

    /// Looks for a stop string at the very beginning of `text`.
    fn look(&self, text: &str, at_end: bool) -> At {
        for (index, stop) in self.stops.iter().enumerate() {
            if text.starts_with(stop.as_str()) {
                return At::Match(index);
            }
            if !at_end && stop.starts_with(text) {
                return At::Undecided;
            }
        }
        At::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matcher(stops: &[&str]) -> StopMatcher {
        StopMatcher::new(stops.iter().map(|s| s.to_string()).collect()).expect("valid stop strings")
    }

    fn emit(text: &str) -> StopOutcome {
        StopOutcome::Emit { text: text.into() }
    }

    fn stopped(text: &str, stop: usize) -> StopOutcome {
        StopOutcome::Stopped {
            text: text.into(),
            stop,
        }
    }

    /// A failure that users of other engines met: "tokens after a stop string are kept when several arrive at once".
    #[test]
    fn tokens_after_a_stop_string_are_dropped_when_several_arrive_at_once() {
        let mut stop = matcher(&["###"]);
        assert_eq!(stop.push("one ##"), emit("one "));
        // The burst ends the stop string and carries on: nothing of the rest may be seen.
        assert_eq!(stop.push("# two ### three"), stopped("", 0));
        assert_eq!(stop.push(" four"), stopped("", 0));
        assert!(stop.is_stopped());
        assert_eq!(stop.finish(), stopped("", 0));
    }

    #[test]
    fn text_that_turns_out_to_be_no_stop_string_is_released() {
        let mut stop = matcher(&["\nUser:"]);
        assert_eq!(stop.push("hi\nUs"), emit("hi"));
        assert_eq!(stop.held(), "\nUs");
        assert_eq!(stop.push("ually"), emit("\nUsually"));
        assert_eq!(stop.push("\n"), emit(""));
        assert_eq!(stop.finish(), emit("\n"));
    }

    #[test]
    fn the_match_that_starts_first_wins_even_if_it_ends_last() {
        let mut stop = matcher(&["bcd", "abcde"]);
        assert_eq!(stop.push("xabcd"), emit("x"));
        assert_eq!(stop.clone().push("e"), stopped("", 1));
        assert_eq!(stop.clone().push("f"), stopped("a", 0));
        assert_eq!(
            stop.finish(),
            stopped("a", 0),
            "the text ends: the waiting match counts"
        );
    }

    #[test]
    fn of_two_that_start_together_the_first_given_wins() {
        let mut stop = matcher(&["ab", "abc"]);
        assert_eq!(stop.push("abc"), stopped("", 0));
        let mut stop = matcher(&["abc", "ab"]);
        assert_eq!(stop.push("ab"), emit(""), "`abc` may still come");
        assert_eq!(stop.push("d"), stopped("", 1));
    }

    #[test]
    fn useless_stop_strings_are_refused_by_number() {
        let error = StopMatcher::new(vec!["a".into(), String::new()]).expect_err("empty");
        assert!(error.to_string().contains("number 2 is empty"), "{error}");
        assert!(StopMatcher::new(vec!["x".repeat(MAX_STOP_BYTES + 1)]).is_err());
        assert!(StopMatcher::new(vec!["x".into(); MAX_STOP_STRINGS + 1]).is_err());
        let mut none = matcher(&[]);
        assert_eq!(none.push("all of it"), emit("all of it"));
    }

    /// The definition, on the whole text: lowest start, then first in the list.
    fn oracle(text: &str, stops: &[String]) -> (String, Option<usize>) {
        let found = stops
            .iter()
            .enumerate()
            .filter_map(|(i, s)| text.find(s.as_str()).map(|start| (start, i)))
            .min();
        match found {
            Some((start, stop)) => (text[..start].to_owned(), Some(stop)),
            None => (text.to_owned(), None),
        }
    }

    proptest! {
        #[test]
        fn any_split_stops_where_the_whole_text_does(
            pieces in prop::collection::vec("[abé🦙]{0,5}", 0..12),
            stops in prop::collection::vec("[abé🦙]{1,4}", 0..4),
        ) {
            let whole = pieces.concat();
            let mut matcher = StopMatcher::new(stops.clone()).expect("not empty");
            let mut shown = String::new();
            let mut stop = None;
            for piece in &pieces {
                match matcher.push(piece) {
                    StopOutcome::Emit { text } => shown.push_str(&text),
                    StopOutcome::Stopped { text, stop: index } => {
                        shown.push_str(&text);
                        stop = Some(index);
                    }
                }
            }
            match matcher.finish() {
                StopOutcome::Emit { text } => shown.push_str(&text),
                StopOutcome::Stopped { text, stop: index } => {
                    shown.push_str(&text);
                    stop = Some(index);
                }
            }
            prop_assert_eq!((shown, stop), oracle(&whole, &stops));
        }
    }
}
