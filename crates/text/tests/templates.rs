//! Chat templates against Python's jinja2 (`tools/render_templates.py` wrote the expectations).

mod common;

use common::{data, smollm2};
use foredraft_text::{ChatRequest, ChatTemplate, Message, TextError};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::HashMap;

#[derive(Deserialize, Clone)]
struct Request {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Option<Value>,
    #[serde(default)]
    add_generation_prompt: bool,
    #[serde(default)]
    extra: Map<String, Value>,
}

impl Request {
    fn at(&self, now: i64) -> ChatRequest {
        ChatRequest {
            messages: self.messages.clone(),
            tools: self.tools.clone(),
            add_generation_prompt: self.add_generation_prompt,
            extra: self.extra.clone(),
            unix_seconds: Some(now),
        }
    }
}

/// What Python made of a template: a text, what `raise_exception` said, or another failure.
#[derive(Deserialize, Debug)]
struct Expected {
    text: Option<String>,
    raised: Option<String>,
    failed: Option<String>,
}

/// The one place where minijinja is more lenient: to iterate over none is to iterate over nothing. (So a template for
/// tools renders without tools.)
const ITERATES_OVER_NONE: &str = "TypeError: 'NoneType' object is not iterable";

impl Expected {
    /// `None` if `found` is the same, otherwise the difference in words.
    fn differs(&self, found: Result<String, TextError>) -> Option<String> {
        let same = match (self, &found) {
            (
                Self {
                    text: Some(text), ..
                },
                Ok(found),
            ) => text == found,
            (
                Self {
                    raised: Some(message),
                    ..
                },
                Err(TextError::TemplateRefused(found)),
            ) => message == found,
            (
                Self {
                    failed: Some(_), ..
                },
                Err(TextError::TemplateFailed(_) | TextError::TemplateSyntax(_)),
            ) => true,
            (
                Self {
                    failed: Some(error),
                    ..
                },
                Ok(_),
            ) => error == ITERATES_OVER_NONE,
            _ => false,
        };
        (!same).then(|| format!("expected {self:?}\n   found {found:?}"))
    }
}

fn template(source: String) -> ChatTemplate {
    ChatTemplate::new(source, None, "<s>".into(), "</s>".into())
}

fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    serde_json::from_slice(&std::fs::read(data(name)).expect("expectations")).expect("JSON")
}

#[test]
fn the_templates_of_models_render_as_python_does() {
    #[derive(Deserialize)]
    struct Case {
        template: String,
        conversation: String,
        #[serde(flatten)]
        expected: Expected,
    }
    #[derive(Deserialize)]
    struct File {
        now: i64,
        conversations: HashMap<String, Request>,
        rendered: Vec<Case>,
    }
    let file: File = read("templates/rendered.json");
    assert_eq!(file.rendered.len(), 9 * 24);
    let mut differences = vec![];
    for Case {
        template: name,
        conversation,
        expected,
    } in &file.rendered
    {
        let source =
            std::fs::read_to_string(data(&format!("templates/{name}.jinja"))).expect("a template");
        let found = template(source).render(&file.conversations[conversation].at(file.now));
        if let Some(difference) = expected.differs(found) {
            differences.push(format!("{name}, {conversation}:\n{difference}"));
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

#[test]
fn jinja_means_what_it_means_in_python() {
    #[derive(Deserialize)]
    struct Snippet {
        source: String,
        #[serde(flatten)]
        expected: Expected,
    }
    #[derive(Deserialize)]
    struct File {
        now: i64,
        request: Request,
        snippets: Vec<Snippet>,
    }
    let file: File = read("templates/semantics.json");
    let mut differences = vec![];
    for Snippet { source, expected } in &file.snippets {
        let found = template(source.clone()).render(&file.request.at(file.now));
        if let Some(difference) = expected.differs(found) {
            differences.push(format!("{source}\n{difference}"));
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        differences.join("\n\n")
    );
}

#[test]
fn smollm2_answers_with_its_default_system_prompt() {
    let tokenizer = smollm2();
    let template = tokenizer.chat_template().expect("SmolLM2 has one");
    let prompt = template
        .render(&ChatRequest::new(vec![Message::user("Hi")]))
        .expect("renders");
    assert_eq!(
        prompt,
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    );
}
