//! What keeps a hostile template from harming the process, before and around minijinja.
//!
//! minijinja bounds the work of rendering (fuel) and the nesting of brackets and blocks. Two things it leaves open:
//!
//! * Long chains (`a~a~a~...`, `not not not ...`) become expressions as deep as they are long, which are compiled by
//!   recursion and, for some operators, in quadratic time. So the code of one tag is limited ([`MAX_TAG_BYTES`]).
//! * Values share their parts: after thirty times `{% set x = [x, x] %}` a value of thirty lists has 2^30 elements to
//!   whoever walks it, and minijinja compares, hashes and prints values by walking them, without charging for it. So
//!   whatever a template binds to a name (`set`, `for`, `with`, `macro`, `call`) is measured right there: behind such
//!   a tag a call of [`MEASURE`] is put, which charges for the value as a walk of it would see it, and bounds its depth.
//!   What one expression can make of measured values is bounded by its length.

use super::python::MAX_DEPTH;
use super::tags::{Piece, pieces};
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};
use std::thread::Builder;

/// How much code (text outside of string literals) one `{{ ... }}` or `{% ... %}` may have. Published templates stay
/// well below 1 kB.
pub const MAX_TAG_BYTES: usize = 2048;

/// The name under which [`measure`] is put into templates; no template can write it by chance.
pub(super) const MEASURE: &str = "__foredraft_measure";

/// The steps that an element of a bound list or map costs.
const FUEL_PER_ELEMENT: u64 = 16;

/// The template with its bindings measured; the error is the problem in words.
pub(super) fn guarded(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let mut line = 1;
    for piece in pieces(source) {
        let code = piece.code_bytes();
        if code > MAX_TAG_BYTES {
            return Err(format!(
                "the tag on line {line} has {code} bytes of code, more than the limit of {MAX_TAG_BYTES}"
            ));
        }
        line += piece.whole().matches('\n').count();
        let Piece::Block {
            whole,
            statement,
            end,
        } = piece
        else {
            out.push_str(piece.whole());
            continue;
        };
        // `transformers` puts these tags around what the assistant said, to find it again in training. For a prompt
        // they are a block that is always rendered.
        match statement.trim() {
            "generation" => out.push_str(&whole.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&whole.replacen("endgeneration", "endif", 1)),
            statement => {
                out.push_str(whole);
                if let Some(names) = bound_names(statement) {
                    out.push_str(&format!("{{% do {MEASURE}({names}) {end}%}}"));
                }
            }
        }
    }
    Ok(out)
}

/// The names (as a list of arguments) that a statement binds to values.
fn bound_names(statement: &str) -> Option<String> {
    let (word, rest) = statement.split_at(
        statement
            .find(|c: char| !c.is_alphanumeric())
            .unwrap_or(statement.len()),
    );
    match word {
        // `set x = ...`, `set space.x = ...`, `set a, b = ...`; without `=` it is a block of text.
        "set" => Some(rest.split_once('=')?.0.trim().to_owned()),
        "for" => {
            let names: Vec<&str> = rest
                .split_whitespace()
                .take_while(|word| *word != "in")
                .collect();
            Some(names.join(" "))
        }
        "macro" => Some(parameters(rest.split_once('(')?.1)),
        "call" if rest.trim_start().starts_with('(') => Some(parameters(rest.split_once('(')?.1)),
        "with" => Some(parameters(rest)),
        _ => None,
    }
    .filter(|names| !names.is_empty())
}

