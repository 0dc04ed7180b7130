//! Linear layers: a tile of rows times a run of outputs, each weight unpacked once for all rows of the tile.
//!
//! Quantized types follow `foredraft_quant::dot` operation by operation (integer block products, then one fused
//! multiply-add for the product and one for the minimum, in block order); float types have one chain of
//! fused multiply-adds in k order. So an output's bits depend on its row and its weights alone.

use std::ops::Range;

use foredraft_quant::{ACTIVATION_BLOCK, Unpacked, bf16_to_f32, f16_to_f32, unpack};

use super::activations::{Activations, SUM_WIDTH};

use crate::path::for_each_path;
use crate::weights::{Matrix, PANEL, Panels};

/// Rows of a tile of quantized activations.
pub(crate) const TILE: usize = 16;
/// Rows of a tile of float activations: their accumulators fill the registers.
pub(crate) const FLOAT_TILE: usize = 4;

/// What becomes of a product.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a> {
    /// Added to the product, `[outputs]`.
    pub(crate) bias: Option<&'a [f32]>,
    /// Whether the result is added to what is there.
    pub(crate) accumulate: bool,
}

impl Finish<'_> {
    #[inline(always)]
    fn store(&self, out: &mut f32, output: usize, product: f32) {
        let value = match self.bias {
            Some(bias) => product + bias[output],
            None => product,
        };
        *out = if self.accumulate { *out + value } else { value };
    }
}

for_each_path! {
    /// Outputs `outputs` of a quantized matrix for a tile of rows; `outs[m]` is row m's run of these outputs.
    fn quantized(
        matrix: &Matrix,
        outputs: Range<usize>,
        x: Activations<'_>,
        finish: Finish<'_>,
        outs: &mut [&mut [f32]],
    ) = quantized_body;
}

#[inline(always)]
fn quantized_body(
    matrix: &Matrix,
    outputs: Range<usize>,
    x: Activations<'_>,
    finish: Finish<'_>,
    outs: &mut [&mut [f32]],
) {
    match (matrix.kind.sub_block(), matrix.kind.has_min()) {
        (16, false) => blocks::<16, false>(matrix, outputs, x, finish, outs),
        (16, true) => blocks::<16, true>(matrix, outputs, x, finish, outs),
        (_, false) => blocks::<32, false>(matrix, outputs, x, finish, outs),
        (_, true) => blocks::<32, true>(matrix, outputs, x, finish, outs),
    }
}

#[inline(always)]
fn blocks<const SUB: usize, const MIN: bool>(
    matrix: &Matrix,
    outputs: Range<usize>,
    x: Activations<'_>,
    finish: Finish<'_>,
    outs: &mut [&mut [f32]],
) {
    let width = matrix.width;
    let block_bytes = matrix.kind.block_bytes();
    let rows = outs.len();
    let mut weights = Unpacked::default();
    for (i, output) in outputs.enumerate() {
        let Some(row) = matrix.block_row(output) else {
            return;
        };
        let mut sums = [0.0f32; TILE];
        let mut k = 0;
        for block in row.chunks_exact(block_bytes) {
            let elements = unpack(matrix.kind, block, &mut weights);
            for s in 0..elements / SUB {
                let codes = &weights.codes[s * SUB..][..SUB];
                let at = k + s * SUB;
                for (m, sum) in sums[..rows].iter_mut().enumerate() {
                    let scale = x.scales[(m * width + at) / ACTIVATION_BLOCK];
                    let product = integer_dot::<SUB>(codes, &x.codes[m * width + at..][..SUB]);
                    *sum = (product as f32).mul_add(weights.scales[s] * scale, *sum);
                    if MIN {
                        let first = (m * width + at) / SUM_WIDTH;
                        let total: i32 = x.sums[first..][..SUB / SUM_WIDTH].iter().sum();
                        *sum = (total as f32).mul_add(weights.mins[s] * scale, *sum);
                    }
                }
            }
            k += elements;
        }
        for (out, sum) in outs.iter_mut().zip(sums) {
            finish.store(&mut out[i], output, sum);
        }
    }
}

/// The exact product of two runs of codes.
#[inline(always)]
fn integer_dot<const SUB: usize>(a: &[i8], b: &[i8]) -> i32 {
    let mut sum = 0;
    for i in 0..SUB {
        sum += i32::from(a[i]) * i32::from(b[i]);
    }
    sum
}

for_each_path! {
    /// Outputs of whole panels `panels` of a float matrix for a tile of rows, `x[m]` and `outs[m]` of row m.
    fn float(
        matrix: &Matrix,
        panels: Range<usize>,
        x: &[&[f32]],
        finish: Finish<'_>,
        outs: &mut [&mut [f32]],
    ) = float_body;
}

#[inline(always)]
fn float_body(
    matrix: &Matrix,
    panels: Range<usize>,
    x: &[&[f32]],
    finish: Finish<'_>,
    outs: &mut [&mut [f32]],
) {
    let first = panels.start;
    match matrix.panels(panels) {
        Some(Panels::F32(p)) => run_panels(p, matrix.width, first, x, finish, outs, |w| w),
        Some(Panels::F16(p)) => run_panels(p, matrix.width, first, x, finish, outs, f16_to_f32),
        Some(Panels::BF16(p)) => run_panels(p, matrix.width, first, x, finish, outs, bf16_to_f32),
        None => {}
    }
}

