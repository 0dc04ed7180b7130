//! The names of ggml's tensor types, supported here or not.

/// What ggml calls the tensor type with this number; `None` for a number that ggml has not given out.
///
/// This covers types that [`crate::WeightType::from_ggml`] refuses, so that the refusal can name them,
/// and the numbers 4, 5, 31-33 and 36-38 that old files may carry though ggml has withdrawn them.
/// Source: the enum `ggml_type` of ggml.h, up to number 41.
pub fn ggml_type_name(number: u32) -> Option<&'static str> {
    const NAMES: [&str; 42] = [
        "F32",
        "F16",
        "Q4_0",
        "Q4_1",
        "Q4_2",
        "Q4_3",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q8_1",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "Q8_K",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ3_XXS",
        "IQ1_S",
        "IQ4_NL",
        "IQ3_S",
        "IQ2_S",
        "IQ4_XS",
        "I8",
        "I16",
        "I32",
        "I64",
        "F64",
        "IQ1_M",
        "BF16",
        "Q4_0_4_4",
        "Q4_0_4_8",
        "Q4_0_8_8",
        "TQ1_0",
        "TQ2_0",
        "IQ4_NL_4_4",
        "IQ4_NL_4_8",
        "IQ4_NL_8_8",
        "MXFP4",
        "NVFP4",
        "Q1_0",
    ];
    NAMES.get(usize::try_from(number).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::ggml_type_name;
    use crate::WeightType;

    #[test]
    fn supported_types_have_the_same_name_in_both_tables() {
        for kind in WeightType::ALL {
            assert_eq!(ggml_type_name(kind.ggml_number()), Some(kind.name()));
            assert_eq!(WeightType::from_ggml(kind.ggml_number()), Some(kind));
        }
    }

    #[test]
    fn unsupported_types_are_named_and_refused() {
        // Numbers and names as in ggml.h and the gguf package 0.19.
        for (number, name) in [
            (9, "Q8_1"),
            (16, "IQ2_XXS"),
            (23, "IQ4_XS"),
            (24, "I8"),
            (28, "F64"),
            (29, "IQ1_M"),
            (34, "TQ1_0"),
            (35, "TQ2_0"),
            (39, "MXFP4"),
            (40, "NVFP4"),
            (41, "Q1_0"),
        ] {
            assert_eq!(ggml_type_name(number), Some(name));
            assert_eq!(WeightType::from_ggml(number), None);
        }
        assert_eq!(ggml_type_name(42), None);
        assert_eq!(ggml_type_name(u32::MAX), None);
    }
}
