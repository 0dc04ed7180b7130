//! Sixteen f32 lanes: one AVX-512 register, two AVX2 ones, or an array.
//!
//! A value of a [`Simd`] type is the proof that its instructions are there: it is made only where they were
//! detected, so its methods are safe. All operations are single IEEE ones: every implementation gives the same bits.

#![allow(unsafe_code)]

use foredraft_common::lanes::LANES;
use foredraft_quant::{ACTIVATION_BLOCK, bf16_to_f32, f16_to_f32, quantize_activations};

/// The operations of the hand-vectorised kernels.
pub(crate) trait Simd: Copy {
    /// Sixteen lanes.
    type Lanes: Copy;
    /// Sums of sixteen lanes that a kernel may keep in registers beside what it works on.
    const REGISTERS: usize;
    /// Queries that attention walks together.
    const QUERIES: usize;

    /// Runs a function that is compiled for these instructions by itself, where inlining it into every caller would only
    /// take the compiler's time.
    fn call<R>(self, function: impl FnOnce() -> R) -> R;
    /// The same value in every lane.
    fn splat(self, value: f32) -> Self::Lanes;
    /// Lanes from memory.
    fn load(self, values: &[f32; LANES]) -> Self::Lanes;
    /// Lanes from IEEE halves.
    fn load_half(self, values: &[u16; LANES]) -> Self::Lanes;
    /// Lanes from bfloat16.
    fn load_bfloat(self, values: &[u16; LANES]) -> Self::Lanes;
    /// Lanes from signed bytes.
    fn load_byte(self, values: &[i8; LANES]) -> Self::Lanes;
    /// Lanes to memory.
    fn store(self, lanes: Self::Lanes, values: &mut [f32; LANES]);
    /// Asks for the lines of `bytes`, which will be read soon.
    fn prefetch(self, bytes: &[u8]);
    /// Asks for the line of memory where `bytes` begins in the second cache: many more can be under way than into the first.
    fn prefetch_far(self, bytes: &[u8]);
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Lanes, b: Self::Lanes, c: Self::Lanes) -> Self::Lanes;

    /// Rounds a block of activations to 8 bits as [`quantize_activations`] defines it: codes `[32]`, their sums `[2]`; returns
    /// the scale.
    #[inline(always)]
    fn round_block(self, x: &[f32; ACTIVATION_BLOCK], codes: &mut [i8], sums: &mut [i32]) -> f32 {
        let mut scale = [0.0];
        quantize_activations(x, codes, &mut scale, sums);
        scale[0]
    }
}

