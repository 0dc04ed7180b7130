//! Linear layers: panels of 16 outputs times tiles of up to 8 rows.
//!
//! A kernel loads the codes of a block of weights once and meets all rows of a tile with them: broadcast dwords of
//! activations against 16 outputs in lanes, exact integer sums, then the float steps of `foredraft_quant::dot` in block
//! order. More rows than a tile go over the same panel, which stays in the first cache, so that weights are streamed
//! from memory once in a pass. Float types have one chain of fused multiply-adds in k order for each output.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod float;
mod format;
mod portable;

pub(crate) use float::{FLOAT_TILE, float_panels};

use foredraft_quant::PANEL_ROWS;

use super::activations::{Activations, TILE};
use crate::path::{CpuPath, Isa};
use crate::weights::QuantizedPanel;

/// The products of one panel with a tile of rows: `[row][output]`.
pub(crate) type Sums = [[f32; PANEL_ROWS]; TILE];

/// Computes the products of a quantized panel with the rows of a tile.
#[inline]
#[allow(unsafe_code)]
pub(crate) fn quantized_panel(
    isa: Isa,
    panel: QuantizedPanel<'_>,
    x: Activations<'_>,
    sums: &mut Sums,
) {
    check(&panel, &x);
    match isa.path() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only for a path whose features were detected; the lengths were checked.
        CpuPath::Avx512 => unsafe { avx512::panel(panel, x, sums) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        CpuPath::Avx2 => unsafe { avx2::panel(panel, x, sums) },
        _ => portable::panel(panel, x, sums),
    }
}

/// The lengths that the kernels rely on.
#[inline(always)]
fn check(panel: &QuantizedPanel<'_>, x: &Activations<'_>) {
    let cells = panel.blocks * x.rows;
    assert!((1..=TILE).contains(&x.rows));
    assert!(panel.codes.len() == panel.layout.code_bytes(panel.blocks * 32));
    assert!(panel.scales.len() == panel.layout.scale_bytes(panel.blocks * 32));
    assert!(x.codes.len() == cells * 32 && x.scales.len() == cells);
    assert!(x.minus_sums.len() == cells && x.scaled_sums.len() == cells);
    assert!(x.minus_half_sums.len() == 2 * cells && x.scaled_half_sums.len() == 2 * cells);
}

/// What becomes of a product.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a> {
    /// Added to the product, `[outputs]`.
    pub(crate) bias: Option<&'a [f32]>,
    /// Whether the result is added to what is there.
    pub(crate) accumulate: bool,
}

impl Finish<'_> {
    /// Writes products of the outputs from `first` on; `out` may end before the panel does.
    #[inline(always)]
    pub(crate) fn store(&self, out: &mut [f32], first: usize, products: &[f32; PANEL_ROWS]) {
        for (lane, (out, product)) in out.iter_mut().zip(products).enumerate() {
            let value = match self.bias {
                Some(bias) => product + bias[first + lane],
                None => *product,
            };
            *out = if self.accumulate { *out + value } else { value };
        }
    }
}

#[cfg(test)]
mod tests;
