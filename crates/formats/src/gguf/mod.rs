//! The GGUF container, versions 2 and 3, little-endian.
//!
//! ```text
//!     "GGUF"  u32 version  u64 tensor count  u64 pair count
//!     pairs:    string key, u32 type, value           (string: u64 length, bytes)
//!     tensors:  string name, u32 rank, u64 dims[rank] (innermost first), u32 type, u64 offset
//!     padding to general.alignment (32 unless stated), then the tensors' bytes at their offsets
//! ```
//!
//! Source: the GGUF specification in ggml's `docs/gguf.md`.

mod hyperparameters;
mod reader;
mod split;

use std::sync::Arc;

use foredraft_quant::ggml_type_name;

use crate::element::supported_weights;
use crate::error::quote;
use crate::metadata::Pair;
use crate::storage::Storage;
use crate::tensor::Entry;
use crate::value::ValueType;
use crate::{ElementType, FormatError, Metadata, Shape, limits};
use reader::Reader;

pub(crate) use hyperparameters::{model_config, width_of_head, yarn_magnitude};
pub(crate) use split::{SplitName, open_splits};

/// The first four bytes of a GGUF file.
pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
/// The key that states the alignment of tensor data.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// The alignment of tensor data where the file does not state one.
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;

/// A parsed GGUF file.
#[derive(Debug)]
pub(crate) struct Gguf {
    pub(crate) version: u32,
    pub(crate) metadata: Metadata,
    /// In file order; names not yet checked to be unique.
    pub(crate) tensors: Vec<Entry>,
}

/// Parses and checks everything but uniqueness of tensor names and their overlap, which belong to
/// the whole checkpoint ([`crate::tensor::TensorTable::new`]).
pub(crate) fn parse(file: &str, storage: &Arc<Storage>) -> Result<Gguf, FormatError> {
    let bytes = storage.bytes();
    let mut reader = Reader::new(file, bytes);
    let version = parse_version(&mut reader)?;
    let tensor_count = reader.u64(&"the number of tensors")?;
    let pair_count = reader.u64(&"the number of metadata keys")?;

    // The smallest pair: an empty key (8), its type (4), one byte. The smallest tensor: an empty
    // name (8), rank (4), one dimension (8), type (4), offset (8).
    let pair_count = reader.check_count(
        pair_count,
        13,
        limits::METADATA_KEYS,
        &"the number of metadata keys",
    )?;
    let tensor_count =
        reader.check_count(tensor_count, 32, limits::TENSORS, &"the number of tensors")?;

    let mut pairs = Vec::with_capacity(pair_count);
    for index in 0..pair_count {
        pairs.push(parse_pair(&mut reader, index)?);
    }
    let metadata = Metadata::new(file, Arc::clone(storage), pairs)?;
    let alignment = parse_alignment(file, &metadata)?;

    let mut infos = Vec::with_capacity(tensor_count.min(bytes.len() / 32));
    for index in 0..tensor_count {
        infos.push(parse_tensor_info(&mut reader, index, alignment)?);
    }
    let data_start = (reader.position() as u64).next_multiple_of(alignment); // both far below 2^63
    let tensors = infos
        .into_iter()
        .map(|info| {
            let start = data_start.checked_add(info.offset).ok_or_else(|| {
                let field = format!("tensor {}: offset", quote(info.name));
                FormatError::damaged(file, field, format!("{} is beyond any file", info.offset))
            })?;
            Entry::new(
                file,
                info.name,
                info.element,
                info.shape,
                start,
                bytes.len(),
            )
        })
        .collect::<Result<_, _>>()?;
    Ok(Gguf {
        version,
        metadata,
        tensors,
    })
}

fn parse_version(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
    let file = reader.file;
    let not_a_model = |problem: String| FormatError::NotAModel {
        file: file.to_owned(),
        problem,
        remedy: "give a GGUF file of version 2 or 3, little-endian (convert it with llama.cpp's \
                 convert_hf_to_gguf.py), or a Hugging Face directory",
    };
    let magic = reader.take(4, &"the GGUF magic")?;
    if magic != MAGIC {
        let found = match magic {
            b"FUGG" => "a big-endian GGUF file".to_owned(),
            // GGML, GGMF, GGJT, GGLA as little-endian 32-bit numbers: what came before GGUF.
            b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => "a GGML file, older than GGUF".to_owned(),
            _ => format!(
                "no GGUF file (it starts with {})",
                quote(&String::from_utf8_lossy(magic))
            ),
        };
        return Err(not_a_model(found));
    }
    match reader.u32(&"the GGUF version")? {
        version @ (2 | 3) => Ok(version),
        1 => Err(not_a_model(
            "GGUF version 1, which no released model uses".to_owned(),
        )),
        other if (1..=0xffff).contains(&other.swap_bytes()) => {
            let version = other.swap_bytes();
            Err(not_a_model(format!(
                "a big-endian GGUF file (version {version})"
            )))
        }
        other => Err(not_a_model(format!(
            "GGUF version {other}, which this build does not know"
        ))),
    }
}

