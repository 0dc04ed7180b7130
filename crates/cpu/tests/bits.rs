//! P2 at its root: the logits of a row are the same bits for every number of rows, chunking, batch, tree, thread
//! count and instruction set, for every weight type and architecture.

use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_formats::Checkpoint;
use foredraft_model::kv::{KvType, PageId, pages_for};
use foredraft_model::{
    Backend, Batch, Commit, Executor, ExecutorOptions, ProgramOptions, Slot, TapId, TapPoint,
    program_for, unwatched,
};
use foredraft_quant::WeightType;
use foredraft_testing::{Random, TinyModel, stories260k};

use foredraft_common::TokenId;

const CONTEXT: usize = 128;
const MAX_ROWS: usize = 128;

/// An executor and the pages of one sequence.
struct Runner {
    executor: Box<dyn Executor>,
    batch: Batch,
    groups: usize,
    context_tokens: usize,
}

impl Runner {
    fn new(checkpoint: &Checkpoint, threads: usize, path: CpuPath, kv_type: KvType) -> Self {
        Self::with_context(checkpoint, threads, path, kv_type, CONTEXT)
    }

    fn with_context(
        checkpoint: &Checkpoint,
        threads: usize,
        path: CpuPath,
        kv_type: KvType,
        context_tokens: usize,
    ) -> Self {
        let taps = vec![TapPoint::LayerInput(1), TapPoint::Final];
        let program = program_for(checkpoint, &ProgramOptions { taps }).expect("a program");
        let groups = program.kv_groups.len();
        let options = ExecutorOptions {
            context_tokens,
            // Three sequences.
            pages: vec![3 * pages_for(context_tokens); groups],
            kv_type,
            max_rows: MAX_ROWS,
            max_slots: 2 * MAX_ROWS,
            max_outputs: MAX_ROWS,
        };
        let backend = CpuBackend::new(threads, path).expect("a backend");
        Self {
            executor: backend
                .load(program, checkpoint, &options, &mut unwatched)
                .expect("an executor"),
            batch: Batch::new(),
            groups,
            context_tokens,
        }
    }

    /// Pages of sequence `number`, in an order that is not that of their ids.
    fn tables(&self, number: usize) -> Vec<Vec<PageId>> {
        let pages = pages_for(self.context_tokens) as u32;
        let table: Vec<PageId> = (0..pages)
            .map(|i| PageId(number as u32 * pages + (i * 5 + 3) % pages))
            .collect();
        vec![table; self.groups]
    }

    /// Feeds `tokens` after `committed` ones as a path, all logits asked for, and commits them.
    fn path(&mut self, number: usize, committed: usize, tokens: &[TokenId]) -> Vec<Vec<u32>> {
        let tables = self.tables(number);
        self.batch.clear();
        let sequence = self
            .batch
            .add_sequence(committed, tables.iter().map(Vec::as_slice));
        let mut slots: Vec<Slot> = Vec::new();
        for token in tokens {
            slots.push(
                self.batch
                    .push(sequence, *token, slots.last().copied(), true),
            );
        }
        self.executor.forward(&self.batch).expect("a pass");
        self.executor.commit(Commit {
            slots: &slots,
            committed,
            tables: &tables,
        });
        (0..tokens.len())
            .map(|i| bits(self.executor.logits(i)))
            .collect()
    }

    /// Feeds several sequences in one pass, `(number, committed, tokens)` each, and commits nothing.
    fn beside(&mut self, sequences: &[(usize, usize, &[TokenId])]) -> Vec<Vec<u32>> {
        self.batch.clear();
        for (number, committed, tokens) in sequences {
            let tables = self.tables(*number);
            let tables = tables.iter().map(Vec::as_slice);
            let sequence = self.batch.add_sequence(*committed, tables);
            let mut parent = None;
            for token in *tokens {
                parent = Some(self.batch.push(sequence, *token, parent, true));
            }
        }
        self.executor.forward(&self.batch).expect("a pass");
        (0..self.batch.outputs().len())
            .map(|i| bits(self.executor.logits(i)))
            .collect()
    }

    /// Feeds `tokens` in chunks.
    fn chunks(&mut self, tokens: &[TokenId], size: usize) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        for chunk in tokens.chunks(size) {
            let committed = all.len();
            all.extend(self.path(0, committed, chunk));
        }
        all
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    assert!(values.iter().all(|v| v.is_finite()));
    values.iter().map(|v| v.to_bits()).collect()
}

fn tokens(count: usize, vocabulary: usize, seed: u64) -> Vec<TokenId> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|_| TokenId(random.below(vocabulary) as u32))
        .collect()
}

