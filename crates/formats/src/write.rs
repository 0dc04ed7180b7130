//! Writing GGUF files: for tests, for tiny models made on the spot, and for what training saves.
//!
//! ```
//! use foredraft_formats::{Checkpoint, write::GgufWriter};
//! use foredraft_quant::WeightType;
//!
//! let mut writer = GgufWriter::new();
//! writer.str("general.architecture", "llama").u32("llama.block_count", 1);
//! writer.tensor("output_norm.weight", WeightType::F32, &[64], vec![0; 4 * 64]);
//! let model = Checkpoint::from_bytes(writer.finish()?)?;
//! assert_eq!(model.tensors().count(), 1);
//! # Ok::<(), foredraft_formats::FormatError>(())
//! ```

use std::borrow::Cow;

use crate::gguf::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use crate::tensor::Entry;
use crate::{ElementType, FormatError, Metadata, Shape, ValueType};

/// What this writes is called in messages.
const FILE: &str = "the GGUF file being written";

/// Collects metadata and tensors, and lays them out as a GGUF file of version 3.
///
/// Setting a key again replaces its value. `finish` checks what was collected.
#[derive(Debug, Clone, Default)]
pub struct GgufWriter<'a> {
    pairs: Vec<Pair>,
    tensors: Vec<PendingTensor<'a>>,
}

/// A key with its value as it will stand in the file.
#[derive(Debug, Clone)]
struct Pair {
    key: String,
    /// Type numbers, an array's length, and the value.
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
struct PendingTensor<'a> {
    name: String,
    element: ElementType,
    /// Outermost first.
    dims: Vec<usize>,
    data: Cow<'a, [u8]>,
}

impl<'a> GgufWriter<'a> {
    /// A writer without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a string.
    pub fn str(&mut self, key: &str, value: &str) -> &mut Self {
        self.scalar(key, ValueType::String, &encode_str(value))
    }

    /// Sets an unsigned integer of 32 bits, the width that readers expect of counts.
    pub fn u32(&mut self, key: &str, value: u32) -> &mut Self {
        self.scalar(key, ValueType::U32, &value.to_le_bytes())
    }

    /// Sets an unsigned integer of 64 bits.
    pub fn u64(&mut self, key: &str, value: u64) -> &mut Self {
        self.scalar(key, ValueType::U64, &value.to_le_bytes())
    }

    /// Sets a signed integer of 32 bits.
    pub fn i32(&mut self, key: &str, value: i32) -> &mut Self {
        self.scalar(key, ValueType::I32, &value.to_le_bytes())
    }

    /// Sets an unsigned integer of 16 bits, the width of `split.no` and `split.count`.
    pub fn u16(&mut self, key: &str, value: u16) -> &mut Self {
        self.scalar(key, ValueType::U16, &value.to_le_bytes())
    }

    /// Sets a float.
    pub fn f32(&mut self, key: &str, value: f32) -> &mut Self {
        self.scalar(key, ValueType::F32, &value.to_le_bytes())
    }

    /// Sets a truth value.
    pub fn bool(&mut self, key: &str, value: bool) -> &mut Self {
        self.scalar(key, ValueType::Bool, &[value.into()])
    }

    /// Sets an array of strings.
    pub fn str_array<S: AsRef<str>>(&mut self, key: &str, values: &[S]) -> &mut Self {
        let elements = values.iter().map(|value| encode_str(value.as_ref()));
        self.array(
            key,
            ValueType::String,
            values.len(),
            elements.collect::<Vec<_>>().concat(),
        )
    }

    /// Sets an array of floats.
    pub fn f32_array(&mut self, key: &str, values: &[f32]) -> &mut Self {
        let bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.array(key, ValueType::F32, values.len(), bytes)
    }

    /// Sets an array of signed integers of 32 bits.
    pub fn i32_array(&mut self, key: &str, values: &[i32]) -> &mut Self {
        let bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.array(key, ValueType::I32, values.len(), bytes)
    }

    /// Sets an array of unsigned integers of 32 bits.
    pub fn u32_array(&mut self, key: &str, values: &[u32]) -> &mut Self {
        let bytes = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.array(key, ValueType::U32, values.len(), bytes)
    }

