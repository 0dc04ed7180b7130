//! Rotary embedding of one head, with the norm that Qwen 3 puts before it.

use foredraft_formats::RopeLayout;

use super::norm;
use crate::path::for_each_path;

/// The rotation of one position.
#[derive(Clone, Copy)]
pub(crate) struct Rotation<'a> {
    pub(crate) layout: RopeLayout,
    /// `[pairs]`.
    pub(crate) cosines: &'a [f32],
    /// `[pairs]`.
    pub(crate) sines: &'a [f32],
}

for_each_path! {
    /// Normalises a head (when a weight is given) and rotates it in place.
    fn rotate_head(head: &mut [f32], weight: Option<&[f32]>, eps: f32, rotation: Rotation<'_>) = rotate_head_body;
}

#[inline(always)]
fn rotate_head_body(head: &mut [f32], weight: Option<&[f32]>, eps: f32, rotation: Rotation<'_>) {
    if let Some(weight) = weight {
        let scale = norm::scale(head, eps);
        for (x, w) in head.iter_mut().zip(weight) {
            *x = *x * scale * w;
        }
    }
    let Rotation {
        layout,
        cosines,
        sines,
    } = rotation;
    let pairs = cosines.len();
    match layout {
        RopeLayout::Halves => {
            let (first, rest) = head.split_at_mut(pairs);
            for (((a, b), c), s) in first.iter_mut().zip(rest).zip(cosines).zip(sines) {
                (*a, *b) = turn(*a, *b, *c, *s);
            }
        }
        RopeLayout::Interleaved => {
            let (both, _) = head.as_chunks_mut::<2>();
            for ((pair, c), s) in both.iter_mut().zip(cosines).zip(sines) {
                (pair[0], pair[1]) = turn(pair[0], pair[1], *c, *s);
            }
        }
    }
}

/// The point (a, b) turned: one rounded product and one fused operation each.
#[inline(always)]
fn turn(a: f32, b: f32, cosine: f32, sine: f32) -> (f32, f32) {
    (a.mul_add(cosine, -(b * sine)), a.mul_add(sine, b * cosine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{CpuPath, Isa};

    #[test]
    fn a_quarter_turn_moves_each_pair_of_both_layouts() {
        for (layout, expected) in [
            (RopeLayout::Interleaved, [-2.0, 1.0, -4.0, 3.0, 5.0]),
            (RopeLayout::Halves, [-3.0, -4.0, 1.0, 2.0, 5.0]),
        ] {
            let mut head = [1.0, 2.0, 3.0, 4.0, 5.0];
            let rotation = Rotation {
                layout,
                cosines: &[0.0, 0.0],
                sines: &[1.0, 1.0],
            };
            rotate_head_body(&mut head, None, 0.0, rotation);
            assert_eq!(head, expected, "the fifth value is beyond the rotated dims");
        }
    }

    #[test]
    fn every_path_gives_the_same_bits() {
        let head: Vec<f32> = (0..64)
            .map(|i| ((i * 29 % 67) as f32 - 33.0) * 0.11)
            .collect();
        let weight: Vec<f32> = (0..64).map(|i| 0.9 + i as f32 * 0.003).collect();
        let angles: Vec<f32> = (0..32).map(|i| i as f32 * 0.21).collect();
        let cosines: Vec<f32> = angles.iter().map(|a| a.cos()).collect();
        let sines: Vec<f32> = angles.iter().map(|a| a.sin()).collect();
        for layout in [RopeLayout::Halves, RopeLayout::Interleaved] {
            let rotation = Rotation {
                layout,
                cosines: &cosines,
                sines: &sines,
            };
            let mut expected = head.clone();
            rotate_head_body(&mut expected, Some(&weight), 1e-6, rotation);
            for isa in CpuPath::ALL.into_iter().filter_map(Isa::new) {
                let mut out = head.clone();
                rotate_head(isa, &mut out, Some(&weight), 1e-6, rotation);
                assert_eq!(out, expected, "{}", isa.path());
            }
        }
    }
}
