//! Weights as they lie in memory.
//!
//! Quantized rows keep the blocks of the file. Float types are repacked into panels of [`PANEL`] output rows,
//! `[width][16 rows]`, so that outputs sit in lanes and each has one chain of fused multiply-adds in k order.

use std::ops::Range;

use foredraft_formats::Tensor;
use foredraft_model::{LoadError, MatrixSpec, VectorSpec};
use foredraft_quant::{WeightType, bf16_to_f32, decode, f16_to_f32};

/// Output rows in a panel of float weights.
pub(crate) const PANEL: usize = 16;

/// A weight matrix, `[rows = outputs, width = inputs]`.
pub(crate) struct Matrix {
    pub(crate) kind: WeightType,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    data: Data,
}

enum Data {
    /// Rows of file blocks.
    Blocks { bytes: Vec<u8>, row_bytes: usize },
    /// Panels of f32, `[ceil(rows / 16)][width][16]`; missing rows are 0.
    Panels32(Vec<f32>),
    /// Panels of 16-bit floats.
    Panels16(Vec<u16>),
}

/// A run of float panels.
pub(crate) enum Panels<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    BF16(&'a [u16]),
}

impl Matrix {
    pub(crate) fn load(spec: &MatrixSpec, tensor: &Tensor<'_>) -> Result<Self, LoadError> {
        check_shape(&spec.name, tensor, spec.rows, spec.width)?;
        let data = match tensor.kind {
            WeightType::F32 => Data::Panels32(panels(
                spec.rows,
                spec.width,
                tensor.data,
                f32::from_le_bytes,
            )),
            WeightType::F16 | WeightType::BF16 => Data::Panels16(panels(
                spec.rows,
                spec.width,
                tensor.data,
                u16::from_le_bytes,
            )),
            _ => Data::Blocks {
                bytes: tensor.data.to_vec(),
                row_bytes: tensor.data.len() / spec.rows,
            },
        };
        Ok(Self {
            kind: tensor.kind,
            rows: spec.rows,
            width: spec.width,
            data,
        })
    }

    /// Bytes in memory of a matrix of this type and shape.
    pub(crate) fn bytes_for(kind: WeightType, rows: usize, width: usize) -> u64 {
        let rows = if kind.is_quantized() {
            rows
        } else {
            rows.next_multiple_of(PANEL)
        };
        kind.row_bytes(width).unwrap_or(0) as u64 * rows as u64
    }

    /// The file blocks of a row; `None` for float types.
    #[inline(always)]
    pub(crate) fn block_row(&self, row: usize) -> Option<&[u8]> {
        match &self.data {
            Data::Blocks { bytes, row_bytes } => Some(&bytes[row * row_bytes..][..*row_bytes]),
            _ => None,
        }
    }

    /// A run of panels; `None` for quantized types.
    #[inline(always)]
    pub(crate) fn panels(&self, range: Range<usize>) -> Option<Panels<'_>> {
        let elements = range.start * PANEL * self.width..range.end * PANEL * self.width;
        match (&self.data, self.kind) {
            (Data::Panels32(p), _) => Some(Panels::F32(&p[elements])),
            (Data::Panels16(p), WeightType::BF16) => Some(Panels::BF16(&p[elements])),
            (Data::Panels16(p), _) => Some(Panels::F16(&p[elements])),
            (Data::Blocks { .. }, _) => None,
        }
    }

    /// Decodes a row into f32, `[width]`: an embedding.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        let (panel, lane) = (row / PANEL, row % PANEL);
        match self.panels(panel..panel + 1) {
            None => {
                if let Some(blocks) = self.block_row(row) {
                    decode(self.kind, blocks, out);
                }
            }
            Some(Panels::F32(p)) => gather(p, lane, out, |w| w),
            Some(Panels::F16(p)) => gather(p, lane, out, f16_to_f32),
            Some(Panels::BF16(p)) => gather(p, lane, out, bf16_to_f32),
        }
    }
}

fn gather<T: Copy>(panel: &[T], lane: usize, out: &mut [f32], convert: impl Fn(T) -> f32) {
    for (value, k) in out.iter_mut().zip(panel.chunks_exact(PANEL)) {
        *value = convert(k[lane]);
    }
}

/// Repacks little-endian rows into panels.
fn panels<T: Copy + Default, const BYTES: usize>(
    rows: usize,
    width: usize,
    bytes: &[u8],
    read: impl Fn([u8; BYTES]) -> T,
) -> Vec<T> {
    let mut out = vec![T::default(); rows.next_multiple_of(PANEL) * width];
    let (values, _) = bytes.as_chunks::<BYTES>();
    for (row, values) in values.chunks_exact(width).enumerate() {
        let panel = &mut out[row / PANEL * PANEL * width..];
        for (k, value) in values.iter().enumerate() {
            panel[k * PANEL + row % PANEL] = read(*value);
        }
    }
    out
}

/// Decodes a vector of weights into f32.
pub(crate) fn load_vector(spec: &VectorSpec, tensor: &Tensor<'_>) -> Result<Vec<f32>, LoadError> {
    check_shape(&spec.name, tensor, 1, spec.len)?;
    let mut out = vec![0.0; spec.len];
    decode(tensor.kind, tensor.data, &mut out);
    Ok(out)
}

pub(crate) fn check_shape(
    name: &str,
    tensor: &Tensor<'_>,
    rows: usize,
    width: usize,
) -> Result<(), LoadError> {
    let (found_rows, found_width) = (tensor.shape.rows(), tensor.shape.width());
    if (found_rows, found_width) == (rows, width) {
        return Ok(());
    }
    Err(LoadError::Shape {
        name: name.to_owned(),
        found_rows,
        found_width,
        rows,
        width,
    })
}
