//! The tokenizer of a Hugging Face directory.
//!
//! `tokenizer.json` describes a pipeline that the `tokenizers` crate runs. Before it is handed over, what would make
//! the crate panic, answer at random or lose text is refused by name; only pipelines whose tokens have fixed bytes are
//! accepted (byte-level BPE, or BPE with U+2581 for spaces and byte fallback), since the output of a token must not
//! depend on its neighbours. The other files only add names: BOS, end of text, chat template.

use crate::byte_pair::BytePairEncoder;
use crate::extras::{Extras, read};
use crate::sentencepiece::SPACE_MARK;
use crate::template::ChatTemplate;
use crate::token_table::{TokenKind, TokenTable};
use crate::tokenizer::{Encoder, Tokenizer};
use crate::vocabulary::{byte_of_name, end_of_text, write_sentencepiece_text};
use crate::{TextError, byte_level};
use foredraft_common::TokenId;
use serde_json::Value;
use std::path::Path;

/// A tokenizer.json larger than this is refused; the largest published ones have some 35 MB.
const MAX_TOKENIZER_JSON_BYTES: u64 = 256 << 20;

const NORMALIZERS: [&str; 11] = [
    "Sequence",
    "NFC",
    "NFD",
    "NFKC",
    "NFKD",
    "Lowercase",
    "Strip",
    "StripAccents",
    "Prepend",
    "Replace",
    "ByteLevel",
];
const PRE_TOKENIZERS: [&str; 7] = [
    "Sequence",
    "Split",
    "ByteLevel",
    "Metaspace",
    "Digits",
    "Punctuation",
    "WhitespaceSplit",
];

/// How the names of tokens are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// GPT-2's byte alphabet.
    ByteLevel,
    /// UTF-8 with U+2581 for a space; `strips_space`: decoding drops one space at the start of the text.
    Marked {
        byte_fallback: bool,
        strips_space: bool,
    },
}

/// Loads `tokenizer.json` and what lies beside it.
pub(crate) fn load(directory: &Path) -> Result<Tokenizer, TextError> {
    let path = directory.join("tokenizer.json");
    let bytes = read(&path, MAX_TOKENIZER_JSON_BYTES)?.ok_or_else(|| TextError::File {
        path: path.clone(),
        problem: "is not there; a model directory needs it beside config.json (it is published with the model)".into(),
    })?;
    let extras = Extras::read(directory)?;
    from_json(&bytes, &extras).map_err(|problem| TextError::File { path, problem })
}

/// The same from bytes; errors are the problem in words.
pub(crate) fn from_json(bytes: &[u8], extras: &Extras) -> Result<Tokenizer, String> {
    let description: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("is not JSON: {error}"))?;
    let spelling = check(&description)?;
    let pipeline = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    let unknown = description
        .pointer("/model/unk_token")
        .and_then(Value::as_str);
    let table = table(&pipeline, spelling, unknown)?;
    let id = |name: &str| pipeline.token_to_id(name).map(TokenId);

    let template_bos = template_bos(&description["post_processor"]);
    let bos_text = extras.text("bos_token").or(template_bos);
    let bos = bos_text.as_deref().and_then(id);
    let adds_bos = extras
        .flag("add_bos_token")
        .unwrap_or(template_bos_is(&description, bos_text.as_deref()));
    let eos_text = extras.text("eos_token");
    let mut ends: Vec<u32> = extras.end_of_text_ids();
    ends.extend(eos_text.as_deref().and_then(id).map(|id| id.0));
    ends.retain(|&id| table.kind(TokenId(id)) != TokenKind::Unused);
    let chat_template = extras.chat_template().map(|(default, tool)| {
        ChatTemplate::new(
            default,
            tool,
            bos_text.clone().unwrap_or_default(),
            eos_text.clone().unwrap_or_default(),
        )
    });
    Ok(Tokenizer {
        bos,
        adds_bos: adds_bos && bos.is_some(),
        adds_space_prefix: matches!(
            spelling,
            Spelling::Marked {
                strips_space: true,
                ..
            }
        ),
        end_of_text: end_of_text(&table, ends),
        table,
        chat_template,
        encoder: Encoder::BytePair(Box::new(BytePairEncoder::from_pipeline(
            pipeline,
            spelling == Spelling::ByteLevel && unknown.is_none(),
        ))),
    })
}

