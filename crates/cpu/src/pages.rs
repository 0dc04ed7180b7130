//! Which kind of pages reads faster here: measured, because both answers occur.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::path::Isa;
use crate::pool::Pool;
use crate::reader::Reader;
use crate::storage::PageKind;

/// Memory of each kind that is read: several times what an x86 core's tables of ordinary pages cover (some 1500 to
/// 2000 of 4 KiB), and little enough to cost some milliseconds.
pub(crate) const SAMPLE_BYTES: usize = 16 << 20;
/// Turns that ordinary pages must win, all of them: of two equal kinds one does so in one of 64 tries.
const ROUNDS: usize = 6;
/// On a busy machine the turns take long and say little.
const LIMIT: Duration = Duration::from_millis(20);

/// Whether Linux gives large pages to those who ask: the text of `transparent_hugepage/enabled` shows the choice in
/// brackets, as in `always [madvise] never`.
fn has_large_pages(enabled: &str) -> bool {
    !enabled.contains("[never]")
}

/// The kind that reads faster with all threads of the pool; large pages when no difference shows.
pub(crate) fn faster(isa: Isa, pool: &Arc<Mutex<Pool>>) -> PageKind {
    let started = Instant::now();
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !enabled.is_ok_and(|text| has_large_pages(&text)) {
        return PageKind::Ordinary;
    }
    let reader = |kind| Reader::new(SAMPLE_BYTES, kind, isa, Arc::clone(pool));
    let (Ok(mut large), Ok(mut ordinary)) = (reader(PageKind::Large), reader(PageKind::Ordinary))
    else {
        return PageKind::Large;
    };
    // By turns, so that what disturbs the machine disturbs both.
    let mut turn = || [large.read(), ordinary.read()];
    turn(); // warms up
    choose(|| (started.elapsed() < LIMIT).then(&mut turn))
}

/// From the seconds of both kinds, `[large, ordinary]`, in each turn; `None`: there is no time for another.
fn choose(mut turn: impl FnMut() -> Option<[f64; 2]>) -> PageKind {
    let mut won = || turn().is_some_and(|[large, ordinary]| ordinary < large);
    match (0..ROUNDS).all(|_| won()) {
        true => PageKind::Ordinary,
        false => PageKind::Large,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_pages_must_win_every_turn() {
        let choice = |turns: &[[f64; 2]]| {
            let mut turns = turns.iter();
            choose(|| turns.next().copied())
        };
        let won = [1.0, 0.9];
        assert_eq!(choice(&[won; 6]), PageKind::Ordinary);
        assert_eq!(choice(&[won; 5]), PageKind::Large, "no time for a sixth");
        assert_eq!(
            choice(&[won, won, [1.0, 1.0], won, won, won]),
            PageKind::Large
        );
    }

    #[test]
    fn the_systems_choice_is_in_brackets() {
        assert!(has_large_pages("always [madvise] never\n"));
        assert!(has_large_pages("[always] madvise never\n"));
        assert!(!has_large_pages("always madvise [never]\n"));
    }
}
