//! Panels: weights as kernels stream them, 16 output rows side by side.
//!
//! A panel holds [`PANEL_ROWS`] rows of one matrix. Its codes lie in 64-byte *lines*; in a line, four bytes (one
//! dword) belong to each row, so that a broadcast dword of activations meets all 16 rows at once and no sum ever
//! crosses lanes. For each 32 weights of the rows there are, one after the other, the lines of these planes:
//!
//! | plane | lines | dword of a row |
//! | --- | --- | --- |
//! | 8 bits | 8 | line `i`, byte `b`: the code of weight `4 i + b` |
//! | 4 bits | 4 | line `i`, byte `b`: weight `4 i + b` in the low half, weight `16 + 4 i + b` in the high half |
//! | 2 bits | 2 | line `j`, byte `b`, bits `2 t..2 t + 2`: weight `16 j + 4 t + b` (`t` < 4) |
//! | 1 bit | 1 | byte `b`, bit `i`: weight `4 i + b` (`i` < 8) |
//!
//! Codes are unsigned; where the format's zero point is not 0 the true code is `code - zero_point`. Scales lie apart,
//! as the file's integers and f16, never as a rounded product; see [`ScaleKind`]. Missing rows of the last panel are zeros.

mod fields;
mod pack;

pub use pack::pack_panel;

use crate::WeightType;

/// Output rows in a panel.
pub const PANEL_ROWS: usize = 16;
/// Bytes of a line: a dword for each row.
pub const LINE_BYTES: usize = 64;
/// Weights of a row that one group of lines covers.
pub const PANEL_BLOCK: usize = 32;
/// Weights of a row that share one super-scale in K types.
pub const SUPER_BLOCK: usize = 256;

/// How the codes of a type are laid out in planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// 2-bit plane.
    Bits2,
    /// 2-bit plane, then a 1-bit plane with bit 2.
    Bits3,
    /// 4-bit plane.
    Bits4,
    /// 4-bit plane of indices into IQ4_NL's table.
    Table4,
    /// 4-bit plane, then a 1-bit plane with bit 4.
    Bits5,
    /// 4-bit plane, then a 2-bit plane with bits 4 and 5.
    Bits6,
    /// 8-bit plane.
    Bits8,
}

impl CodeKind {
    /// Lines for 32 weights of 16 rows.
    pub const fn lines(self) -> usize {
        match self {
            CodeKind::Bits2 => 2,
            CodeKind::Bits3 => 3,
            CodeKind::Bits4 | CodeKind::Table4 => 4,
            CodeKind::Bits5 => 5,
            CodeKind::Bits6 => 6,
            CodeKind::Bits8 => 8,
        }
    }
}

/// How the scales of a type are laid out; each item is 16 values, one for each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    /// For each 32 weights: f16 scale.
    Half,
    /// For each 32: f16 scale, f16 minimum.
    HalfMin,
    /// For each 256: f16 d, f16 dmin; then for each 32: u8 sc, u8 m. `w = (d sc) c - dmin m`.
    Super32Min,
    /// For each 256: f16 d; then for each 16: i8 sc. `w = (d sc) c`.
    Super16,
    /// For each 256: f16 d, f16 dmin; then for each 16: u8, sc in the low half and m in the high half.
    Super16Min,
}

impl ScaleKind {
    /// Bytes of the scales of a panel of this width.
    pub const fn bytes(self, width: usize) -> usize {
        match self {
            ScaleKind::Half => width / PANEL_BLOCK * 32,
            ScaleKind::HalfMin => width / PANEL_BLOCK * 64,
            ScaleKind::Super32Min => width / SUPER_BLOCK * (64 + 8 * 32),
            ScaleKind::Super16 => width / SUPER_BLOCK * (32 + 16 * 16),
            ScaleKind::Super16Min => width / SUPER_BLOCK * (64 + 16 * 16),
        }
    }
}

