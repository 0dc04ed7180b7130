//! How a model is loaded: options that every command which computes shares.

use clap::{Args, ValueEnum};

use super::values::{self, Size};

/// Options about the model's place in the machine.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model options")]
pub(crate) struct ModelOptions {
    /// Threads that compute [default: one for each physical core that may be used]
    #[arg(long, value_name = "N", value_parser = values::count::<1024>)]
    pub(crate) threads: Option<usize>,

    /// Memory for weights, cache and work space, such as 4GiB [default: what is free, less a reserve]
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Size>,

    /// Longest text in tokens, prompt and answer together [default: what the model was trained for, as far as memory reaches]
    #[arg(long, value_name = "N", value_parser = values::count::<{ 1 << 24 }>)]
    pub(crate) context: Option<usize>,

    /// Element type of the KV cache
    #[arg(long, value_enum, default_value_t = KvType::F16, value_name = "TYPE")]
    pub(crate) kv: KvType,

    /// Where to compute
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    pub(crate) device: Device,

    /// Instruction set of the CPU kernels; every one gives the same bits
    #[arg(long, value_enum, default_value_t = CpuPath::Auto, value_name = "PATH")]
    pub(crate) cpu_path: CpuPath,
}

/// `--kv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvType {
    /// 16-bit floats
    F16,
    /// Bytes with a scale for each position and head: half the memory, slightly other texts
    Q8,
}

impl From<KvType> for foredraft::model::kv::KvType {
    fn from(kind: KvType) -> Self {
        match kind {
            KvType::F16 => Self::F16,
            KvType::Q8 => Self::Q8,
        }
    }
}

/// `--device`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The best that is here
    Auto,
    /// The CPU
    Cpu,
}

/// `--cpu-path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CpuPath {
    /// The fastest that this CPU has
    Auto,
    /// AVX-512 with VNNI
    Avx512,
    /// AVX2 and FMA
    Avx2,
    /// Plain code that runs everywhere
    Portable,
}