/// Refuses what this crate cannot run exactly, and finds out how tokens are spelled.
fn check(description: &Value) -> Result<Spelling, String> {
    let model = &description["model"];
    match model["type"].as_str() {
        Some("BPE") => {}
        None if model["merges"].is_array() => {}
        Some(other) => {
            return Err(format!(
                "the tokenizer model {other:?} is not supported, only BPE is"
            ));
        }
        None => return Err("has no tokenizer model".into()),
    }
    for affix in ["continuing_subword_prefix", "end_of_word_suffix"] {
        if model[affix].as_str().is_some_and(|text| !text.is_empty()) {
            return Err(format!("BPE with {affix} is not supported"));
        }
    }
    if model["dropout"]
        .as_f64()
        .is_some_and(|dropout| dropout != 0.0)
    {
        return Err("BPE with dropout tokenizes at random; set \"dropout\" to null".into());
    }
    check_merges(model)?;
    check_types(
        &description["normalizer"],
        "normalizers",
        "normalizer",
        &NORMALIZERS,
    )?;
    check_types(
        &description["pre_tokenizer"],
        "pretokenizers",
        "pre-tokenizer",
        &PRE_TOKENIZERS,
    )?;
    spelling(description)
}

/// Every merge joins two tokens to a third. (The `tokenizers` crate panics when the joined one is too long.)
fn check_merges(model: &Value) -> Result<(), String> {
    let vocabulary = model["vocab"].as_object().ok_or("the model has no vocab")?;
    let merges = model["merges"]
        .as_array()
        .ok_or("the model has no merges")?;
    for (rank, merge) in merges.iter().enumerate() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => {
                    Some((left.as_str(), right.as_str()))
                }
                _ => None,
            },
            _ => None,
        };
        let (left, right) = pair.ok_or_else(|| format!("merge {rank} is not a pair of tokens"))?;
        let joined = format!("{left}{right}");
        if let Some(name) = [left, right, &joined]
            .into_iter()
            .find(|name| !vocabulary.contains_key(*name))
        {
            return Err(format!(
                "merge {rank} needs the token {name:?}, which the vocabulary does not have"
            ));
        }
    }
    Ok(())
}

/// All steps of a pipeline stage, which may be sequences of sequences.
fn check_types(stage: &Value, inner: &str, what: &str, known: &[&str]) -> Result<(), String> {
    match stage["type"].as_str() {
        None if stage.is_null() => Ok(()),
        Some(kind) if known.contains(&kind) => {
            let steps = stage[inner]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            steps
                .iter()
                .try_for_each(|step| check_types(step, inner, what, known))
        }
        kind => Err(format!(
            "the {what} {:?} is not supported",
            kind.unwrap_or("without a type")
        )),
    }
}

/// Finds the steps of a kind in a decoder or pre-tokenizer.
fn steps<'v>(stage: &'v Value, inner: &str, out: &mut Vec<&'v Value>) {
    match stage[inner].as_array() {
        Some(parts) => parts.iter().for_each(|part| steps(part, inner, out)),
        None if stage.is_null() => {}
        None => out.push(stage),
    }
}

