//! What a tensor's elements can be: weights that this build computes with, or plain numbers.

use foredraft_quant::WeightType;

/// The type of a tensor's elements.
///
/// Weights are what models compute with. The plain types occur in tables beside them (the `d2t` map
/// of an EAGLE-3 head is I64): they can be listed and read, but no kernel takes them.
#[allow(missing_docs)] // the names are the field's own
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// A type of [`WeightType`], quantized or floating point.
    Weight(WeightType),
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    Bool,
}

impl ElementType {
    /// The type with this number in a GGUF tensor table; `None` when it is not supported.
    pub fn from_ggml(number: u32) -> Option<Self> {
        // Numbers of ggml's `enum ggml_type` (ggml/include/ggml.h).
        Some(match number {
            24 => Self::I8,
            25 => Self::I16,
            26 => Self::I32,
            27 => Self::I64,
            28 => Self::F64,
            _ => Self::Weight(WeightType::from_ggml(number)?),
        })
    }

    /// The number of this type in a GGUF tensor table; `None` when ggml has no such type.
    pub fn ggml_number(self) -> Option<u32> {
        Some(match self {
            Self::Weight(kind) => kind.ggml_number(),
            Self::I8 => 24,
            Self::I16 => 25,
            Self::I32 => 26,
            Self::I64 => 27,
            Self::F64 => 28,
            Self::U8 | Self::Bool => return None,
        })
    }

    /// The type with this name in a safetensors header; `None` when it is not supported.
    pub fn from_safetensors(name: &str) -> Option<Self> {
        Some(match name {
            "F32" => Self::Weight(WeightType::F32),
            "F16" => Self::Weight(WeightType::F16),
            "BF16" => Self::Weight(WeightType::BF16),
            "F64" => Self::F64,
            "I8" => Self::I8,
            "I16" => Self::I16,
            "I32" => Self::I32,
            "I64" => Self::I64,
            "U8" => Self::U8,
            "BOOL" => Self::Bool,
            _ => return None,
        })
    }

    /// The weight type, if a kernel can take it.
    pub fn weight(self) -> Option<WeightType> {
        match self {
            Self::Weight(kind) => Some(kind),
            _ => None,
        }
    }

    /// Bytes of a row of `elements`; `None` when it is not a whole number of blocks or overflows.
    pub fn row_bytes(self, elements: usize) -> Option<usize> {
        match self {
            Self::Weight(kind) => kind.row_bytes(elements),
            Self::I8 | Self::U8 | Self::Bool => Some(elements),
            Self::I16 => elements.checked_mul(2),
            Self::I32 => elements.checked_mul(4),
            Self::I64 | Self::F64 => elements.checked_mul(8),
        }
    }

    /// The type's name as the field writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weight(kind) => kind.name(),
            Self::F64 => "F64",
            Self::I8 => "I8",
            Self::I16 => "I16",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::U8 => "U8",
            Self::Bool => "BOOL",
        }
    }
}

impl std::fmt::Display for ElementType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// The names of all weight types, for messages.
pub(crate) fn supported_weights() -> String {
    let names: Vec<&str> = WeightType::ALL.iter().map(|kind| kind.name()).collect();
    names.join(", ")
}
