//! From what the user gives to the tokens that the model reads.

use std::io::Read;

use foredraft::common::TokenId;
use foredraft::text::{ChatRequest, Message, Special, TextError, Tokenizer};

use crate::exit::Exit;

/// More than any context holds.
const MAX_STDIN_BYTES: u64 = 64 << 20;

/// The prompt from the command line, or standard input for `-` and for none.
pub(super) fn read(argument: Option<&str>) -> Result<String, Exit> {
    match argument {
        Some(text) if text != "-" => Ok(text.to_owned()),
        _ => read_from(std::io::stdin().lock()),
    }
}

fn read_from(input: impl Read) -> Result<String, Exit> {
    let mut bytes = Vec::new();
    let read = input.take(MAX_STDIN_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        Exit::failed(anyhow::Error::new(error).context("cannot read standard input"))
    })?;
    if bytes.len() as u64 > MAX_STDIN_BYTES {
        return Err(Exit::input(anyhow::anyhow!(
            "standard input is longer than {} MiB: no context holds such a prompt",
            MAX_STDIN_BYTES >> 20
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        Exit::input(anyhow::anyhow!(
            "standard input is not UTF-8 text (byte {} is wrong): convert it first, for example with iconv",
            error.utf8_error().valid_up_to()
        ))
    })
}

/// The prompt as it is; special tokens that it names are special.
pub(super) fn raw(tokenizer: &Tokenizer, text: &str) -> Result<Vec<TokenId>, TextError> {
    tokenizer.encode_prompt(text, Special::Parse)
}

/// The conversation through the model's chat template. Only the template writes control tokens: what a message says
/// is text.
pub(super) fn rendered(tokenizer: &Tokenizer, messages: &[Message]) -> Result<Vec<TokenId>, Exit> {
    if tokenizer.chat_template().is_none() {
        return Err(Exit::input(anyhow::anyhow!(
            "this model has no chat template, so it knows no messages: give the prompt as it is, with --raw"
        )));
    }
    Ok(tokenizer.encode_chat(&ChatRequest::new(messages.to_vec()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_must_be_utf8() {
        assert_eq!(read_from(&b"caf\xc3\xa9\n"[..]).expect("a text"), "café\n");
        let error = read_from(&b"caf\xe9"[..]).expect_err("Latin-1");
        assert_eq!(error.code(), 2);
        assert!(format!("{error:?}").contains("byte 3"), "{error:?}");
    }

    #[test]
    fn endless_input_is_refused() {
        assert_eq!(
            read_from(std::io::repeat(b'x'))
                .expect_err("too long")
                .code(),
            2
        );
    }
}
