//! A pass that asks for more than was reserved is refused, and the executor works on.

use foredraft_common::TokenId;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_model::kv::{KvType, PageId};
use foredraft_model::{
    Backend, Batch, Executor, ExecutorOptions, ForwardError, LoadError, ProgramOptions,
    program_for, unwatched,
};
use foredraft_testing::TinyModel;

fn executor() -> Box<dyn Executor> {
    let checkpoint = TinyModel::default().checkpoint();
    let program = program_for(&checkpoint, &ProgramOptions::default()).expect("a program");
    let backend = CpuBackend::new(2, CpuPath::detect()).expect("a backend");
    let options = ExecutorOptions {
        context_tokens: 32,
        pages: vec![4],
        kv_type: KvType::F16,
        max_rows: 4,
        max_slots: 6,
        max_outputs: 2,
    };
    let expected = backend
        .memory(&program, &checkpoint, &options)
        .expect("sizes");
    let executor = backend
        .load(program, &checkpoint, &options, &mut unwatched)
        .expect("an executor");
    assert_eq!(executor.memory(), expected);
    executor
}

/// A pass with `rows` rows of `token` after `committed` tokens, the first `outputs` of which are asked for.
fn forward(
    executor: &mut dyn Executor,
    committed: usize,
    pages: &[PageId],
    rows: usize,
    outputs: usize,
    token: u32,
) -> Result<(), ForwardError> {
    let mut batch = Batch::new();
    let sequence = batch.add_sequence(committed, [pages]);
    let mut parent = None;
    for row in 0..rows {
        parent = Some(batch.push(sequence, TokenId(token), parent, row < outputs));
    }
    executor.forward(&batch)
}

#[test]
fn what_was_not_reserved_is_refused() {
    let mut executor = executor();
    let executor = executor.as_mut();
    let pages = [PageId(0), PageId(1), PageId(2)];
    let too_large = |rows, outputs| {
        Err(ForwardError::TooLarge {
            rows,
            outputs,
            slots: rows,
        })
    };
    assert_eq!(forward(executor, 0, &[], 5, 1, 0), too_large(5, 1));
    assert_eq!(forward(executor, 0, &[], 3, 3, 0), too_large(3, 3));
    assert_eq!(
        forward(executor, 0, &[], 1, 1, 331),
        Err(ForwardError::Token {
            token: TokenId(331),
            vocabulary: 331
        })
    );
    assert_eq!(
        forward(executor, 31, &pages[..2], 2, 1, 0),
        Err(ForwardError::Context {
            position: 32,
            context_tokens: 32
        })
    );
    assert_eq!(
        forward(executor, 17, &pages[..1], 1, 1, 0),
        Err(ForwardError::Pages { committed: 17 })
    );
    assert_eq!(
        forward(executor, 5, &[PageId(4)], 1, 1, 0),
        Err(ForwardError::Pages { committed: 5 })
    );
    assert_eq!(forward(executor, 0, &[], 4, 2, 330), Ok(()));
    assert!(executor.logits(1).iter().all(|v| v.is_finite()));
}

#[test]
fn a_missing_or_misshapen_tensor_is_named() {
    let model = TinyModel::default();
    let checkpoint = model.checkpoint();
    let backend = CpuBackend::new(1, CpuPath::Portable).expect("a backend");
    let options = ExecutorOptions {
        context_tokens: 32,
        pages: vec![2],
        kv_type: KvType::F16,
        max_rows: 1,
        max_slots: 1,
        max_outputs: 1,
    };
    let mut program = program_for(&checkpoint, &ProgramOptions::default()).expect("a program");
    program.matrices[1].rows += 16;
    let error = backend
        .load(program.clone(), &checkpoint, &options, &mut unwatched)
        .err()
        .expect("an error");
    assert!(
        matches!(error, LoadError::Shape { ref name, .. } if *name == program.matrices[1].name),
        "{error}"
    );
    program.matrices[1].name = "blk.7.attn_q.weight".into();
    let error = backend
        .load(program, &checkpoint, &options, &mut unwatched)
        .err()
        .expect("an error");
    assert!(error.to_string().contains("blk.7.attn_q.weight"), "{error}");
}

#[test]
fn no_threads_are_an_error_and_so_are_too_many() {
    assert!(CpuBackend::new(0, CpuPath::Portable).is_err());
    assert!(CpuBackend::new(1_000_000, CpuPath::Portable).is_err());
}
