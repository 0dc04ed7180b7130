//! A vocabulary as GGUF stores it, as plain data, checked and made into a tokenizer.

use crate::byte_pair::{BytePairEncoder, WholeToken};
use crate::pretokenizer::{self, PreTokenizer};
use crate::sentencepiece::{Piece, SPACE_MARK, SentencePieceEncoder, Whole};
use crate::template::ChatTemplate;
use crate::token_table::{TokenKind, TokenTable, is_padding_name};
use crate::tokenizer::{Encoder, Tokenizer};
use crate::{TextError, byte_level};
use foredraft_common::TokenId;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tokenizers::models::bpe::Vocab;

/// The names of tokens that end an answer. Files often mark only one of them (`eos`), while templates end turns
/// with another. A token counts only if the file says that it is no ordinary text: `</s>` is also a tag of HTML.
/// (The families' own configurations; llama.cpp keeps a like list.)
pub(crate) const END_OF_TEXT_NAMES: [&str; 19] = [
    "</s>",
    "<eos>",
    "<|eos|>",
    "[EOS]",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_text>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|end_of_turn|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
];

/// The fields of `tokenizer.*` in a GGUF file, as plain data: what [`Tokenizer::from_vocabulary`] needs.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // the others are the ids of the tokens of these names
pub struct GgufVocabulary {
    /// `gpt2` or `llama`.
    pub model: String,
    /// The pre-tokenizer's name; only for `gpt2`.
    pub pre: Option<String>,
    /// The name of each token; the place is the id.
    pub tokens: Vec<String>,
    /// [`TokenKind`] of each token by number; empty: all are text, except those that the ids below name.
    pub types: Vec<i32>,
    /// The score of each token; only for `llama`.
    pub scores: Vec<f32>,
    /// `left right` of each merge, best first; only for `gpt2`.
    pub merges: Vec<String>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub unk: Option<u32>,
    pub pad: Option<u32>,
    /// More ids that end an answer (`eom`, and what else a file names).
    pub end_of_generation: Vec<u32>,
    /// Begin texts with BOS; `None`: as the family does.
    pub add_bos: Option<bool>,
    /// Put a space before the first word; only for `llama`.
    pub add_space_prefix: bool,
    pub chat_template: Option<String>,
    /// The template for conversations with tools, where it is another.
    pub tool_template: Option<String>,
}

impl Default for GgufVocabulary {
    fn default() -> Self {
        Self {
            model: String::new(),
            pre: None,
            tokens: Vec::new(),
            types: Vec::new(),
            scores: Vec::new(),
            merges: Vec::new(),
            bos: None,
            eos: None,
            eot: None,
            unk: None,
            pad: None,
            end_of_generation: Vec::new(),
            add_bos: None,
            add_space_prefix: true,
            chat_template: None,
            tool_template: None,
        }
    }
}

impl GgufVocabulary {
    /// Checks the vocabulary and builds the tokenizer.
    pub(crate) fn into_tokenizer(mut self) -> Result<Tokenizer, TextError> {
        let is_sentencepiece = match self.model.as_str() {
            "gpt2" => false,
            "llama" => true,
            name => {
                return Err(TextError::UnsupportedTokenizer {
                    name: name.to_owned(),
                });
            }
        };
        self.check_lengths(is_sentencepiece)?;
        let special = self.check_ids()?;
        let kinds = self.kinds(is_sentencepiece, &special);
        let table = self.table(is_sentencepiece, &kinds);
        let (encoder, adds_bos) = if is_sentencepiece {
            let encoder = SentencePieceEncoder::from_vocabulary(&self, &kinds)?;
            (Encoder::SentencePiece(Box::new(encoder)), true)
        } else {
            let pre = self.pre_tokenizer()?;
            let encoder = self.byte_pair_encoder(&kinds, pre)?;
            (Encoder::BytePair(Box::new(encoder)), pre.adds_bos)
        };
        let bos = self.bos.map(TokenId);
        let name = |id: Option<u32>| {
            id.and_then(|id| table.name(TokenId(id)))
                .unwrap_or_default()
                .to_owned()
        };
        let (bos_text, eos_text) = (name(self.bos), name(self.eos));
        let chat_template = self
            .chat_template
            .take()
            .map(|source| ChatTemplate::new(source, self.tool_template.take(), bos_text, eos_text));
        Ok(Tokenizer {
            bos,
            adds_bos: bos.is_some() && self.add_bos.unwrap_or(adds_bos),
            adds_space_prefix: is_sentencepiece && self.add_space_prefix,
            end_of_text: end_of_text(&table, special.ends),
            encoder,
            table,
            chat_template,
        })
    }

