//! Activations rounded to 8 bits, per row and block of 32 (the arithmetic is `quant`'s).

use foredraft_quant::{ACTIVATION_BLOCK, quantize_activations};

use crate::path::for_each_path;
use crate::shared::Shared;

/// Sub-sums of codes are kept for every 16: types with 16-wide sub-blocks read one, others add two.
pub(crate) use foredraft_quant::SUM_BLOCK as SUM_WIDTH;

/// Reserved space for the quantized rows of one linear step.
pub(crate) struct ActivationBuffer {
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i32>,
}

impl ActivationBuffer {
    /// Space for `values` activations in whole blocks.
    pub(crate) fn new(values: usize) -> Self {
        let values = values.next_multiple_of(ACTIVATION_BLOCK);
        Self {
            codes: vec![0; values],
            scales: vec![0.0; values / ACTIVATION_BLOCK],
            sums: vec![0; values / SUM_WIDTH],
        }
    }

    pub(crate) fn bytes_for(values: usize) -> u64 {
        values as u64
            + values as u64 / ACTIVATION_BLOCK as u64 * 4
            + values as u64 / SUM_WIDTH as u64 * 4
    }

    pub(crate) fn share(&mut self) -> SharedActivations<'_> {
        SharedActivations {
            codes: Shared::new(&mut self.codes),
            scales: Shared::new(&mut self.scales),
            sums: Shared::new(&mut self.sums),
        }
    }
}

/// The buffer as the threads of a pass share it.
#[derive(Clone, Copy)]
pub(crate) struct SharedActivations<'a> {
    pub(crate) codes: Shared<'a, i8>,
    pub(crate) scales: Shared<'a, f32>,
    pub(crate) sums: Shared<'a, i32>,
}

/// Quantized rows: codes `[rows, width]`, scales `[rows, width / 32]`, sums `[rows, width / 16]`.
#[derive(Clone, Copy)]
pub(crate) struct Activations<'a> {
    pub(crate) codes: &'a [i8],
    pub(crate) scales: &'a [f32],
    pub(crate) sums: &'a [i32],
}

for_each_path! {
    /// Quantizes whole blocks.
    fn quantize(x: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) = quantize_activations;
}
