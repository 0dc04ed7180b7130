//! Every kernel against the scalar twins of `quant`.

use foredraft_formats::Checkpoint;
use foredraft_formats::write::GgufWriter;
use foredraft_model::{MatrixSpec, unwatched};
use foredraft_quant::{ActivationRow, WeightType, dot, dot_f32, encode};

use super::*;
use crate::kernels::activations::{ActivationBuffer, Destination, quantize};
use crate::packing::load_matrices;
use crate::storage::PageKind;
use crate::weights::Matrix;

fn wave(n: usize, step: f32) -> Vec<f32> {
    (0..n)
        .map(|i| (i as f32 * step).sin() * (1.0 + (i % 5) as f32))
        .collect()
}

const WIDTH: usize = 512;
/// Not a multiple of a panel.
const OUTPUTS: usize = 37;

/// A matrix of `rows` outputs, loaded as a model's is, and its rows as in the file.
fn load(kind: WeightType, rows: usize, values: &[f32]) -> (Matrix, Vec<u8>) {
    let mut bytes = Vec::new();
    encode(kind, values, &mut bytes);
    let mut writer = GgufWriter::new();
    writer.str("general.architecture", "llama");
    writer.tensor("w", kind, &[rows, WIDTH], bytes.as_slice());
    let file = writer.finish().expect("a file");
    let checkpoint = Checkpoint::from_bytes(file).expect("a checkpoint");
    let spec = MatrixSpec {
        name: "w".into(),
        rows,
        width: WIDTH,
    };
    let mut matrices =
        load_matrices(&[spec], &checkpoint, 2, PageKind::Large, &mut unwatched).expect("a matrix");
    (matrices.remove(0), bytes)
}

fn matrix(kind: WeightType) -> (Matrix, Vec<u8>) {
    load(kind, OUTPUTS, &wave(OUTPUTS * WIDTH, 0.7131))
}

fn all_isas() -> impl Iterator<Item = Isa> {
    CpuPath::ALL.into_iter().filter_map(Isa::new)
}

fn check_bits(
    kind: WeightType,
    isa: Isa,
    rows: usize,
    m: usize,
    n: usize,
    got: f32,
    expected: f32,
) {
    assert_eq!(
        got.to_bits(),
        expected.to_bits(),
        "{kind} {} rows {rows} row {m} output {n}: {got}, not {expected}",
        isa.path()
    );
}

#[test]
fn every_quantized_type_equals_the_scalar_twin_for_every_tile() {
    let xs: Vec<Vec<f32>> = (0..TILE).map(|m| wave(WIDTH, 0.31 + m as f32)).collect();
    for kind in WeightType::ALL.into_iter().filter(|k| k.is_quantized()) {
        let (matrix, bytes) = matrix(kind);
        let row_bytes = bytes.len() / OUTPUTS;
        for isa in all_isas() {
            for rows in 1..=TILE {
                let mut buffer = ActivationBuffer::new(WIDTH * rows);
                let shared = buffer.share();
                for (row, x) in xs[..rows].iter().enumerate() {
                    let to = Destination {
                        tile_first: 0,
                        tile_rows: rows,
                        row,
                        blocks: WIDTH / 32,
                        first_block: 0,
                    };
                    quantize(isa, x, to, shared);
                }
                let outs = run(isa, &matrix, rows, shared);
                for m in 0..rows {
                    let twin = ActivationRow::quantize(&xs[m]);
                    for n in 0..OUTPUTS {
                        let expected = dot(kind, &bytes[n * row_bytes..][..row_bytes], &twin);
                        check_bits(kind, isa, rows, m, n, outs[m * OUTPUTS + n], expected);
                    }
                }
            }
        }
    }
}

/// All outputs of a matrix, `[rows, outputs]`.
fn run(isa: Isa, matrix: &Matrix, rows: usize, x: SharedActivations<'_>) -> Vec<f32> {
    let mut outs = vec![9.0; rows * matrix.rows];
    let job = Job {
        matrix,
        rows,
        x,
        finish: Finish {
            bias: None,
            accumulate: false,
        },
        arena: Shared::new(&mut outs),
        out_start: 0,
    };
    #[allow(unsafe_code)]
    // SAFETY: one thread.
    unsafe {
        quantized_panels(isa, &job, 0..matrix.panels());
    }
    outs
}

/// The largest codes and activations of every type: nothing saturates.
#[test]
fn extreme_codes_and_activations_do_not_saturate() {
    for kind in WeightType::ALL.into_iter().filter(|k| k.is_quantized()) {
        for sign in [1.0f32, -1.0] {
            let weights: Vec<f32> = (0..16 * WIDTH)
                .map(|i| if i % 2 == 0 { -sign } else { sign })
                .collect();
            let (matrix, bytes) = load(kind, 16, &weights);
            for x in [
                vec![3.0f32; WIDTH],
                (0..WIDTH)
                    .map(|i| if i % 2 == 0 { -3.0 } else { 3.0 })
                    .collect(),
            ] {
                for isa in all_isas() {
                    let mut buffer = ActivationBuffer::new(WIDTH);
                    let shared = buffer.share();
                    let to = Destination {
                        tile_first: 0,
                        tile_rows: 1,
                        row: 0,
                        blocks: WIDTH / 32,
                        first_block: 0,
                    };
                    quantize(isa, &x, to, shared);
                    let outs = run(isa, &matrix, 1, shared);
                    let expected = dot(
                        kind,
                        &bytes[..bytes.len() / 16],
                        &ActivationRow::quantize(&x),
                    );
                    check_bits(kind, isa, 1, 0, 0, outs[0], expected);
                }
            }
        }
    }
}

#[test]
fn every_float_type_equals_the_scalar_twin_for_every_tile() {
    let xs: Vec<Vec<f32>> = (0..FLOAT_TILE)
        .map(|m| wave(WIDTH, 0.31 + m as f32))
        .collect();
    let bias = wave(OUTPUTS, 0.5);
    for kind in WeightType::ALL.into_iter().filter(|k| !k.is_quantized()) {
        let (matrix, bytes) = matrix(kind);
        let row_bytes = bytes.len() / OUTPUTS;
        for isa in all_isas() {
            for rows in 1..=FLOAT_TILE {
                let mut outs = vec![vec![1.0f32; OUTPUTS]; rows];
                let mut views: Vec<&mut [f32]> = outs.iter_mut().map(|o| &mut o[..]).collect();
                let finish = Finish {
                    bias: Some(&bias),
                    accumulate: true,
                };
                let x: Vec<&[f32]> = xs[..rows].iter().map(|x| &x[..]).collect();
                float_panels(isa, &matrix, 0..matrix.panels(), &x, finish, &mut views);
                for m in 0..rows {
                    for n in 0..OUTPUTS {
                        let product = dot_f32(kind, &bytes[n * row_bytes..][..row_bytes], &xs[m]);
                        check_bits(kind, isa, rows, m, n, outs[m][n], 1.0 + (product + bias[n]));
                    }
                }
            }
        }
    }
}
