//! From a conversation to token ids, without letting anybody but the template write control tokens.
//!
//! A rendered template is one text in which `<|im_end|>` may come from the template or from a user who typed it.
//! To tell them apart, a mark is put into every control token's name that occurs in the request, behind its first
//! character, before rendering. The names that the template writes are then the only ones that read as control
//! tokens; the marks are taken out of the text between them before it is encoded. The mark is a Unicode noncharacter
//! (U+FDD0 to U+FDEF: "not for interchange") that does not occur in the request.

use crate::template::ChatRequest;
use crate::tokenizer::Tokenizer;
use crate::{Message, Special, TextError};
use foredraft_common::TokenId;
use serde_json::{Map, Value};

impl Tokenizer {
    /// The token ids of a conversation: the chat template rendered and encoded, with BOS if the vocabulary wants one.
    /// Control tokens that are spelled out in messages, tools or extra variables are text.
    ///
    /// # Errors
    /// [`TextError::NoTemplate`], and as [`crate::ChatTemplate::render`] and [`Tokenizer::encode`].
    pub fn encode_chat(&self, request: &ChatRequest) -> Result<Vec<TokenId>, TextError> {
        let template = self.chat_template().ok_or(TextError::NoTemplate)?;
        let names: Vec<&str> = self.control_names().collect();
        let mut strings = 0usize;
        each_string(request, &mut |text| {
            strings += usize::from(names.iter().any(|name| text.contains(name)))
        });
        if strings == 0 {
            return self.encode_prompt(&template.render(request)?, Special::Parse);
        }
        let mark = unused_mark(request).ok_or_else(|| {
            TextError::Encode(
                "the conversation contains all 32 noncharacters U+FDD0 to U+FDEF".into(),
            )
        })?;
        let text = template.render(&marked(request, &names, mark))?;
        let ids = self.encode_marked(&text, mark)?;
        Ok(self.with_bos(ids))
    }
}

/// `request` with the mark in all `names`.
fn marked(request: &ChatRequest, names: &[&str], mark: char) -> ChatRequest {
    let names: Vec<(&str, String)> = names
        .iter()
        .filter_map(|name| {
            let mut characters = name.chars();
            let first = characters.next()?;
            Some((*name, format!("{first}{mark}{}", characters.as_str())))
        })
        .collect();
    let change = |text: &str| {
        let mut text = text.to_owned();
        for (name, marked) in &names {
            if text.contains(name) {
                text = text.replace(name, marked);
            }
        }
        text
    };
    ChatRequest {
        messages: request
            .messages
            .iter()
            .map(|message| Message {
                role: change(&message.role),
                content: map_value(&message.content, &change),
                fields: map_object(&message.fields, &change),
            })
            .collect(),
        tools: request
            .tools
            .as_ref()
            .map(|tools| map_value(tools, &change)),
        extra: map_object(&request.extra, &change),
        ..request.clone()
    }
}

fn map_value(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => items.iter().map(|item| map_value(item, change)).collect(),
        Value::Object(map) => Value::Object(map_object(map, change)),
        other => other.clone(),
    }
}

fn map_object(map: &Map<String, Value>, change: &impl Fn(&str) -> String) -> Map<String, Value> {
    map.iter()
        .map(|(key, value)| (change(key), map_value(value, change)))
        .collect()
}

/// Shows every string of the request to `see`.
fn each_string(request: &ChatRequest, see: &mut impl FnMut(&str)) {
    for message in &request.messages {
        see(&message.role);
        each_in_value(&message.content, see);
        each_in_object(&message.fields, see);
    }
    if let Some(tools) = &request.tools {
        each_in_value(tools, see);
    }
    each_in_object(&request.extra, see);
}

fn each_in_value(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| each_in_value(item, see)),
        Value::Object(map) => each_in_object(map, see),
        _ => {}
    }
}

fn each_in_object(map: &Map<String, Value>, see: &mut impl FnMut(&str)) {
    for (key, value) in map {
        see(key);
        each_in_value(value, see);
    }
}

/// A noncharacter that occurs nowhere in the request.
fn unused_mark(request: &ChatRequest) -> Option<char> {
    ('\u{FDD0}'..='\u{FDEF}').find(|&mark| {
        let mut used = false;
        each_string(request, &mut |text| used |= text.contains(mark));
        !used
    })
}
