//! The typed metadata of a GGUF file.
//!
//! Values stay in the file and are decoded when asked for: opening a model with a vocabulary of
//! 150,000 tokens allocates a few lines per key, not a string per token.

use std::ops::Range;
use std::sync::Arc;

use crate::FormatError;
use crate::error::quote;
use crate::storage::Storage;
use crate::value::{Array, Value, ValueType, decode, wrong_type};

/// The key-value pairs of a GGUF file.
///
/// The typed getters answer `Ok(None)` when the key is absent and an error naming it when it has
/// another type: a wrong type never reads as "absent".
#[derive(Debug)]
pub struct Metadata {
    /// The file's name, for messages.
    file: String,
    storage: Arc<Storage>,
    /// In file order.
    pairs: Vec<Pair>,
    /// Indices into `pairs`, sorted by key.
    by_key: Vec<u32>,
}

/// One key and where its value is.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) key: Box<str>,
    /// The type: of the value, or with `count` of the array's elements.
    pub(crate) kind: ValueType,
    /// The number of elements, for an array.
    pub(crate) count: Option<usize>,
    /// The value's bytes. Invariant: inside the storage, and walked once by the parser.
    pub(crate) range: Range<usize>,
}

impl Metadata {
    /// Indexes the pairs by key; a key that occurs twice is refused.
    pub(crate) fn new(
        file: &str,
        storage: Arc<Storage>,
        pairs: Vec<Pair>,
    ) -> Result<Self, FormatError> {
        let mut by_key: Vec<u32> = (0..pairs.len() as u32).collect(); // the parser bounds the count
        let key = |index: u32| &*pairs[index as usize].key;
        by_key.sort_unstable_by(|&a, &b| key(a).cmp(key(b)));
        for two in by_key.windows(2) {
            if key(two[0]) == key(two[1]) {
                let field = format!("metadata key {}", quote(key(two[0])));
                return Err(FormatError::damaged(file, field, "it occurs twice"));
            }
        }
        let metadata = Self {
            file: file.to_owned(),
            storage,
            pairs,
            by_key,
        };
        for pair in metadata.pairs.iter().filter(|pair| pair.count.is_none()) {
            metadata.decode(pair)?;
        }
        Ok(metadata)
    }

