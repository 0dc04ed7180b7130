//! The default memory budget: what is free, less a reserve.

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// Kept for everything else on the machine: a sixteenth of the memory, at least 256 MiB.
const RESERVE_SHARE: u64 = 16;
const RESERVE_LEAST_BYTES: u64 = 256 << 20;

/// Bytes that a model may take; `None` when the system does not tell.
pub(super) fn budget() -> Option<u64> {
    let kinds = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(kinds).ok()?;
    // A control group's limit, where there is one, counts as the machine's memory.
    let (total, free) = match system.cgroup_limits() {
        Some(limits) => (
            limits.total_memory,
            limits.free_memory.min(system.available_memory()),
        ),
        None => (system.total_memory(), system.available_memory()),
    };
    budget_of(total, free)
}

fn budget_of(total_bytes: u64, free_bytes: u64) -> Option<u64> {
    let reserve = (total_bytes / RESERVE_SHARE).max(RESERVE_LEAST_BYTES);
    (free_bytes > 0).then(|| free_bytes.saturating_sub(reserve).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sixteenth_is_left_alone_and_never_less_than_256_mib() {
        assert_eq!(budget_of(16 << 30, 10 << 30), Some(9 << 30));
        assert_eq!(budget_of(1 << 30, 512 << 20), Some(256 << 20));
        assert_eq!(
            budget_of(1 << 30, 100 << 20),
            Some(1),
            "nothing fits, and the message says so"
        );
        assert_eq!(budget_of(0, 0), None);
    }
}
