//! How Python writes values: `str()` and `repr()`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Deeper values are refused; a template can nest lists as deep as its budget lasts.
pub(super) const MAX_DEPTH: usize = 128;

/// A text that is paid for while it grows. The engine charges a filter for its result only when it is there; but a
/// small value can contain itself many times over (`[x, x]`) and be endless to write.
pub(super) struct PaidText<'s, 'e> {
    state: &'s State<'e, 'e>,
    pub(super) text: String,
    paid_bytes: usize,
}

impl<'s, 'e> PaidText<'s, 'e> {
    pub(super) fn new(state: &'s State<'e, 'e>) -> Self {
        Self {
            state,
            text: String::new(),
            paid_bytes: 0,
        }
    }

    /// Pays for one value (two steps) and for what was written since the last time; fails when the budget is used up.
    pub(super) fn pay(&mut self, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "the value is nested too deeply",
            ));
        }
        let unpaid = self.text.len() - self.paid_bytes;
        self.paid_bytes = self.text.len();
        self.state.consume_fuel(2 + unpaid as u64 / 64)
    }
}

/// `str(value)`; undefined is the empty string, as jinja2 prints it.
pub(super) fn write_str(value: &Value, out: &mut PaidText<'_, '_>) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Undefined => Ok(()),
        ValueKind::String => {
            out.text.push_str(value.as_str().unwrap_or_default());
            out.pay(0)
        }
        _ => write_repr(value, out, 0),
    }
}

/// `repr(value)`.
fn write_repr(value: &Value, out: &mut PaidText<'_, '_>, depth: usize) -> Result<(), Error> {
    out.pay(depth)?;
    match value.kind() {
        ValueKind::None => out.text.push_str("None"),
        ValueKind::Bool => out
            .text
            .push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => write_number(value, &mut out.text),
        ValueKind::String => write_quoted(value.as_str().unwrap_or_default(), &mut out.text),
        ValueKind::Undefined => out.text.push_str("Undefined"),
        ValueKind::Seq | ValueKind::Iterable => {
            out.text.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.text.push_str(", ");
                }
                write_repr(&item, out, depth + 1)?;
            }
            out.text.push(']');
        }
        ValueKind::Map => {
            out.text.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.text.push_str(", ");
                }
                write_repr(&key, out, depth + 1)?;
                out.text.push_str(": ");
                write_repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.text.push('}');
        }
        kind => out.text.push_str(&format!("<{kind}>")),
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

/// `repr` of an integer or a float.
pub(super) fn write_number(value: &Value, out: &mut String) {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() => write_float(number, out),
        _ => out.push_str(&value.to_string()),
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