#[inline(always)]
fn run_panels<T: Copy>(
    weights: &[T],
    width: usize,
    first_panel: usize,
    x: &[&[f32]],
    finish: Finish<'_>,
    outs: &mut [&mut [f32]],
    convert: impl Fn(T) -> f32 + Copy,
) {
    for (p, panel) in weights.chunks_exact(width * PANEL).enumerate() {
        let mut sums = [[0.0f32; PANEL]; FLOAT_TILE];
        let (lines, _) = panel.as_chunks::<PANEL>();
        for (k, line) in lines.iter().enumerate() {
            let mut w = [0.0f32; PANEL];
            for (w, bits) in w.iter_mut().zip(line) {
                *w = convert(*bits);
            }
            for (sums, x) in sums.iter_mut().zip(x) {
                for (sum, w) in sums.iter_mut().zip(&w) {
                    *sum = w.mul_add(x[k], *sum);
                }
            }
        }
        for (out, sums) in outs.iter_mut().zip(&sums) {
            let start = p * PANEL;
            for (lane, out) in out[start..].iter_mut().take(PANEL).enumerate() {
                finish.store(out, (first_panel + p) * PANEL + lane, sums[lane]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use foredraft_formats::{Shape, Tensor};
    use foredraft_model::MatrixSpec;
    use foredraft_quant::{ActivationRow, WeightType, dot, dot_f32, encode};

    use super::*;
    use crate::path::{CpuPath, Isa};

    fn wave(n: usize, step: f32) -> Vec<f32> {
        (0..n)
            .map(|i| (i as f32 * step).sin() * (1.0 + (i % 5) as f32))
            .collect()
    }

    /// A matrix of 37 outputs, not a multiple of any tile, and its rows as in the file.
    fn matrix(kind: WeightType, width: usize) -> (Matrix, Vec<u8>) {
        let rows = 37;
        let mut bytes = Vec::new();
        encode(kind, &wave(rows * width, 0.7131), &mut bytes);
        let spec = MatrixSpec {
            name: "w".into(),
            rows,
            width,
        };
        let tensor = Tensor {
            name: "w",
            kind,
            shape: Shape::new(&[rows as u64, width as u64]).expect("a shape"),
            data: &bytes,
        };
        (Matrix::load(&spec, &tensor).expect("a matrix"), bytes)
    }

    #[test]
    fn every_type_and_path_equals_the_scalar_twin_for_every_tile() {
        let width = 512;
        for kind in WeightType::ALL {
            let (matrix, bytes) = matrix(kind, width);
            let row_bytes = bytes.len() / matrix.rows;
            let tile = if kind.is_quantized() {
                TILE
            } else {
                FLOAT_TILE
            };
            let xs: Vec<Vec<f32>> = (0..tile).map(|m| wave(width, 0.31 + m as f32)).collect();
            let bias = wave(matrix.rows, 0.5);
            let quantized_rows: Vec<ActivationRow> =
                xs.iter().map(|x| ActivationRow::quantize(x)).collect();
            for isa in CpuPath::ALL.into_iter().filter_map(Isa::new) {
                for rows in 1..=tile {
                    let mut outs = vec![vec![1.0f32; matrix.rows]; rows];
                    let mut views: Vec<&mut [f32]> = outs.iter_mut().map(|o| &mut o[..]).collect();
                    let finish = Finish {
                        bias: Some(&bias),
                        accumulate: true,
                    };
                    if kind.is_quantized() {
                        let join = |f: fn(&ActivationRow) -> Vec<f32>| -> Vec<f32> {
                            quantized_rows.iter().flat_map(f).collect()
                        };
                        let codes: Vec<i8> = quantized_rows
                            .iter()
                            .flat_map(|r| r.codes.clone())
                            .collect();
                        let sums: Vec<i32> =
                            quantized_rows.iter().flat_map(|r| r.sums.clone()).collect();
                        let scales = join(|r| r.scales.clone());
                        let x = Activations {
                            codes: &codes,
                            scales: &scales,
                            sums: &sums,
                        };
                        quantized(isa, &matrix, 0..matrix.rows, x, finish, &mut views);
                    } else {
                        let x: Vec<&[f32]> = xs[..rows].iter().map(|x| &x[..]).collect();
                        float(isa, &matrix, 0..3, &x, finish, &mut views);
                    }
                    for (m, out) in outs.iter().enumerate() {
                        for (n, out) in out.iter().enumerate() {
                            let row = &bytes[n * row_bytes..][..row_bytes];
                            let product = if kind.is_quantized() {
                                dot(kind, row, &quantized_rows[m])
                            } else {
                                dot_f32(kind, row, &xs[m])
                            };
                            let expected = 1.0 + (product + bias[n]);
                            assert_eq!(
                                out.to_bits(),
                                expected.to_bits(),
                                "{kind} {} rows {rows} row {m} output {n}",
                                isa.path()
                            );
                        }
                    }
                }
            }
        }
    }
}
