//! The kernel for AVX2: 8 outputs in a register, so a panel is walked twice; the second time it comes from the cache.
//!
//! `vpmaddubsw` multiplies unsigned codes by signed activations into pairs of i16, which saturate at 32767: a 6-bit code
//! gives at most 63 * 127 * 2 = 16002, so pairs may be added up before they are widened (8 of 4-bit codes, 4 of 5-bit, 2
//! of 6-bit). 8-bit codes are signed here: |w| times the activation with w's sign, at most 128 * 127 * 2 = 32512.

#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use foredraft_quant::{CodeKind, IQ4_NL_TABLE, PANEL_ROWS, ScaleKind};

use super::format::{Format, with_format};
use super::{Job, Sums, for_each_tile};
use crate::kernels::activations::{Activations, TILE};
use crate::weights::QuantizedPanel;

/// Rows that are computed at once: their accumulators and the codes of a block fit 16 registers.
const ROWS: usize = 4;

/// # Safety
/// The processor has AVX2, FMA and F16C; otherwise as `quantized_panels` in the parent module.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn panels(job: &Job<'_>, panels: Range<usize>) {
    // SAFETY: the caller's promise; `for_each_tile` checks the lengths.
    unsafe {
        for_each_tile(job, panels, |panel, x, sums| {
            with_format!(panel.kind, rows(panel, x, sums))
        });
    }
}

/// # Safety
/// As [`panels`]; the lengths are as `check` in the parent module says.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<F: Format>(panel: &QuantizedPanel<'_>, x: &Activations<'_>, sums: &mut Sums) {
    const { assert!(TILE == 2 * ROWS) };
    // SAFETY: the caller's promise.
    unsafe {
        for side in 0..2 {
            for first in (0..x.rows).step_by(ROWS) {
                match x.rows - first {
                    1 => tile::<F, 1>(panel, x, first, side, sums),
                    2 => tile::<F, 2>(panel, x, first, side, sums),
                    3 => tile::<F, 3>(panel, x, first, side, sums),
                    _ => tile::<F, 4>(panel, x, first, side, sums),
                }
            }
        }
    }
}

/// Pointers to the first of `M` rows of a block.
struct Cursor {
    codes: *const i32,
    scales: *const f32,
    minus_sums: *const i32,
    scaled_sums: *const f32,
    /// Rows of the whole tile: the step to the next block.
    rows: usize,
}

/// Outputs `8 side..8 side + 8` of rows `first..first + M`.
///
/// # Safety
/// As [`panels`]; the lengths are as `check` in the parent module says; the tile has these rows.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<F: Format, const M: usize>(
    panel: &QuantizedPanel<'_>,
    x: &Activations<'_>,
    first: usize,
    side: usize,
    sums: &mut Sums,
) {
    // SAFETY: every pointer stays within its slice: `panel.blocks` blocks of codes, scales and activations, whose
    // lengths the caller checked.
    unsafe {
        let by_half = matches!(F::SCALES, ScaleKind::Super16 | ScaleKind::Super16Min);
        let mut cursor = Cursor {
            codes: x.codes.as_ptr().cast::<i32>().add(8 * first),
            scales: x.scales.as_ptr().add(first),
            minus_sums: if by_half {
                x.minus_half_sums.as_ptr().add(2 * first)
            } else {
                x.minus_sums.as_ptr().add(first)
            },
            scaled_sums: if by_half {
                x.scaled_half_sums.as_ptr().add(2 * first)
            } else {
                x.scaled_sums.as_ptr().add(first)
            },
            rows: x.rows,
        };
        let mut acc = [_mm256_setzero_ps(); M];
        let mut codes = panel.codes.as_ptr().add(32 * side);
        let line_bytes = 64 * F::CODES.lines();
        for b in 0..panel.blocks {
            if first == 0 && b % 2 == 0 {
                prefetch_next::<F>(panel, side * panel.blocks / 2 + b / 2);
            }
            let q = load::<F>(codes);
            let (scale, min) = scales::<F>(panel.scales.as_ptr(), b, side);
            block::<F, M>(&q, scale, min, &mut cursor, &mut acc);
            codes = codes.add(line_bytes);
        }
        for (m, acc) in acc.into_iter().enumerate() {
            _mm256_storeu_ps(sums[first + m].as_mut_ptr().add(PANEL_ROWS / 2 * side), acc);
        }
    }
}

/// Asks for a block of the next panel. A panel is walked once for each side, and only the first walk waits for memory: each of the two
/// asks for half of the panel to come, at an even pace. (An address beyond the weights is never read.)
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn prefetch_next<F: Format>(panel: &QuantizedPanel<'_>, block: usize) {
    let bytes = 64 * F::CODES.lines();
    let codes = panel
        .codes
        .as_ptr()
        .wrapping_add(panel.codes.len() + block * bytes);
    for i in 0..F::CODES.lines() {
        _mm_prefetch::<_MM_HINT_T1>(codes.wrapping_add(64 * i).cast());
    }
    let at = panel.scales.len() * (panel.blocks + block) / panel.blocks;
    _mm_prefetch::<_MM_HINT_T1>(panel.scales.as_ptr().wrapping_add(at).cast());
}

