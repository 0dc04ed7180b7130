//! A pass and a commit allocate nothing, once they have run at their size.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use foredraft_common::TokenId;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_model::kv::{KvType, PageId};
use foredraft_model::{
    Backend, Batch, Commit, ExecutorOptions, ProgramOptions, Slot, program_for, unwatched,
};
use foredraft_quant::WeightType;
use foredraft_testing::TinyModel;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_pass_allocates_nothing_on_any_path() {
    for kind in [WeightType::F16, WeightType::Q4_K, WeightType::Q8_0] {
        let checkpoint = TinyModel::of_type(kind).checkpoint();
        for path in CpuPath::ALL.into_iter().filter(|path| path.is_available()) {
            let backend = CpuBackend::new(2, path).expect("a backend");
            let program = program_for(&checkpoint, &ProgramOptions::default()).expect("a program");
            let options = ExecutorOptions {
                context_tokens: 128,
                pages: vec![8],
                kv_type: KvType::F16,
                max_rows: 16,
                max_slots: 16,
                max_outputs: 16,
            };
            let mut executor = backend
                .load(program, &checkpoint, &options, &mut unwatched)
                .expect("an executor");
            let tables = [(0..8).map(PageId).collect::<Vec<_>>()];
            let mut batch = Batch::new();
            let mut slots: Vec<Slot> = Vec::with_capacity(16);
            let mut before = 0;
            for step in 0..12 {
                // The first steps are the largest: they make room for what follows.
                let rows = if step < 2 { 16 } else { 1 + step % 5 };
                if step == 2 {
                    before = ALLOCATIONS.load(Ordering::Relaxed);
                }
                batch.clear();
                slots.clear();
                let sequence = batch.add_sequence(32, tables.iter().map(Vec::as_slice));
                for row in 0..rows {
                    let parent = slots.last().copied();
                    slots.push(batch.push(sequence, TokenId(row as u32), parent, true));
                }
                executor.forward(&batch).expect("a pass");
                executor.commit(Commit {
                    slots: &slots,
                    committed: 32,
                    tables: &tables,
                });
            }
            let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(allocations, 0, "{kind}, {path}");
        }
    }
}