/// The layout of a quantized type in panels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PanelLayout {
    /// Planes of codes.
    pub codes: CodeKind,
    /// Scales.
    pub scales: ScaleKind,
    /// What is subtracted from an unsigned code; a power of two, or 0. (For [`CodeKind::Table4`]: from the
    /// table's value plus 128.)
    pub zero_point: u8,
}

impl PanelLayout {
    /// The layout of a type; `None` for float types.
    pub const fn of(kind: WeightType) -> Option<Self> {
        use WeightType::*;
        let (codes, scales, zero_point) = match kind {
            F32 | F16 | BF16 => return None,
            Q4_0 => (CodeKind::Bits4, ScaleKind::Half, 8),
            Q4_1 => (CodeKind::Bits4, ScaleKind::HalfMin, 0),
            Q5_0 => (CodeKind::Bits5, ScaleKind::Half, 16),
            Q5_1 => (CodeKind::Bits5, ScaleKind::HalfMin, 0),
            Q8_0 => (CodeKind::Bits8, ScaleKind::Half, 128),
            Q2_K => (CodeKind::Bits2, ScaleKind::Super16Min, 0),
            Q3_K => (CodeKind::Bits3, ScaleKind::Super16, 4),
            Q4_K => (CodeKind::Bits4, ScaleKind::Super32Min, 0),
            Q5_K => (CodeKind::Bits5, ScaleKind::Super32Min, 0),
            Q6_K => (CodeKind::Bits6, ScaleKind::Super16, 32),
            IQ4_NL => (CodeKind::Table4, ScaleKind::Half, 128),
        };
        Some(Self {
            codes,
            scales,
            zero_point,
        })
    }

    /// Bytes of the codes of a panel of this width.
    pub const fn code_bytes(&self, width: usize) -> usize {
        width / PANEL_BLOCK * self.codes.lines() * LINE_BYTES
    }

    /// Bytes of the scales of a panel of this width.
    pub const fn scale_bytes(&self, width: usize) -> usize {
        self.scales.bytes(width)
    }
}

/// The scalar twin of every kernel's unpacking: weights `32 block..32 block + 32` of row `row` of a panel, as
/// unsigned codes (before the table and the zero point).
pub fn panel_codes(
    layout: PanelLayout,
    codes: &[u8],
    block: usize,
    row: usize,
) -> [u8; PANEL_BLOCK] {
    let group_bytes = layout.codes.lines() * LINE_BYTES;
    let lines = &codes[block * group_bytes..][..group_bytes];
    let byte = |line: usize, k: usize| lines[line * LINE_BYTES + row * 4 + k % 4];
    let low4 = |k: usize| (byte(k % 16 / 4, k) >> (k / 16 * 4)) & 15;
    let bits2 = |first: usize, k: usize| (byte(first + k / 16, k) >> (k % 16 / 4 * 2)) & 3;
    let bit = |line: usize, k: usize| (byte(line, k) >> (k / 4)) & 1;
    std::array::from_fn(|k| match layout.codes {
        CodeKind::Bits2 => bits2(0, k),
        CodeKind::Bits3 => bits2(0, k) | bit(2, k) << 2,
        CodeKind::Bits4 | CodeKind::Table4 => low4(k),
        CodeKind::Bits5 => low4(k) | bit(4, k) << 4,
        CodeKind::Bits6 => low4(k) | bits2(4, k) << 4,
        CodeKind::Bits8 => byte(k / 4, k),
    })
}

/// Scale and addend of the sub-block that begins at weight `k` of row `row`: the exact products of [`Unpacked`].
pub fn panel_scale(layout: PanelLayout, scales: &[u8], k: usize, row: usize) -> (f32, f32) {
    let half = |at: usize| crate::float::f16_at(scales, at + 2 * row);
    let in_super = k % SUPER_BLOCK;
    match layout.scales {
        ScaleKind::Half => (half(k / PANEL_BLOCK * 32), 0.0),
        ScaleKind::HalfMin => (half(k / PANEL_BLOCK * 64), half(k / PANEL_BLOCK * 64 + 32)),
        ScaleKind::Super32Min => {
            let at = layout.scales.bytes(k - in_super);
            let pair = at + 64 + in_super / 32 * 32 + row;
            let (sc, m) = (f32::from(scales[pair]), f32::from(scales[pair + 16]));
            (half(at) * sc, -(half(at + 32) * m))
        }
        ScaleKind::Super16 => {
            let at = layout.scales.bytes(k - in_super);
            let sc = scales[at + 32 + in_super + row] as i8;
            (half(at) * f32::from(sc), 0.0)
        }
        ScaleKind::Super16Min => {
            let at = layout.scales.bytes(k - in_super);
            let both = scales[at + 64 + in_super + row];
            (
                half(at) * f32::from(both & 15),
                -(half(at + 32) * f32::from(both >> 4)),
            )
        }
    }
}

