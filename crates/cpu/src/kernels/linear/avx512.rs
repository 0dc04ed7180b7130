//! The kernel for AVX-512 VNNI: 16 outputs in a register, `vpdpbusd` with a broadcast dword of activations as its
//! memory operand.
//!
//! For a block of 32 weights and one row: 8 `vpdpbusd`, one conversion, one product of scales, one fused multiply-add,
//! and one more for a minimum or one shift for a zero point. The codes are unsigned; `vpdpbusd` does not saturate, so a
//! zero point is put into the accumulator's start as `-sum_x << shift`.

#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::Range;

use foredraft_quant::{CodeKind, IQ4_NL_TABLE, ScaleKind};

use super::format::{Format, with_format};
use super::{Job, Sums, for_each_tile};
use crate::kernels::activations::Activations;
use crate::weights::QuantizedPanel;

/// How far ahead of its use a line of codes is asked for: into the second cache, where many lines can be under way, and from there
/// into the first. (An address beyond the weights is never read.)
const FAR_BYTES: usize = 8192;
const NEAR_BYTES: usize = 1024;
/// The same for scales, of which a block has fewer.
const SCALES_BYTES: usize = 2048;

/// The values of IQ4_NL, raised by 128 to be unsigned. (A constant: computed in place it was computed for every block.)
static RAISED_TABLE: [u8; 16] = {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        table[i] = IQ4_NL_TABLE[i] as u8 ^ 0x80;
        i += 1;
    }
    table
};

/// # Safety
/// The processor has AVX-512 F, BW, VL, DQ and VNNI; otherwise as `quantized_panels` in the parent module.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn rows<F: Format>(panel: &QuantizedPanel<'_>, x: &Activations<'_>, sums: &mut Sums) {
    // SAFETY: the caller's promise.
    unsafe {
        match x.rows {
            1 => tile::<F, 1>(panel, x, sums),
            2 => tile::<F, 2>(panel, x, sums),
            3 => tile::<F, 3>(panel, x, sums),
            4 => tile::<F, 4>(panel, x, sums),
            5 => tile::<F, 5>(panel, x, sums),
            6 => tile::<F, 6>(panel, x, sums),
            7 => tile::<F, 7>(panel, x, sums),
            _ => tile::<F, 8>(panel, x, sums),
        }
    }
}

