//! The prompts of a comparison: lines of JSON from a file, or a few that are built in.

use std::path::Path;

use foredraft::common::TokenId;
use foredraft::text::{ChatRequest, Message, Special, TextError, Tokenizer};
use serde_json::Value;

use crate::exit::Exit;

/// Half of them ask for text that the prompt has already, half for text that it has not.
const BUILT_IN: [&str; 4] = [
    "Rename the function `area` to `surface` and return the complete file, with no other change.\n\n```python\n\
     def area(width, height):\n    if width < 0 or height < 0:\n        raise ValueError(\"negative\")\n    \
     return width * height\n\n\ndef total(rooms):\n    return sum(area(width, height) for width, height in rooms)\n```",
    "Why is the sky blue, and why is it red in the evening?",
    "Repeat the list, sorted by name: Peru, Chad, Oman, Fiji, Cuba, Iran, Mali, Laos, Togo, Niue.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
];

/// The texts: the first `count` of the file, or the built-in ones.
///
/// # Errors
/// When the file cannot be read, or a line is no prompt.
pub(super) fn read(path: Option<&Path>, count: usize) -> Result<Vec<String>, Exit> {
    let Some(path) = path else {
        return Ok(BUILT_IN
            .iter()
            .take(count)
            .map(ToString::to_string)
            .collect());
    };
    let bytes = std::fs::read(path).map_err(|error| {
        Exit::input(anyhow::Error::new(error).context(format!("cannot read {}", path.display())))
    })?;
    let file = String::from_utf8(bytes).map_err(|_| {
        Exit::input(anyhow::anyhow!(
            "{} is not UTF-8 text: --prompts takes lines of JSON (unpack a .gz file first)",
            path.display()
        ))
    })?;
    let lines = file.lines().zip(1..);
    let lines = lines
        .filter(|(line, _)| !line.trim().is_empty())
        .take(count);
    let prompt = |(line, number)| {
        prompt_of(line).ok_or_else(|| {
            Exit::input(anyhow::anyhow!(
                "{} line {number} is no prompt: write a JSON object with \"prompt\": \"..\" or \"turns\": [\"..\"]",
                path.display()
            ))
        })
    };
    let prompts = lines.map(prompt).collect::<Result<Vec<String>, Exit>>()?;
    if prompts.is_empty() {
        return Err(Exit::input(anyhow::anyhow!(
            "{} holds no prompt",
            path.display()
        )));
    }
    Ok(prompts)
}

/// The text of a line: what HumanEval calls `prompt`, or the first of the `turns` of MT-Bench and its kin.
fn prompt_of(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = value.get("prompt").or_else(|| value.get("turns")?.get(0))?;
    let text = text.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// The text as a message, or as it is where that is asked for or the model knows no messages.
pub(super) fn tokens(
    tokenizer: &Tokenizer,
    text: &str,
    raw: bool,
) -> Result<Vec<TokenId>, TextError> {
    if raw || tokenizer.chat_template().is_none() {
        return tokenizer.encode_prompt(text, Special::Parse);
    }
    tokenizer.encode_chat(&ChatRequest::new(vec![Message::user(text)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_lines_are_known_and_others_are_not() {
        let human_eval =
            r#"{"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f"}"#;
        assert_eq!(prompt_of(human_eval).as_deref(), Some("def f():\n"));
        let mt_bench = r#"{"question_id": 81, "turns": ["First.", "Second."]}"#;
        assert_eq!(prompt_of(mt_bench).as_deref(), Some("First."));
        for wrong in [
            "",
            "{}",
            "[]",
            "text",
            r#"{"turns": []}"#,
            r#"{"prompt": 3}"#,
            r#"{"prompt": ""}"#,
        ] {
            assert_eq!(prompt_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_file_is_read_up_to_the_count_and_its_faults_are_told_by_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let read_of = |text: &str, count| {
            std::fs::write(file.path(), text).expect("written");
            read(Some(file.path()), count)
        };
        let two = "{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\"}\n";
        assert_eq!(read_of(two, 9).expect("prompts"), ["a", "b"]);
        assert_eq!(read_of(two, 1).expect("prompts"), ["a"]);
        let error = read_of("{\"prompt\": \"a\"}\n{\"promt\": \"b\"}", 9).expect_err("no prompt");
        assert_eq!(error.code(), 2);
        assert!(format!("{error:?}").contains("line 2"), "{error:?}");
        assert_eq!(read_of("\n", 9).expect_err("empty").code(), 2);
        std::fs::write(file.path(), b"\x1f\x8b\xff").expect("written");
        let error = read(Some(file.path()), 9).expect_err("packed");
        assert!(format!("{error:?}").contains("unpack"), "{error:?}");
        assert_eq!(read(None, 2).expect("built in").len(), 2);
    }
}
