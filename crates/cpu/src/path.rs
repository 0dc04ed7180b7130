//! Instruction sets: which there are, which this machine has, and how a kernel is compiled for each.

/// An instruction set that kernels are compiled for. All give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuPath {
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// What every processor of the target has.
    Portable,
}

impl CpuPath {
    /// Every path, the fastest first.
    pub const ALL: [CpuPath; 3] = [CpuPath::Avx512, CpuPath::Avx2, CpuPath::Portable];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            CpuPath::Avx512 => "avx512",
            CpuPath::Avx2 => "avx2",
            CpuPath::Portable => "portable",
        }
    }

    /// Whether this processor has what the path needs.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        let avx2 = || {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
        };
        let avx512 = || {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vnni")
        };
        match self {
            CpuPath::Avx512 => avx2() && avx512(),
            CpuPath::Avx2 => avx2(),
            CpuPath::Portable => true,
        }
    }

    /// Whether this processor has what the path needs.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == CpuPath::Portable
    }

    /// The fastest path of this processor.
    pub fn detect() -> Self {
        Self::ALL
            .into_iter()
            .find(|path| path.is_available())
            .unwrap_or(CpuPath::Portable)
    }
}

impl std::fmt::Display for CpuPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A path that was found to be available: the proof that calls into its code are sound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Isa(CpuPath);

impl Isa {
    /// `None` when this processor lacks the path.
    pub(crate) fn new(path: CpuPath) -> Option<Self> {
        path.is_available().then_some(Self(path))
    }

    pub(crate) fn path(self) -> CpuPath {
        self.0
    }
}

/// Compiles `$body`, an `#[inline(always)]` function, once for each path, as one function that takes the [`Isa`]
/// first. `= body` vectorises as the compiler sees fit; `= body(simd)` hands the path's [`Simd`](crate::simd::Simd) value
/// to the body as its first argument.
macro_rules! for_each_path {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) = $body:path;) => {
        $crate::path::for_each_path! { @dispatch $(#[$meta])* $name ($($arg: $kind),*) [$body] () () () }
    };
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) = $body:path, simd;) => {
        $crate::path::for_each_path! {
            @dispatch $(#[$meta])* $name ($($arg: $kind),*) [$body]
            // SAFETY: the function is called only where the features were detected.
            ({ #[allow(unused_unsafe)] unsafe { $crate::simd::Avx512::new() } },)
            ({ #[allow(unused_unsafe)] unsafe { $crate::simd::Avx2::new() } },)
            ($crate::simd::Portable,)
        }
    };
    (@dispatch $(#[$meta:meta])* $name:ident ($($arg:ident: $kind:ty),*) [$body:path]
        ($($avx512:tt)*) ($($avx2:tt)*) ($($portable:tt)*)) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::undocumented_unsafe_blocks, clippy::too_many_arguments)]
        pub(crate) fn $name(isa: $crate::path::Isa, $($arg: $kind),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
            fn avx512($($arg: $kind),*) {
                $body($($avx512)* $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $kind),*) {
                $body($($avx2)* $($arg),*)
            }
            match isa.path() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: an `Isa` exists only for a path whose features were detected.
                $crate::path::CpuPath::Avx512 => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: as above.
                $crate::path::CpuPath::Avx2 => unsafe { avx2($($arg),*) },
                _ => $body($($portable)* $($arg),*),
            }
        }
    };
}
pub(crate) use for_each_path;
