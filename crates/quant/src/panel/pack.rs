//! From file blocks to panels.

use super::{CodeKind, LINE_BYTES, PANEL_BLOCK, PANEL_ROWS, PanelLayout, ScaleKind};
use crate::panel::fields::Fields;
use crate::{Unpacked, WeightType, nibbles, unpack};

/// Packs up to 16 rows of file blocks into one panel: `codes` of [`PanelLayout::code_bytes`] and `scales` of
/// [`PanelLayout::scale_bytes`]. The bytes of missing rows are left as they were: zeros, by the panel's contract.
///
/// # Panics
/// When `kind` is a float type, there are more than 16 rows, or a length does not match `width`.
pub fn pack_panel<'a>(
    kind: WeightType,
    rows: impl IntoIterator<Item = &'a [u8]>,
    width: usize,
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let Some(layout) = PanelLayout::of(kind) else {
        panic!("{kind} weights have no panels of codes");
    };
    assert_eq!(codes.len(), layout.code_bytes(width));
    assert_eq!(scales.len(), layout.scale_bytes(width));
    for (row, bytes) in rows.into_iter().enumerate() {
        assert!(row < PANEL_ROWS, "a panel has 16 rows");
        assert_eq!(Some(bytes.len()), kind.row_bytes(width));
        match layout.codes {
            CodeKind::Bits2 => pack_row::<2, 0>(kind, layout, row, bytes, codes, scales),
            CodeKind::Bits3 => pack_row::<2, 1>(kind, layout, row, bytes, codes, scales),
            CodeKind::Bits4 | CodeKind::Table4 => {
                pack_row::<4, 0>(kind, layout, row, bytes, codes, scales);
            }
            CodeKind::Bits5 => pack_row::<4, 1>(kind, layout, row, bytes, codes, scales),
            CodeKind::Bits6 => pack_row::<4, 2>(kind, layout, row, bytes, codes, scales),
            CodeKind::Bits8 => pack_row::<8, 0>(kind, layout, row, bytes, codes, scales),
        }
    }
}

/// Packs a row whose codes have `LOW` bits in a first plane and `HIGH` more in a second.
fn pack_row<const LOW: usize, const HIGH: usize>(
    kind: WeightType,
    layout: PanelLayout,
    row: usize,
    bytes: &[u8],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let mut block = Unpacked::ZERO;
    let mut groups = codes.chunks_exact_mut((LOW + HIGH) * LINE_BYTES);
    let mut k = 0;
    for bytes in bytes.chunks_exact(kind.block_bytes()) {
        let elements = unpack(kind, bytes, &mut block);
        let (values, _) = block.codes[..elements].as_chunks::<PANEL_BLOCK>();
        for (values, lines) in values.iter().zip(&mut groups) {
            let unsigned = match layout.codes {
                // Unpacked are the table's values, packed their places in it: those of the file.
                CodeKind::Table4 => nibbles::split(&bytes[2..]),
                _ => values.map(|c| (c as u8).wrapping_add(layout.zero_point)),
            };
            put_codes::<LOW, HIGH>(&unsigned, row, lines);
        }
        put_scales(layout.scales, &Fields::of(kind, bytes), row, k, scales);
        k += elements;
    }
}

/// Writes 32 unsigned codes of a row into its dwords, a dword at a time.
#[inline(always)]
fn put_codes<const LOW: usize, const HIGH: usize>(
    codes: &[u8; PANEL_BLOCK],
    row: usize,
    lines: &mut [u8],
) {
    let (quads, _) = codes.as_chunks::<4>();
    let quads: [u32; 8] = std::array::from_fn(|q| u32::from_le_bytes(quads[q]));
    let (low, high) = lines.split_at_mut(LOW * LINE_BYTES);
    put_plane::<LOW>(&quads, row, low);
    put_plane::<HIGH>(&quads.map(|quad| quad >> LOW), row, high);
}

/// Writes the lowest `BITS` bits of all codes into a row's dwords of the plane's `BITS` lines.
///
/// A dword of a plane is made of whole `quads`, four codes with a byte each, moved up beside each other: masked,
/// no code reaches its neighbour's byte. (A plane of 0 bits has no lines.)
#[inline(always)]
fn put_plane<const BITS: usize>(quads: &[u32; 8], row: usize, lines: &mut [u8]) {
    let mask = 0x0101_0101 * ((1u32 << BITS) - 1);
    for (line, bytes) in lines.chunks_exact_mut(LINE_BYTES).enumerate() {
        let mut dword = 0;
        for part in 0..8 / BITS {
            // The halves of the 4-bit plane are 16 weights apart; the parts of the others follow each other.
            let quad = match BITS {
                4 => line + 4 * part,
                _ => line * (8 / BITS) + part,
            };
            dword |= (quads[quad] & mask) << (BITS * part);
        }
        bytes[4 * row..][..4].copy_from_slice(&dword.to_le_bytes());
    }
}

