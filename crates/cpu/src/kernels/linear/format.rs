//! The quantized formats as types, so that each kernel is compiled for each of them.

use foredraft_quant::{CodeKind, PanelLayout, ScaleKind, WeightType};

/// A format: its panel layout, known when a kernel is compiled.
pub(super) trait Format {
    const LAYOUT: PanelLayout;
    const CODES: CodeKind = Self::LAYOUT.codes;
    const SCALES: ScaleKind = Self::LAYOUT.scales;
    /// `log2` of the zero point; 0 when there is none (no format has the zero point 1).
    const ZERO_SHIFT: u32 = match Self::LAYOUT.zero_point {
        0 => 0,
        point => point.trailing_zeros(),
    };
}

macro_rules! formats {
    ($($name:ident),*) => {$(
        #[allow(non_camel_case_types)] // the names are the field's own
        pub(super) struct $name;

        impl Format for $name {
            const LAYOUT: PanelLayout = match PanelLayout::of(WeightType::$name) {
                Some(layout) => layout,
                None => panic!("a float type has no panels of codes"),
            };
        }
    )*};
}

formats!(
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL
);

/// Calls a function that is generic over [`Format`] with the format of a quantized type.
macro_rules! with_format {
    ($kind:expr, $function:ident($($argument:expr),*)) => {{
        use foredraft_quant::WeightType;
        use $crate::kernels::linear::format;
        match $kind {
            WeightType::Q4_0 => $function::<format::Q4_0>($($argument),*),
            WeightType::Q4_1 => $function::<format::Q4_1>($($argument),*),
            WeightType::Q5_0 => $function::<format::Q5_0>($($argument),*),
            WeightType::Q5_1 => $function::<format::Q5_1>($($argument),*),
            WeightType::Q8_0 => $function::<format::Q8_0>($($argument),*),
            WeightType::Q2_K => $function::<format::Q2_K>($($argument),*),
            WeightType::Q3_K => $function::<format::Q3_K>($($argument),*),
            WeightType::Q4_K => $function::<format::Q4_K>($($argument),*),
            WeightType::Q5_K => $function::<format::Q5_K>($($argument),*),
            WeightType::Q6_K => $function::<format::Q6_K>($($argument),*),
            WeightType::IQ4_NL => $function::<format::IQ4_NL>($($argument),*),
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => {}
        }
    }};
}
pub(super) use with_format;
