//! The header of a safetensors file.
//!
//! ```text
//!     u64 header length   JSON: {"name": {"dtype": "F32", "shape": [out, in], "data_offsets": [from, to]}, ...}
//!     the tensors' bytes, offsets counted from here
//! ```
//!
//! The `safetensors` crate checks offsets too, but its errors do not name the tensor, a name that
//! occurs twice is merged silently, and a dtype that it does not know is an error of its JSON parser.
//! So the header is read here; in the tests the crate is the reference that this reader is held
//! against. Source: the format's description in the repository `huggingface/safetensors`.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::element::ElementType;
use crate::error::quote;
use crate::tensor::Entry;
use crate::{FormatError, Shape, limits};

/// The parsed header of one safetensors file: every tensor checked against the file's length.
#[derive(Debug)]
pub struct Header {
    entries: Vec<Entry>,
}

impl Header {
    /// Parses the header of the file whose bytes these are.
    ///
    /// # Errors
    /// When the header is damaged, names an unsupported type, or a tensor lies outside the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::parse_named("(bytes in memory)", bytes)
    }

    /// Parses a header; `file` names the file in messages.
    pub(crate) fn parse_named(file: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        let truncated = |field: &str, offset: u64, needed: u64| FormatError::Truncated {
            file: file.to_owned(),
            field: field.to_owned(),
            offset,
            needed,
            available: (bytes.len() as u64).saturating_sub(offset),
        };
        let (length, rest) = bytes
            .split_first_chunk::<8>()
            .ok_or_else(|| truncated("the header's length", 0, 8))?;
        let length = u64::from_le_bytes(*length);
        if length > limits::SAFETENSORS_HEADER_BYTES {
            let limit = limits::SAFETENSORS_HEADER_BYTES;
            return Err(FormatError::too_large(
                file,
                "the header's length",
                length,
                limit,
            ));
        }
        let (json, data) = rest
            .split_at_checked(length as usize) // at most 10^8
            .ok_or_else(|| truncated("the header", 8, length))?;
        let invalid = |problem: String| FormatError::damaged(file, "the header", problem);
        let json =
            std::str::from_utf8(json).map_err(|error| invalid(format!("not UTF-8: {error}")))?;
        let infos = parse_infos(json).map_err(|error| invalid(error.to_string()))?;
        let data_start = bytes.len() - data.len();
        let entries = infos
            .into_iter()
            .map(|info| entry(file, info, data_start, bytes.len()))
            .collect::<Result<Vec<_>, _>>()?;
        check_cover(file, &entries, data_start..bytes.len())?;
        Ok(Self { entries })
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Names as they are in the file, types, shapes, and where the bytes are in the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ElementType, Shape, Range<usize>)> {
        self.entries.iter().map(|entry| {
            (
                &*entry.name,
                entry.element,
                entry.shape,
                entry.range.clone(),
            )
        })
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }
}

/// Checks one tensor of the header.
fn entry(file: &str, info: Info, data_start: usize, file_len: usize) -> Result<Entry, FormatError> {
    let field = format!("tensor {}", quote(&info.name));
    if info.name.len() as u64 > limits::NAME_BYTES {
        let length = info.name.len() as u64;
        return Err(FormatError::too_large(
            file,
            format!("the length of {field}"),
            length,
            limits::NAME_BYTES,
        ));
    }
    let element = ElementType::from_safetensors(&info.dtype).ok_or_else(|| {
        let supported = "F32, F16, BF16; and F64, I8, I16, I32, I64, U8, BOOL for tables";
        FormatError::unsupported(
            file,
            format!("{field}: dtype"),
            quote(&info.dtype),
            supported,
        )
    })?;
    // A scalar has no dimensions; it is kept as a vector of one.
    let dims = if info.rank == 0 {
        &[1][..]
    } else {
        info.dims.get(..info.rank).unwrap_or(&[])
    };
    let shape = Shape::new(dims).map_err(|problem| FormatError::damaged(file, &field, problem))?;
    let [from, to] = info.offsets;
    let start = from.checked_add(data_start as u64).ok_or_else(|| {
        FormatError::damaged(
            file,
            &field,
            format!("its offset {from} is beyond any file"),
        )
    })?;
    let entry = Entry::new(file, &info.name, element, shape, start, file_len)?;
    if to.checked_sub(from) != Some(entry.range.len() as u64) {
        let problem = format!(
            "its data_offsets are [{from}, {to}], but {shape} {element} takes {} bytes",
            entry.range.len()
        );
        return Err(FormatError::damaged(file, field, problem));
    }
    Ok(entry)
}

