//! The scale fields of a file block, as integers.

use crate::{WeightType, k_scales, q3_k};

/// Super-scales as f16 bytes and sub-scales as integers; what a type does not have is 0.
pub(super) struct Fields {
    /// The scale or super-scale.
    pub(super) d: [u8; 2],
    /// The minimum or its super-scale.
    pub(super) dmin: [u8; 2],
    /// Sub-scales (i8 as its bits where a type has signed ones).
    pub(super) scales: [u8; 16],
    /// Sub-minima.
    pub(super) mins: [u8; 16],
}

impl Fields {
    /// Reads them; the offsets are those of the format files' tables.
    pub(super) fn of(kind: WeightType, block: &[u8]) -> Self {
        use WeightType::*;
        let half = |at: usize| [block[at], block[at + 1]];
        let mut fields = Fields {
            d: half(0),
            dmin: [0; 2],
            scales: [0; 16],
            mins: [0; 16],
        };
        match kind {
            F32 | F16 | BF16 | Q4_0 | Q5_0 | Q8_0 | IQ4_NL => {}
            Q4_1 | Q5_1 => fields.dmin = half(2),
            Q4_K | Q5_K => {
                fields.dmin = half(2);
                let (scales, mins) = k_scales::unpack(&block[4..16]);
                fields.scales[..8].copy_from_slice(&scales);
                fields.mins[..8].copy_from_slice(&mins);
            }
            Q2_K => {
                (fields.d, fields.dmin) = (half(80), half(82));
                fields.scales = std::array::from_fn(|s| block[s] & 15);
                fields.mins = std::array::from_fn(|s| block[s] >> 4);
            }
            Q3_K => {
                fields.d = half(108);
                fields.scales = q3_k::sub_scales(&block[96..108]).map(|s| s as u8);
            }
            Q6_K => {
                fields.d = half(208);
                fields.scales.copy_from_slice(&block[192..208]);
            }
        }
        fields
    }
}