    /// Every array has one entry for each token.
    fn check_lengths(&self, is_sentencepiece: bool) -> Result<(), TextError> {
        let tokens = self.tokens.len();
        let mismatch = |key, count: usize| TextError::Metadata {
            key,
            problem: format!("has {count} entries for {tokens} tokens"),
        };
        if tokens == 0 {
            return Err(TextError::Metadata {
                key: "tokenizer.ggml.tokens",
                problem: "is empty".into(),
            });
        }
        if u32::try_from(tokens).is_err() {
            return Err(TextError::Vocabulary(format!(
                "{tokens} tokens are more than ids can count"
            )));
        }
        if !self.types.is_empty() && self.types.len() != tokens {
            return Err(mismatch("tokenizer.ggml.token_type", self.types.len()));
        }
        if is_sentencepiece && self.scores.len() != tokens {
            return Err(mismatch("tokenizer.ggml.scores", self.scores.len()));
        }
        Ok(())
    }

    /// Drops ids that say "none" (u32::MAX is how -1 reads), refuses others outside the vocabulary.
    fn check_ids(&mut self) -> Result<SpecialIds, TextError> {
        let tokens = self.tokens.len();
        let check = |key: &'static str, id: &mut Option<u32>| {
            *id = id.filter(|&id| id != u32::MAX);
            match *id {
                Some(id) if id as usize >= tokens => Err(TextError::Metadata {
                    key,
                    problem: format!("is {id}, but the vocabulary has only {tokens} tokens"),
                }),
                _ => Ok(()),
            }
        };
        check("tokenizer.ggml.bos_token_id", &mut self.bos)?;
        check("tokenizer.ggml.eos_token_id", &mut self.eos)?;
        check("tokenizer.ggml.eot_token_id", &mut self.eot)?;
        check("tokenizer.ggml.unknown_token_id", &mut self.unk)?;
        check("tokenizer.ggml.padding_token_id", &mut self.pad)?;
        let mut ends: Vec<u32> = self.eos.into_iter().chain(self.eot).collect();
        for id in &self.end_of_generation {
            let mut id = Some(*id);
            check("tokenizer.ggml.eom_token_id", &mut id)?;
            ends.extend(id);
        }
        Ok(SpecialIds {
            control: ends
                .iter()
                .copied()
                .chain(self.bos)
                .chain(self.pad)
                .collect(),
            ends,
        })
    }

    /// The kind of each token. A token that the metadata names as a control token is one, whatever its type.
    fn kinds(&self, is_sentencepiece: bool, special: &SpecialIds) -> Vec<TokenKind> {
        let of = |(id, name): (usize, &String)| {
            let kind = self
                .types
                .get(id)
                .map_or(TokenKind::Normal, |&number| TokenKind::from_gguf(number));
            if name.is_empty() || is_padding_name(name, id) {
                TokenKind::Unused
            } else if self.types.is_empty() && is_sentencepiece && byte_of_name(name).is_some() {
                TokenKind::Byte
            } else {
                kind
            }
        };
        let mut kinds: Vec<TokenKind> = self.tokens.iter().enumerate().map(of).collect();
        for &id in &special.control {
            if let Some(kind @ TokenKind::Normal) = kinds.get_mut(id as usize) {
                *kind = TokenKind::Control;
            }
        }
        if let (true, Some(unk)) = (is_sentencepiece, self.unk)
            && let Some(kind @ TokenKind::Normal) = kinds.get_mut(unk as usize)
        {
            *kind = TokenKind::Unknown;
        }
        kinds
    }

    /// Names, kinds and the bytes that each token writes.
    fn table(&self, is_sentencepiece: bool, kinds: &[TokenKind]) -> TokenTable {
        let mut table = TokenTable::default();
        for (name, &kind) in self.tokens.iter().zip(kinds) {
            table.push(name, kind, |bytes| match kind {
                TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => {}
                TokenKind::Byte => bytes.extend(byte_of_name(name)),
                _ if is_sentencepiece => write_sentencepiece_text(name, bytes),
                TokenKind::UserDefined => bytes.extend_from_slice(name.as_bytes()),
                TokenKind::Normal => byte_level::decode_name(name, bytes),
            });
        }
        table
    }

    fn pre_tokenizer(&self) -> Result<PreTokenizer, TextError> {
        let name = self
            .pre
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("default");
        pretokenizer::find(name).ok_or_else(|| TextError::UnsupportedPreTokenizer {
            name: name.to_owned(),
        })
    }

    /// Uses up names and merges: large vocabularies are not held twice.
    fn byte_pair_encoder(
        &mut self,
        kinds: &[TokenKind],
        pre: PreTokenizer,
    ) -> Result<BytePairEncoder, TextError> {
        let names = std::mem::take(&mut self.tokens);
        let whole = names
            .iter()
            .zip(kinds)
            .filter_map(|(name, kind)| {
                let special = whole_token(*kind)?;
                Some(WholeToken {
                    text: name.clone(),
                    special,
                })
            })
            .collect();
        let ids = unique_ids(names, kinds)?;
        let mut pairs = Vec::with_capacity(self.merges.len());
        let mut joined = String::new();
        for (rank, mut merge) in std::mem::take(&mut self.merges).into_iter().enumerate() {
            let Some((left, right)) = split_merge(&merge) else {
                return Err(TextError::Vocabulary(format!(
                    "merge {rank} is {merge:?}, not two tokens with a space between them"
                )));
            };
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            if let Some(unknown) = [left, right, &joined]
                .into_iter()
                .find(|name| !ids.contains_key(*name))
            {
                return Err(TextError::Vocabulary(format!(
                    "merge {rank} ({merge:?}) needs the token {unknown:?}, which the vocabulary does not have"
                )));
            }
            let (length, right) = (left.len(), right.to_owned());
            merge.truncate(length);
            pairs.push((merge, right));
        }
        BytePairEncoder::from_parts(ids, pairs, whole, pre)
    }
}

