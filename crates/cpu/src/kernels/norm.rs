//! RMSNorm of a row: `out = x / sqrt(mean(x^2) + eps) * weight`, the squares summed in fixed lanes.

use foredraft_common::lanes::sum_of_squares;

use crate::path::for_each_path;

for_each_path! {
    /// Normalises one row: `[width]` each.
    fn rms_norm(input: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) = rms_norm_body;
}

#[inline(always)]
fn rms_norm_body(input: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = scale(input, eps);
    for ((out, x), w) in out.iter_mut().zip(input).zip(weight) {
        *out = x * scale * w;
    }
}

/// The factor of a row: `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
pub(crate) fn scale(input: &[f32], eps: f32) -> f32 {
    1.0 / (sum_of_squares(input) / input.len() as f32 + eps).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{CpuPath, Isa};

    #[test]
    fn three_four_is_normalised_by_its_root_mean_square() {
        // mean square 12.5, so 3 / 3.5355339 = 0.84852814 and 4 / 3.5355339 = 1.1313709
        let mut out = [0.0; 2];
        rms_norm_body(&[3.0, 4.0], &[1.0, 2.0], 0.0, &mut out);
        assert!((out[0] - 0.848_528_1).abs() < 1e-6 && (out[1] - 2.262_741_8).abs() < 1e-6);
    }

    #[test]
    fn every_path_gives_the_same_bits() {
        let x: Vec<f32> = (0..577)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.173)
            .collect();
        let w: Vec<f32> = (0..577).map(|i| 1.0 + (i % 7) as f32 * 0.01).collect();
        let mut expected = vec![0.0; 577];
        rms_norm_body(&x, &w, 1e-5, &mut expected);
        for isa in CpuPath::ALL.into_iter().filter_map(Isa::new) {
            let mut out = vec![0.0; 577];
            rms_norm(isa, &x, &w, 1e-5, &mut out);
            assert_eq!(out, expected, "{}", isa.path());
        }
    }
}
