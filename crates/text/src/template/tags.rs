//! Cuts the source of a template into text and tags, as far as [`super::guard`] needs it.

/// A part of a template's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'s> {
    /// Text, a comment, or a `raw` block: nothing runs in it.
    Text(&'s str),
    /// `{{ ... }}`; also a tag that never ends.
    Expression(&'s str),
    /// `{% ... %}`.
    Block {
        /// All of it.
        whole: &'s str,
        /// What stands between the marks.
        statement: &'s str,
        /// The mark before `%}`: "-", "+" or nothing.
        end: &'s str,
    },
}

impl<'s> Piece<'s> {
    pub(super) fn whole(&self) -> &'s str {
        match self {
            Piece::Text(whole) | Piece::Expression(whole) | Piece::Block { whole, .. } => whole,
        }
    }

    /// The bytes outside of string literals; 0 for text.
    pub(super) fn code_bytes(&self) -> usize {
        if matches!(self, Piece::Text(_)) {
            return 0;
        }
        let mut quotes = Quotes::default();
        self.whole()
            .bytes()
            .filter(|&byte| quotes.is_code(byte))
            .count()
    }
}

/// Follows string literals through code.
#[derive(Debug, Default)]
struct Quotes {
    open: Option<u8>,
    escaped: bool,
}

impl Quotes {
    /// Whether the next byte is code: not inside a string literal and no quote that ends one.
    fn is_code(&mut self, byte: u8) -> bool {
        let Some(open) = self.open else {
            self.open = matches!(byte, b'\'' | b'"').then_some(byte);
            return true;
        };
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == open {
            self.open = None;
        }
        false
    }
}

/// The pieces of `source`, in order; together they are the source.
pub(super) fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut rest = source;
    while !rest.is_empty() {
        let piece = next(rest);
        rest = rest.get(piece.whole().len()..).unwrap_or_default();
        out.push(piece);
        let Piece::Block { statement, .. } = piece else {
            continue;
        };
        if statement.trim() == "raw" {
            let (raw, after) = rest.split_at(end_of_raw(rest));
            if !raw.is_empty() {
                out.push(Piece::Text(raw));
            }
            rest = after;
        }
    }
    out
}

/// The piece that a source which is not empty begins with.
fn next(source: &str) -> Piece<'_> {
    let opens = |at: &usize| {
        source
            .get(*at..)
            .is_some_and(|s| ["{{", "{%", "{#"].iter().any(|open| s.starts_with(open)))
    };
    let start = source
        .match_indices('{')
        .map(|(at, _)| at)
        .find(opens)
        .unwrap_or(source.len());
    if start > 0 {
        return Piece::Text(source.get(..start).unwrap_or(source));
    }
    let close = match source.as_bytes().get(1) {
        Some(b'#') => {
            let end = source.find("#}").map_or(source.len(), |at| at + 2);
            return Piece::Text(source.get(..end).unwrap_or(source));
        }
        Some(b'%') => b'%',
        _ => b'}',
    };
    let mut quotes = Quotes::default();
    let bytes = source.as_bytes();
    let closes = |&(at, &byte): &(usize, &u8)| {
        quotes.is_code(byte) && byte == close && bytes.get(at + 1) == Some(&b'}')
    };
    let Some((at, _)) = bytes.iter().enumerate().skip(2).find(closes) else {
        return Piece::Expression(source);
    };
    let whole = source.get(..at + 2).unwrap_or(source);
    if close == b'}' {
        return Piece::Expression(whole);
    }
    let inner = source.get(2..at).unwrap_or_default();
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    let statement = inner.strip_suffix(['-', '+']).unwrap_or(inner);
    let end = inner.get(statement.len()..).unwrap_or_default();
    Piece::Block {
        whole,
        statement,
        end,
    }
}

/// Where the `endraw` tag begins; the end if there is none.
fn end_of_raw(source: &str) -> usize {
    let ends = |&(at, _): &(usize, &str)| {
        let inner = source.get(at + 2..).unwrap_or_default();
        inner
            .strip_prefix(['-', '+'])
            .unwrap_or(inner)
            .trim_start()
            .starts_with("endraw")
    };
    source
        .match_indices("{%")
        .find(ends)
        .map_or(source.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_and_tags_are_told_apart() {
        let source =
            "a { b{# {{ #}{{ '}}' }}{%- if x == '%}' +%}{% raw %}{{ x }}{%- endraw %}{{ open";
        let block = |whole, statement, end| Piece::Block {
            whole,
            statement,
            end,
        };
        assert_eq!(
            pieces(source),
            [
                Piece::Text("a { b"),
                Piece::Text("{# {{ #}"),
                Piece::Expression("{{ '}}' }}"),
                block("{%- if x == '%}' +%}", " if x == '%}' ", "+"),
                block("{% raw %}", " raw ", ""),
                Piece::Text("{{ x }}"),
                block("{%- endraw %}", " endraw ", ""),
                Piece::Expression("{{ open"),
            ]
        );
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_source(source in "(\\{\\{|\\{%|%\\}|\\}\\}|\\{#|#\\}|raw|endraw|'|\\\\| |-|\\PC){0,30}") {
            let whole: String = pieces(&source).iter().map(Piece::whole).collect();
            prop_assert_eq!(whole, source);
        }
    }
}