/// Decodes row `row` of a panel into f32, `[width]`: the values of [`crate::decode`].
pub fn decode_panel_row(
    kind: WeightType,
    codes: &[u8],
    scales: &[u8],
    row: usize,
    out: &mut [f32],
) {
    let Some(layout) = PanelLayout::of(kind) else {
        return;
    };
    let sub_block = kind.sub_block();
    for (block, out) in out.chunks_exact_mut(PANEL_BLOCK).enumerate() {
        let unsigned = panel_codes(layout, codes, block, row);
        for (s, out) in out.chunks_exact_mut(sub_block).enumerate() {
            let (scale, min) =
                panel_scale(layout, scales, block * PANEL_BLOCK + s * sub_block, row);
            for (out, code) in out.iter_mut().zip(&unsigned[s * sub_block..]) {
                let code = signed_code(layout, *code);
                *out = scale * f32::from(code);
                if kind.has_min() {
                    *out += min;
                }
            }
        }
    }
}

/// The true code of an unsigned one.
#[inline(always)]
pub fn signed_code(layout: PanelLayout, code: u8) -> i16 {
    match layout.codes {
        CodeKind::Table4 => i16::from(crate::IQ4_NL_TABLE[usize::from(code & 15)]),
        _ => i16::from(code) - i16::from(layout.zero_point),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

    fn rows(kind: WeightType, width: usize, count: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|row| {
                let values: Vec<f32> = (0..width)
                    .map(|k| ((row * 7919 + k * 104_729) % 1009) as f32 / 504.5 - 1.0)
                    .map(|v| v * (1.0 + row as f32))
                    .collect();
                let mut bytes = Vec::new();
                encode(kind, &values, &mut bytes);
                bytes
            })
            .collect()
    }

    #[test]
    fn a_packed_row_decodes_to_the_bits_of_its_file_blocks() {
        for kind in WeightType::ALL.into_iter().filter(|k| k.is_quantized()) {
            let layout = PanelLayout::of(kind).expect("a layout");
            let width = 512;
            for count in [1, 5, 16] {
                let rows = rows(kind, width, count);
                let mut codes = vec![0; layout.code_bytes(width)];
                let mut scales = vec![0; layout.scale_bytes(width)];
                pack_panel(
                    kind,
                    rows.iter().map(Vec::as_slice),
                    width,
                    &mut codes,
                    &mut scales,
                );
                for (row, bytes) in rows.iter().enumerate() {
                    let (mut expected, mut got) = (vec![0.0; width], vec![9.0; width]);
                    decode(kind, bytes, &mut expected);
                    decode_panel_row(kind, &codes, &scales, row, &mut got);
                    for k in 0..width {
                        assert_eq!(
                            got[k].to_bits(),
                            expected[k].to_bits(),
                            "{kind} row {row} weight {k}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn memory_stays_about_the_files() {
        for kind in WeightType::ALL.into_iter().filter(|k| k.is_quantized()) {
            let layout = PanelLayout::of(kind).expect("a layout");
            let packed = layout.code_bytes(1024) + layout.scale_bytes(1024);
            let file = kind.row_bytes(1024).expect("whole blocks") * PANEL_ROWS;
            assert!(
                packed * 100 <= file * 104,
                "{kind}: {packed} bytes for {file}"
            );
        }
    }
}
