//! Operations on single values.

use foredraft_common::silu;

use crate::path::for_each_path;

for_each_path! {
    /// `gate = silu(gate) * up`.
    fn silu_product(gate: &mut [f32], up: &[f32]) = silu_product_body;
}

#[inline(always)]
fn silu_product_body(gate: &mut [f32], up: &[f32]) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = silu(*gate) * up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{CpuPath, Isa};

    #[test]
    fn every_path_gives_the_bits_of_the_definition() {
        let gate: Vec<f32> = (0..333).map(|i| (i as f32 - 166.0) * 0.31).collect();
        let up: Vec<f32> = (0..333).map(|i| (i % 13) as f32 - 6.0).collect();
        for isa in CpuPath::ALL.into_iter().filter_map(Isa::new) {
            let mut out = gate.clone();
            silu_product(isa, &mut out, &up);
            for i in 0..333 {
                let expected = silu(gate[i]) * up[i];
                assert_eq!(out[i].to_bits(), expected.to_bits(), "{} {i}", isa.path());
            }
        }
    }
}