/// The names in `a, b=[1, "x"], c)`: those that begin an item outside of all brackets and strings.
fn parameters(list: &str) -> String {
    let mut items = vec![String::new()];
    let (mut depth, mut quote) = (0usize, None);
    let mut characters = list.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(characters.next()),
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') if depth == 0 => break,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => items.push(String::new()),
            (None, c) if depth == 0 => items.last_mut().into_iter().for_each(|item| item.push(c)),
            (None, _) => {}
        }
    }
    let is_name = |c: &char| c.is_alphanumeric() || *c == '_';
    let names = items.iter().map(|item| {
        item.trim_start()
            .chars()
            .take_while(is_name)
            .collect::<String>()
    });
    names
        .filter(|name| !name.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Charges for the elements of values as a walk would see them, shared ones as often as they occur.
pub(super) fn measure(state: &State, values: Rest<Value>) -> Result<(), Error> {
    let mut todo: Vec<(Value, usize)> = values.iter().map(|value| (value.clone(), 0)).collect();
    while let Some((value, depth)) = todo.pop() {
        // A lazy sequence without a length may be one that can be read only once.
        let is_container = match value.kind() {
            ValueKind::Seq | ValueKind::Map => true,
            ValueKind::Iterable => value.len().is_some(),
            _ => false,
        };
        if !is_container {
            let bytes = value.as_str().map_or(0, str::len) as u64;
            if depth > 0 && bytes > 64 {
                state.consume_fuel(bytes / 64)?;
            }
            continue;
        }
        if depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "a value is nested too deeply",
            ));
        }
        let is_map = value.kind() == ValueKind::Map;
        for item in value.try_iter()? {
            state.consume_fuel(FUEL_PER_ELEMENT)?;
            if is_map {
                todo.push((value.get_item(&item)?, depth + 1));
            }
            todo.push((item, depth + 1));
        }
    }
    Ok(())
}

/// Runs `work` on a thread with a stack of its own. A panic in there (none is known) is an error here.
pub(super) fn on_own_stack<T: Send>(
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = Builder::new()
            .name("chat-template".into())
            .stack_size(stack_bytes);
        let handle = thread.spawn_scoped(scope, work);
        let handle = handle.map_err(|error| format!("there is no thread to run it on: {error}"))?;
        handle
            .join()
            .map_err(|_| "the template engine panicked".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bound_is_measured() {
        for (statement, names) in [
            ("set x = [x, x]", Some("x")),
            ("set space.x = y == 1", Some("space.x")),
            ("set a, b = 1, 2", Some("a, b")),
            ("set x", None),
            ("for a, b in x.items() if a in b", Some("a, b")),
            ("macro f(a, b=[1, \"),c\"], c_2 = x)", Some("a, b, c_2")),
            ("macro f()", None),
            ("call(u) f(1)", Some("u")),
            ("call f(u)", None),
            ("with a = {'k': (1, 2)}, b=3", Some("a, b")),
            ("if x == 1", None),
            ("endfor", None),
        ] {
            assert_eq!(bound_names(statement).as_deref(), names, "{statement}");
        }
    }

    #[test]
    fn the_measure_follows_the_tag_and_ends_like_it() {
        let source = "{%- for x in y -%} {{ x }}\n{% generation %}{%+ set a = '%}' +%}{% raw %}{% set b = 1 %}{% endraw %}{%- endgeneration -%}";
        let expected = "{%- for x in y -%}{% do __foredraft_measure(x) -%} {{ x }}\n{% if true %}{%+ set a = '%}' +%}\
                        {% do __foredraft_measure(a) +%}{% raw %}{% set b = 1 %}{% endraw %}{%- endif -%}";
        assert_eq!(guarded(source).as_deref(), Ok(expected));
    }

    #[test]
    fn code_is_counted_and_strings_are_not() {
        let text = "x".repeat(10 * MAX_TAG_BYTES);
        assert!(
            guarded(&format!(
                "{text}{{{{ '{text} \\' }}}}' ~ \"'\" }}}}{text}{{# {text} #}}"
            ))
            .is_ok()
        );
        let chain = "not ".repeat(MAX_TAG_BYTES / 4 + 1);
        let error =
            guarded(&format!("a\n\n{{{{ 'it' }}}}{{% if {chain} x %}}")).expect_err("too long");
        assert!(error.contains("line 3"), "{error}");
        assert!(
            guarded(&format!("{{{{ '}}}}' {chain} }}}}")).is_err(),
            "a bracket in a string ends no tag"
        );
        assert!(
            guarded(&format!("{{{{ {chain}")).is_err(),
            "a tag without an end"
        );
    }

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(on_own_stack(1 << 20, || 7), Ok(7));
        let result: Result<(), _> = on_own_stack(1 << 20, || panic!("as the test wants"));
        assert_eq!(result, Err("the template engine panicked".to_owned()));
    }
}
