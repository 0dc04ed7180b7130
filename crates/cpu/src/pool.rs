//! The threads of the backend: one parallel region a pass, with barriers inside it.
//!
//! Waiting is bounded spinning, then sleeping: spinning makes a barrier cost well under a microsecond on a quiet machine;
//! sleeping leaves the processor to a busy neighbour. (Yielding in between was not seen to help beside busy processes, so it is left out: see
//! docs/performance.md.)

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::shared::share;

/// Spins before sleeping, some 100 us: longer than any step that another thread is still at on a quiet machine.
const SPINS: u32 = 2_000;

/// A counter that threads wait on.
#[derive(Default)]
struct Signal {
    value: AtomicUsize,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Signal {
    /// Waits until the value is no longer `old`.
    fn wait_beyond(&self, old: usize) {
        for _ in 0..SPINS {
            if self.value.load(Ordering::Acquire) != old {
                return;
            }
            std::hint::spin_loop();
        }
        // Announce first, look again under the lock after: `advance` changes the value first and reads the
        // announcement after, so one of the two sees the other.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.value.load(Ordering::SeqCst) == old {
            guard = self
                .wake
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner);
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Changes the value and wakes every sleeper.
    fn advance(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }
}

/// A meeting point of all threads of a region, used again and again.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    generation: Signal,
    /// A thread of the region panicked and will not arrive.
    broken: AtomicBool,
}

impl Barrier {
    fn wait(&self) {
        let generation = self.generation.value.load(Ordering::Acquire);
        // Broken before this generation: nobody will complete it. Broken after: the wait below ends.
        self.check();
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Release);
            self.generation.advance();
        } else {
            self.generation.wait_beyond(generation);
        }
        self.check();
    }

    fn check(&self) {
        let broken = self.broken.load(Ordering::Acquire);
        assert!(!broken, "another thread of the pass panicked");
    }

    fn break_open(&self) {
        self.broken.store(true, Ordering::Release);
        self.generation.advance();
    }
}

/// How far a worker's share of a step has been claimed; alone in its line of memory, since workers rarely meet here.
#[derive(Default)]
#[repr(align(64))]
struct Claimed(AtomicUsize);

/// One counter for each worker and for each of three steps in turn: one in use, one that stragglers may still read
/// (and find exhausted), one that is being reset.
struct Claims([Vec<Claimed>; 3]);

impl Claims {
    fn new(workers: usize) -> Self {
        Self(std::array::from_fn(|_| {
            (0..workers).map(|_| Claimed::default()).collect()
        }))
    }

    fn reset(&self) {
        for claimed in self.0.iter().flatten() {
            claimed.0.store(0, Ordering::Relaxed);
        }
    }
}

/// One thread's view of a parallel region.
pub(crate) struct Worker<'a> {
    /// Which thread this is, below `count`.
    pub(crate) index: usize,
    /// Threads in the region.
    pub(crate) count: usize,
    barrier: &'a Barrier,
    claims: &'a Claims,
    /// How often [`Worker::claim`] was called.
    turn: Cell<usize>,
}

impl Worker<'_> {
    /// Waits for all threads: what they wrote before is visible after.
    #[inline]
    pub(crate) fn barrier(&self) {
        if self.count > 1 {
            self.barrier.wait();
        }
    }

    /// Runs `work` on all of `0..total`, in pieces that the workers claim: each its own share first, then what the others have left,
    /// so that one that something else keeps from its processor does not hold up the rest by more than a piece.
    ///
    /// Every worker calls this equally often, with the same numbers, and meets the others at a barrier in between.
    pub(crate) fn claim(&self, total: usize, piece: usize, mut work: impl FnMut(Range<usize>)) {
        let turn = self.turn.get();
        self.turn.set(turn + 1);
        // Nobody is two steps behind or one ahead: the barrier between two steps orders this before the next.
        self.claims.0[(turn + 1) % 3][self.index]
            .0
            .store(0, Ordering::Relaxed);
        for offset in 0..self.count {
            let owner = (self.index + offset) % self.count;
            let own = share(total, 1, owner, self.count);
            let claimed = &self.claims.0[turn % 3][owner].0;
            loop {
                let start = own.start + claimed.fetch_add(piece, Ordering::Relaxed);
                if start >= own.end {
                    break;
                }
                work(start..own.end.min(start + piece));
            }
        }
    }
}