/// Plain arrays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    type Lanes = [f32; LANES];
    const REGISTERS: usize = 4;
    const QUERIES: usize = 4;

    #[inline(always)]
    fn call<R>(self, function: impl FnOnce() -> R) -> R {
        #[inline(never)]
        fn compiled<R>(function: impl FnOnce() -> R) -> R {
            function()
        }
        compiled(function)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, values: &[f32; LANES]) -> [f32; LANES] {
        *values
    }

    #[inline(always)]
    fn load_half(self, values: &[u16; LANES]) -> [f32; LANES] {
        values.map(f16_to_f32)
    }

    #[inline(always)]
    fn load_bfloat(self, values: &[u16; LANES]) -> [f32; LANES] {
        values.map(bf16_to_f32)
    }

    #[inline(always)]
    fn load_byte(self, values: &[i8; LANES]) -> [f32; LANES] {
        values.map(f32::from)
    }

    #[inline(always)]
    fn store(self, lanes: [f32; LANES], values: &mut [f32; LANES]) {
        *values = lanes;
    }

    #[inline(always)]
    fn prefetch(self, _bytes: &[u8]) {}

    #[inline(always)]
    fn prefetch_far(self, _bytes: &[u8]) {}

    #[inline(always)]
    fn fma(self, a: [f32; LANES], b: [f32; LANES], mut c: [f32; LANES]) -> [f32; LANES] {
        for i in 0..LANES {
            c[i] = a[i].mul_add(b[i], c[i]);
        }
        c
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{ACTIVATION_BLOCK, LANES, Simd, quantize_activations};
    use foredraft_quant::TINY_ACTIVATION as TINY;

    /// Asks for every line of `bytes`.
    #[inline(always)]
    fn prefetch(bytes: &[u8]) {
        for line in bytes.as_chunks::<64>().0 {
            // SAFETY: every x86-64 has the instruction, and it reads nothing that the program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
        }
    }

    /// AVX2, FMA and F16C.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        /// # Safety
        /// The processor has AVX2, FMA and F16C.
        #[inline(always)]
        pub(crate) unsafe fn new() -> Self {
            Self(())
        }
    }

    // SAFETY of every block below: a value of `Avx2` exists only where its instructions were detected, and
    // each reference covers the 16 elements that are read or written.
    impl Simd for Avx2 {
        type Lanes = [__m256; 2];
        const REGISTERS: usize = 6;
        const QUERIES: usize = 4;

        #[inline(always)]
        fn call<R>(self, function: impl FnOnce() -> R) -> R {
            #[inline(never)]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn compiled<R>(function: impl FnOnce() -> R) -> R {
                function()
            }
            // SAFETY: see above.
            unsafe { compiled(function) }
        }

        #[inline(always)]
        fn splat(self, value: f32) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe { [_mm256_set1_ps(value); 2] }
        }

        #[inline(always)]
        fn load(self, values: &[f32; LANES]) -> [__m256; 2] {
            let p = values.as_ptr();
            // SAFETY: see above.
            unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
        }

        #[inline(always)]
        fn load_half(self, values: &[u16; LANES]) -> [__m256; 2] {
            let p = values.as_ptr().cast::<__m128i>();
            // SAFETY: see above.
            unsafe {
                [
                    _mm256_cvtph_ps(_mm_loadu_si128(p)),
                    _mm256_cvtph_ps(_mm_loadu_si128(p.add(1))),
                ]
            }
        }

        #[inline(always)]
        fn load_bfloat(self, values: &[u16; LANES]) -> [__m256; 2] {
            let p = values.as_ptr().cast::<__m128i>();
            // SAFETY: see above.
            unsafe {
                [p, p.add(1)].map(|p| {
                    let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
                })
            }
        }

        #[inline(always)]
        fn load_byte(self, values: &[i8; LANES]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe {
                let bytes = _mm_loadu_si128(values.as_ptr().cast());
                [bytes, _mm_srli_si128::<8>(bytes)]
                    .map(|b| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)))
            }
        }

        #[inline(always)]
        fn store(self, lanes: [__m256; 2], values: &mut [f32; LANES]) {
            let p = values.as_mut_ptr();
            // SAFETY: see above.
            unsafe {
                _mm256_storeu_ps(p, lanes[0]);
                _mm256_storeu_ps(p.add(8), lanes[1]);
            }
        }

        #[inline(always)]
        fn prefetch(self, bytes: &[u8]) {
            prefetch(bytes);
        }

        #[inline(always)]
        fn prefetch_far(self, bytes: &[u8]) {
            // SAFETY: every x86-64 has the instruction, and it reads nothing that the program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().cast()) };
        }

        #[inline(always)]
        fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
            // SAFETY: see above.
            unsafe {
                [
                    _mm256_fmadd_ps(a[0], b[0], c[0]),
                    _mm256_fmadd_ps(a[1], b[1], c[1]),
                ]
            }
        }
    }

    /// AVX-512 F, BW, VL, DQ and VNNI.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Avx512(());

    impl Avx512 {
        /// # Safety
        /// The processor has these instructions.
        #[inline(always)]
        pub(crate) unsafe fn new() -> Self {
            Self(())
        }
    }

    // SAFETY of every block below: a value of `Avx512` exists only where its instructions were detected, and
    // each reference covers the 16 elements that are read or written.
    impl Simd for Avx512 {
        type Lanes = __m512;
        const REGISTERS: usize = 24;
        const QUERIES: usize = 6;

        #[inline(always)]
        fn call<R>(self, function: impl FnOnce() -> R) -> R {
            #[inline(never)]
            #[target_feature(
                enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c"
            )]
            fn compiled<R>(function: impl FnOnce() -> R) -> R {
                function()
            }
            // SAFETY: see above.
            unsafe { compiled(function) }
        }

        #[inline(always)]
        fn splat(self, value: f32) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_set1_ps(value) }
        }

        #[inline(always)]
        fn load(self, values: &[f32; LANES]) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_loadu_ps(values.as_ptr()) }
        }

        #[inline(always)]
        fn load_half(self, values: &[u16; LANES]) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(values.as_ptr().cast())) }
        }

        #[inline(always)]
        fn load_bfloat(self, values: &[u16; LANES]) -> __m512 {
            // SAFETY: see above.
            unsafe {
                let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(values.as_ptr().cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
            }
        }

        #[inline(always)]
        fn load_byte(self, values: &[i8; LANES]) -> __m512 {
            // SAFETY: see above.
            unsafe {
                let bytes = _mm_loadu_si128(values.as_ptr().cast());
                _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
            }
        }

        #[inline(always)]
        fn store(self, lanes: __m512, values: &mut [f32; LANES]) {
            // SAFETY: see above.
            unsafe { _mm512_storeu_ps(values.as_mut_ptr(), lanes) }
        }

        #[inline(always)]
        fn prefetch(self, bytes: &[u8]) {
            prefetch(bytes);
        }

        #[inline(always)]
        fn prefetch_far(self, bytes: &[u8]) {
            // SAFETY: every x86-64 has the instruction, and it reads nothing that the program could see.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(bytes.as_ptr().cast()) };
        }

        #[inline(always)]
        fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        fn round_block(
            self,
            x: &[f32; ACTIVATION_BLOCK],
            codes: &mut [i8],
            sums: &mut [i32],
        ) -> f32 {
            assert!(codes.len() == ACTIVATION_BLOCK && sums.len() == 2);
            // SAFETY: see above.
            unsafe {
                let halves = [x.as_ptr(), x.as_ptr().add(LANES)].map(|p| _mm512_loadu_ps(p));
                let magnitude = _mm512_set1_epi32(0x7fff_ffff);
                let [a, b] = halves.map(|x| _mm512_and_si512(_mm512_castps_si512(x), magnitude));
                let largest = f32::from_bits(_mm512_reduce_max_epu32(_mm512_max_epu32(a, b)));
                if !largest.is_finite() || largest < TINY {
                    let mut scale = [0.0];
                    quantize_activations(x, codes, &mut scale, sums);
                    return scale[0];
                }
                let inverse = _mm512_set1_ps(127.0 / largest);
                for (half, x) in halves.into_iter().enumerate() {
                    let rounded = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
                    let to = codes.as_mut_ptr().add(LANES * half);
                    _mm_storeu_si128(to.cast(), _mm512_cvtepi32_epi8(rounded));
                    sums[half] = _mm512_reduce_add_epi32(rounded);
                }
                largest / 127.0
            }
        }
    }
}
