//! GPT-2's byte alphabet: each of the 256 bytes is written as one printable character.
//!
//! Bytes that are printable in Latin-1 (`!`..`~`, `¡`..`¬`, `®`..`ÿ`) stand for themselves; the other 68, in
//! order, are U+0100, U+0101, and so on. Source: `bytes_to_unicode` of OpenAI's GPT-2 `encoder.py`, restated.

/// The character that stands for `byte`.
pub(crate) fn byte_to_char(byte: u8) -> char {
    let code = match byte {
        0..=32 => 0x100 + u32::from(byte),
        33..=126 | 161..=172 | 174..=255 => u32::from(byte),
        127..=160 => 0x100 + 33 + u32::from(byte - 127),
        173 => 0x100 + 67,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that `character` stands for; `None` when it is outside the alphabet.
pub(crate) fn char_to_byte(character: char) -> Option<u8> {
    let code = character as u32;
    match code {
        33..=126 | 161..=172 | 174..=255 => u8::try_from(code).ok(),
        0x100..=0x120 => u8::try_from(code - 0x100).ok(),
        0x121..=0x142 => u8::try_from(code - 0x121 + 127).ok(),
        0x143 => Some(173),
        _ => None,
    }
}

/// The bytes of a token's name. A character outside the alphabet stands for its own UTF-8 (tokens that were
/// added after training are written plainly in some files).
pub(crate) fn decode_name(name: &str, out: &mut Vec<u8>) {
    for character in name.chars() {
        match char_to_byte(character) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Whether `byte` can occur in valid UTF-8: a vocabulary may lack the other thirteen without losing any text.
pub(crate) fn occurs_in_utf8(byte: u8) -> bool {
    !matches!(byte, 0xC0 | 0xC1 | 0xF5..=0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_a_bijection_with_the_published_landmarks() {
        for byte in 0..=255u8 {
            assert_eq!(char_to_byte(byte_to_char(byte)), Some(byte));
        }
        // Landmarks that every GPT-2 vocabulary shows: space, newline, tab, DEL, soft hyphen.
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(byte_to_char(b'\t'), 'ĉ');
        assert_eq!(byte_to_char(0x7F), 'ġ');
        assert_eq!(byte_to_char(0xAD), 'Ń');
        assert_eq!(char_to_byte('中'), None);
    }

    #[test]
    fn a_name_outside_the_alphabet_is_its_own_text() {
        let mut bytes = Vec::new();
        decode_name("ĠĠ中a", &mut bytes);
        assert_eq!(bytes, "  中a".as_bytes());
    }
}
