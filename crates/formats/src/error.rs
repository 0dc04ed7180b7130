//! The ways in which a model file can be unusable. Every message names the file, the field and what
//! to do about it.

use std::fmt::Write as _;

/// Why a checkpoint cannot be opened or used.
///
/// Text that comes out of a file (names of keys and tensors) is escaped and shortened before it gets
/// into a message, so that a hostile file can neither flood nor rewrite a terminal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The operating system refused: no such file, no permission, a failing disk.
    #[error("{file}: cannot {action}: {reason}; check the path, its permissions and the disk")]
    Io {
        /// The path as it was given.
        file: String,
        /// What was attempted, as a verb phrase.
        action: &'static str,
        /// The operating system's words.
        reason: String,
        /// The kind of failure, for callers that tell a wrong path from a failing disk.
        kind: std::io::ErrorKind,
    },

    /// The path is not a model that this build can open.
    #[error("{file}: {problem}; {remedy}")]
    NotAModel {
        /// The path as it was given.
        file: String,
        /// What was found there instead.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },

    /// The file ends inside a field.
    #[error(
        "{file}: the file ends inside {field}: {needed} bytes are needed at offset {offset}, {available} \
         are left; it is truncated or damaged: fetch it again"
    )]
    Truncated {
        /// The file.
        file: String,
        /// The field that does not fit.
        field: String,
        /// Where the field starts, in bytes from the start of the file.
        offset: u64,
        /// Bytes that the field needs.
        needed: u64,
        /// Bytes that are left.
        available: u64,
    },

    /// A field contradicts the format, another field, or arithmetic.
    #[error("{file}: {field}: {problem}; {remedy}")]
    Invalid {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },

    /// A field has a meaning that this build does not implement.
    #[error("{file}: {field} {found} is not supported (supported: {supported})")]
    Unsupported {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// The value found.
        found: String,
        /// What would be accepted.
        supported: String,
    },

    /// A field or tensor that is needed is not there.
    #[error("{file}: {field} is missing; {remedy}")]
    Missing {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// What to do.
        remedy: &'static str,
    },

    /// A field has another type, or a number does not fit the type asked for.
    #[error("{file}: {field} is {found}, expected {expected}; the file needs converting anew")]
    WrongType {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// The type or value found.
        found: String,
        /// The type or range expected.
        expected: &'static str,
    },

    /// A size is beyond what any real model has, or beyond what the file could hold.
    #[error(
        "{file}: {field} is {found}, the limit is {limit}; the file is damaged or not a language model"
    )]
    TooLarge {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// The value found.
        found: u64,
        /// The largest value accepted here.
        limit: u64,
    },
}

/// The remedy for a file whose header contradicts itself.
pub(crate) const DAMAGED: &str = "the file is damaged: fetch or convert it again";

impl FormatError {
    /// The message of an operating system error on `file`.
    pub(crate) fn io(file: &str, action: &'static str, error: &std::io::Error) -> Self {
        Self::Io {
            file: file.to_owned(),
            action,
            reason: error.to_string(),
            kind: error.kind(),
        }
    }

    /// A field that contradicts the format, with the remedy of a damaged file.
    pub(crate) fn damaged(file: &str, field: impl ToString, problem: impl ToString) -> Self {
        Self::invalid(file, field, problem, DAMAGED)
    }

    /// A field that contradicts the format or another field.
    pub(crate) fn invalid(
        file: &str,
        field: impl ToString,
        problem: impl ToString,
        remedy: &'static str,
    ) -> Self {
        Self::Invalid {
            file: file.to_owned(),
            field: field.to_string(),
            problem: clipped(problem.to_string()),
            remedy,
        }
    }

    /// A value that is well-formed but not implemented.
    pub(crate) fn unsupported(
        file: &str,
        field: impl ToString,
        found: impl ToString,
        supported: impl ToString,
    ) -> Self {
        Self::Unsupported {
            file: file.to_owned(),
            field: field.to_string(),
            found: found.to_string(),
            supported: supported.to_string(),
        }
    }

    /// A field that has to be there.
    pub(crate) fn missing(file: &str, field: impl ToString, remedy: &'static str) -> Self {
        Self::Missing {
            file: file.to_owned(),
            field: field.to_string(),
            remedy,
        }
    }

    /// A number beyond its limit.
    pub(crate) fn too_large(file: &str, field: impl ToString, found: u64, limit: u64) -> Self {
        Self::TooLarge {
            file: file.to_owned(),
            field: field.to_string(),
            found,
            limit,
        }
    }
}

/// A text of bounded length: a JSON reader's message repeats whatever string it stumbled over.
fn clipped(mut text: String) -> String {
    const LONGEST: usize = 400;
    if let Some((end, _)) = text.char_indices().nth(LONGEST) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// `text` in backquotes, with control characters escaped and the length limited.
pub(crate) fn quote(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut quoted = String::from("`");
    for (count, character) in text.chars().enumerate() {
        if count == LONGEST {
            quoted.push('…');
            break;
        }
        if character.is_control() || is_invisible(character) {
            let _ = write!(quoted, "{}", character.escape_unicode()); // a String takes everything
        } else {
            quoted.push(character);
        }
    }
    quoted.push('`');
    quoted
}

/// Characters that change how their neighbours are shown: directional marks and zero-width ones.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by fuzzing: a safetensors header that is one long string came back whole in the message.
    #[test]
    fn a_message_does_not_repeat_a_strangers_text_at_length() {
        let error = FormatError::damaged("f", "the header", "ä".repeat(10_000));
        assert!(error.to_string().len() < 1200);
    }

    #[test]
    fn names_from_a_file_cannot_rewrite_a_terminal() {
        assert_eq!(quote("blk.0.attn_q.weight"), "`blk.0.attn_q.weight`");
        assert_eq!(quote("a\u{1b}[2J\n"), "`a\\u{1b}[2J\\u{a}`");
        assert_eq!(quote("\u{202e}abc"), "`\\u{202e}abc`");
        assert_eq!(quote(&"x".repeat(1 << 20)).chars().count(), 83);
    }
}