/// One block: `acc = fma(dot, scale_w * scale_x, acc)` and the minimum, for 32 weights or for each 16.
///
/// # Safety
/// The cursor stands at a block of at least `M` rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn block<F: Format, const M: usize>(
    q: &[__m256i; 8],
    scale: [__m256; 2],
    min: [__m256; 2],
    cursor: &mut Cursor,
    acc: &mut [__m256; M],
) {
    let parts = match F::SCALES {
        ScaleKind::Super16 | ScaleKind::Super16Min => 2,
        _ => 1,
    };
    // SAFETY: the caller's promise.
    unsafe {
        for (m, acc) in acc.iter_mut().enumerate() {
            let scale_x = _mm256_set1_ps(*cursor.scales.add(m));
            for part in 0..parts {
                let width = 8 / parts;
                let x = cursor.codes.add(8 * m + width * part);
                let dot = dot::<F>(
                    &q[width * part..width * part + width],
                    x,
                    cursor.minus_sums.add(parts * m + part),
                );
                let d = _mm256_mul_ps(scale[part], scale_x);
                *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, *acc);
                if matches!(
                    F::SCALES,
                    ScaleKind::HalfMin | ScaleKind::Super32Min | ScaleKind::Super16Min
                ) {
                    let scaled_sum = _mm256_set1_ps(*cursor.scaled_sums.add(parts * m + part));
                    *acc = _mm256_fmadd_ps(min[part], scaled_sum, *acc);
                }
            }
        }
        cursor.codes = cursor.codes.add(8 * cursor.rows);
        cursor.scales = cursor.scales.add(cursor.rows);
        cursor.minus_sums = cursor.minus_sums.add(parts * cursor.rows);
        cursor.scaled_sums = cursor.scaled_sums.add(parts * cursor.rows);
    }
}

/// How many products of pairs may be added up as i16.
const fn pairs_that_fit(codes: CodeKind) -> usize {
    match codes {
        CodeKind::Bits2 | CodeKind::Bits3 | CodeKind::Bits4 => 8,
        CodeKind::Bits5 => 4,
        CodeKind::Bits6 => 2,
        CodeKind::Bits8 | CodeKind::Table4 => 1,
    }
}

/// The exact product of codes and activations, the zero point included.
///
/// # Safety
/// `x` holds a dword for each register of `q`; `minus_sum` can be read.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn dot<F: Format>(q: &[__m256i], x: *const i32, minus_sum: *const i32) -> __m256i {
    let ones = _mm256_set1_epi16(1);
    let is_signed = matches!(F::CODES, CodeKind::Bits8 | CodeKind::Table4);
    // SAFETY: the caller's promise.
    unsafe {
        let mut sum = if is_signed || F::ZERO_SHIFT == 0 {
            _mm256_setzero_si256()
        } else {
            let shift = _mm_cvtsi32_si128(F::ZERO_SHIFT as i32);
            _mm256_sll_epi32(_mm256_set1_epi32(*minus_sum), shift)
        };
        for (g, group) in q.chunks(pairs_that_fit(F::CODES)).enumerate() {
            let mut pairs = _mm256_setzero_si256();
            for (i, q) in group.iter().enumerate() {
                let x = _mm256_set1_epi32(*x.add(g * pairs_that_fit(F::CODES) + i));
                let products = if is_signed {
                    _mm256_maddubs_epi16(_mm256_abs_epi8(*q), _mm256_sign_epi8(x, *q))
                } else {
                    _mm256_maddubs_epi16(*q, x)
                };
                pairs = if i == 0 {
                    products
                } else {
                    _mm256_add_epi16(pairs, products)
                };
            }
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
        sum
    }
}

