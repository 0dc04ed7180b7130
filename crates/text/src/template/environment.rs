//! minijinja, set up so that templates written for `transformers` cannot tell the difference.
//!
//! Known to differ still: to iterate over none is to iterate over nothing (jinja2 fails; so a template for tools renders
//! without tools); `'...' % x` is an error (`'...'|format(x)` works); `~` and comparisons write and order lists as
//! minijinja does; `strftime_now` tells UTC.

use super::guard::{MEASURE, guarded, measure};
use super::python::{PaidText, write_str};
use super::{json, time};
use crate::TextError;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};
use minijinja_contrib::pycompat::unknown_method_callback;

/// The name of the template in its environment.
pub(super) const MAIN: &str = "chat_template";
/// The name of the second template, for tools.
pub(super) const TOOL_USE: &str = "tool_use";
/// How deep macros and blocks may call each other. (Each level costs some kB of stack.)
const RECURSION_LIMIT: usize = 100;

/// What `raise_exception` threw; carried as the source of the error that ends the rendering.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Compiles the templates; errors are the problem in words.
pub(super) fn build(source: &str, tool_use: Option<&str>) -> Result<Environment<'static>, String> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(false)
        .build();
    environment.set_syntax(syntax.map_err(|error| error.to_string())?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_recursion_limit(RECURSION_LIMIT);
    environment.set_debug(false);
    environment.set_unknown_method_callback(method);
    environment.set_formatter(|out, state, value| match value.as_str() {
        Some(text) => out.write_str(text).map_err(Error::from),
        None => out.write_str(&to_str(state, value)?).map_err(Error::from),
    });
    environment.add_function(
        "raise_exception",
        |state: &State, message: &Value| -> Result<Value, Error> {
            let text = to_str(state, message)?;
            Err(Error::new(ErrorKind::InvalidOperation, "raise_exception")
                .with_source(Raised(text)))
        },
    );
    environment.add_function(MEASURE, measure);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("string", to_str);
    environment.add_filter("pprint", to_str);
    environment.add_filter("join", join);
    environment.add_test("sequence", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined
        )
    });
    environment.add_test("iterable", |value: &Value| {
        value.kind() == ValueKind::String || value.is_undefined() || value.try_iter().is_ok()
    });
    for (name, source) in [(MAIN, Some(source)), (TOOL_USE, tool_use)] {
        let Some(source) = source else { continue };
        if source.len() > super::MAX_TEMPLATE_BYTES {
            let (bytes, limit) = (source.len(), super::MAX_TEMPLATE_BYTES);
            return Err(format!(
                "it has {bytes} bytes, more than the limit of {limit}"
            ));
        }
        let source = guarded(source)?;
        environment
            .add_template_owned(name, source)
            .map_err(|error| describe(&error))?;
    }
    Ok(environment)
}

/// Sets what `strftime_now` tells.
pub(super) fn set_time(environment: &mut Environment<'static>, unix_seconds: i64) {
    environment.add_function("strftime_now", move |format: &str| {
        time::strftime(unix_seconds, format)
    });
}

/// An error of minijinja in this crate's words.
pub(super) fn explain(error: &Error, fuel: u64) -> TextError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Raised(message)) = current.downcast_ref() {
            return TextError::TemplateRefused(message.clone());
        }
        if current
            .downcast_ref::<Error>()
            .is_some_and(|error| error.kind() == ErrorKind::OutOfFuel)
        {
            return TextError::TemplateBudget { fuel };
        }
        cause = current.source();
    }
    TextError::TemplateFailed(describe(error))
}

/// Message and line.
fn describe(error: &Error) -> String {
    let detail = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{detail} (line {line} of the template)"),
        None => detail,
    }
}

/// `str(value)`.
fn to_str(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = PaidText::new(state);
    write_str(value, &mut out)?;
    Ok(out.text)
}

/// jinja2's `join`, which writes items as Python does.
fn join(
    state: &State,
    value: &Value,
    separator: Option<&str>,
    options: Kwargs,
) -> Result<String, Error> {
    let attribute: Option<String> = options.get("attribute")?;
    let named: Option<String> = options.get("d")?;
    options.assert_all_used()?;
    let separator = separator.map(str::to_owned).or(named).unwrap_or_default();
    let mut out = PaidText::new(state);
    if value.is_undefined() {
        return Ok(out.text);
    }
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            out.text.push_str(&separator);
        }
        let item = match &attribute {
            Some(name) => item.get_attr(name)?,
            None => item,
        };
        write_str(&item, &mut out)?;
    }
    Ok(out.text)
}

/// Methods of Python's `str`, `list` and `dict`: those of minijinja's own list, and the few that it lacks.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let texts = || {
        args.iter()
            .map(|arg| arg.as_str())
            .collect::<Option<Vec<_>>>()
    };
    let list = |parts: [&str; 3]| Value::from(parts.map(Value::from).to_vec());
    match (value.as_str(), name, texts().as_deref()) {
        (Some(text), "removeprefix", Some([prefix])) => {
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        (Some(text), "removesuffix", Some([suffix])) => {
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        (Some(text), "partition", Some([separator])) if !separator.is_empty() => {
            let (head, tail) = text
                .split_once(separator)
                .map_or((text, None), |(a, b)| (a, Some(b)));
            Ok(list([
                head,
                tail.map_or("", |_| separator),
                tail.unwrap_or(""),
            ]))
        }
        (Some(text), "rpartition", Some([separator])) if !separator.is_empty() => {
            let (head, tail) = text
                .rsplit_once(separator)
                .map_or((None, text), |(a, b)| (Some(a), b));
            Ok(list([
                head.unwrap_or(""),
                head.map_or("", |_| separator),
                tail,
            ]))
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}
