//! The types that a weight can have, and the size of their blocks.

/// The storage type of a weight tensor: a GGUF tensor type, or the dtype of a safetensors tensor.
#[allow(missing_docs, non_camel_case_types)] // the names are the field's own
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WeightType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
}

impl WeightType {
    /// Every type that this build can compute with.
    pub const ALL: [WeightType; 14] = {
        use WeightType::*;
        [
            F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL,
        ]
    };

    /// Weights in one block.
    pub const fn block_elements(self) -> usize {
        use WeightType::*;
        match self {
            F32 | F16 | BF16 => 1,
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | IQ4_NL => 32,
            Q2_K | Q3_K | Q4_K | Q5_K | Q6_K => 256,
        }
    }

    /// Bytes of one block as stored in a file.
    pub const fn block_bytes(self) -> usize {
        use WeightType::*;
        match self {
            F32 => 4,
            F16 | BF16 => 2,
            Q4_0 | IQ4_NL => 18,
            Q4_1 => 20,
            Q5_0 => 22,
            Q5_1 => 24,
            Q8_0 => 34,
            Q2_K => 84,
            Q3_K => 110,
            Q4_K => 144,
            Q5_K => 176,
            Q6_K => 210,
        }
    }

    /// Whether weights are stored as integer codes with scales: everything but F32, F16 and BF16.
    pub const fn is_quantized(self) -> bool {
        self.block_elements() > 1
    }

    /// Weights that share one scale (and minimum): 16 for Q2_K, Q3_K and Q6_K, 32 for the other
    /// quantized types, 1 for the float types.
    pub const fn sub_block(self) -> usize {
        use WeightType::*;
        match self {
            F32 | F16 | BF16 => 1,
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q4_K | Q5_K | IQ4_NL => 32,
            Q2_K | Q3_K | Q6_K => 16,
        }
    }

    /// Whether the type stores a minimum beside the scale, so that `weight = scale * code + min` with
    /// unsigned codes.
    pub const fn has_min(self) -> bool {
        use WeightType::*;
        matches!(self, Q4_1 | Q5_1 | Q2_K | Q4_K | Q5_K)
    }

    /// Bytes of a row of `elements` weights; `None` when the row is not a whole number of blocks or
    /// its size overflows.
    pub fn row_bytes(self, elements: usize) -> Option<usize> {
        if !elements.is_multiple_of(self.block_elements()) {
            return None;
        }
        (elements / self.block_elements()).checked_mul(self.block_bytes())
    }

    /// The type with this number in a GGUF tensor table; `None` when it is not supported
    /// (see [`crate::ggml_type_name`] for what it is called).
    pub fn from_ggml(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.ggml_number() == number)
    }

    /// The number of this type in a GGUF tensor table (ggml's `ggml_type`).
    pub const fn ggml_number(self) -> u32 {
        use WeightType::*;
        match self {
            F32 => 0,
            F16 => 1,
            Q4_0 => 2,
            Q4_1 => 3,
            Q5_0 => 6,
            Q5_1 => 7,
            Q8_0 => 8,
            Q2_K => 10,
            Q3_K => 11,
            Q4_K => 12,
            Q5_K => 13,
            Q6_K => 14,
            IQ4_NL => 20,
            BF16 => 30,
        }
    }

    /// The type's name as the field writes it, for example `Q4_K`.
    pub const fn name(self) -> &'static str {
        use WeightType::*;
        match self {
            F32 => "F32",
            F16 => "F16",
            BF16 => "BF16",
            Q4_0 => "Q4_0",
            Q4_1 => "Q4_1",
            Q5_0 => "Q5_0",
            Q5_1 => "Q5_1",
            Q8_0 => "Q8_0",
            Q2_K => "Q2_K",
            Q3_K => "Q3_K",
            Q4_K => "Q4_K",
            Q5_K => "Q5_K",
            Q6_K => "Q6_K",
            IQ4_NL => "IQ4_NL",
        }
    }
}

impl std::fmt::Display for WeightType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_blocks_and_do_not_overflow() {
        assert_eq!(WeightType::Q4_0.row_bytes(64), Some(36));
        assert_eq!(WeightType::Q6_K.row_bytes(512), Some(420));
        assert_eq!(WeightType::Q4_0.row_bytes(48), None);
        assert_eq!(WeightType::F32.row_bytes(usize::MAX), None);
        assert_eq!(WeightType::F32.row_bytes(0), Some(0));
    }

    #[test]
    fn sub_blocks_divide_blocks_and_are_what_activations_can_serve() {
        for kind in WeightType::ALL {
            assert!(kind.block_elements().is_multiple_of(kind.sub_block()));
            assert!(!kind.is_quantized() || [16, 32].contains(&kind.sub_block()));
            assert!(kind.is_quantized() || !kind.has_min());
        }
    }
}