/// Every row count, chunking, batch and tree gives the bits of feeding one token at a time.
fn check_all_shapes(
    name: &str,
    checkpoint: &Checkpoint,
    threads: usize,
    path: CpuPath,
    kv_type: KvType,
) {
    let vocabulary = checkpoint.config().expect("a config").vocabulary;
    let text = tokens(48, vocabulary, 7);
    let mut runner = Runner::new(checkpoint, threads, path, kv_type);
    let reference = runner.chunks(&text, 1);
    let label = |what: &str| format!("{name}, {threads} threads, {path}: {what}");

    // Longer than the longest chunk, so that each size cuts it somewhere else and only the last takes it whole.
    let long = tokens(100, vocabulary, 11);
    let long_reference = runner.chunks(&long, 1);
    for size in [7, 64, 100] {
        assert!(
            runner.chunks(&long, size) == long_reference,
            "{}",
            label(&format!("chunks of {size}"))
        );
    }
    runner.chunks(&text, 48);
    // M rows, for every M, after a committed prefix that ends within a page.
    for rows in 1..=48 {
        let prefix = 48 - rows;
        // The pages still hold the prefix: the same bits, whichever pass wrote them.
        let got = runner.path(0, prefix, &text[prefix..]);
        assert!(
            got[..] == reference[prefix..],
            "{}",
            label(&format!("{rows} rows"))
        );
    }
    check_batch(
        &mut runner,
        &text,
        &reference,
        vocabulary,
        &label("in a batch"),
    );
    check_tree(
        &mut runner,
        &text,
        &reference,
        vocabulary,
        &label("in a tree"),
    );
}

/// Three sequences of different lengths in one pass: none sees the others.
fn check_batch(
    runner: &mut Runner,
    text: &[TokenId],
    reference: &[Vec<u32>],
    vocabulary: usize,
    label: &str,
) {
    let other = tokens(30, vocabulary, 8);
    let other_reference = runner.path(1, 0, &other);
    runner.path(1, 0, &other[..20]);
    runner.path(0, 0, &text[..33]);
    runner.batch.clear();
    let sequences = [
        (0, 33, &text[33..40]),
        (1, 20, &other[20..30]),
        (2, 0, &text[..5]),
    ];
    let mut expected = Vec::new();
    for (number, committed, tokens) in sequences {
        let tables = runner.tables(number);
        let index = runner
            .batch
            .add_sequence(committed, tables.iter().map(Vec::as_slice));
        let mut parent = None;
        for (i, token) in tokens.iter().enumerate() {
            // Only every second row is asked for: outputs are not rows.
            let wanted = i % 2 == 0;
            parent = Some(runner.batch.push(index, *token, parent, wanted));
            if wanted {
                let all = if number == 1 {
                    &other_reference[..]
                } else {
                    reference
                };
                expected.push(&all[committed + i]);
            }
        }
    }
    runner.executor.forward(&runner.batch).expect("a pass");
    for (i, expected) in expected.into_iter().enumerate() {
        assert!(
            bits(runner.executor.logits(i)) == *expected,
            "{label}, output {i}"
        );
    }
}

/// The text as one path of a bushy tree, grown in two passes; then its accepted part is committed and continued.
fn check_tree(
    runner: &mut Runner,
    text: &[TokenId],
    reference: &[Vec<u32>],
    vocabulary: usize,
    label: &str,
) {
    runner.path(0, 0, &text[..17]);
    let tables = runner.tables(0);
    runner.batch.clear();
    let sequence = runner
        .batch
        .add_sequence(17, tables.iter().map(Vec::as_slice));
    let noise = tokens(64, vocabulary, 9);
    let mut noise = noise.into_iter();
    let mut trunk: Vec<Slot> = Vec::new();
    let mut outputs = Vec::new();
    for pass in 0..2 {
        runner.batch.next_pass();
        outputs.clear();
        for depth in pass * 4..pass * 4 + 4 {
            let parent = trunk.last().copied();
            // Siblings before and after the node of the text, and a child of a sibling.
            let sibling = runner
                .batch
                .push(sequence, noise.next().expect("noise"), parent, true);
            runner
                .batch
                .push(sequence, noise.next().expect("noise"), Some(sibling), false);
            trunk.push(runner.batch.push(sequence, text[17 + depth], parent, true));
            runner
                .batch
                .push(sequence, noise.next().expect("noise"), parent, false);
            outputs.push(17 + depth);
        }
        runner.executor.forward(&runner.batch).expect("a pass");
        for (i, position) in outputs.iter().enumerate() {
            let got = bits(runner.executor.logits(2 * i + 1));
            assert!(got == reference[*position], "{label}, position {position}");
        }
    }
    runner.executor.commit(Commit {
        slots: &trunk[..6],
        committed: 17,
        tables: &tables,
    });
    let rest = runner.path(0, 23, &text[23..]);
    assert!(rest[..] == reference[23..], "{label}, after the commit");
}

#[test]
fn every_weight_type_keeps_its_bits_in_every_shape() {
    for kind in WeightType::ALL {
        let checkpoint = TinyModel::of_type(kind).checkpoint();
        check_all_shapes(kind.name(), &checkpoint, 2, CpuPath::detect(), KvType::F16);
    }
}