/// Checks that the tensors cover the file to its end, as the format demands: no two share a byte, and
/// none is left over (a gap or a tail means that the file is not the one the header was written for).
fn check_cover(file: &str, entries: &[Entry], data: Range<usize>) -> Result<(), FormatError> {
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_unstable_by_key(|entry| entry.range.start);
    let mut end = data.start;
    let mut last = "the header";
    for entry in order {
        let field = || format!("tensor {}", quote(&entry.name));
        if entry.range.start < end {
            let problem = format!("its bytes overlap those of {}", quote(last));
            return Err(FormatError::damaged(file, field(), problem));
        }
        if entry.range.start > end {
            let gap = entry.range.start - end;
            return Err(FormatError::damaged(
                file,
                field(),
                format!("{gap} bytes before it belong to nothing"),
            ));
        }
        (end, last) = (entry.range.end, &entry.name);
    }
    if end != data.end {
        let problem = format!(
            "{} bytes after the last tensor belong to nothing",
            data.end - end
        );
        return Err(FormatError::damaged(file, "the end of the file", problem));
    }
    Ok(())
}

/// One tensor as the JSON says.
struct Info {
    name: String,
    dtype: String,
    /// The first `rank` are meant.
    dims: [u64; limits::DIMENSIONS],
    rank: usize,
    offsets: [u64; 2],
}

/// Reads the JSON without building a tree of it: memory stays proportional to what is kept.
fn parse_infos(json: &str) -> Result<Vec<Info>, serde_json::Error> {
    struct Table;
    impl<'de> Visitor<'de> for Table {
        type Value = Vec<Info>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with one entry per tensor")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Info>, A::Error> {
            let mut infos = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                if name == "__metadata__" {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                if infos.len() as u64 >= limits::TENSORS {
                    return Err(serde::de::Error::custom("more tensors than any model has"));
                }
                infos.push(map.next_value_seed(OneTensor { name })?);
            }
            Ok(infos)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let infos = deserializer.deserialize_map(Table)?;
    deserializer.end()?;
    Ok(infos)
}

/// Reads the description of the tensor `name`.
struct OneTensor {
    name: String,
}

impl<'de> DeserializeSeed<'de> for OneTensor {
    type Value = Info;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Info, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneTensor {
    type Value = Info;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an object with dtype, shape and data_offsets for tensor {}",
            quote(&self.name)
        )
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Info, A::Error> {
        let wrong = |problem: &dyn fmt::Display| {
            serde::de::Error::custom(format_args!("tensor {}: {problem}", quote(&self.name)))
        };
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let twice = match key.as_str() {
                "dtype" => dtype.replace(map.next_value::<String>()?).is_some(),
                "shape" => shape
                    .replace(map.next_value_seed(Numbers::<{ limits::DIMENSIONS }>)?)
                    .is_some(),
                "data_offsets" => offsets
                    .replace(map.next_value_seed(Numbers::<2>)?)
                    .is_some(),
                _ => map.next_value::<IgnoredAny>().map(|_| false)?,
            };
            if twice {
                return Err(wrong(&format_args!("{key} occurs twice")));
            }
        }
        let dtype = dtype.ok_or_else(|| wrong(&"dtype is missing"))?;
        let (dims, rank) = shape.ok_or_else(|| wrong(&"shape is missing"))?;
        let (offsets, count) = offsets.ok_or_else(|| wrong(&"data_offsets is missing"))?;
        if rank > limits::DIMENSIONS {
            return Err(wrong(&crate::shape::ShapeError::Rank(rank as u64)));
        }
        if count != 2 {
            return Err(wrong(&"data_offsets is not a pair"));
        }
        Ok(Info {
            name: self.name,
            dtype,
            dims,
            rank,
            offsets,
        })
    }
}

/// Reads an array of numbers: the first `N`, and how many there are.
struct Numbers<const N: usize>;

impl<'de, const N: usize> DeserializeSeed<'de> for Numbers<N> {
    type Value = ([u64; N], usize);
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Numbers<N> {
    type Value = ([u64; N], usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let (mut numbers, mut count) = ([0; N], 0);
        while let Some(number) = seq.next_element::<u64>()? {
            if let Some(slot) = numbers.get_mut(count) {
                *slot = number;
            }
            count += 1;
        }
        Ok((numbers, count))
    }
}
