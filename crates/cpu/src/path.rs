//! Instruction sets: which there are, which this machine has, and how a kernel is compiled for each.

/// An instruction set that kernels are compiled for. All give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuPath {
    /// What every processor of the target has.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
}

impl CpuPath {
    /// Every path, the fastest first.
    pub const ALL: [CpuPath; 2] = [CpuPath::Avx2, CpuPath::Portable];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            CpuPath::Portable => "portable",
            CpuPath::Avx2 => "avx2",
        }
    }

    /// Whether this processor has what the path needs.
    pub fn is_available(self) -> bool {
        match self {
            CpuPath::Portable => true,
            #[cfg(target_arch = "x86_64")]
            CpuPath::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(not(target_arch = "x86_64"))]
            CpuPath::Avx2 => false,
        }
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

/// Compiles `$body`, an `#[inline(always)]` function, once for each path, as one function that takes the
/// [`Isa`] first.
macro_rules! for_each_path {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) = $body:path;) => {
        $(#[$meta])*
        pub(crate) fn $name(isa: $crate::path::Isa, $($arg: $kind),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2($($arg: $kind),*) {
                $body($($arg),*)
            }
            match isa.path() {
                #[cfg(target_arch = "x86_64")]
                #[allow(unsafe_code)]
                // SAFETY: an `Isa` exists only for a path whose features were detected.
                $crate::path::CpuPath::Avx2 => unsafe { avx2($($arg),*) },
                _ => $body($($arg),*),
            }
        }
    };
}
pub(crate) use for_each_path;
