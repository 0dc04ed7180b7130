//! The kernel in plain Rust: what the others compute, and the path of processors without one of their own.

use std::ops::Range;

use foredraft_quant::{CodeKind, PANEL_BLOCK, PANEL_ROWS, SUPER_BLOCK, ScaleKind, f16_to_f32};

use super::format::{Format, with_format};
use super::{Job, Sums, for_each_tile};
use crate::kernels::activations::Activations;
use crate::weights::QuantizedPanel;

/// Sixteen outputs in lanes.
type Lanes = [f32; PANEL_ROWS];
/// Four codes of each row.
type Line = [u8; 64];

/// # Safety
/// As `quantized_panels` in the parent module.
#[allow(unsafe_code)]
pub(super) unsafe fn panels(job: &Job<'_>, panels: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe {
        for_each_tile(job, panels, |panel, x, sums| {
            with_format!(panel.kind, rows(panel, x, sums))
        });
    }
}

fn rows<F: Format>(panel: &QuantizedPanel<'_>, x: &Activations<'_>, sums: &mut Sums) {
    let sums = &mut sums[..x.rows];
    sums.fill([0.0; PANEL_ROWS]);
    let group = F::CODES.lines() * 64;
    for (block, lines) in panel.codes.chunks_exact(group).enumerate() {
        let codes = load::<F>(lines);
        match F::SCALES {
            ScaleKind::Half | ScaleKind::HalfMin | ScaleKind::Super32Min => {
                let (scale, min) = scales::<F>(panel.scales, block * PANEL_BLOCK);
                for (m, sum) in sums.iter_mut().enumerate() {
                    let at = block * x.rows + m;
                    let zero = x.minus_sums[at] << F::ZERO_SHIFT;
                    let dots = dots(
                        &codes,
                        &x.codes[at * 32..][..32],
                        if F::ZERO_SHIFT > 0 { zero } else { 0 },
                    );
                    step(sum, &dots, &scale, x.scales[at]);
                    if F::SCALES != ScaleKind::Half {
                        add_min(sum, &min, x.scaled_sums[at]);
                    }
                }
            }
            ScaleKind::Super16 | ScaleKind::Super16Min => {
                for half in 0..2 {
                    let (scale, min) = scales::<F>(panel.scales, block * PANEL_BLOCK + 16 * half);
                    for (m, sum) in sums.iter_mut().enumerate() {
                        let at = block * x.rows + m;
                        let zero = x.minus_half_sums[2 * at + half] << F::ZERO_SHIFT;
                        let lines = &codes[4 * half..4 * half + 4];
                        let codes = &x.codes[at * 32 + 16 * half..][..16];
                        let dots = dots(lines, codes, if F::ZERO_SHIFT > 0 { zero } else { 0 });
                        step(sum, &dots, &scale, x.scales[at]);
                        if F::SCALES == ScaleKind::Super16Min {
                            add_min(sum, &min, x.scaled_half_sums[2 * at + half]);
                        }
                    }
                }
            }
        }
    }
}

/// `sum = fma(dot, scale_w * scale_x, sum)`.
#[inline(always)]
fn step(sum: &mut Lanes, dots: &[i32; PANEL_ROWS], scale: &Lanes, scale_x: f32) {
    for lane in 0..PANEL_ROWS {
        sum[lane] = (dots[lane] as f32).mul_add(scale[lane] * scale_x, sum[lane]);
    }
}

/// `sum = fma(min_w, sum_x * scale_x, sum)`.
#[inline(always)]
fn add_min(sum: &mut Lanes, min: &Lanes, scaled_sum: f32) {
    for lane in 0..PANEL_ROWS {
        sum[lane] = min[lane].mul_add(scaled_sum, sum[lane]);
    }
}

/// Integer products of 16 rows with the activations, four a line.
#[inline(always)]
fn dots(lines: &[Line], x: &[i8], start: i32) -> [i32; PANEL_ROWS] {
    let mut sums = [start; PANEL_ROWS];
    for (line, x) in lines.iter().zip(x.as_chunks::<4>().0) {
        for (sum, codes) in sums.iter_mut().zip(line.as_chunks::<4>().0) {
            for (code, x) in codes.iter().zip(x) {
                *sum += i32::from(*code) * i32::from(*x);
            }
        }
    }
    sums
}

/// The unsigned codes of 32 weights of 16 rows; IQ4_NL's values are raised by 128.
#[inline(always)]
fn load<F: Format>(lines: &[u8]) -> [Line; 8] {
    let (lines, _) = lines.as_chunks::<64>();
    let mut codes = [[0u8; 64]; 8];
    for (i, out) in codes.iter_mut().enumerate() {
        for (b, out) in out.iter_mut().enumerate() {
            let low4 = || (lines[i % 4][b] >> (i / 4 * 4)) & 15;
            let bits2 = |first: usize| (lines[first + i / 4][b] >> (i % 4 * 2)) & 3;
            let bit = |line: usize| (lines[line][b] >> i) & 1;
            *out = match F::CODES {
                CodeKind::Bits2 => bits2(0),
                CodeKind::Bits3 => bits2(0) | bit(2) << 2,
                CodeKind::Bits4 => low4(),
                CodeKind::Table4 => {
                    (foredraft_quant::IQ4_NL_TABLE[usize::from(low4())] as u8) ^ 0x80
                }
                CodeKind::Bits5 => low4() | bit(4) << 4,
                CodeKind::Bits6 => low4() | bits2(4) << 4,
                CodeKind::Bits8 => lines[i][b],
            };
        }
    }
    codes
}

/// Scales and minima of the sub-block at weight `k`, exact.
#[inline(always)]
fn scales<F: Format>(bytes: &[u8], k: usize) -> (Lanes, Lanes) {
    let half = |at: usize, lane: usize| {
        f16_to_f32(u16::from_le_bytes([
            bytes[at + 2 * lane],
            bytes[at + 2 * lane + 1],
        ]))
    };
    let in_super = k % SUPER_BLOCK;
    let (mut scale, mut min) = ([0.0; PANEL_ROWS], [0.0; PANEL_ROWS]);
    for lane in 0..PANEL_ROWS {
        (scale[lane], min[lane]) = match F::SCALES {
            ScaleKind::Half => (half(k, lane), 0.0),
            ScaleKind::HalfMin => (half(2 * k, lane), half(2 * k + 32, lane)),
            ScaleKind::Super32Min => {
                let at = F::SCALES.bytes(k - in_super);
                let pair = at + 64 + in_super + lane;
                let (sc, m) = (f32::from(bytes[pair]), f32::from(bytes[pair + 16]));
                (half(at, lane) * sc, -(half(at + 32, lane) * m))
            }
            ScaleKind::Super16 => {
                let at = F::SCALES.bytes(k - in_super);
                let sc = f32::from(bytes[at + 32 + in_super + lane] as i8);
                (half(at, lane) * sc, 0.0)
            }
            ScaleKind::Super16Min => {
                let at = F::SCALES.bytes(k - in_super);
                let both = bytes[at + 64 + in_super + lane];
                let (sc, m) = (f32::from(both & 15), f32::from(both >> 4));
                (half(at, lane) * sc, -(half(at + 32, lane) * m))
            }
        };
    }
    (scale, min)
}
