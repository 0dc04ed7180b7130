//! How Python writes values: `str()`, `repr()` and `json.dumps`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Deeper values are refused; a template can nest lists without end.
const MAX_DEPTH: usize = 128;

fn too_deep() -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        "the value is nested too deeply",
    )
}

/// `str(value)`; undefined is the empty string, as jinja2 prints it.
pub(super) fn write_str(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => {
            out.push_str(value.as_str().unwrap_or_default());
            Ok(())
        }
        _ => write_repr(value, out, 0),
    }
}

/// `repr(value)`.
fn write_repr(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(value, out),
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Seq => {
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&item, out, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, out, depth + 1)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A string between quotes: single ones, unless it has single and no double ones.
fn write_quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c as u32 == 0x7F => {
                out.push_str(&format!("\\x{:02x}", c as u32))
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn write_number(value: &Value, out: &mut String) {
    if value.is_integer() {
        out.push_str(&value.to_string());
    } else {
        match f64::try_from(value.clone()) {
            Ok(number) => write_float(number, out),
            Err(_) => out.push_str(&value.to_string()),
        }
    }
}

/// `repr(float)`: the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
fn write_float(number: f64, out: &mut String) {
    if number.is_nan() {
        out.push_str("nan");
    } else if number.is_infinite() {
        out.push_str(if number > 0.0 { "inf" } else { "-inf" });
    } else if number == 0.0 || (1e-4..1e16).contains(&number.abs()) {
        out.push_str(&format!("{number:?}"));
    } else {
        // Rust writes 1e16 and 1.5e-7; Python 1e+16 and 1.5e-07.
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        out.push_str(&format!("{digits}e{sign}{exponent:0>2}"));
    }
}

/// How [`to_json`] lays out its text.
#[derive(Debug, Clone, Default)]
pub(super) struct JsonStyle {
    /// A line for each item, indented by this.
    pub(super) indent: Option<String>,
    /// Between items; `None`: ", ", or "," with an indent.
    pub(super) item_separator: Option<String>,
    /// Between key and value; `None`: ": ".
    pub(super) key_separator: Option<String>,
    /// Keys in alphabetical order.
    pub(super) sort_keys: bool,
    /// Everything beyond ASCII as `\uXXXX`.
    pub(super) ensure_ascii: bool,
}

/// `json.dumps(value)` in the given style.
pub(super) fn to_json(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_json(
    value: &Value,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => write_json_number(value, out),
        ValueKind::String => write_json_string(value.as_str().unwrap_or_default(), style, out),
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            write_items(style, depth, ('{', '}'), keys, out, |key, out| {
                write_json_key(key, style, out)?;
                out.push_str(style.key_separator.as_deref().unwrap_or(": "));
                write_json(&value.get_item(key)?, style, depth + 1, out)
            })?;
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_items(style, depth, ('[', ']'), items, out, |item, out| {
                write_json(item, style, depth + 1, out)
            })?;
        }
        kind => {
            let message = format!("Object of type {kind} is not JSON serializable");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

fn write_items(
    style: &JsonStyle,
    depth: usize,
    (open, close): (char, char),
    items: Vec<Value>,
    out: &mut String,
    write: impl Fn(&Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let default = if style.indent.is_some() { "," } else { ", " };
    let separator = style.item_separator.as_deref().unwrap_or(default);
    let new_line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    };
    let empty = items.is_empty();
    out.push(open);
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        new_line(depth + 1, out);
        write(item, out)?;
    }
    if !empty {
        new_line(depth, out);
    }
    out.push(close);
    Ok(())
}

fn write_json_number(value: &Value, out: &mut String) {
    let start = out.len();
    write_number(value, out);
    let json = match out.get(start..) {
        Some("nan") => "NaN",
        Some("inf") => "Infinity",
        Some("-inf") => "-Infinity",
        _ => return,
    };
    out.truncate(start);
    out.push_str(json);
}

/// Keys that are no strings are written as Python's `json` does: numbers and constants between quotes.
fn write_json_key(key: &Value, style: &JsonStyle, out: &mut String) -> Result<(), Error> {
    if let Some(text) = key.as_str() {
        write_json_string(text, style, out);
        return Ok(());
    }
    let mut text = String::new();
    write_json(key, style, MAX_DEPTH, &mut text)?;
    write_json_string(&text, style, out);
    Ok(())
}

fn write_json_string(text: &str, style: &JsonStyle, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if style.ensure_ascii && (c as u32) > 0x7E => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
