//! The tensor table: which tensors a checkpoint has, and where their bytes are.

use std::ops::Range;
use std::sync::Arc;

use foredraft_quant::WeightType;

use crate::element::supported_weights;
use crate::error::quote;
use crate::storage::Storage;
use crate::{ElementType, FormatError, Shape, limits};

/// A weight tensor of a checkpoint.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Its canonical (GGUF) name, for example `blk.0.attn_q.weight`.
    pub name: &'a str,
    /// The storage type of its weights.
    pub kind: WeightType,
    /// Its shape, outermost first: `[rows = outputs, width = inputs]` for a linear layer.
    pub shape: Shape,
    /// Its bytes: `shape.rows()` rows of `kind.row_bytes(shape.width())` bytes, checked at opening.
    /// They need not be aligned to anything.
    pub data: &'a [u8],
}

/// A tensor of any element type, a weight or a plain table.
#[derive(Debug, Clone, Copy)]
pub struct RawTensor<'a> {
    /// Its name; the canonical one where there is one.
    pub name: &'a str,
    /// The type of its elements, stored little-endian.
    pub element: ElementType,
    /// Its shape, outermost first.
    pub shape: Shape,
    /// Its bytes, exactly as many as element type and shape say.
    pub data: &'a [u8],
}

/// One line of the table.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: Box<str>,
    pub(crate) element: ElementType,
    pub(crate) shape: Shape,
    /// Which file of the checkpoint holds it.
    pub(crate) part: u32,
    /// Its bytes in that file. Invariant: inside the file, and exactly the shape's size.
    pub(crate) range: Range<usize>,
}

impl Entry {
    /// A checked entry: the size follows from type and shape and has to lie inside a file of
    /// `file_len` bytes, from `start` on.
    pub(crate) fn new(
        file: &str,
        name: &str,
        element: ElementType,
        shape: Shape,
        start: u64,
        file_len: usize,
    ) -> Result<Self, FormatError> {
        let field = || format!("tensor {}", quote(name));
        let row = element.row_bytes(shape.width()).ok_or_else(|| {
            let block = element.weight().map_or(1, WeightType::block_elements);
            let problem = format!(
                "its rows of {} are not whole blocks of {block} ({element})",
                shape.width()
            );
            FormatError::damaged(file, field(), problem)
        })?;
        let size = row.checked_mul(shape.rows()).ok_or_else(|| {
            FormatError::damaged(
                file,
                field(),
                format!("the size of {shape} {element} overflows"),
            )
        })?;
        let truncated = || FormatError::Truncated {
            file: file.to_owned(),
            field: field(),
            offset: start,
            needed: size as u64,
            available: (file_len as u64).saturating_sub(start),
        };
        let start = usize::try_from(start).map_err(|_| truncated())?;
        let end = start
            .checked_add(size)
            .filter(|&end| end <= file_len)
            .ok_or_else(truncated)?;
        Ok(Self {
            name: name.into(),
            element,
            shape,
            part: 0,
            range: start..end,
        })
    }
}

/// All tensors of a checkpoint with the files that hold their bytes; in file order, found by name.
#[derive(Debug)]
pub(crate) struct TensorTable {
    /// The files. Invariant: `Entry::part` of every entry is an index into it.
    parts: Vec<Arc<Storage>>,
    entries: Vec<Entry>,
    /// Indices into `entries`, sorted by name.
    by_name: Vec<u32>,
}

impl TensorTable {
    /// Checks that names are unique, that no two tensors share bytes, and that what is called a
    /// weight is of a type that can be computed with.
    ///
    /// `file` names the checkpoint in messages.
    pub(crate) fn new(
        file: &str,
        parts: Vec<Arc<Storage>>,
        entries: Vec<Entry>,
    ) -> Result<Self, FormatError> {
        if entries.len() as u64 > limits::TENSORS {
            let count = entries.len() as u64;
            return Err(FormatError::too_large(
                file,
                "the number of tensors",
                count,
                limits::TENSORS,
            ));
        }
        let mut order: Vec<u32> = (0..entries.len() as u32).collect();
        let at = |index: u32| &entries[index as usize];

        order.sort_unstable_by_key(|&index| (at(index).part, at(index).range.start));
        for pair in order.windows(2) {
            let (first, second) = (at(pair[0]), at(pair[1]));
            if first.part == second.part && second.range.start < first.range.end {
                let field = format!("tensor {}", quote(&second.name));
                let problem = format!("its bytes overlap those of {}", quote(&first.name));
                return Err(FormatError::damaged(file, field, problem));
            }
        }

        order.sort_unstable_by(|&a, &b| at(a).name.cmp(&at(b).name));
        for pair in order.windows(2) {
            if at(pair[0]).name == at(pair[1]).name {
                let field = format!("tensor {}", quote(&at(pair[0]).name));
                return Err(FormatError::damaged(file, field, "it is listed twice"));
            }
        }

        for entry in &entries {
            let named_as_weight = entry.name.ends_with(".weight") || entry.name.ends_with(".bias");
            if named_as_weight && entry.element.weight().is_none() {
                let field = format!("tensor {}: type", quote(&entry.name));
                return Err(FormatError::unsupported(
                    file,
                    field,
                    entry.element,
                    supported_weights(),
                ));
            }
        }
        Ok(Self {
            parts,
            entries,
            by_name: order,
        })
    }

    /// The weight with this name.
    pub(crate) fn weight(&self, name: &str) -> Option<Tensor<'_>> {
        self.as_weight(self.find(name)?)
    }

    /// All weights, in file order.
    pub(crate) fn weights(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.entries
            .iter()
            .filter_map(|entry| self.as_weight(entry))
    }

    /// The tensor with this name, of whatever element type.
    pub(crate) fn raw(&self, name: &str) -> Option<RawTensor<'_>> {
        Some(self.as_raw(self.find(name)?))
    }

    /// All tensors, of whatever element type, in file order.
    pub(crate) fn raws(&self) -> impl Iterator<Item = RawTensor<'_>> {
        self.entries.iter().map(|entry| self.as_raw(entry))
    }

    /// Lets the system take back the memory of a tensor's mapping: of these of its bytes.
    pub(crate) fn release(&self, name: &str, bytes: Range<usize>) {
        if let Some(entry) = self.find(name) {
            let at = |byte: usize| entry.range.start.saturating_add(byte).min(entry.range.end);
            self.parts[entry.part as usize].release(at(bytes.start)..at(bytes.end));
        }
    }

    /// The size of all files together.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.parts
            .iter()
            .map(|part| part.bytes().len() as u64)
            .sum()
    }

    fn find(&self, name: &str) -> Option<&Entry> {
        let by_name = |&index: &u32| (*self.entries[index as usize].name).cmp(name);
        let found = self.by_name.binary_search_by(by_name).ok()?;
        self.entries.get(self.by_name[found] as usize)
    }

    fn as_raw<'a>(&'a self, entry: &'a Entry) -> RawTensor<'a> {
        let data = &self.parts[entry.part as usize].bytes()[entry.range.clone()]; // by the invariants
        RawTensor {
            name: &entry.name,
            element: entry.element,
            shape: entry.shape,
            data,
        }
    }

    fn as_weight<'a>(&'a self, entry: &'a Entry) -> Option<Tensor<'a>> {
        let kind = entry.element.weight()?;
        let RawTensor {
            name, shape, data, ..
        } = self.as_raw(entry);
        Some(Tensor {
            name,
            kind,
            shape,
            data,
        })
    }
}
