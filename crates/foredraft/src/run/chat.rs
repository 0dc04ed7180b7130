//! A conversation in the terminal.

use foredraft::engine::FinishReason;
use foredraft::text::Message;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::{Session, prompt, report};
use crate::exit::Exit;
use crate::{interrupt, output};

const HELP: &str = "/clear forgets the conversation, /help shows this, /bye (or Ctrl-D) ends; \
                    Ctrl-C ends an answer; a line that ends with \\ goes on";

/// What a line of the user is.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Say(String),
    Clear,
    Help,
    Unknown(String),
    Nothing,
    End,
}

impl Line {
    fn parse(text: &str) -> Self {
        let trimmed = text.trim();
        match trimmed {
            "" => Line::Nothing,
            "/bye" | "/exit" | "/quit" => Line::End,
            "/clear" => Line::Clear,
            "/help" | "/?" => Line::Help,
            // A path or a comment is something to say; a single word after the slash is a slip.
            _ if trimmed.starts_with('/') && trimmed[1..].chars().all(char::is_alphabetic) => {
                Line::Unknown(trimmed.to_owned())
            }
            _ => Line::Say(text.to_owned()),
        }
    }
}

/// Chats until the user ends it.
pub(super) fn chat(session: &mut Session, system: Option<&str>, name: &str) -> Result<(), Exit> {
    let mut editor = DefaultEditor::new().map_err(Exit::failed)?;
    let beginning: Vec<Message> = system.into_iter().map(Message::system).collect();
    let mut messages = beginning.clone();
    output::stderr_line(&format!("{}: {HELP}", output::printable(name)));
    loop {
        let line = match read(&mut editor)? {
            Some(line) => line,
            None => return Ok(()),
        };
        match Line::parse(&line) {
            Line::Nothing => {}
            Line::End => return Ok(()),
            Line::Help => output::stderr_line(HELP),
            Line::Unknown(command) => output::stderr_line(&format!("no command {command}: {HELP}")),
            Line::Clear => {
                messages.clone_from(&beginning);
                output::stderr_line("a new conversation");
            }
            Line::Say(text) => {
                // Readline keeps history for this session only: what is said stays in memory.
                let _ = editor.add_history_entry(text.as_str());
                say(session, &mut messages, text)?;
            }
        }
    }
}

/// One turn. What cannot be answered is told, and the conversation is as before.
fn say(session: &mut Session, messages: &mut Vec<Message>, text: String) -> Result<(), Exit> {
    messages.push(Message::user(text));
    interrupt::begin_answer();
    let answer =
        prompt::rendered(&session.tokenizer, messages).and_then(|tokens| session.answer(tokens));
    match answer {
        Ok(completion) => {
            output::stderr_line(&report::summary(&completion));
            if completion.finish_reason == FinishReason::Context {
                output::stderr_line("the context is full: /clear begins a new conversation");
            }
            messages.push(Message::assistant(completion.text));
            Ok(())
        }
        Err(Exit::Input(error)) => {
            messages.pop();
            output::stderr_line(&format!(
                "{} (/clear begins a new conversation)",
                crate::exit::error_line(&error)
            ));
            Ok(())
        }
        Err(other) => Err(other),
    }
}

/// A line, joined with the next when it ends with a backslash; `None` at the end.
fn read(editor: &mut DefaultEditor) -> Result<Option<String>, Exit> {
    let mut text = String::new();
    loop {
        let mark = if text.is_empty() { ">>> " } else { "... " };
        match editor.readline(mark) {
            Ok(line) => match line.strip_suffix('\\') {
                Some(start) => {
                    text.push_str(start);
                    text.push('\n');
                }
                None => {
                    text.push_str(&line);
                    return Ok(Some(text));
                }
            },
            Err(ReadlineError::Eof) => return Ok(None),
            Err(ReadlineError::Interrupted) if text.is_empty() => return Err(Exit::Interrupted),
            Err(ReadlineError::Interrupted) => text.clear(),
            Err(error) => return Err(Exit::failed(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_begin_with_a_slash_and_everything_else_is_said() {
        assert_eq!(Line::parse("  /clear "), Line::Clear);
        assert_eq!(Line::parse("/bye"), Line::End);
        assert_eq!(Line::parse("/cler"), Line::Unknown("/cler".into()));
        assert_eq!(
            Line::parse("/etc/passwd is a file"),
            Line::Say("/etc/passwd is a file".into())
        );
        assert_eq!(Line::parse(" \t"), Line::Nothing);
        assert_eq!(Line::parse("hello "), Line::Say("hello ".into()));
    }
}
