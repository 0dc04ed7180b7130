//! The linear kernels by themselves: a table of weight type and rows M, on one matrix that is far larger than a second-level cache.
//!
//! ```text
//! cargo bench -p foredraft-cpu --bench linear -- [--mb 256] [--rounds 5] [--threads 2] [--path avx512] [--types Q4_1,Q6_K] [--rows 1,4,8]
//! ```
//!
//! Every round reads as much memory with the same threads, then runs each M once after an uncounted pass of the same
//! M: the figures of a row of the table come from the same minutes. Medians are printed.

use std::time::Instant;

use foredraft_common::TokenId;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_formats::Checkpoint;
use foredraft_formats::write::GgufWriter;
use foredraft_model::kv::KvType;
use foredraft_model::{
    Backend, Batch, BufferId, BufferSpec, Executor, ExecutorOptions, MatrixId, MatrixSpec, Op,
    Program, Projection, RowSet, unwatched,
};
use foredraft_quant::{WeightType, encode};
use foredraft_testing::Random;

const WIDTH: usize = 2048;
/// Rows that are really random; the matrix repeats them.
const DISTINCT_ROWS: usize = 64;

struct Settings {
    bytes: usize,
    rounds: usize,
    threads: usize,
    path: CpuPath,
    types: Vec<WeightType>,
    rows: Vec<usize>,
}

impl Settings {
    fn from_arguments() -> Self {
        let arguments: Vec<String> = std::env::args().collect();
        let value = |name: &str| {
            let at = arguments.iter().position(|a| a == name)?;
            arguments.get(at + 1).cloned()
        };
        let number = |name: &str, default: usize| {
            value(name).map_or(default, |v| v.parse().expect("a number"))
        };
        let list = |name: &str| value(name).map(|v| v.split(',').map(str::to_owned).collect());
        let types: Option<Vec<String>> = list("--types");
        let rows: Option<Vec<String>> = list("--rows");
        let is_wanted = |kind: &WeightType| {
            types
                .as_ref()
                .map_or(kind.is_quantized() || *kind == WeightType::F16, |names| {
                    names.iter().any(|n| *n == kind.to_string())
                })
        };
        Self {
            bytes: number("--mb", 256) << 20,
            rounds: number("--rounds", 5),
            threads: number("--threads", foredraft_cpu::available_threads()),
            path: value("--path").map_or(CpuPath::detect(), |name| {
                let mut all = CpuPath::ALL.into_iter();
                all.find(|p| p.name() == name).expect("a path")
            }),
            types: WeightType::ALL.into_iter().filter(is_wanted).collect(),
            rows: rows.map_or(vec![1, 2, 4, 6, 8, 16], |rows| {
                let parse = |r: &String| r.parse().expect("a number of rows");
                rows.iter().map(parse).collect()
            }),
        }
    }
}

/// One linear layer behind an embedding, as a program.
fn program(outputs: usize) -> Program {
    let matrix = |name: &str, rows| MatrixSpec {
        name: name.into(),
        rows,
        width: WIDTH,
    };
    let buffer = |name, width| BufferSpec {
        name,
        width,
        rows: RowSet::All,
    };
    Program {
        ops: vec![
            Op::Embed {
                table: MatrixId(0),
                out: BufferId(0),
            },
            Op::Linear {
                input: BufferId(0),
                outputs: vec![Projection {
                    weight: MatrixId(1),
                    bias: None,
                    out: BufferId(1),
                    accumulate: false,
                }],
            },
        ],
        buffers: vec![buffer("x", WIDTH), buffer("y", outputs)],
        matrices: vec![matrix("table", DISTINCT_ROWS), matrix("w", outputs)],
        logits: Some(BufferId(1)),
        vocabulary: DISTINCT_ROWS,
        context_tokens: 64,
        ..Program::default()
    }
}

/// A checkpoint of about `bytes` of weights, and how many outputs that is.
fn checkpoint(kind: WeightType, bytes: usize) -> (Checkpoint, usize) {
    let mut random = Random::new(1);
    let values: Vec<f32> = (0..DISTINCT_ROWS * WIDTH)
        .map(|_| random.normal())
        .collect();
    let mut table = Vec::new();
    encode(WeightType::F32, &values, &mut table);
    let mut distinct = Vec::new();
    encode(kind, &values, &mut distinct);
    let copies = bytes / distinct.len();
    let outputs = copies * DISTINCT_ROWS;
    let mut writer = GgufWriter::new();
    writer.str("general.architecture", "llama");
    writer.tensor("table", WeightType::F32, &[DISTINCT_ROWS, WIDTH], table);
    writer.tensor("w", kind, &[outputs, WIDTH], distinct.repeat(copies));
    let file = writer.finish().expect("a file");
    (Checkpoint::from_bytes(file).expect("a checkpoint"), outputs)
}

fn batch(rows: usize) -> Batch {
    let mut batch = Batch::new();
    let sequence = batch.add_sequence(0, []);
    let mut parent = None;
    for row in 0..rows {
        let token = TokenId((row % DISTINCT_ROWS) as u32);
        parent = Some(batch.push(sequence, token, parent, true));
    }
    batch
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(kind: WeightType, settings: &Settings) {
    let (checkpoint, outputs) = checkpoint(kind, settings.bytes);
    let backend = CpuBackend::new(settings.threads, settings.path).expect("a backend");
    let max_rows = settings.rows.iter().copied().max().unwrap_or(1);
    let options = ExecutorOptions {
        context_tokens: 64,
        pages: Vec::new(),
        kv_type: KvType::F16,
        max_rows,
        max_slots: max_rows,
        max_outputs: max_rows,
    };
    let mut executor = backend
        .load(program(outputs), &checkpoint, &options, &mut unwatched)
        .expect("an executor");
    drop(checkpoint);
    let bytes = executor.memory().streamed_bytes;
    let mut reader = backend.reader(bytes as usize).expect("memory");
    let mut reads = Vec::new();
    let mut passes = vec![Vec::new(); settings.rows.len()];
    let run = |executor: &mut dyn Executor, batch: &Batch| {
        let start = Instant::now();
        executor.forward(batch).expect("a pass");
        start.elapsed().as_secs_f64()
    };
    for _ in 0..settings.rounds {
        reads.push(reader.read().min(reader.read()));
        for (rows, passes) in settings.rows.iter().zip(&mut passes) {
            let batch = batch(*rows);
            run(&mut *executor, &batch);
            passes.push(run(&mut *executor, &batch));
        }
    }
    let read = median(reads);
    print!("{kind:<7} {:>6.1}", bytes as f64 / read / 1e9);
    for (rows, passes) in settings.rows.iter().zip(passes) {
        let seconds = median(passes);
        let macs = (outputs * WIDTH * rows) as f64 / seconds / 1e9 / settings.threads as f64;
        if *rows == 1 {
            print!("  {:>6.2} {:>3.0}%", seconds * 1e3, 100.0 * read / seconds);
        } else {
            print!("  {:>6.2} {macs:>4.0}", seconds * 1e3);
        }
    }
    println!();
}

fn main() {
    let settings = Settings::from_arguments();
    println!(
        "{} threads, {}, {} MB: milliseconds of a pass; at M = 1 the share of the read bandwidth, else GMAC/s a thread",
        settings.threads,
        settings.path,
        settings.bytes >> 20
    );
    print!("type      GB/s");
    for rows in &settings.rows {
        print!("  {:>11}", format!("M = {rows}"));
    }
    println!();
    for kind in &settings.types {
        measure(*kind, &settings);
    }
}
