//! The messages of a conversation, from the API's form to the chat template's.

use foredraft_text::Message;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::error::ApiError;

/// A message.
#[derive(Debug, ToSchema)]
#[schema(as = Message)]
#[allow(dead_code)] // for the description only
pub(crate) struct MessageSchema {
    /// `system`, `developer`, `user`, `assistant`, `tool`, or what else the model's template knows.
    #[schema(min_length = 1)]
    role: String,
    /// Its text.
    content: Option<ContentSchema>,
}

/// A text, or a list of parts.
#[derive(Debug, ToSchema)]
#[schema(as = Content)]
#[serde(untagged)]
#[allow(dead_code)] // for the description only
enum ContentSchema {
    /// A text.
    Text(String),
    /// Parts, joined by line breaks.
    Parts(Vec<PartSchema>),
}

/// A part of a message.
#[derive(Debug, ToSchema)]
#[schema(as = Part)]
#[allow(dead_code)] // for the description only
struct PartSchema {
    /// `text`: this version reads nothing else.
    #[schema(pattern = "^text$")]
    r#type: String,
    /// The text.
    text: String,
}

/// Reads a list of messages.
///
/// # Errors
/// 400, naming the message that is none.
pub(super) fn read(messages: &Value) -> Result<Vec<Message>, ApiError> {
    match messages {
        Value::Array(messages) if !messages.is_empty() => messages
            .iter()
            .enumerate()
            .map(|(i, message)| one(message, &format!("messages[{i}]")))
            .collect(),
        _ => Err(ApiError::invalid(
            "messages",
            "messages must be a list of at least one message",
        )),
    }
}

fn one(message: &Value, at: &str) -> Result<Message, ApiError> {
    let Value::Object(fields) = message else {
        return Err(ApiError::invalid(
            at,
            format!("{at} is no object: a message has a role and a content"),
        ));
    };
    let mut fields: Map<String, Value> = fields.clone();
    let role = match fields.shift_remove("role") {
        Some(Value::String(role)) if !role.is_empty() => role,
        _ => {
            return Err(ApiError::invalid(
                format!("{at}.role"),
                format!("{at}.role must be a text such as \"user\""),
            ));
        }
    };
    let content = fields.shift_remove("content").unwrap_or(Value::Null);
    let content = match content {
        // What only calls tools says nothing.
        Value::Null if role == "assistant" => Value::Null,
        Value::String(text) => Value::String(text),
        Value::Array(parts) => Value::String(join(&parts, at)?),
        _ => {
            return Err(ApiError::invalid(
                format!("{at}.content"),
                format!("{at}.content must be a text, or a list of text parts"),
            ));
        }
    };
    // OpenAI's newer name; templates know the older one.
    let role = match role.as_str() {
        "developer" => "system".to_owned(),
        _ => role,
    };
    Ok(Message {
        role,
        content,
        fields,
    })
}

/// Most templates read texts only, so parts become one.
fn join(parts: &[Value], at: &str) -> Result<String, ApiError> {
    let texts = parts.iter().enumerate().map(|(i, part)| {
        let at = format!("{at}.content[{i}]");
        match (&part["type"], &part["text"]) {
            (kind, Value::String(text)) if kind == "text" => Ok(text.as_str()),
            (kind, _) if kind == "text" => Err(ApiError::invalid(
                format!("{at}.text"),
                format!("{at}.text must be a text"),
            )),
            _ => Err(ApiError::unsupported(
                format!("{at}.type"),
                format!("{at} is no text: this model reads parts of the type \"text\" only"),
            )),
        }
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wrong(messages: Value) -> String {
        let error = read(&messages).expect_err("must be refused");
        error.detail.param.expect("a field")
    }

    #[test]
    fn messages_become_the_templates() {
        let messages = read(&json!([
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "x"},
            {"role": "assistant", "tool_calls": []},
        ]))
        .expect("a conversation");
        assert_eq!(messages[0], Message::system("Be brief."));
        assert_eq!(messages[1].content, "a\nb");
        assert_eq!(messages[1].fields["name"], "x");
        assert_eq!(messages[2].content, Value::Null);
    }

    #[test]
    fn the_message_that_is_wrong_is_named() {
        assert_eq!(wrong(json!([])), "messages");
        assert_eq!(wrong(json!("hi")), "messages");
        assert_eq!(wrong(json!(["hi"])), "messages[0]");
        assert_eq!(wrong(json!([{"content": "x"}])), "messages[0].role");
        let user = |content: Value| wrong(json!([{"role": "user", "content": content}]));
        assert_eq!(user(Value::Null), "messages[0].content");
        assert_eq!(user(json!(5)), "messages[0].content");
        assert_eq!(
            user(json!([{"type": "text"}])),
            "messages[0].content[0].text"
        );
        let image = json!([{"type": "image_url", "image_url": {"url": "x"}}]);
        assert_eq!(user(image), "messages[0].content[0].type");
    }
}