/// Runs the body for the rows `0..M`, at most 8, each with its number as a constant. A loop would do, were it always unrolled: with
/// 8 rows it is not, and then the sums live in memory instead of in registers.
macro_rules! for_each_row {
    ($rows:expr, |$m:ident| $body:block) => {
        for_each_row!(@ $rows, $m, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $rows:expr, $m:ident, $body:block, $($number:literal)*) => {$(
        if $rows > $number {
            let $m: usize = $number;
            $body
        }
    )*};
}

/// Pointers into a tile of `M` rows; all move on by constant steps, block by block.
struct Cursor {
    codes: *const i32,
    scales: *const f32,
    minus_sums: *const i32,
    scaled_sums: *const f32,
}

/// # Safety
/// As [`panels`]; the lengths are as `check` in the parent module says; `x` has `M` rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn tile<F: Format, const M: usize>(
    panel: &QuantizedPanel<'_>,
    x: &Activations<'_>,
    sums: &mut Sums,
) {
    let by_half = matches!(F::SCALES, ScaleKind::Super16 | ScaleKind::Super16Min);
    let mut cursor = Cursor {
        codes: x.codes.as_ptr().cast(),
        scales: x.scales.as_ptr(),
        minus_sums: if by_half {
            x.minus_half_sums.as_ptr()
        } else {
            x.minus_sums.as_ptr()
        },
        scaled_sums: if by_half {
            x.scaled_half_sums.as_ptr()
        } else {
            x.scaled_sums.as_ptr()
        },
    };
    let mut acc = [_mm512_setzero_ps(); M];
    let mut codes = panel.codes.as_ptr();
    let mut scales = panel.scales.as_ptr();
    let line_bytes = 64 * F::CODES.lines();
    // SAFETY: every pointer stays within its slice: `panel.blocks` blocks of codes, scales and activations, whose
    // lengths the caller checked.
    unsafe {
        match F::SCALES {
            ScaleKind::Half | ScaleKind::HalfMin => {
                for _ in 0..panel.blocks {
                    prefetch_scales::<1>(scales);
                    let q = load::<F>(codes);
                    let scale = halves(scales);
                    let min = if F::SCALES == ScaleKind::HalfMin {
                        halves(scales.add(32))
                    } else {
                        scale
                    };
                    block::<F, M>(&q, scale, min, &mut cursor, &mut acc);
                    codes = codes.add(line_bytes);
                    scales = scales.add(if F::SCALES == ScaleKind::HalfMin {
                        64
                    } else {
                        32
                    });
                }
            }
            ScaleKind::Super32Min => {
                for _ in 0..panel.blocks / 8 {
                    prefetch_scales::<5>(scales);
                    let (d, dmin) = (halves(scales), halves(scales.add(32)));
                    for s in 0..8 {
                        let q = load::<F>(codes);
                        let pair = scales.add(64 + 32 * s);
                        let scale = _mm512_mul_ps(d, unsigned(pair));
                        let min = _mm512_mul_ps(dmin, unsigned(pair.add(16)));
                        block::<F, M>(&q, scale, min, &mut cursor, &mut acc);
                        codes = codes.add(line_bytes);
                    }
                    scales = scales.add(64 + 8 * 32);
                }
            }
            ScaleKind::Super16 => {
                for _ in 0..panel.blocks / 8 {
                    prefetch_scales::<5>(scales);
                    let d = halves(scales);
                    for s in 0..8 {
                        let q = load::<F>(codes);
                        let pair = scales.add(32 + 32 * s);
                        let scale = [pair, pair.add(16)].map(|p| _mm512_mul_ps(d, signed(p)));
                        half_blocks::<F, M>(&q, scale, scale, &mut cursor, &mut acc);
                        codes = codes.add(line_bytes);
                    }
                    scales = scales.add(32 + 16 * 16);
                }
            }
            ScaleKind::Super16Min => {
                for _ in 0..panel.blocks / 8 {
                    prefetch_scales::<5>(scales);
                    let (d, dmin) = (halves(scales), halves(scales.add(32)));
                    for s in 0..8 {
                        let q = load::<F>(codes);
                        let pair = scales.add(64 + 32 * s);
                        let nibbles = [pair, pair.add(16)].map(|p| nibbles(p));
                        let scale = nibbles.map(|(sc, _)| _mm512_mul_ps(d, sc));
                        let min = nibbles.map(|(_, m)| _mm512_mul_ps(dmin, m));
                        half_blocks::<F, M>(&q, scale, min, &mut cursor, &mut acc);
                        codes = codes.add(line_bytes);
                    }
                    scales = scales.add(64 + 16 * 16);
                }
            }
        }
        for (sums, acc) in sums.iter_mut().zip(acc) {
            _mm512_storeu_ps(sums.as_mut_ptr(), acc);
        }
    }
}

/// One block with one scale: `acc = fma(dot, scale_w * scale_x, acc)`, then the minimum.
///
/// # Safety
/// The cursor stands at a block of `M` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn block<F: Format, const M: usize>(
    q: &[__m512i; 8],
    scale: __m512,
    min: __m512,
    cursor: &mut Cursor,
    acc: &mut [__m512; M],
) {
    // SAFETY: the caller's promise.
    unsafe {
        for_each_row!(M, |m| {
            let x = cursor.codes.add(8 * m);
            let mut dot = start::<F>(cursor.minus_sums.add(m));
            for (i, q) in q.iter().enumerate() {
                dot = _mm512_dpbusd_epi32(dot, *q, _mm512_set1_epi32(*x.add(i)));
            }
            let d = _mm512_mul_ps(scale, _mm512_set1_ps(*after(dot, cursor.scales).add(m)));
            acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), d, acc[m]);
            if matches!(F::SCALES, ScaleKind::HalfMin | ScaleKind::Super32Min) {
                let scaled_sum = _mm512_set1_ps(*cursor.scaled_sums.add(m));
                acc[m] = match F::SCALES {
                    ScaleKind::HalfMin => _mm512_fmadd_ps(min, scaled_sum, acc[m]),
                    _ => _mm512_fnmadd_ps(min, scaled_sum, acc[m]),
                };
            }
        });
        cursor.codes = cursor.codes.add(8 * M);
        cursor.scales = cursor.scales.add(M);
        cursor.minus_sums = cursor.minus_sums.add(M);
        cursor.scaled_sums = cursor.scaled_sums.add(M);
    }
}