fn parse_pair(reader: &mut Reader<'_>, index: usize) -> Result<Pair, FormatError> {
    let key = reader.string(limits::KEY_BYTES, &format_args!("metadata key {index}"))?;
    if key.is_empty() {
        return Err(FormatError::damaged(
            reader.file,
            format!("metadata key {index}"),
            "it is empty",
        ));
    }
    let field = format!("metadata {}", quote(key));
    let kind = parse_type(reader, &field)?;
    if kind != ValueType::Array {
        let start = reader.position();
        skip_value(reader, kind, &field)?;
        return Ok(Pair {
            key: key.into(),
            kind,
            count: None,
            range: start..reader.position(),
        });
    }
    let element = parse_type(reader, &field)?;
    if element == ValueType::Array {
        return Err(FormatError::unsupported(
            reader.file,
            field,
            "an array of arrays",
            "arrays of numbers or strings",
        ));
    }
    let count = reader.u64(&format_args!("the length of {field}"))?;
    let count = reader.check_count(
        count,
        element.smallest_bytes(),
        u64::MAX,
        &format_args!("the length of {field}"),
    )?;
    let start = reader.position();
    if element == ValueType::String {
        for index in 0..count {
            reader.string_range(u64::MAX, &format_args!("{field}[{index}]"))?;
        }
    } else {
        // Cannot overflow: `check_count` has seen that so many fit the file.
        reader.skip(count as u64 * element.smallest_bytes(), &field)?;
    }
    Ok(Pair {
        key: key.into(),
        kind: element,
        count: Some(count),
        range: start..reader.position(),
    })
}

fn parse_type(reader: &mut Reader<'_>, field: &str) -> Result<ValueType, FormatError> {
    let number = reader.u32(&format_args!("the type of {field}"))?;
    ValueType::from_number(number).ok_or_else(|| {
        FormatError::damaged(
            reader.file,
            format!("the type of {field}"),
            format!("there is no type {number}"),
        )
    })
}

/// Steps over a value that is not an array.
fn skip_value(reader: &mut Reader<'_>, kind: ValueType, field: &str) -> Result<(), FormatError> {
    match kind {
        ValueType::String => reader.string_range(u64::MAX, &field).map(drop),
        _ => reader.skip(kind.smallest_bytes(), &field).map(drop),
    }
}

fn parse_alignment(file: &str, metadata: &Metadata) -> Result<u64, FormatError> {
    let alignment = metadata.u32(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !alignment.is_power_of_two() || !limits::ALIGNMENT.contains(&alignment) {
        let (low, high) = (limits::ALIGNMENT.start(), limits::ALIGNMENT.end());
        let problem = format!("{alignment} is not a power of two between {low} and {high}");
        return Err(FormatError::damaged(file, quote(ALIGNMENT_KEY), problem));
    }
    Ok(alignment.into())
}

/// A line of the tensor table whose place in the file is not known yet.
struct TensorInfo<'a> {
    name: &'a str,
    element: ElementType,
    shape: Shape,
    /// From the start of the data section.
    offset: u64,
}

fn parse_tensor_info<'a>(
    reader: &mut Reader<'a>,
    index: usize,
    alignment: u64,
) -> Result<TensorInfo<'a>, FormatError> {
    let file = reader.file;
    let name = reader.string(
        limits::NAME_BYTES,
        &format_args!("the name of tensor {index}"),
    )?;
    if name.is_empty() {
        return Err(FormatError::damaged(
            file,
            format!("the name of tensor {index}"),
            "it is empty",
        ));
    }
    let field = format!("tensor {}", quote(name));
    let rank = reader.u32(&format_args!("the number of dimensions of {field}"))?;
    let mut dims = [0; limits::DIMENSIONS];
    let Some(dims) = dims
        .get_mut(..rank as usize)
        .filter(|dims| !dims.is_empty())
    else {
        let problem = crate::shape::ShapeError::Rank(rank.into());
        return Err(FormatError::damaged(file, field, problem));
    };
    for dim in dims.iter_mut().rev() {
        *dim = reader.u64(&format_args!("a dimension of {field}"))?;
    }
    let shape = Shape::new(dims).map_err(|problem| FormatError::damaged(file, &field, problem))?;
    let number = reader.u32(&format_args!("the type of {field}"))?;
    let element = ElementType::from_ggml(number).ok_or_else(|| {
        let found =
            ggml_type_name(number).map_or_else(|| format!("number {number}"), str::to_owned);
        FormatError::unsupported(file, format!("{field}: type"), found, supported_weights())
    })?;
    let offset = reader.u64(&format_args!("the offset of {field}"))?;
    if !offset.is_multiple_of(alignment) {
        let problem = format!("its offset {offset} is not a multiple of the alignment {alignment}");
        return Err(FormatError::damaged(file, field, problem));
    }
    Ok(TensorInfo {
        name,
        element,
        shape,
        offset,
    })
}
