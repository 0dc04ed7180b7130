//! How many threads are worth starting: one for each physical core that this process may use.
//!
//! Two threads on the siblings of one core share its vector units and its way to memory, which is all that a pass
//! uses, and meet each other at every barrier. The standard library's count honours the affinity of the process and the
//! quotas of control groups (version 1 and 2, rounded down, at least 1) but counts siblings; Linux tells who is whose.
//!
//! A quota of 1.5 processors gives one thread, as rounded down there. Two would be stopped for the last quarter of
//! each period, in the middle of some token, and while they run they are not twice as fast: with 22 GB/s for one core
//! and 29 for two, as measured on one machine, three quarters of the time give the speed of one thread that never stops.

use std::collections::BTreeSet;
use std::path::Path;

/// No machine has as many processors; a list beyond is none of ours.
const MAX_PROCESSORS: usize = 1 << 16;

/// Processors that this process may run on at once, siblings of one core counted each, within its quota.
pub fn available_processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Threads to start by default: physical cores that this process may run on, within its quota.
pub fn available_threads() -> usize {
    let processors = available_processors();
    physical_cores(Path::new("/")).map_or(processors, |cores| processors.min(cores))
}

/// Physical cores behind the processors that the calling thread may run on, from Linux's `proc` and `sys` below
/// `root`; `None` where they do not tell.
fn physical_cores(root: &Path) -> Option<usize> {
    let status = std::fs::read_to_string(root.join("proc/thread-self/status")).ok()?;
    let allowed = allowed_processors(&status)?;
    let siblings = |processor: usize| {
        let file = format!("sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
        parse_list(&std::fs::read_to_string(root.join(file)).ok()?)
    };
    Some(count_cores(&allowed, siblings))
}

/// The affinity in a `status` file, after `Cpus_allowed_list:`, such as `0-3,8`.
fn allowed_processors(status: &str) -> Option<BTreeSet<usize>> {
    let mut lines = status.lines();
    parse_list(lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// Cores: a processor with a sibling that was counted before is none. One whose siblings are not known is its own.
fn count_cores(
    allowed: &BTreeSet<usize>,
    siblings: impl Fn(usize) -> Option<BTreeSet<usize>>,
) -> usize {
    let mut counted = BTreeSet::new();
    let mut cores = 0;
    for &processor in allowed {
        if counted.contains(&processor) {
            continue;
        }
        cores += 1;
        counted.insert(processor);
        counted.extend(siblings(processor).unwrap_or_default());
    }
    cores
}

/// Linux's lists of numbers: `0-3,8`. `None` for an empty list and for what is none.
fn parse_list(text: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MAX_PROCESSORS {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine: the affinity, and the siblings of each processor.
    fn machine(allowed: &str, siblings: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let own = root.path().join("proc/thread-self");
        fs::create_dir_all(&own).expect("a directory");
        let status =
            format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\nMems:\t1\n");
        fs::write(own.join("status"), status).expect("a file");
        for (processor, siblings) in siblings.iter().enumerate() {
            let topology = format!("sys/devices/system/cpu/cpu{processor}/topology");
            let topology = root.path().join(topology);
            fs::create_dir_all(&topology).expect("a directory");
            fs::write(
                topology.join("thread_siblings_list"),
                format!("{siblings}\n"),
            )
            .expect("a file");
        }
        root
    }

    fn cores(allowed: &str, siblings: &[&str]) -> Option<usize> {
        physical_cores(machine(allowed, siblings).path())
    }

    #[test]
    fn siblings_are_one_core() {
        // Eight processors of four cores: numbered by rounds, as most machines do, or side by side.
        let by_rounds = ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"];
        assert_eq!(cores("0-7", &by_rounds), Some(4));
        let side_by_side = ["0-1", "0-1", "2-3", "2-3", "4-5", "4-5", "6-7", "6-7"];
        assert_eq!(cores("0-7", &side_by_side), Some(4));
        assert_eq!(cores("0-1", &["0", "1"]), Some(2), "no siblings");
    }

    #[test]
    fn only_allowed_processors_count() {
        let siblings = ["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"];
        assert_eq!(cores("0-1,4", &siblings), Some(2));
        assert_eq!(
            cores("4-5", &siblings),
            Some(2),
            "the other sibling of each"
        );
        assert_eq!(cores("2,6", &siblings), Some(1));
    }

    #[test]
    fn what_the_system_does_not_tell_is_not_guessed() {
        assert_eq!(cores("0-3", &["0,2", "1"]), Some(3), "3 is its own core");
        assert_eq!(cores("", &["0"]), None);
        let empty = tempfile::tempdir().expect("a directory");
        assert_eq!(physical_cores(empty.path()), None);
    }

    #[test]
    fn lists_are_ranges_and_numbers() {
        let list = |text| parse_list(text).map(|set| set.into_iter().collect::<Vec<_>>());
        assert_eq!(list(" 0-2,5\n"), Some(vec![0, 1, 2, 5]));
        for bad in [
            "",
            "a",
            "1-",
            "3-1",
            "1,,2",
            "-1",
            "0-99999999999",
            "0-65536",
        ] {
            assert_eq!(list(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn there_is_at_least_one_and_no_more_than_processors() {
        assert!((1..=available_processors()).contains(&available_threads()));
    }
}