/// The pointer, known to the compiler only after `dot`: otherwise it multiplies the scales of all rows first, and the
/// products do not fit the registers beside the codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
#[allow(clippy::pointers_in_nomem_asm_block)] // the pointer is passed through, not followed
fn after<T>(dot: __m512i, mut pointer: *const T) -> *const T {
    // SAFETY: no instruction at all.
    unsafe {
        std::arch::asm!("/* {0} {1} */", in(zmm_reg) dot, inout(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}

/// One block with a scale for each 16 weights.
///
/// # Safety
/// The cursor stands at a block of `M` rows, its sums at half blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn half_blocks<F: Format, const M: usize>(
    q: &[__m512i; 8],
    scale: [__m512; 2],
    min: [__m512; 2],
    cursor: &mut Cursor,
    acc: &mut [__m512; M],
) {
    // SAFETY: the caller's promise.
    unsafe {
        for_each_row!(M, |m| {
            let scale_x = _mm512_set1_ps(*cursor.scales.add(m));
            for half in 0..2 {
                let x = cursor.codes.add(8 * m + 4 * half);
                let mut dot = start::<F>(cursor.minus_sums.add(2 * m + half));
                for (i, q) in q[4 * half..4 * half + 4].iter().enumerate() {
                    dot = _mm512_dpbusd_epi32(dot, *q, _mm512_set1_epi32(*x.add(i)));
                }
                let d = _mm512_mul_ps(scale[half], scale_x);
                acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), d, acc[m]);
                if F::SCALES == ScaleKind::Super16Min {
                    let scaled_sum = _mm512_set1_ps(*cursor.scaled_sums.add(2 * m + half));
                    acc[m] = _mm512_fnmadd_ps(min[half], scaled_sum, acc[m]);
                }
            }
        });
        cursor.codes = cursor.codes.add(8 * M);
        cursor.scales = cursor.scales.add(M);
        cursor.minus_sums = cursor.minus_sums.add(2 * M);
        cursor.scaled_sums = cursor.scaled_sums.add(2 * M);
    }
}

/// What a dot product starts at: minus the zero point times the sum of the activations.
///
/// # Safety
/// `minus_sum` can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn start<F: Format>(minus_sum: *const i32) -> __m512i {
    // SAFETY: the caller's promise.
    let sum = unsafe { _mm512_set1_epi32(*minus_sum) };
    match F::ZERO_SHIFT {
        0 => _mm512_setzero_si512(),
        2 => _mm512_slli_epi32::<2>(sum),
        3 => _mm512_slli_epi32::<3>(sum),
        4 => _mm512_slli_epi32::<4>(sum),
        5 => _mm512_slli_epi32::<5>(sum),
        _ => _mm512_slli_epi32::<7>(sum),
    }
}

/// Asks for `LINES` lines of scales.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn prefetch_scales<const LINES: usize>(scales: *const u8) {
    for i in 0..LINES {
        _mm_prefetch::<_MM_HINT_T0>(scales.wrapping_add(64 * i + SCALES_BYTES).cast());
    }
}

