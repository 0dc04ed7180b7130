//! From tokens back to text, one token at a time, in whole characters.
//!
//! A token may end in the middle of a UTF-8 character, and a speculative step may deliver any number of tokens at
//! once. The detokenizer keeps the unfinished bytes back until the character is complete or known to be broken.
//! **Invariant:** everything emitted, in order, equals `String::from_utf8_lossy` of all bytes (each maximal invalid
//! sequence is one U+FFFD), however the bytes were split into tokens.
//!
//! SentencePiece writes a text's first word with a space before it ("dummy prefix"); [`Detokenizer::new`] takes
//! that one space away again, as llama2.c does after BOS. A detokenizer that continues a text must keep it:
//! [`Detokenizer::resume`].

use std::ops::Deref;

use crate::Tokenizer;
use foredraft_common::TokenId;

/// Turns token ids into text incrementally. Never emits half a character.
///
/// `T` is how it holds its tokenizer: `&Tokenizer`, or an `Arc` where it must not borrow.
#[derive(Debug)]
pub struct Detokenizer<T> {
    tokenizer: T,
    text: Decoder,
}

/// Turns bytes into text.
#[derive(Debug, Default)]
struct Decoder {
    /// Bytes at the end of what came in that may still become a character: at most 3 between two calls.
    pending: Vec<u8>,
    /// What the last call emitted.
    emitted: String,
    /// The next byte is the first of the text, and a space there is SentencePiece's own.
    drop_leading_space: bool,
}

impl<T: Deref<Target = Tokenizer>> Detokenizer<T> {
    /// A detokenizer at the beginning of a text: nothing, or only BOS, came before. With a vocabulary that
    /// prefixes texts with a space it drops one leading space.
    pub fn new(tokenizer: T) -> Self {
        let text = Decoder {
            drop_leading_space: tokenizer.adds_space_prefix(),
            ..Decoder::default()
        };
        Self { tokenizer, text }
    }

    /// A detokenizer that continues a text (a completion of a prompt): it drops nothing.
    pub fn resume(tokenizer: T) -> Self {
        let text = Decoder::default();
        Self { tokenizer, text }
    }

    /// Takes one token and returns the characters that it completes; empty while a character is unfinished, and
    /// for control tokens and ids outside the vocabulary.
    pub fn push(&mut self, id: TokenId) -> &str {
        self.text.push(self.tokenizer.token_bytes(id))
    }

    /// The same for bytes that are no token's.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> &str {
        self.text.push(bytes)
    }

    /// Whether bytes of an unfinished character are being held back.
    pub fn is_holding(&self) -> bool {
        !self.text.pending.is_empty()
    }

    /// Ends the text: an unfinished character becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.text.pending);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

impl Decoder {
    fn push(&mut self, mut bytes: &[u8]) -> &str {
        self.emitted.clear();
        if self.drop_leading_space && !bytes.is_empty() {
            self.drop_leading_space = false;
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.pending.extend_from_slice(bytes);
        let kept = decode_complete(&self.pending, &mut self.emitted);
        self.pending.drain(..self.pending.len() - kept);
        &self.emitted
    }
}

/// Appends to `out` all of `bytes` that is decided, and returns how many bytes at the end are not: the start of a
/// character whose rest may still come.
fn decode_complete(bytes: &[u8], out: &mut String) -> usize {
    let mut rest = bytes;
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(text) => {
                out.push_str(text);
                return 0;
            }
            Err(error) => error,
        };
        let (valid, after) = rest.split_at(error.valid_up_to());
        out.push_str(std::str::from_utf8(valid).unwrap_or_default());
        match error.error_len() {
            None => return after.len(),
            Some(invalid) => {
                out.push(char::REPLACEMENT_CHARACTER);
                rest = after.get(invalid..).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_in_chunks(chunks: &[&[u8]]) -> String {
        let tokenizer = Tokenizer::for_tests();
        let mut detokenizer = Detokenizer::resume(&tokenizer);
        let mut text = String::new();
        for chunk in chunks {
            text.push_str(detokenizer.push_bytes(chunk));
        }
        text.push_str(&detokenizer.finish());
        text
    }

    /// Splits `bytes` after each position whose bit in `cuts` is set.
    fn chunks<'b>(bytes: &'b [u8], cuts: &[bool]) -> Vec<&'b [u8]> {
        let mut parts = vec![];
        let mut start = 0;
        for (i, cut) in cuts.iter().enumerate().take(bytes.len()) {
            if *cut {
                parts.push(&bytes[start..i]);
                start = i;
            }
        }
        parts.push(&bytes[start..]);
        parts
    }

    /// A failure that users of other engines met: "a multi-byte character cut in two by an uneven burst".
    #[test]
    fn a_multi_byte_character_cut_in_two_by_an_uneven_burst() {
        let tokenizer = Tokenizer::for_tests();
        let mut detokenizer = Detokenizer::resume(&tokenizer);
        let llama = "🦙".as_bytes();
        assert_eq!(detokenizer.push_bytes(&llama[..1]), "");
        assert!(detokenizer.is_holding());
        assert_eq!(detokenizer.push_bytes(&llama[1..3]), "");
        // The burst ends the llama and begins an é, which the next one ends.
        assert_eq!(detokenizer.push_bytes(&[llama[3], b'!', 0xC3]), "🦙!");
        assert_eq!(detokenizer.push_bytes(&[0xA9]), "é");
        assert!(!detokenizer.is_holding());
        assert_eq!(detokenizer.finish(), "");
    }

    #[test]
    fn an_unfinished_character_ends_as_a_replacement_character() {
        assert_eq!(
            decode_in_chunks(&[b"ab", &[0xF0, 0x9F], &[0xA6]]),
            "ab\u{FFFD}"
        );
        assert_eq!(
            decode_in_chunks(&[&[0xE2], &[0x28], &[0xA1]]),
            "\u{FFFD}(\u{FFFD}"
        );
    }

    /// Texts whose characters are long, join others, or run from right to left.
    const HARD: [&str; 6] = [
        "👩‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇺🇳",
        "مرحبا بالعالم — كيف الحال؟",
        "e\u{301}a\u{30A}\u{327} Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞",
        "שלום עולם 123 abc \u{200F}\u{202B}x\u{202C}",
        "កាន់តែពិសេសអាចខលចេញ 我想在apple工作1314151天～",
        "\u{FEFF}\u{0}\u{7F}\u{80}\u{7FF}\u{800}\u{FFFF}\u{10000}\u{10FFFF}",
    ];

    proptest! {
        #[test]
        fn any_split_of_any_text_gives_the_text(which in 0..HARD.len(), cuts in prop::collection::vec(any::<bool>(), 400)) {
            let text = HARD[which];
            let tokenizer = Tokenizer::for_tests();
            let mut detokenizer = Detokenizer::resume(&tokenizer);
            let mut shown = String::new();
            for chunk in chunks(text.as_bytes(), &cuts) {
                shown.push_str(detokenizer.push_bytes(chunk));
                prop_assert!(text.starts_with(&shown), "half a character was shown");
            }
            prop_assert_eq!(detokenizer.finish(), "");
            prop_assert_eq!(shown, text);
        }

        #[test]
        fn any_split_of_any_bytes_gives_their_lossy_decoding(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0x80..=0xBFu8, 0xC0..=0xFFu8], 0..60),
            cuts in prop::collection::vec(any::<bool>(), 60),
        ) {
            prop_assert_eq!(decode_in_chunks(&chunks(&bytes, &cuts)), String::from_utf8_lossy(&bytes));
        }
    }
}
