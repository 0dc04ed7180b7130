//! Python's `json.dumps`, as `transformers` gives it to templates under the name `tojson`.

use super::python::{MAX_DEPTH, PaidText, write_number};
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// How the text is laid out.
#[derive(Debug, Clone, Default)]
struct Style {
    /// A line for each item, indented by this.
    indent: Option<String>,
    /// Between items; `None`: ", ", or "," with an indent.
    item_separator: Option<String>,
    /// Between key and value; `None`: ": ".
    key_separator: Option<String>,
    /// Keys in alphabetical order.
    sort_keys: bool,
    /// Everything beyond ASCII as JSON's `\u` escapes.
    ensure_ascii: bool,
}

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`: neither ASCII nor HTML
/// escapes by default. An indent is a number of spaces or a text.
pub(super) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    positional: Rest<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let option = |place: usize, name: &str| -> Result<Option<Value>, Error> {
        let named: Option<Value> = options.get(name)?;
        let given = named.or_else(|| positional.get(place).cloned());
        Ok(given.filter(|value| !value.is_none()))
    };
    let is_true = |value: Value| value.is_true();
    let mut style = Style {
        ensure_ascii: option(0, "ensure_ascii")?.is_some_and(is_true),
        sort_keys: option(3, "sort_keys")?.is_some_and(is_true),
        ..Style::default()
    };
    if let Some(indent) = option(1, "indent")? {
        style.indent = Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent)?.min(64)),
        });
    }
    if let Some(separators) = option(2, "separators")? {
        let part = |index: usize| {
            let part = separators.get_item_by_index(index)?;
            Ok::<_, Error>(part.as_str().map(str::to_owned))
        };
        style.item_separator = part(0)?;
        style.key_separator = part(1)?;
    }
    options.assert_all_used()?;
    let mut writer = Writer {
        style,
        out: PaidText::new(state),
    };
    writer.write(value, 0)?;
    Ok(writer.out.text)
}

struct Writer<'s, 'e> {
    style: Style,
    out: PaidText<'s, 'e>,
}

impl Writer<'_, '_> {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.pay(depth)?;
        match value.kind() {
            ValueKind::None => self.out.text.push_str("null"),
            ValueKind::Bool => {
                self.out
                    .text
                    .push_str(if value.is_true() { "true" } else { "false" })
            }
            ValueKind::Number => self.write_number(value),
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.style.sort_keys {
                    keys.sort();
                }
                self.write_items(depth, ('{', '}'), &keys, |writer, key| {
                    writer.write_key(key)?;
                    let separator = writer.style.key_separator.as_deref().unwrap_or(": ");
                    writer.out.text.push_str(separator);
                    writer.write(&value.get_item(key)?, depth + 1)
                })?;
            }
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_items(depth, ('[', ']'), &items, |writer, item| {
                    writer.write(item, depth + 1)
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
        &mut self,
        depth: usize,
        (open, close): (char, char),
        items: &[Value],
        write: impl Fn(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.text.push(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                let default = if self.style.indent.is_some() {
                    ","
                } else {
                    ", "
                };
                let separator = self.style.item_separator.as_deref().unwrap_or(default);
                self.out.text.push_str(separator);
            }
            self.write_line_break(depth + 1);
            write(self, item)?;
        }
        if !items.is_empty() {
            self.write_line_break(depth);
        }
        self.out.text.push(close);
        Ok(())
    }

    fn write_line_break(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.text.push('\n');
            for _ in 0..depth {
                self.out.text.push_str(indent);
            }
        }
    }

    fn write_number(&mut self, value: &Value) {
        let mut text = String::new();
        write_number(value, &mut text);
        self.out.text.push_str(match text.as_str() {
            "nan" => "NaN",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            number => number,
        });
    }

    /// Keys that are no strings are written as Python's `json` does: numbers and constants between quotes.
    fn write_key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.write_string(key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                self.out.text.push('"');
                self.write(key, MAX_DEPTH)?;
                self.out.text.push('"');
            }
            kind => {
                let message = format!("keys must be str, int, float, bool or None, not {kind}");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        }
        Ok(())
    }

    fn write_string(&mut self, text: &str) {
        let out = &mut self.out.text;
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
                c if self.style.ensure_ascii && !c.is_ascii() => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}
