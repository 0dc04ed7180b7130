//! SentencePiece BPE with byte fallback, from the scores of a GGUF file.
//!
//! The algorithm (SentencePiece's `bpe_model.cc`, as llama.cpp and llama2.c restate it): cut the text into
//! characters; again and again join the two neighbours whose joined piece has the highest score, the leftmost pair
//! on ties; spell what is no piece in bytes. With a priority queue that takes O(n log n).
//!
//! **Why not the `tokenizers` crate:** its BPE ranks *pairs* of pieces, SentencePiece ranks the *joined piece*. A
//! merge list can be derived from the scores (the `transformers` converter does), but it orders the pairs that make the
//! same piece, and pairs of equal score, by other rules than "leftmost": in `aaaa` with the pieces `aa` and
//! `aaa`, the pairs `a`+`aa` and `aa`+`a` both make `aaa`, and the rank of the pair would decide where the text
//! decides here. Also, one whole text is one word to it, which defeats its cache.

use crate::TextError;
use crate::tokenizer::Special;
use foredraft_common::TokenId;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// What SentencePiece writes for a space (U+2581).
pub const SPACE_MARK: &str = "\u{2581}";

/// A piece that text can be merged to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) id: TokenId,
    pub(crate) score: f32,
    /// Only a step to longer pieces; in the end it is taken apart again.
    pub(crate) unused: bool,
}

/// A token that is recognised as a whole before merging.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) id: TokenId,
    /// Only with [`Special::Parse`].
    pub(crate) special: bool,
}

/// The encoder; [`crate::Tokenizer`] owns it.
#[derive(Debug)]
pub struct SentencePieceEncoder {
    pieces: HashMap<Box<str>, Piece>,
    bytes: Box<[Option<TokenId>; 256]>,
    unknown: Option<TokenId>,
    whole: HashMap<Box<str>, Whole>,
    /// The lengths of the whole tokens in bytes, longest first.
    whole_lengths: Vec<usize>,
    add_space_prefix: bool,
}

/// A run of the text that is one piece so far: `text[start..start + len]`, in a doubly linked list.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: usize,
    /// 0 once it was joined to its left neighbour.
    len: usize,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Two neighbours that could be joined. The greatest is the next to be: highest score, then leftmost.
#[derive(Debug, Clone, Copy)]
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Length of the joined piece; a pair with another length now is out of date.
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then_with(|| other.left.cmp(&self.left))
    }
}
impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Pair {}

/// The pieces that unused pieces were joined from, by their place in the text: (start, len) -> length of the left.
type Seams = HashMap<(usize, usize), usize>;

impl SentencePieceEncoder {
    pub(crate) fn new(
        pieces: HashMap<Box<str>, Piece>,
        bytes: Box<[Option<TokenId>; 256]>,
        unknown: Option<TokenId>,
        whole: HashMap<Box<str>, Whole>,
        add_space_prefix: bool,
    ) -> Self {
        let mut whole_lengths: Vec<usize> = whole.keys().map(|text| text.len()).collect();
        whole_lengths.sort_unstable_by(|a, b| b.cmp(a));
        whole_lengths.dedup();
        Self {
            pieces,
            bytes,
            unknown,
            whole,
            whole_lengths,
            add_space_prefix,
        }
    }

    /// See [`crate::Tokenizer::encode`]. The space prefix is put before the text and after every whole token, as
    /// llama.cpp does.
    pub(crate) fn encode(&self, text: &str, special: Special) -> Result<Vec<TokenId>, TextError> {
        self.encode_around_whole(text, special, |plain, ids| self.encode_plain(plain, ids))
    }

    /// See [`crate::Tokenizer::encode_marked`].
    pub(crate) fn encode_marked(&self, text: &str, mark: char) -> Result<Vec<TokenId>, TextError> {
        self.encode_around_whole(text, Special::Parse, |plain, ids| {
            self.encode_plain(&plain.replace(mark, ""), ids)
        })
    }

