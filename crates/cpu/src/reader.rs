//! Measures the memory's bandwidth as a pass would use it: the same threads, the same kind of pages.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use foredraft_common::lanes::LANES;
use foredraft_model::LoadError;

use crate::path::{Isa, for_each_path};
use crate::pool::Pool;
use crate::shared::share;
use crate::simd::Simd;
use crate::storage::{PageKind, Storage};

/// Memory that is read again and again.
pub struct Reader {
    storage: Storage,
    isa: Isa,
    pool: Arc<Mutex<Pool>>,
}

/// How far ahead memory is asked for.
const AHEAD_BYTES: usize = 8192;

for_each_path! {
    /// Adds up all words, so that none can be left out.
    fn sum_words(words: &[u32], sum: &mut u32) = sum_words_body, simd;
}

#[inline(always)]
fn sum_words_body<S: Simd>(simd: S, words: &[u32], sum: &mut u32) {
    // Four chains, so that additions never wait for each other.
    let mut sums = [[0u32; LANES]; 4];
    let (rows, _) = words.as_chunks::<LANES>();
    let (lines, _) = rows.as_chunks::<4>();
    for (i, line) in lines.iter().enumerate() {
        // The processor's own prefetching ends at every 4 KiB.
        if let Some(ahead) = lines.get(i + AHEAD_BYTES / size_of_val(line)) {
            simd.prefetch(bytemuck::cast_slice(ahead.as_flattened()));
        }
        for (sums, row) in sums.iter_mut().zip(line) {
            for (sum, word) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(*word);
            }
        }
    }
    *sum = sums.iter().flatten().fold(0, |a, b| a.wrapping_add(*b));
}

impl Reader {
    pub(crate) fn new(
        bytes: usize,
        pages: PageKind,
        isa: Isa,
        pool: Arc<Mutex<Pool>>,
    ) -> Result<Self, LoadError> {
        let mut storage = Storage::with_pages(bytes, pages)?;
        storage.populate();
        Ok(Self { storage, isa, pool })
    }

    /// Reads everything once with all threads; the seconds that it took.
    pub fn read(&mut self) -> f64 {
        let words: &[u32] =
            bytemuck::cast_slice(&self.storage.bytes()[..self.storage.bytes().len() / 4 * 4]);
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        pool.run(&|worker| {
            let mut sum = 0;
            let own = share(words.len(), 1024, worker.index, worker.count);
            sum_words(self.isa, &words[own], &mut sum);
            std::hint::black_box(sum);
        });
        start.elapsed().as_secs_f64()
    }
}