    /// The file that this came from, for messages.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// All keys, in file order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|pair| &*pair.key)
    }

    /// All keys with their values, in file order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        // Scalars were decoded when the file was opened and arrays decode lazily: nothing is dropped.
        self.pairs
            .iter()
            .filter_map(|pair| Some((&*pair.key, self.decode(pair).ok()?)))
    }

    /// The value of `key`.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        self.decode(self.find(key)?).ok() // as in `iter`
    }

    /// A string.
    pub fn str(&self, key: &str) -> Result<Option<&str>, FormatError> {
        self.typed(key, "a string", |value| match value {
            Value::Str(text) => Some(text),
            _ => None,
        })
    }

    /// An integer of any stored width that fits 32 bits without a sign.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, FormatError> {
        self.typed(key, "an integer from 0 to 2^32 - 1", Value::integer)
    }

    /// An integer of any stored width that fits 64 bits without a sign.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, FormatError> {
        self.typed(key, "an integer from 0 to 2^64 - 1", Value::integer)
    }

    /// An integer of any stored width that fits this machine's addresses.
    pub fn usize(&self, key: &str) -> Result<Option<usize>, FormatError> {
        self.typed(key, "a count", Value::integer)
    }

    /// An integer of any stored width that fits 64 bits with a sign.
    pub fn i64(&self, key: &str) -> Result<Option<i64>, FormatError> {
        self.typed(key, "an integer from -2^63 to 2^63 - 1", Value::integer)
    }

    /// A float of either width, rounded to 32 bits. Integers are refused.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, FormatError> {
        self.typed(key, "a float", Value::float)
    }

    /// A truth value.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, FormatError> {
        self.typed(key, "a truth value", |value| match value {
            Value::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// An array of any kind, undecoded.
    pub fn array(&self, key: &str) -> Result<Option<Array<'_>>, FormatError> {
        self.typed(key, "an array", |value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })
    }

    /// An array of strings.
    pub fn str_array(&self, key: &str) -> Result<Option<Vec<&str>>, FormatError> {
        self.elements(
            key,
            ValueType::String.smallest_bytes(),
            "an array of strings",
            |value| match value {
                Value::Str(text) => Some(text),
                _ => None,
            },
        )
    }

    /// An array of floats of either width, rounded to 32 bits.
    pub fn f32_array(&self, key: &str) -> Result<Option<Vec<f32>>, FormatError> {
        self.elements(key, 4, "an array of floats", Value::float)
    }

    /// An array of integers of any stored width that fit 32 bits with a sign.
    pub fn i32_array(&self, key: &str) -> Result<Option<Vec<i32>>, FormatError> {
        self.elements(
            key,
            1,
            "an array of integers from -2^31 to 2^31 - 1",
            Value::integer,
        )
    }

    /// An array of integers of any stored width that fit 32 bits without a sign.
    pub fn u32_array(&self, key: &str) -> Result<Option<Vec<u32>>, FormatError> {
        self.elements(
            key,
            1,
            "an array of integers from 0 to 2^32 - 1",
            Value::integer,
        )
    }

    /// An array of truth values.
    pub fn bool_array(&self, key: &str) -> Result<Option<Vec<bool>>, FormatError> {
        self.elements(key, 1, "an array of truth values", |value| match value {
            Value::Bool(value) => Some(value),
            _ => None,
        })
    }

    /// The pair of `key`.
    pub(crate) fn find(&self, key: &str) -> Option<&Pair> {
        let by_key = |&index: &u32| (*self.pairs[index as usize].key).cmp(key);
        let found = self.by_key.binary_search_by(by_key).ok()?;
        self.pairs.get(self.by_key[found] as usize)
    }

    /// All pairs, in file order, with the bytes of their values.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (&Pair, &[u8])> {
        self.pairs.iter().map(|pair| (pair, self.bytes(pair)))
    }

    /// The bytes of a pair's value.
    fn bytes(&self, pair: &Pair) -> &[u8] {
        self.storage
            .bytes()
            .get(pair.range.clone())
            .unwrap_or_default()
    }

    fn decode(&self, pair: &Pair) -> Result<Value<'_>, FormatError> {
        let mut bytes = self.bytes(pair);
        if let Some(count) = pair.count {
            return Ok(Value::Array(Array {
                element: pair.kind,
                count,
                bytes,
            }));
        }
        decode(pair.kind, &mut bytes)
            .map_err(|problem| FormatError::damaged(&self.file, quote(&pair.key), problem))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(Value<'a>) -> Option<T>,
    ) -> Result<Option<T>, FormatError> {
        let Some(pair) = self.find(key) else {
            return Ok(None);
        };
        let value = self.decode(pair)?;
        convert(value)
            .map(Some)
            .ok_or_else(|| wrong_type(&self.file, key, value, expected))
    }

    /// The elements of an array of which each takes at least `smallest` bytes in the file.
    fn elements<'a, T>(
        &'a self,
        key: &str,
        smallest: u64,
        expected: &'static str,
        convert: impl Fn(Value<'a>) -> Option<T>,
    ) -> Result<Option<Vec<T>>, FormatError> {
        let Some(array) = self.typed(key, expected, |value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })?
        else {
            return Ok(None);
        };
        if array.element.smallest_bytes() < smallest {
            return Err(wrong_type(&self.file, key, Value::Array(array), expected));
        }
        let mut out = Vec::with_capacity(array.len()); // bounded by the file: see `smallest`
        for (index, element) in array.iter().enumerate() {
            let field = || format!("{}[{index}]", quote(key));
            let element =
                element.map_err(|problem| FormatError::damaged(&self.file, field(), problem))?;
            let Some(value) = convert(element) else {
                return Err(FormatError::WrongType {
                    file: self.file.clone(),
                    field: field(),
                    found: element.to_string(),
                    expected,
                });
            };
            out.push(value);
        }
        Ok(Some(out))
    }
}
