//! The two streams: answers to stdout, everything else to stderr; and text of files made safe to print.

use std::io::{self, Write};

use crate::exit::Exit;

/// Writes a finished answer to stdout.
pub(crate) fn stdout(text: &str) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Writes a value as the one JSON object of a `--json` command.
pub(crate) fn stdout_json(value: &impl serde::Serialize) -> Result<(), Exit> {
    let mut text = serde_json::to_string_pretty(value).map_err(Exit::failed)?;
    text.push('\n');
    stdout(&text)
}

/// Writes a line to stderr; a closed stderr is nobody's concern.
pub(crate) fn stderr_line(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A note that does not stop the work.
pub(crate) fn warn(line: &str) {
    stderr_line(&format!("warning: {line}"));
}

/// The text with its line breaks made spaces and its other control characters escaped.
pub(crate) fn one_line(text: &str) -> String {
    let joined = text
        .split(['\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty());
    printable(&joined.collect::<Vec<_>>().join(" "))
}

/// Text from a file, safe for a terminal: control characters (C0, DEL, C1) and the characters that
/// reorder a line are shown as escapes, so that a model file cannot move the cursor, retitle the
/// window or disguise what is printed.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
        let breaks = matches!(c, '\u{2028}' | '\u{2029}');
        if c.is_control() || reorders || breaks {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// A number of bytes for people: `98.4 MB` (decimal units, as downloads are counted).
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Columns padded to equal width, two spaces apart, the last one ragged.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_what_a_terminal_would_obey() {
        assert_eq!(printable("plain é 漢 🦀"), "plain é 漢 🦀");
        assert_eq!(printable("\x1b]0;title\x07"), "\\u{1b}]0;title\\u{7}");
        assert_eq!(printable("a\u{9b}2Jb"), "a\\u{9b}2Jb");
        assert_eq!(printable("gpj\u{202e}exe"), "gpj\\u{202e}exe");
        assert_eq!(one_line("a\n  b\r\nc\td"), "a b c\\td");
    }

    #[test]
    fn bytes_are_decimal() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(98_362_432), "98.4 MB");
        assert_eq!(bytes(1_117_320_768), "1.1 GB");
        assert_eq!(bytes(999_999), "1.0 MB");
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".into(), "b".into()],
            vec!["long".into(), "c".into()],
        ];
        assert_eq!(table(&rows), "a     b\nlong  c\n");
    }
}
