//! Chat templates: a conversation becomes the prompt that a model was trained to answer.
//!
//! Templates are Jinja programs that models ship, written for Python's jinja2 as `transformers` sets it up
//! (`trim_blocks`, `lstrip_blocks`, a sandbox, a `tojson` without HTML escapes, `raise_exception`, `strftime_now`,
//! loop controls, the `generation` tag). minijinja runs them here; `environment` makes up the differences that
//! templates can see.
//!
//! A template comes from a stranger: its size, its steps and memory ([`MAX_TEMPLATE_BYTES`], [`MAX_FUEL`]) and its
//! recursion are bounded, it has no access to files or other templates, and what it raises is an error.

mod environment;
mod guard;
mod json;
mod python;
mod tags;
mod time;

use crate::TextError;
use environment::{MAIN, TOOL_USE};
pub use guard::MAX_TAG_BYTES;
use guard::on_own_stack;
use minijinja::Environment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A larger template is refused; the largest published ones have some 20 kB.
pub const MAX_TEMPLATE_BYTES: usize = 128 << 10;
/// The steps that a template may take for an empty conversation: about one instruction, or 64 bytes of data made.
/// (Published templates take some thousand.)
pub const BASE_FUEL: u64 = 100_000;
/// The steps that it may take in addition for each byte of the conversation (every value counts 16 bytes more).
pub const FUEL_PER_BYTE: u64 = 8;
/// The steps that it may take at most: some 128 MB of data.
pub const MAX_FUEL: u64 = 2_000_000;
/// The stack of the thread that compiles or renders: for expressions and values as deep as `guard` lets them be.
const STACK_BYTES: usize = 16 << 20;

/// One message of a conversation, in the form of the OpenAI API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`, or what else the template knows.
    pub role: String,
    /// Text, a list of parts, or null (an assistant that only called tools).
    #[serde(default)]
    pub content: Value,
    /// Everything else: `tool_calls`, `tool_call_id`, `name`, `reasoning_content`, ...
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl Message {
    /// A message of text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: Value::String(content.into()),
            fields: Map::new(),
        }
    }

    /// What the model is told beforehand.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// What a person says.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// What a chat template is rendered with.
#[derive(Debug, Clone, Default)]
pub struct ChatRequest {
    /// The conversation.
    pub messages: Vec<Message>,
    /// The tools that the model may call: a list of JSON schemas, as in the OpenAI API.
    pub tools: Option<Value>,
    /// End with the header of the assistant's turn, so that the model answers.
    pub add_generation_prompt: bool,
    /// More variables for the template (`enable_thinking`, `date_string`, `documents`, ...).
    pub extra: Map<String, Value>,
    /// The time that `strftime_now` tells, in seconds since 1970 (UTC); now, if not given.
    pub unix_seconds: Option<i64>,
}

impl ChatRequest {
    /// A conversation that the model should continue.
    pub fn new(messages: Vec<Message>) -> Self {
        Self {
            messages,
            add_generation_prompt: true,
            ..Self::default()
        }
    }

    /// A bound for the bytes of text in the request.
    fn size(&self) -> u64 {
        let messages = self.messages.iter().map(|message| {
            message.role.len() as u64 + json_size(&message.content) + map_size(&message.fields)
        });
        messages.sum::<u64>() + self.tools.as_ref().map_or(0, json_size) + map_size(&self.extra)
    }
}

fn map_size(map: &Map<String, Value>) -> u64 {
    map.iter()
        .map(|(key, value)| 16 + key.len() as u64 + json_size(value))
        .sum()
}

fn json_size(value: &Value) -> u64 {
    match value {
        Value::String(text) => 16 + text.len() as u64,
        Value::Array(items) => 16 + items.iter().map(json_size).sum::<u64>(),
        Value::Object(map) => 16 + map_size(map),
        _ => 16,
    }
}

/// A model's chat template, compiled. Rendering needs no lock and changes nothing.
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    /// The compiled template, or why it does not compile: a model with a bad template can still complete raw text.
    environment: Result<Environment<'static>, String>,
    has_tool_template: bool,
    bos_token: String,
    eos_token: String,
}

impl ChatTemplate {
    /// Compiles a template. `tool_use` is the model's second template for conversations with tools, if it has one;
    /// `bos_token` and `eos_token` are the texts of these tokens (empty if there are none). A template that does
    /// not compile says so in [`ChatTemplate::check`] and [`ChatTemplate::render`].
    pub fn new(
        source: String,
        tool_use: Option<String>,
        bos_token: String,
        eos_token: String,
    ) -> Self {
        Self {
            environment: on_own_stack(STACK_BYTES, || {
                environment::build(&source, tool_use.as_deref())
            })
            .and_then(|built| built),
            has_tool_template: tool_use.is_some(),
            source,
            bos_token,
            eos_token,
        }
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template compiles.
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`], also for a template that is too large.
    pub fn check(&self) -> Result<(), TextError> {
        self.compiled().map(drop)
    }

    fn compiled(&self) -> Result<&Environment<'static>, TextError> {
        self.environment
            .as_ref()
            .map_err(|problem| TextError::TemplateSyntax(problem.clone()))
    }

    /// The prompt for a conversation. Tokenize it with [`crate::Special::Parse`] (see also
    /// [`crate::Tokenizer::encode_chat`], which keeps users from writing control tokens).
    ///
    /// # Errors
    /// When the template does not compile, refuses the conversation ([`TextError::TemplateRefused`], the text is the
    /// template's own), runs out of its budget, or fails.
    pub fn render(&self, request: &ChatRequest) -> Result<String, TextError> {
        let mut environment = self.compiled()?.clone();
        let fuel = request
            .size()
            .saturating_mul(FUEL_PER_BYTE)
            .saturating_add(BASE_FUEL)
            .min(MAX_FUEL);
        environment.set_fuel(Some(fuel));
        environment::set_time(
            &mut environment,
            request.unix_seconds.unwrap_or_else(time::now),
        );
        let name = if self.has_tool_template && request.tools.is_some() {
            TOOL_USE
        } else {
            MAIN
        };
        let context = Context {
            messages: &request.messages,
            tools: request.tools.as_ref(),
            documents: None,
            add_generation_prompt: request.add_generation_prompt,
            bos_token: &self.bos_token,
            eos_token: &self.eos_token,
            extra: &request.extra,
        };
        let render = || {
            let template = environment.get_template(name)?;
            template.render(minijinja::value::Serde(&context))
        };
        let result = on_own_stack(STACK_BYTES, || {
            render().map_err(|error| environment::explain(&error, fuel))
        });
        result.unwrap_or_else(|problem| Err(TextError::TemplateFailed(problem)))
    }
}

/// The variables of a template, as `transformers` passes them.
#[derive(Serialize)]
struct Context<'a> {
    messages: &'a [Message],
    tools: Option<&'a Value>,
    documents: Option<&'a Value>,
    add_generation_prompt: bool,
    bos_token: &'a str,
    eos_token: &'a str,
    /// Last, so that a caller can override what comes before.
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}