/// The unsigned codes of 32 weights of 16 rows: register `i` holds weights `4 i..4 i + 4`.
///
/// # Safety
/// `lines` can be read for the format's lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn load<F: Format>(lines: *const u8) -> [__m512i; 8] {
    // The processor's own prefetching ends at every 4 KiB.
    for i in 0..F::CODES.lines() {
        _mm_prefetch::<_MM_HINT_T1>(lines.wrapping_add(64 * i + FAR_BYTES).cast());
        _mm_prefetch::<_MM_HINT_T0>(lines.wrapping_add(64 * i + NEAR_BYTES).cast());
    }
    // SAFETY: the caller's promise.
    let line = |i: usize| unsafe { _mm512_loadu_si512(lines.add(64 * i).cast()) };
    match F::CODES {
        CodeKind::Bits8 => std::array::from_fn(line),
        CodeKind::Bits4 => nibble_plane([line(0), line(1), line(2), line(3)]),
        CodeKind::Table4 => {
            // SAFETY: the table has 16 bytes.
            let table =
                unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(RAISED_TABLE.as_ptr().cast())) };
            nibble_plane([line(0), line(1), line(2), line(3)])
                .map(|q| _mm512_shuffle_epi8(table, q))
        }
        CodeKind::Bits5 => {
            or_bits::<4>(nibble_plane([line(0), line(1), line(2), line(3)]), line(4))
        }
        CodeKind::Bits6 => or_pairs::<4>(
            nibble_plane([line(0), line(1), line(2), line(3)]),
            [line(4), line(5)],
        ),
        CodeKind::Bits2 => or_pairs::<0>([_mm512_setzero_si512(); 8], [line(0), line(1)]),
        CodeKind::Bits3 => or_bits::<2>(
            or_pairs::<0>([_mm512_setzero_si512(); 8], [line(0), line(1)]),
            line(2),
        ),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn nibble_plane(lines: [__m512i; 4]) -> [__m512i; 8] {
    let mask = _mm512_set1_epi8(15);
    let low = lines.map(|x| _mm512_and_si512(x, mask));
    let high = lines.map(|x| _mm512_and_si512(_mm512_srli_epi16::<4>(x), mask));
    [
        low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3],
    ]
}

/// Ors bit `i` of each byte of the plane, moved to bit `AT`, into register `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn or_bits<const AT: i32>(mut q: [__m512i; 8], plane: __m512i) -> [__m512i; 8] {
    let mask = _mm512_set1_epi8(1 << AT);
    for (i, q) in q.iter_mut().enumerate() {
        *q = or_masked(*q, shifted(plane, AT - i as i32), mask);
    }
    q
}

/// Ors bits `2 t..2 t + 2` of each byte of plane `j`, moved to bit `AT`, into register `4 j + t`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn or_pairs<const AT: i32>(mut q: [__m512i; 8], planes: [__m512i; 2]) -> [__m512i; 8] {
    let mask = _mm512_set1_epi8(3 << AT);
    for (i, q) in q.iter_mut().enumerate() {
        let t = (i % 4) as i32;
        *q = or_masked(*q, shifted(planes[i / 4], AT - 2 * t), mask);
    }
    q
}

/// `q | (x & mask)`, one instruction.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn or_masked(q: __m512i, x: __m512i, mask: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xf8>(q, x, mask)
}

/// Dwords shifted left by `by`, or right when it is negative; the masks drop what crosses a byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn shifted(x: __m512i, by: i32) -> __m512i {
    match by {
        0 => x,
        1.. => _mm512_sll_epi32(x, _mm_cvtsi32_si128(by)),
        _ => _mm512_srl_epi32(x, _mm_cvtsi32_si128(-by)),
    }
}

/// 16 halves as floats.
///
/// # Safety
/// 32 bytes can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn halves(bytes: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(bytes.cast())) }
}

/// 16 unsigned bytes as floats.
///
/// # Safety
/// 16 bytes can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn unsigned(bytes: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.cast()))) }
}

/// 16 signed bytes as floats.
///
/// # Safety
/// 16 bytes can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn signed(bytes: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.cast()))) }
}

/// The low and the high halves of 16 bytes as floats.
///
/// # Safety
/// 16 bytes can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn nibbles(bytes: *const u8) -> (__m512, __m512) {
    // SAFETY: the caller's promise.
    let wide = unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.cast())) };
    let low = _mm512_and_si512(wide, _mm512_set1_epi32(15));
    (
        _mm512_cvtepi32_ps(low),
        _mm512_cvtepi32_ps(_mm512_srli_epi32::<4>(wide)),
    )
}