#[test]
fn every_architecture_keeps_its_bits_in_every_shape() {
    for architecture in ["llama", "qwen2", "qwen3"] {
        let model = TinyModel {
            architecture,
            ..TinyModel::of_type(WeightType::Q8_0)
        };
        for kv_type in [KvType::F16, KvType::Q8] {
            let name = format!("{architecture} {kv_type:?}");
            check_all_shapes(&name, &model.checkpoint(), 1, CpuPath::detect(), kv_type);
        }
    }
}

#[test]
fn a_real_model_keeps_its_bits_in_every_shape() {
    for kv_type in [KvType::F16, KvType::Q8] {
        let name = format!("stories260K {kv_type:?}");
        check_all_shapes(&name, &stories260k(), 2, CpuPath::detect(), kv_type);
    }
}

#[test]
fn every_path_and_thread_count_gives_the_same_bits() {
    let halves = WeightType::ALL.map(|kind| (kind, KvType::F16));
    let bytes = [
        (WeightType::Q4_K, KvType::Q8),
        (WeightType::F16, KvType::Q8),
    ];
    for (kind, kv_type) in halves.into_iter().chain(bytes) {
        let checkpoint = TinyModel::of_type(kind).checkpoint();
        let text = tokens(40, 331, 5);
        let mut reference: Option<Vec<Vec<u32>>> = None;
        for path in CpuPath::ALL.into_iter().filter(|p| p.is_available()) {
            for threads in 1..=4 {
                let got = Runner::new(&checkpoint, threads, path, kv_type).chunks(&text, 16);
                let reference = reference.get_or_insert_with(|| got.clone());
                assert!(
                    got == *reference,
                    "{kind}, {kv_type:?}, {threads} threads, {path}"
                );
            }
        }
    }
}

/// A context of several parts, which threads share: two sequences, the shorter with one part.
#[test]
fn a_long_context_has_the_same_bits_however_it_is_shared_out() {
    let model = TinyModel {
        context_tokens: 1152,
        head_dim: 32,
        layers: 1,
        kv_heads: 3,
        ..TinyModel::of_type(WeightType::Q8_0)
    };
    let checkpoint = model.checkpoint();
    let text = tokens(1068, 331, 21);
    let mut reference: Option<Vec<Vec<u32>>> = None;
    for path in CpuPath::ALL.into_iter().filter(|p| p.is_available()) {
        for threads in [1, 2, 4] {
            let mut runner = Runner::with_context(&checkpoint, threads, path, KvType::F16, 1152);
            let mut got = Vec::new();
            let (long, end) = text.split_at(1020);
            for (i, chunk) in long.chunks(102).enumerate() {
                runner.path(0, 102 * i, chunk);
            }
            runner.path(1, 0, &text[..90]);
            for (rows, committed) in [(8, 1020), (1, 1020), (9, 1021), (3, 1021)] {
                got.extend(runner.path(0, committed, &end[committed - 1020..][..rows]));
            }
            got.extend(runner.beside(&[(1, 90, &end[..2]), (0, 1024, &end[4..7])]));
            let reference = reference.get_or_insert_with(|| {
                // A token says the same with one row, three, nine, and beside another sequence.
                assert!(got[0] == got[8]);
                assert!(got[1..4] == got[9..12] && got[1..4] == got[18..21]);
                assert!(got[4..7] == got[23..26]);
                got.clone()
            });
            assert!(got == *reference, "{threads} threads, {path}");
        }
    }
}

#[test]
fn taps_hold_the_last_pass_and_nothing_older() {
    let checkpoint = TinyModel::of_type(WeightType::Q4_K).checkpoint();
    let text = tokens(20, 331, 3);
    let mut runner = Runner::new(&checkpoint, 2, CpuPath::detect(), KvType::F16);
    let mut alone = Vec::new();
    for (position, token) in text.iter().enumerate() {
        runner.path(0, position, &[*token]);
        let taps = [TapId(0), TapId(1)].map(|tap| {
            let handle = runner.executor.tap(tap);
            bits(runner.executor.read_tap(handle, 0).expect("a fresh tap"))
        });
        alone.push(taps);
    }
    let stale = runner.executor.tap(TapId(0));
    runner.path(0, 0, &text);
    assert_eq!(runner.executor.read_tap(stale, 0), None);
    for tap in [TapId(0), TapId(1)] {
        let handle = runner.executor.tap(tap);
        for (row, alone) in alone.iter().enumerate() {
            let kept = runner.executor.read_tap(handle, row).expect("a fresh tap");
            assert_eq!(bits(kept), alone[tap.index()]);
        }
        assert_eq!(runner.executor.read_tap(handle, text.len()), None);
    }
    assert_ne!(alone[0][0], alone[0][1]);
}