    /// Finds the whole tokens and leaves what lies between them to `encode_plain`.
    fn encode_around_whole(
        &self,
        text: &str,
        special: Special,
        encode_plain: impl Fn(&str, &mut Vec<TokenId>) -> Result<(), TextError>,
    ) -> Result<Vec<TokenId>, TextError> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut start = 0; // of the text not encoded yet
        let mut skip_to = 0;
        for (at, _) in text.char_indices() {
            if at < skip_to {
                continue;
            }
            let Some((len, token)) = self.whole_at(&text[at..], special) else {
                continue;
            };
            encode_plain(&text[start..at], &mut ids)?;
            ids.push(token);
            start = at + len;
            skip_to = start;
        }
        encode_plain(&text[start..], &mut ids)?;
        Ok(ids)
    }

    /// The longest whole token that `text` begins with.
    fn whole_at(&self, text: &str, special: Special) -> Option<(usize, TokenId)> {
        self.whole_lengths.iter().find_map(|&len| {
            let whole = self.whole.get(text.get(..len)?)?;
            (special == Special::Parse || !whole.special).then_some((len, whole.id))
        })
    }

    /// Encodes text without whole tokens.
    fn encode_plain(&self, text: &str, ids: &mut Vec<TokenId>) -> Result<(), TextError> {
        if text.is_empty() {
            return Ok(());
        }
        let mut escaped = String::with_capacity(text.len() + text.len() / 2);
        if self.add_space_prefix {
            escaped.push_str(SPACE_MARK);
        }
        for (i, part) in text.split(' ').enumerate() {
            if i > 0 {
                escaped.push_str(SPACE_MARK);
            }
            escaped.push_str(part);
        }
        let (symbols, seams) = self.merge(&escaped);
        for symbol in symbols {
            self.spell(&escaped, symbol.start, symbol.len, &seams, ids)?;
        }
        Ok(())
    }

    /// Joins neighbours until no joined pair is a piece; the symbols left over, in order.
    fn merge(&self, text: &str) -> (Vec<Symbol>, Seams) {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, character))| Symbol {
                start,
                len: character.len_utf8(),
                previous: i.checked_sub(1),
                next: Some(i + 1),
            })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = None;
        }
        let mut queue = BinaryHeap::with_capacity(symbols.len());
        let mut seams = Seams::new();
        for right in 1..symbols.len() {
            queue.extend(self.pair(text, &symbols, right - 1, right));
        }
        while let Some(pair) = queue.pop() {
            let (left, right) = (symbols[pair.left], symbols[pair.right]);
            let current = left.len > 0 && right.len > 0 && left.len + right.len == pair.len;
            if !current || left.next != Some(pair.right) {
                continue;
            }
            let joined = &text[left.start..left.start + pair.len];
            if self.pieces.get(joined).is_some_and(|piece| piece.unused) {
                seams.insert((left.start, pair.len), left.len);
            }
            symbols[pair.left].len = pair.len;
            symbols[pair.left].next = right.next;
            symbols[pair.right].len = 0;
            if let Some(after) = right.next {
                symbols[after].previous = Some(pair.left);
                queue.extend(self.pair(text, &symbols, pair.left, after));
            }
            if let Some(before) = left.previous {
                queue.extend(self.pair(text, &symbols, before, pair.left));
            }
        }
        symbols.retain(|symbol| symbol.len > 0);
        (symbols, seams)
    }

    /// The pair of two neighbours, if joined they are a piece.
    fn pair(&self, text: &str, symbols: &[Symbol], left: usize, right: usize) -> Option<Pair> {
        let (a, b) = (symbols.get(left)?, symbols.get(right)?);
        let len = a.len + b.len;
        let piece = self.pieces.get(text.get(a.start..a.start + len)?)?;
        Some(Pair {
            score: piece.score,
            left,
            right,
            len,
        })
    }

    /// Writes the ids of one symbol: its piece, or its parts when the piece is unused, or its bytes.
    fn spell(
        &self,
        text: &str,
        start: usize,
        len: usize,
        seams: &Seams,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), TextError> {
        let mut todo = vec![(start, len)];
        while let Some((start, len)) = todo.pop() {
            let part = text.get(start..start + len).unwrap_or_default();
            match (self.pieces.get(part), seams.get(&(start, len))) {
                (Some(piece), _) if !piece.unused => ids.push(piece.id),
                (_, Some(&left)) => {
                    todo.push((start + left, len - left));
                    todo.push((start, left));
                }
                _ => self.spell_bytes(part, ids)?,
            }
        }
        Ok(())
    }

    /// Byte fallback; without byte tokens the unknown-token, one for a whole run of unknown text.
    fn spell_bytes(&self, part: &str, ids: &mut Vec<TokenId>) -> Result<(), TextError> {
        for character in part.chars() {
            let mut buffer = [0; 4];
            let utf8 = character.encode_utf8(&mut buffer).as_bytes();
            let tokens = utf8
                .iter()
                .map(|&byte| self.bytes.get(usize::from(byte)).copied().flatten());
            if let Some(tokens) = tokens.collect::<Option<Vec<_>>>() {
                ids.extend(tokens);
            } else if let Some(unknown) = self.unknown {
                if ids.last() != Some(&unknown) {
                    ids.push(unknown);
                }
            } else {
                let byte = utf8.first().copied().unwrap_or_default();
                return Err(TextError::NoToken { character, byte });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{GgufVocabulary, Special, TokenId, Tokenizer};

    /// `<unk>` 0, `<s>` 1, `</s>` 2, byte tokens 3..259, then the pieces with their scores from 259 on.
    fn vocabulary(pieces: &[(&str, f32)]) -> GgufVocabulary {
        let mut v = GgufVocabulary {
            model: "llama".into(),
            tokens: vec!["<unk>".into(), "<s>".into(), "</s>".into()],
            types: vec![2, 3, 3],
            scores: vec![0.0; 3],
            bos: Some(1),
            eos: Some(2),
            unk: Some(0),
            ..GgufVocabulary::default()
        };
        for byte in 0..=255u8 {
            v.tokens.push(format!("<0x{byte:02X}>"));
            v.types.push(6);
            v.scores.push(0.0);
        }
        for (piece, score) in pieces {
            v.tokens.push((*piece).into());
            v.types.push(1);
            v.scores.push(*score);
        }
        v
    }

    fn ids(v: GgufVocabulary, text: &str, special: Special) -> Vec<u32> {
        let tokenizer = Tokenizer::from_vocabulary(v).expect("valid vocabulary");
        let ids = tokenizer.encode(text, special).expect("encodes");
        ids.into_iter().map(|TokenId(id)| id).collect()
    }

    #[test]
    fn the_highest_score_is_joined_first_and_the_leftmost_on_ties() {
        // 259 a, 260 aa, 261 aaa. `aaaa`: every pair `aa` scores -1; leftmost first: aa|a|a -> aa|aa; then `aa`+`aa`
        // is no piece. With five: aa|aa|a -> the pair `aa`+`a` at the end makes `aaa`.
        let mut v = vocabulary(&[("a", -9.0), ("aa", -1.0), ("aaa", -2.0)]);
        v.add_space_prefix = false;
        assert_eq!(ids(v.clone(), "aaaa", Special::AsText), [260, 260]);
        assert_eq!(ids(v.clone(), "aaaaa", Special::AsText), [260, 261]);
        // A better score for `aaa` changes nothing until an `aa` exists, then it is joined at once, leftmost.
        v.scores[261] = -0.5;
        assert_eq!(ids(v, "aaaaa", Special::AsText), [261, 260]);
    }

    #[test]
    fn what_is_no_piece_is_spelled_in_bytes() {
        let v = vocabulary(&[("▁", -1.0), ("a", -2.0)]);
        assert_eq!(
            ids(v.clone(), "aé\n", Special::AsText),
            [259, 260, 3 + 0xC3, 3 + 0xA9, 3 + 0x0A]
        );
        assert_eq!(ids(v, "", Special::AsText), [0u32; 0]);
    }

    #[test]
    fn the_space_prefix_comes_at_the_start_and_after_control_tokens() {
        let v = vocabulary(&[("▁", -1.0), ("a", -2.0), ("▁a", -0.5)]);
        assert_eq!(ids(v.clone(), "a</s>a", Special::Parse), [261, 2, 261]);
        assert_eq!(ids(v.clone(), " a", Special::Parse), [259, 261]);
        // As text, `</s>` is four characters.
        let text = ids(v, "a</s>", Special::AsText);
        assert_eq!(
            text,
            [
                261,
                3 + b'<' as u32,
                3 + b'/' as u32,
                3 + b's' as u32,
                3 + b'>' as u32
            ]
        );
    }

    #[test]
    fn an_unused_piece_is_a_step_and_taken_apart_at_the_end() {
        let mut v = vocabulary(&[("a", -9.0), ("b", -9.0), ("ab", -1.0), ("abab", -2.0)]);
        v.add_space_prefix = false;
        v.types[261] = 5;
        assert_eq!(ids(v.clone(), "abab", Special::AsText), [262]);
        assert_eq!(ids(v, "aba", Special::AsText), [259, 260, 259]);
    }

    #[test]
    fn without_byte_tokens_unknown_text_is_one_unknown_token_or_an_error() {
        let mut v = vocabulary(&[]);
        v.tokens = vec!["<unk>".into(), "▁".into(), "a".into()];
        v.types = vec![2, 1, 1];
        v.scores = vec![0.0; 3];
        (v.bos, v.eos) = (None, None);
        assert_eq!(ids(v.clone(), "a中中a", Special::AsText), [1, 2, 0, 2]);
        v.unk = None;
        let error = Tokenizer::from_vocabulary(v)
            .expect("valid")
            .encode("中", Special::AsText);
        assert!(error.expect_err("no token").to_string().contains("'中'"));
    }
}
