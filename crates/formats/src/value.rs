//! The types of GGUF metadata, and views of values.

use crate::FormatError;
use crate::error::quote;

/// The type of a metadata value or of an array's elements; numbers of the GGUF specification.
#[allow(missing_docs)] // the names are the specification's own
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    /// Types in the order of their numbers, 0 to 12.
    const ALL: [Self; 13] = {
        use ValueType::*;
        [
            U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64,
        ]
    };

    /// The type with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The number of this type in a file.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Bytes of a value of fixed size; the smallest size (an empty one) of a string or array.
    pub(crate) fn smallest_bytes(self) -> u64 {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => 1,
            U16 | I16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 | String => 8,
            Array => 12,
        }
    }

    /// The name in words, as messages and `inspect` write it.
    pub fn name(self) -> &'static str {
        use ValueType::*;
        match self {
            U8 => "u8",
            I8 => "i8",
            U16 => "u16",
            I16 => "i16",
            U32 => "u32",
            I32 => "i32",
            F32 => "f32",
            Bool => "bool",
            String => "string",
            Array => "array",
            U64 => "u64",
            I64 => "i64",
            F64 => "f64",
        }
    }
}

/// One metadata value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// A 32-bit float.
    F32(f32),
    /// A 64-bit float.
    F64(f64),
    /// A truth value.
    Bool(bool),
    /// A string.
    Str(&'a str),
    /// An array of anything but arrays.
    Array(Array<'a>),
}

impl Value<'_> {
    /// The value as an integer of type `T`, if it is one and fits.
    pub(crate) fn integer<T: TryFrom<u64> + TryFrom<i64>>(self) -> Option<T> {
        match self {
            Self::Unsigned(value) => T::try_from(value).ok(),
            Self::Signed(value) => T::try_from(value).ok(),
            _ => None,
        }
    }

    /// The value as an f32: a float of either width (rounded), never an integer.
    pub(crate) fn float(self) -> Option<f32> {
        match self {
            Self::F32(value) => Some(value),
            Self::F64(value) => Some(value as f32),
            _ => None,
        }
    }
}

/// Shows a value on one line; strings are escaped, arrays are summarised.
impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::F32(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::Str(value) => f.write_str(&quote(value)),
            Self::Array(array) => write!(f, "{} x {}", array.len(), array.element().name()),
        }
    }
}

/// An array of metadata values, decoded when it is walked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    pub(crate) element: ValueType,
    pub(crate) count: usize,
    /// The elements, as they are in the file.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of the elements; never [`ValueType::Array`].
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements in order; an element that is not what its type says (a string that is not UTF-8,
    /// a truth value that is neither 0 nor 1) is an `Err` with the reason.
    pub fn iter(&self) -> impl Iterator<Item = Result<Value<'a>, &'static str>> + use<'a> {
        let Self {
            element,
            count,
            mut bytes,
        } = *self;
        (0..count).map(move |_| decode(element, &mut bytes))
    }
}

/// Decodes the value of type `kind` at the start of `bytes` and moves past it.
pub(crate) fn decode<'a>(kind: ValueType, bytes: &mut &'a [u8]) -> Result<Value<'a>, &'static str> {
    fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], &'static str> {
        let (head, tail) = bytes.split_first_chunk().ok_or("it ends early")?;
        *bytes = tail;
        Ok(*head)
    }
    Ok(match kind {
        ValueType::U8 => Value::Unsigned(u8::from_le_bytes(array(bytes)?).into()),
        ValueType::I8 => Value::Signed(i8::from_le_bytes(array(bytes)?).into()),
        ValueType::U16 => Value::Unsigned(u16::from_le_bytes(array(bytes)?).into()),
        ValueType::I16 => Value::Signed(i16::from_le_bytes(array(bytes)?).into()),
        ValueType::U32 => Value::Unsigned(u32::from_le_bytes(array(bytes)?).into()),
        ValueType::I32 => Value::Signed(i32::from_le_bytes(array(bytes)?).into()),
        ValueType::U64 => Value::Unsigned(u64::from_le_bytes(array(bytes)?)),
        ValueType::I64 => Value::Signed(i64::from_le_bytes(array(bytes)?)),
        ValueType::F32 => Value::F32(f32::from_le_bytes(array(bytes)?)),
        ValueType::F64 => Value::F64(f64::from_le_bytes(array(bytes)?)),
        ValueType::Bool => match array::<1>(bytes)? {
            [0] => Value::Bool(false),
            [1] => Value::Bool(true),
            _ => return Err("a truth value is neither 0 nor 1"),
        },
        ValueType::String => {
            let length = u64::from_le_bytes(array(bytes)?);
            let length = usize::try_from(length).map_err(|_| "it ends early")?;
            let (text, tail) = bytes.split_at_checked(length).ok_or("it ends early")?;
            *bytes = tail;
            Value::Str(std::str::from_utf8(text).map_err(|_| "a string is not UTF-8")?)
        }
        ValueType::Array => return Err("arrays of arrays are not supported"),
    })
}

/// The error of a value that has another type than the one asked for.
pub(crate) fn wrong_type(
    file: &str,
    key: &str,
    found: Value<'_>,
    expected: &'static str,
) -> FormatError {
    let found = match found {
        Value::Str(_) => format!("the string {found}"),
        Value::Array(_) => format!("an array ({found})"),
        other => format!("{other}"),
    };
    FormatError::WrongType {
        file: file.to_owned(),
        field: quote(key),
        found,
        expected,
    }
}