/// The codes of 32 weights of 8 rows: register `i` holds weights `4 i..4 i + 4`. Unsigned, but for 8-bit codes
/// and table values, which are signed.
///
/// # Safety
/// `lines` can be read at the format's lines, 32 bytes each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load<F: Format>(lines: *const u8) -> [__m256i; 8] {
    // SAFETY: the caller's promise.
    let line = |i: usize| unsafe { _mm256_loadu_si256(lines.add(64 * i).cast()) };
    let nibbles = || nibble_plane([line(0), line(1), line(2), line(3)]);
    let zero = [_mm256_setzero_si256(); 8];
    match F::CODES {
        CodeKind::Bits8 => {
            let sign = _mm256_set1_epi8(-128);
            std::array::from_fn(|i| _mm256_xor_si256(line(i), sign))
        }
        CodeKind::Bits4 => nibbles(),
        CodeKind::Table4 => {
            // SAFETY: the table has 16 bytes.
            let table = unsafe {
                _mm256_broadcastsi128_si256(_mm_loadu_si128(IQ4_NL_TABLE.as_ptr().cast()))
            };
            nibbles().map(|q| _mm256_shuffle_epi8(table, q))
        }
        CodeKind::Bits5 => or_bits::<4>(nibbles(), line(4)),
        CodeKind::Bits6 => or_pairs::<4>(nibbles(), [line(4), line(5)]),
        CodeKind::Bits2 => or_pairs::<0>(zero, [line(0), line(1)]),
        CodeKind::Bits3 => or_bits::<2>(or_pairs::<0>(zero, [line(0), line(1)]), line(2)),
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn nibble_plane(lines: [__m256i; 4]) -> [__m256i; 8] {
    let mask = _mm256_set1_epi8(15);
    let low = lines.map(|x| _mm256_and_si256(x, mask));
    let high = lines.map(|x| _mm256_and_si256(_mm256_srli_epi16::<4>(x), mask));
    [
        low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3],
    ]
}

/// Ors bit `i` of each byte of the plane, moved to bit `AT`, into register `i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn or_bits<const AT: i32>(mut q: [__m256i; 8], plane: __m256i) -> [__m256i; 8] {
    let mask = _mm256_set1_epi8(1 << AT);
    for (i, q) in q.iter_mut().enumerate() {
        *q = _mm256_or_si256(*q, _mm256_and_si256(shifted(plane, AT - i as i32), mask));
    }
    q
}

/// Ors bits `2 t..2 t + 2` of each byte of plane `j`, moved to bit `AT`, into register `4 j + t`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn or_pairs<const AT: i32>(mut q: [__m256i; 8], planes: [__m256i; 2]) -> [__m256i; 8] {
    let mask = _mm256_set1_epi8(3 << AT);
    for (i, q) in q.iter_mut().enumerate() {
        let t = (i % 4) as i32;
        *q = _mm256_or_si256(
            *q,
            _mm256_and_si256(shifted(planes[i / 4], AT - 2 * t), mask),
        );
    }
    q
}

/// Dwords shifted left by `by`, or right when it is negative; the masks drop what crosses a byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn shifted(x: __m256i, by: i32) -> __m256i {
    match by {
        0 => x,
        1.. => _mm256_sll_epi32(x, _mm_cvtsi32_si128(by)),
        _ => _mm256_srl_epi32(x, _mm_cvtsi32_si128(-by)),
    }
}

/// Scales and minima of block `b` for 8 rows: of the block, or of its two halves.
///
/// # Safety
/// `scales` are those of a panel with more than `b` blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn scales<F: Format>(
    scales: *const u8,
    b: usize,
    side: usize,
) -> ([__m256; 2], [__m256; 2]) {
    // SAFETY: the offsets are those of the panel layout.
    unsafe {
        let halves =
            |at: usize| _mm256_cvtph_ps(_mm_loadu_si128(scales.add(at + 16 * side).cast()));
        let bytes = |at: usize| _mm_loadl_epi64(scales.add(at + 8 * side).cast());
        let unsigned = |at: usize| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(at)));
        let signed = |at: usize| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes(at)));
        let minus = |x: __m256| _mm256_xor_ps(x, _mm256_set1_ps(-0.0));
        let zero = [_mm256_setzero_ps(); 2];
        let in_super = b % 8;
        match F::SCALES {
            ScaleKind::Half => ([halves(32 * b); 2], zero),
            ScaleKind::HalfMin => ([halves(64 * b); 2], [halves(64 * b + 32); 2]),
            ScaleKind::Super32Min => {
                let at = b / 8 * (64 + 8 * 32);
                let pair = at + 64 + 32 * in_super;
                let scale = _mm256_mul_ps(halves(at), unsigned(pair));
                let min = minus(_mm256_mul_ps(halves(at + 32), unsigned(pair + 16)));
                ([scale; 2], [min; 2])
            }
            ScaleKind::Super16 => {
                let at = b / 8 * (32 + 16 * 16);
                let pair = at + 32 + 32 * in_super;
                (
                    [pair, pair + 16].map(|p| _mm256_mul_ps(halves(at), signed(p))),
                    zero,
                )
            }
            ScaleKind::Super16Min => {
                let at = b / 8 * (64 + 16 * 16);
                let pair = at + 64 + 32 * in_super;
                let wide = [pair, pair + 16].map(|p| _mm256_cvtepu8_epi32(bytes(p)));
                let low =
                    wide.map(|w| _mm256_cvtepi32_ps(_mm256_and_si256(w, _mm256_set1_epi32(15))));
                let high = wide.map(|w| _mm256_cvtepi32_ps(_mm256_srli_epi32::<4>(w)));
                (
                    low.map(|sc| _mm256_mul_ps(halves(at), sc)),
                    high.map(|m| minus(_mm256_mul_ps(halves(at + 32), m))),
                )
            }
        }
    }
}
