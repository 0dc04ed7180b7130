//! Weights as they lie in memory: panels of 16 output rows, in one storage for all matrices of a model.
//!
//! Quantized types are packed by `foredraft_quant::pack_panel`: all codes of a matrix, then all its scales. Float types
//! lie in panels `[width][16 rows]` of their own type. Either way outputs sit in lanes, and missing rows of the last
//! panel are zeros.

use std::ops::Range;
use std::sync::Arc;

use foredraft_formats::{Checkpoint, Tensor};
use foredraft_model::{LoadError, VectorSpec};
use foredraft_quant::{
    LINE_BYTES, PANEL_ROWS, PanelLayout, WeightType, bf16_to_f32, decode, decode_panel_row,
    f16_to_f32,
};

use crate::storage::Storage;

/// A weight matrix, `[rows = outputs, width = inputs]`.
pub(crate) struct Matrix {
    pub(crate) kind: WeightType,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    pub(crate) storage: Arc<Storage>,
    /// Codes of quantized types, or float panels.
    pub(crate) codes: Range<usize>,
    /// Scales of quantized types.
    pub(crate) scales: Range<usize>,
}

/// One panel of a quantized matrix.
#[derive(Clone, Copy)]
pub(crate) struct QuantizedPanel<'a> {
    pub(crate) kind: WeightType,
    pub(crate) layout: PanelLayout,
    /// Blocks of 32 weights in a row.
    pub(crate) blocks: usize,
    pub(crate) codes: &'a [u8],
    pub(crate) scales: &'a [u8],
}

/// A run of float panels.
pub(crate) enum Panels<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    BF16(&'a [u16]),
}

/// Bytes of codes and scales of one panel.
pub(crate) fn panel_bytes(kind: WeightType, width: usize) -> (usize, usize) {
    match PanelLayout::of(kind) {
        Some(layout) => (layout.code_bytes(width), layout.scale_bytes(width)),
        None => (kind.block_bytes() * width * PANEL_ROWS, 0),
    }
}

/// Bytes in memory of codes and scales of a matrix, each in whole lines.
pub(crate) fn matrix_bytes(kind: WeightType, rows: usize, width: usize) -> (usize, usize) {
    let (codes, scales) = panel_bytes(kind, width);
    let panels = rows.div_ceil(PANEL_ROWS);
    (
        (codes * panels).next_multiple_of(LINE_BYTES),
        (scales * panels).next_multiple_of(LINE_BYTES),
    )
}

/// Bytes in memory of a matrix of this type and shape.
pub(crate) fn bytes_for(kind: WeightType, rows: usize, width: usize) -> u64 {
    let (codes, scales) = matrix_bytes(kind, rows, width);
    (codes + scales) as u64
}

impl Matrix {
    /// Panels of 16 outputs.
    pub(crate) fn panels(&self) -> usize {
        self.rows.div_ceil(PANEL_ROWS)
    }

    /// A panel of a quantized matrix; `None` for float types.
    #[inline]
    pub(crate) fn quantized_panel(&self, panel: usize) -> Option<QuantizedPanel<'_>> {
        let layout = PanelLayout::of(self.kind)?;
        let (code_bytes, scale_bytes) = (
            layout.code_bytes(self.width),
            layout.scale_bytes(self.width),
        );
        let bytes = self.storage.bytes();
        Some(QuantizedPanel {
            kind: self.kind,
            layout,
            blocks: self.width / 32,
            codes: &bytes[self.codes.start + panel * code_bytes..][..code_bytes],
            scales: &bytes[self.scales.start + panel * scale_bytes..][..scale_bytes],
        })
    }

    /// A run of float panels; `None` for quantized types.
    #[inline]
    pub(crate) fn float_panels(&self, range: Range<usize>) -> Option<Panels<'_>> {
        let bytes = self.kind.block_bytes() * self.width * PANEL_ROWS;
        let range = self.codes.start + range.start * bytes..self.codes.start + range.end * bytes;
        let own = || &self.storage.bytes()[range];
        match self.kind {
            WeightType::F32 => Some(Panels::F32(bytemuck::cast_slice(own()))),
            WeightType::F16 => Some(Panels::F16(bytemuck::cast_slice(own()))),
            WeightType::BF16 => Some(Panels::BF16(bytemuck::cast_slice(own()))),
            _ => None,
        }
    }

    /// Decodes a row into f32, `[width]`: an embedding.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
        match self.float_panels(panel..panel + 1) {
            Some(Panels::F32(p)) => gather(p, lane, out, |w| w),
            Some(Panels::F16(p)) => gather(p, lane, out, f16_to_f32),
            Some(Panels::BF16(p)) => gather(p, lane, out, bf16_to_f32),
            None => {
                if let Some(panel) = self.quantized_panel(panel) {
                    decode_panel_row(self.kind, panel.codes, panel.scales, lane, out);
                }
            }
        }
    }
}

fn gather<T: Copy>(panel: &[T], lane: usize, out: &mut [f32], convert: impl Fn(T) -> f32) {
    for (value, k) in out.iter_mut().zip(panel.chunks_exact(PANEL_ROWS)) {
        *value = convert(k[lane]);
    }
}

/// A tensor by name.
pub(crate) fn find<'a>(weights: &'a Checkpoint, name: &str) -> Result<Tensor<'a>, LoadError> {
    weights
        .tensor(name)
        .ok_or_else(|| LoadError::MissingTensor {
            name: name.to_owned(),
        })
}

/// Decodes a vector of weights into f32.
pub(crate) fn load_vector(spec: &VectorSpec, weights: &Checkpoint) -> Result<Vec<f32>, LoadError> {
    let tensor = find(weights, &spec.name)?;
    check_shape(&spec.name, &tensor, 1, spec.len)?;
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