    /// Copies the values of all keys that `keep` accepts, for example those that start with
    /// `tokenizer.` to give a new model a real vocabulary.
    pub fn copy(&mut self, from: &Metadata, keep: impl Fn(&str) -> bool) -> &mut Self {
        for (pair, bytes) in from.raw().filter(|(pair, _)| keep(&pair.key)) {
            match pair.count {
                Some(count) => self.array(&pair.key, pair.kind, count, bytes.to_vec()),
                None => self.scalar(&pair.key, pair.kind, bytes),
            };
        }
        self
    }

    /// Adds a tensor: its dimensions outermost first (`[rows, width]` for a linear layer) and its
    /// bytes, row-major.
    pub fn tensor(
        &mut self,
        name: &str,
        kind: foredraft_quant::WeightType,
        dims: &[usize],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        self.raw_tensor(name, ElementType::Weight(kind), dims, data)
    }

    /// Adds a tensor of any element type that GGUF has.
    pub fn raw_tensor(
        &mut self,
        name: &str,
        element: ElementType,
        dims: &[usize],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        let tensor = PendingTensor {
            name: name.to_owned(),
            element,
            dims: dims.to_vec(),
            data: data.into(),
        };
        self.tensors.push(tensor);
        self
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// When a shape is impossible, a tensor has other than the bytes its shape asks for, or GGUF has
    /// no such element type.
    pub fn finish(&self) -> Result<Vec<u8>, FormatError> {
        let alignment = u64::from(DEFAULT_ALIGNMENT);
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for pair in &self.pairs {
            out.extend(encode_str(&pair.key));
            out.extend(&pair.bytes);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            let number = tensor.check()?;
            out.extend(encode_str(&tensor.name));
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            for &dim in tensor.dims.iter().rev() {
                out.extend((dim as u64).to_le_bytes());
            }
            out.extend(number.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = (offset + tensor.data.len() as u64).next_multiple_of(alignment);
        }
        for tensor in &self.tensors {
            pad(&mut out, alignment);
            out.extend_from_slice(&tensor.data);
        }
        pad(&mut out, alignment);
        Ok(out)
    }

    fn scalar(&mut self, key: &str, kind: ValueType, value: &[u8]) -> &mut Self {
        self.set(key, [&kind.number().to_le_bytes(), value].concat())
    }

    fn array(&mut self, key: &str, element: ValueType, count: usize, values: Vec<u8>) -> &mut Self {
        let mut bytes = ValueType::Array.number().to_le_bytes().to_vec();
        bytes.extend(element.number().to_le_bytes());
        bytes.extend((count as u64).to_le_bytes());
        bytes.extend(values);
        self.set(key, bytes)
    }

    fn set(&mut self, key: &str, bytes: Vec<u8>) -> &mut Self {
        if key == ALIGNMENT_KEY {
            return self; // what is written here is always aligned to the default
        }
        match self.pairs.iter_mut().find(|pair| pair.key == key) {
            Some(pair) => pair.bytes = bytes,
            None => self.pairs.push(Pair {
                key: key.to_owned(),
                bytes,
            }),
        }
        self
    }
}

impl PendingTensor<'_> {
    /// Checks shape and size; the number of the element type.
    fn check(&self) -> Result<u32, FormatError> {
        let field = format!("tensor `{}`", self.name);
        let invalid = |problem: String| {
            FormatError::invalid(
                FILE,
                &field,
                problem,
                "give as many bytes as the shape asks for",
            )
        };
        let dims: Vec<u64> = self.dims.iter().map(|&dim| dim as u64).collect();
        let shape = Shape::new(&dims).map_err(|problem| invalid(problem.to_string()))?;
        let entry = Entry::new(FILE, &self.name, self.element, shape, 0, usize::MAX)?;
        if entry.range.len() != self.data.len() {
            let (needed, given) = (entry.range.len(), self.data.len());
            return Err(invalid(format!(
                "{shape} {} takes {needed} bytes, not {given}",
                self.element
            )));
        }
        self.element.ggml_number().ok_or_else(|| {
            FormatError::unsupported(
                FILE,
                format!("{field}: type"),
                self.element,
                "types that ggml has",
            )
        })
    }
}

fn encode_str(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn pad(out: &mut Vec<u8>, alignment: u64) {
    out.resize((out.len() as u64).next_multiple_of(alignment) as usize, 0);
}