fn spelling(description: &Value) -> Result<Spelling, String> {
    let mut decoders = Vec::new();
    steps(&description["decoder"], "decoders", &mut decoders);
    let mut spelling = None;
    let mut strips_space = false;
    for step in decoders {
        match step["type"].as_str().unwrap_or_default() {
            "ByteLevel" => spelling = Some(Spelling::ByteLevel),
            "Replace" if step["pattern"]["String"] == SPACE_MARK && step["content"] == " " => {
                spelling = Some(Spelling::Marked {
                    byte_fallback: false,
                    strips_space: false,
                });
            }
            "Metaspace" if step["replacement"] == SPACE_MARK => {
                spelling = Some(Spelling::Marked {
                    byte_fallback: false,
                    strips_space: false,
                });
                strips_space = step["prepend_scheme"] != "never"
                    && step["add_prefix_space"] != Value::Bool(false);
            }
            "Strip" if step["content"] == " " && step["start"] == 1 && step["stop"] == 0 => {
                strips_space = true
            }
            "ByteFallback" | "Fuse" => {}
            other => return Err(format!("the decoder {other:?} is not supported")),
        }
    }
    if spelling.is_none() {
        let mut stages = Vec::new();
        steps(&description["pre_tokenizer"], "pretokenizers", &mut stages);
        if stages.iter().any(|step| step["type"] == "ByteLevel") {
            spelling = Some(Spelling::ByteLevel);
        }
    }
    match spelling {
        Some(Spelling::Marked { .. }) => Ok(Spelling::Marked {
            byte_fallback: description["model"]["byte_fallback"] == true,
            strips_space,
        }),
        Some(Spelling::ByteLevel) => Ok(Spelling::ByteLevel),
        None => {
            Err("has no decoder that this build knows (ByteLevel, Metaspace or Replace)".into())
        }
    }
}

/// Names, kinds and bytes of all ids.
fn table(
    pipeline: &tokenizers::Tokenizer,
    spelling: Spelling,
    unknown: Option<&str>,
) -> Result<TokenTable, String> {
    let vocabulary = pipeline.get_vocab(true);
    let highest = vocabulary
        .values()
        .copied()
        .max()
        .ok_or("the vocabulary is empty")? as usize;
    if highest > 2 * vocabulary.len() + 65_536 {
        return Err(format!(
            "has a token with the id {highest}, but only {} tokens",
            vocabulary.len()
        ));
    }
    let added = pipeline.get_added_tokens_decoder();
    let mut names: Vec<Option<&str>> = vec![None; highest + 1];
    for (name, id) in &vocabulary {
        let slot = names.get_mut(*id as usize).ok_or("an id is out of range")?;
        if let Some(other) = slot.replace(name) {
            return Err(format!(
                "the tokens {other:?} and {name:?} have the same id {id}"
            ));
        }
    }
    let mut table = TokenTable::default();
    for (id, name) in (0u32..).zip(names) {
        let Some(name) = name else {
            table.push("", TokenKind::Unused, |_| {});
            continue;
        };
        let added = added.get(&id);
        let marked = matches!(spelling, Spelling::Marked { .. });
        let byte = match spelling {
            Spelling::Marked {
                byte_fallback: true,
                ..
            } => byte_of_name(name),
            _ => None,
        };
        let kind = match (added, byte) {
            _ if Some(name) == unknown => TokenKind::Unknown,
            (Some(token), _) if token.special => TokenKind::Control,
            (_, Some(_)) => TokenKind::Byte,
            (Some(_), None) => TokenKind::UserDefined,
            (None, None) => TokenKind::Normal,
        };
        table.push(name, kind, |bytes| match kind {
            TokenKind::Control | TokenKind::Unknown | TokenKind::Unused => {}
            TokenKind::Byte => bytes.extend(byte),
            _ if marked => write_sentencepiece_text(name, bytes),
            TokenKind::UserDefined => bytes.extend_from_slice(name.as_bytes()),
            TokenKind::Normal => byte_level::decode_name(name, bytes),
        });
    }
    Ok(table)
}

/// The token that the post-processor's template puts before a text.
fn template_bos(post_processor: &Value) -> Option<String> {
    let mut processors = Vec::new();
    steps(post_processor, "processors", &mut processors);
    let template = processors
        .into_iter()
        .find(|p| p["type"] == "TemplateProcessing")?;
    Some(
        template
            .pointer("/single/0/SpecialToken/id")?
            .as_str()?
            .to_owned(),
    )
}

fn template_bos_is(description: &Value, bos: Option<&str>) -> bool {
    bos.is_some() && template_bos(&description["post_processor"]).as_deref() == bos
}