/// Writes the scales of the file block that begins at weight `k` of a row.
fn put_scales(kind: ScaleKind, fields: &Fields, row: usize, k: usize, scales: &mut [u8]) {
    let mut half = |at: usize, bytes: [u8; 2]| scales[at + 2 * row..][..2].copy_from_slice(&bytes);
    match kind {
        ScaleKind::Half => half(k / PANEL_BLOCK * 32, fields.d),
        ScaleKind::HalfMin => {
            let at = k / PANEL_BLOCK * 64;
            half(at, fields.d);
            half(at + 32, fields.dmin);
        }
        ScaleKind::Super32Min => {
            let at = kind.bytes(k);
            half(at, fields.d);
            half(at + 32, fields.dmin);
            for s in 0..8 {
                scales[at + 64 + 32 * s + row] = fields.scales[s];
                scales[at + 80 + 32 * s + row] = fields.mins[s];
            }
        }
        ScaleKind::Super16 => {
            let at = kind.bytes(k);
            half(at, fields.d);
            for s in 0..16 {
                scales[at + 32 + 16 * s + row] = fields.scales[s];
            }
        }
        ScaleKind::Super16Min => {
            let at = kind.bytes(k);
            half(at, fields.d);
            half(at + 32, fields.dmin);
            for s in 0..16 {
                scales[at + 64 + 16 * s + row] = fields.scales[s] | fields.mins[s] << 4;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;

    /// The scalar twin: writes 32 unsigned codes of a row a field at a time, as the table of planes says.
    fn put_codes_by_field(kind: CodeKind, codes: &[u8; PANEL_BLOCK], row: usize, lines: &mut [u8]) {
        let mut plane = |first_line: usize, bits: u32, shift: u32| {
            for (k, code) in codes.iter().enumerate() {
                let (line, at) = match bits {
                    8 => (k / 4, 0),
                    4 => (k % 16 / 4, k / 16 * 4),
                    2 => (k / 16, k % 16 / 4 * 2),
                    _ => (0, k / 4),
                };
                let field = (u32::from(*code) >> shift) & ((1 << bits) - 1);
                lines[(first_line + line) * LINE_BYTES + row * 4 + k % 4] |= (field << at) as u8;
            }
        };
        match kind {
            CodeKind::Bits2 => plane(0, 2, 0),
            CodeKind::Bits3 => {
                plane(0, 2, 0);
                plane(2, 1, 2);
            }
            CodeKind::Bits4 | CodeKind::Table4 => plane(0, 4, 0),
            CodeKind::Bits5 => {
                plane(0, 4, 0);
                plane(4, 1, 4);
            }
            CodeKind::Bits6 => {
                plane(0, 4, 0);
                plane(4, 2, 4);
            }
            CodeKind::Bits8 => plane(0, 8, 0),
        }
    }

    /// The dword writer of a kind.
    fn put(kind: CodeKind, codes: &[u8; PANEL_BLOCK], row: usize, lines: &mut [u8]) {
        match kind {
            CodeKind::Bits2 => put_codes::<2, 0>(codes, row, lines),
            CodeKind::Bits3 => put_codes::<2, 1>(codes, row, lines),
            CodeKind::Bits4 | CodeKind::Table4 => put_codes::<4, 0>(codes, row, lines),
            CodeKind::Bits5 => put_codes::<4, 1>(codes, row, lines),
            CodeKind::Bits6 => put_codes::<4, 2>(codes, row, lines),
            CodeKind::Bits8 => put_codes::<8, 0>(codes, row, lines),
        }
    }

    #[test]
    fn dwords_have_the_bits_of_the_scalar_twin() {
        const KINDS: [(CodeKind, u32); 7] = [
            (CodeKind::Bits2, 2),
            (CodeKind::Bits3, 3),
            (CodeKind::Bits4, 4),
            (CodeKind::Table4, 4),
            (CodeKind::Bits5, 5),
            (CodeKind::Bits6, 6),
            (CodeKind::Bits8, 8),
        ];
        let mut state = 1u32;
        for (kind, bits) in KINDS {
            for round in 0..32 {
                let codes: [u8; PANEL_BLOCK] = std::array::from_fn(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8 & ((1u32 << bits) - 1) as u8
                });
                let row = round % PANEL_ROWS;
                let mut expected = vec![0; kind.lines() * LINE_BYTES];
                let mut got = expected.clone();
                put_codes_by_field(kind, &codes, row, &mut expected);
                put(kind, &codes, row, &mut got);
                assert_eq!(got, expected, "{kind:?} row {row}");
            }
        }
    }

    #[test]
    fn codes_lie_in_the_dword_of_their_row() {
        // Row 3, weight 21 = 4 * 5 + 1 = 16 + 4 * 1 + 1: line 1, byte 1, the high half.
        let mut codes = [0u8; PANEL_BLOCK];
        codes[21] = 0b1_1010;
        let mut lines = vec![0; 5 * LINE_BYTES];
        put(CodeKind::Bits5, &codes, 3, &mut lines);
        let nonzero: Vec<(usize, u8)> = (0..lines.len())
            .map(|i| (i, lines[i]))
            .filter(|(_, b)| *b != 0)
            .collect();
        assert_eq!(nonzero, [(64 + 13, 0xa0), (4 * 64 + 13, 1 << 5)]);
    }

    #[test]
    fn missing_rows_are_left_alone() {
        let kind = WeightType::Q5_1;
        let layout = PanelLayout::of(kind).expect("a layout");
        let mut row = Vec::new();
        encode(kind, &[0.5; 64], &mut row);
        let mut codes = vec![0xee; layout.code_bytes(64)];
        let mut scales = vec![0xee; layout.scale_bytes(64)];
        pack_panel(kind, [row.as_slice()], 64, &mut codes, &mut scales);
        for line in codes.chunks_exact(LINE_BYTES) {
            assert_eq!(line[4..], [0xee; LINE_BYTES - 4]);
        }
        for half in scales.chunks_exact(32) {
            assert_eq!(half[2..], [0xee; 30]);
        }
    }
}