type Job = *const (dyn Fn(&Worker<'_>) + Sync);

struct Inner {
    job: Mutex<Option<SendJob>>,
    start: Signal,
    barrier: Barrier,
    claims: Claims,
    /// Threads that have not finished the region yet, the caller not counted.
    running: AtomicUsize,
    finished: Signal,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
}

#[derive(Clone, Copy)]
struct SendJob(Job);
// SAFETY: the pointee is `Sync`, and `Pool::run` keeps it alive until every thread has left the region.
unsafe impl Send for SendJob {}

/// Threads that stay alive between regions. The caller of [`Pool::run`] is worker 0.
pub(crate) struct Pool {
    inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `count` workers: the caller and `count - 1` threads.
    pub(crate) fn new(count: usize) -> std::io::Result<Self> {
        let inner = Arc::new(Inner {
            job: Mutex::new(None),
            start: Signal::default(),
            barrier: Barrier {
                threads: count,
                arrived: AtomicUsize::new(0),
                generation: Signal::default(),
                broken: AtomicBool::new(false),
            },
            claims: Claims::new(count),
            running: AtomicUsize::new(0),
            finished: Signal::default(),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
        });
        let mut pool = Self {
            inner,
            threads: Vec::with_capacity(count - 1),
        };
        for index in 1..count {
            let inner = Arc::clone(&pool.inner);
            let thread = std::thread::Builder::new()
                .name(format!("foredraft-{index}"))
                .spawn(move || inner.serve(index, count))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub(crate) fn count(&self) -> usize {
        self.threads.len() + 1
    }

    /// Runs `job` on every worker at once and returns when all are done.
    ///
    /// # Panics
    /// When `job` panicked on any worker, with that worker's message.
    pub(crate) fn run(&mut self, job: &(dyn Fn(&Worker<'_>) + Sync)) {
        let inner = &*self.inner;
        inner.claims.reset();
        if !self.threads.is_empty() {
            // SAFETY: only the lifetime changes; this function does not return (or unwind) before every
            // thread has left the region, and the job is taken out then.
            let job: Job =
                unsafe { std::mem::transmute::<&(dyn Fn(&Worker<'_>) + Sync), Job>(job) };
            *lock(&inner.job) = Some(SendJob(job));
            inner.running.store(self.threads.len(), Ordering::Release);
            inner.start.advance();
        }
        inner.work(job, 0, self.count());
        loop {
            let seen = inner.finished.value.load(Ordering::Acquire);
            if inner.running.load(Ordering::Acquire) == 0 {
                break;
            }
            inner.finished.wait_beyond(seen);
        }
        *lock(&inner.job) = None;
        if let Some(panic) = lock(&inner.panic).take() {
            inner.barrier.arrived.store(0, Ordering::Release);
            inner.barrier.broken.store(false, Ordering::Release);
            resume_unwind(panic);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn serve(&self, index: usize, count: usize) {
        let mut seen = 0;
        loop {
            self.start.wait_beyond(seen);
            seen += 1;
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let job = *lock(&self.job);
            if let Some(SendJob(job)) = job {
                // SAFETY: `Pool::run` set the job before it advanced `start`, and waits for `running` to
                // become 0 before the job may die.
                self.work(unsafe { &*job }, index, count);
            }
            if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.finished.advance();
            }
        }
    }

    fn work(&self, job: &(dyn Fn(&Worker<'_>) + Sync), index: usize, count: usize) {
        let worker = Worker {
            index,
            count,
            barrier: &self.barrier,
            claims: &self.claims,
            turn: Cell::new(0),
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&worker))) {
            let mut first = lock(&self.panic);
            if first.is_none() {
                *first = Some(panic);
            }
            drop(first);
            self.barrier.break_open();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        self.inner.start.advance();
        for thread in self.threads.drain(..) {
            // A worker catches panics of its jobs; there is nothing else to report.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn every_worker_runs_and_barriers_order_their_writes() {
        for count in 1..=4 {
            let mut pool = Pool::new(count).expect("threads");
            for _ in 0..50 {
                let cells: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
                pool.run(&|worker| {
                    for round in 1..=20u64 {
                        cells[worker.index].store(round, Ordering::Relaxed);
                        worker.barrier();
                        for cell in &cells {
                            assert_eq!(cell.load(Ordering::Relaxed), round);
                        }
                        worker.barrier();
                    }
                });
            }
        }
    }

    #[test]
    fn every_item_is_claimed_once_though_one_worker_is_late() {
        for count in 1..=4 {
            let mut pool = Pool::new(count).expect("threads");
            for total in [0, 1, 7, 64, 101] {
                let items: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
                pool.run(&|worker| {
                    for step in 0..7 {
                        if worker.index == step % count {
                            std::thread::sleep(std::time::Duration::from_micros(200));
                        }
                        worker.claim(total, 3, |range| {
                            for item in &items[range] {
                                item.fetch_add(1, Ordering::Relaxed);
                            }
                        });
                        worker.barrier();
                        for item in &items {
                            assert_eq!(item.load(Ordering::Relaxed), step as u64 + 1);
                        }
                        worker.barrier();
                    }
                });
            }
        }
    }

    #[test]
    fn sleeping_workers_wake_up() {
        let mut pool = Pool::new(3).expect("threads");
        let runs = AtomicUsize::new(0);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            pool.run(&|worker| {
                if worker.index == 1 {
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
                worker.barrier();
                runs.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(runs.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_works_on() {
        for culprit in 0..3 {
            let mut pool = Pool::new(3).expect("threads");
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|worker| {
                    assert!(worker.index != culprit, "planted");
                    worker.barrier();
                    worker.barrier();
                });
            }));
            assert!(result.is_err());
            let runs = AtomicUsize::new(0);
            pool.run(&|worker| {
                worker.barrier();
                runs.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(runs.load(Ordering::Relaxed), 3);
        }
    }
}