/// The id of every token that text can become.
fn unique_ids(names: Vec<String>, kinds: &[TokenKind]) -> Result<Vocab, TextError> {
    let mut ids = Vocab::with_capacity(names.len());
    for ((id, name), &kind) in (0u32..).zip(names).zip(kinds) {
        if kind == TokenKind::Unused {
            continue;
        }
        match ids.entry(name) {
            Entry::Vacant(free) => free.insert(id),
            Entry::Occupied(taken) => {
                return Err(TextError::Vocabulary(format!(
                    "token {:?} has two ids, {} and {id}",
                    taken.key(),
                    taken.get()
                )));
            }
        };
    }
    Ok(ids)
}

impl SentencePieceEncoder {
    fn from_vocabulary(
        vocabulary: &GgufVocabulary,
        kinds: &[TokenKind],
    ) -> Result<Self, TextError> {
        let mut pieces: HashMap<Box<str>, Piece> = HashMap::with_capacity(vocabulary.tokens.len());
        let mut whole: HashMap<Box<str>, Whole> = HashMap::new();
        let mut bytes = Box::new([None; 256]);
        let tokens = (0u32..)
            .map(TokenId)
            .zip(&vocabulary.tokens)
            .zip(kinds)
            .zip(&vocabulary.scores);
        for (((id, name), &kind), &score) in tokens {
            if let Some(special) = whole_token(kind) {
                whole
                    .entry(name.as_str().into())
                    .or_insert(Whole { id, special });
            }
            match kind {
                TokenKind::Byte => {
                    let slot = byte_of_name(name).and_then(|byte| bytes.get_mut(usize::from(byte)));
                    let slot = slot.ok_or_else(|| TextError::Vocabulary(format!(
                        "token {id} ({name:?}) is a byte by its type, but its name is not like <0x0A>"
                    )))?;
                    slot.get_or_insert(id);
                }
                TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused
                    if !name.is_empty() =>
                {
                    let piece = Piece {
                        id,
                        score,
                        unused: kind == TokenKind::Unused,
                    };
                    pieces.entry(name.as_str().into()).or_insert(piece);
                }
                _ => {}
            }
        }
        let is_used = |id: &TokenId| {
            kinds
                .get(id.index())
                .is_some_and(|&kind| kind != TokenKind::Unused)
        };
        let unknown = vocabulary.unk.map(TokenId).filter(is_used);
        Ok(Self::new(
            pieces,
            bytes,
            unknown,
            whole,
            vocabulary.add_space_prefix,
        ))
    }
}

/// The ids that the metadata names.
struct SpecialIds {
    /// Control tokens whatever their type.
    control: Vec<u32>,
    /// Tokens that end an answer.
    ends: Vec<u32>,
}

/// Whether a token of this kind is recognised in text as a whole (and if only as a control token: `Some(true)`).
fn whole_token(kind: TokenKind) -> Option<bool> {
    match kind {
        TokenKind::Control | TokenKind::Unknown => Some(true),
        TokenKind::UserDefined => Some(false),
        TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => None,
    }
}

/// All ids that end an answer: those the files name, and control tokens of the usual names.
pub(crate) fn end_of_text(table: &TokenTable, named: Vec<u32>) -> Vec<TokenId> {
    let usual = table.iter().filter_map(|(id, name, kind)| {
        let marked = matches!(kind, TokenKind::Control | TokenKind::UserDefined);
        (marked && END_OF_TEXT_NAMES.contains(&name)).then_some(id)
    });
    let mut ids: Vec<TokenId> = named.into_iter().map(TokenId).chain(usual).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The byte of a name like `<0x0A>`.
pub(crate) fn byte_of_name(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The text of a SentencePiece piece: U+2581 is a space.
pub(crate) fn write_sentencepiece_text(name: &str, bytes: &mut Vec<u8>) {
    for (i, part) in name.split(SPACE_MARK).enumerate() {
        if i > 0 {
            bytes.push(b' ');
        }
        bytes.extend_from_slice(part.as_bytes());
    }
}

/// The two halves of a merge; neither may be empty. (The left one may begin with a space, so the search starts
/// behind its first character.)
fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let at = first + merge.get(first..)?.find(' ')?;
    let (left, right) = (merge.get(..at)?, merge.get(at + 1..)?);
    (!right.is_empty()).then_some((left, right))
}
