//! What the tests of the block formats share: building blocks by hand and looking at single weights.

use crate::{Unpacked, WeightType, encode, unpack};

/// The f16 bytes of 0.5.
pub(crate) const HALF: [u8; 2] = [0x00, 0x38];
/// The f16 bytes of 2.
pub(crate) const TWO: [u8; 2] = [0x00, 0x40];

/// A zeroed block of `kind` with `bytes` written at the offsets given.
pub(crate) fn block(kind: WeightType, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut block = vec![0; kind.block_bytes()];
    for (at, bytes) in parts {
        block[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    block
}

/// The unpacked form of one block, over the remains of another.
pub(crate) fn unpacked(kind: WeightType, bytes: &[u8]) -> Unpacked {
    let mut out = Unpacked {
        codes: [99; 256],
        scales: [99.0; 16],
        mins: [99.0; 16],
    };
    assert_eq!(unpack(kind, bytes, &mut out), kind.block_elements());
    out
}

/// Encodes one block of weights that is 0 except for the `(index, value)` pairs.
pub(crate) fn encoded(kind: WeightType, weights: &[(usize, f32)]) -> Vec<u8> {
    let mut values = vec![0.0; kind.block_elements()];
    for (i, value) in weights {
        values[*i] = *value;
    }
    let mut out = Vec::new();
    encode(kind, &values, &mut out);
    out
}

/// Flips each bit of the code bytes in turn, and asserts that it changes exactly one code: with the golden
/// values, that no two codes share a bit and none is forgotten.
pub(crate) fn assert_each_bit_belongs_to_one_code(
    kind: WeightType,
    code_bytes: std::ops::Range<usize>,
) {
    let mut bytes = vec![0; kind.block_bytes()];
    let before = unpacked(kind, &bytes);
    let mut hits = vec![0; kind.block_elements()];
    for bit in 8 * code_bytes.start..8 * code_bytes.end {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let after = unpacked(kind, &bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let changed: Vec<usize> = (0..kind.block_elements())
            .filter(|&i| before.codes[i] != after.codes[i])
            .collect();
        assert_eq!(
            changed.len(),
            1,
            "{kind}: bit {bit} changes codes {changed:?}"
        );
        hits[changed[0]] += 1;
    }
    assert!(
        hits.iter().all(|h| *h == hits[0]),
        "{kind}: bits a code {hits:?}"
    );
}
