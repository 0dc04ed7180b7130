//! Properties that hold for every type, on random rows.
#![allow(clippy::expect_used)]

use foredraft_quant::{
    ActivationRow, Unpacked, WeightType, decode, dot, dot_f32, encode, quantize_activations, unpack,
};
use proptest::prelude::*;

/// The rounding unit of f32: half the distance from 1 to the next number.
const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

fn quantized() -> impl Strategy<Value = WeightType> {
    let kinds: Vec<_> = WeightType::ALL
        .into_iter()
        .filter(|kind| kind.is_quantized())
        .collect();
    proptest::sample::select(kinds)
}

/// `count` runs of 16 values, each run with an offset and a spread of its own (0 included).
fn rows(count: usize) -> impl Strategy<Value = Vec<f32>> {
    let run = (
        prop_oneof![Just(0.0f32), -4.0f32..4.0],
        prop_oneof![Just(0.0f32), 0.1f32..10.0],
        proptest::collection::vec(-1.0f32..1.0, 16),
    );
    proptest::collection::vec(run, count).prop_map(|runs| {
        let shifted = |(offset, spread, values): (f32, f32, Vec<f32>)| {
            values.into_iter().map(move |v| offset + spread * v)
        };
        runs.into_iter().flat_map(shifted).collect()
    })
}

fn encoded(kind: WeightType, values: &[f32]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(kind, values, &mut out);
    out
}

fn decoded(kind: WeightType, stored: &[u8]) -> Vec<f32> {
    let mut out = vec![0.0; stored.len() / kind.block_bytes() * kind.block_elements()];
    decode(kind, stored, &mut out);
    out
}

/// The largest error that encoding may make in a block whose largest magnitude is `a`, whose values lie
/// `span` apart (0 counted among them for the K-types, which have no positive minimum). See each line.
fn error_bound(kind: WeightType, a: f64, span: f64) -> f64 {
    use WeightType::*;
    let bound = match kind {
        // The step is a / 2^(bits - 1); a value of the other sign may miss the last code by a whole one.
        Q4_0 => a / 8.0,
        Q5_0 => a / 16.0,
        // Half a step.
        Q8_0 => a / 254.0,
        Q4_1 => span / 30.0,
        Q5_1 => span / 62.0,
        // The table ends at 113 on the other side; its widest gap is 24.
        IQ4_NL => a * 14.0 / 127.0,
        // As above, and the integer sub-scale may be one unit off (a / 2^bits / 2^scale_bits) times the code.
        Q3_K => a / 4.0 + a / 32.0,
        Q6_K => a / 32.0 + a / 128.0,
        // Half a step, half a unit of the sub-scale times the top code, half a unit of the minimum.
        Q2_K => span / 6.0 + span / 30.0 + a / 30.0,
        Q4_K => span / 30.0 + span / 126.0 + a / 126.0,
        Q5_K => span / 62.0 + span / 126.0 + a / 126.0,
        F32 | F16 | BF16 => unreachable!("quantized types only"),
    };
    // f16 rounding of scale and minimum moves a weight by at most 2^-11 of its parts, each at most 2 a.
    bound + 4.0 * a / 2048.0
}

fn is_k_type(kind: WeightType) -> bool {
    kind.block_elements() == 256
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn encoding_errs_by_no_more_than_the_format_must(kind in quantized(), values in rows(32)) {
        let stored = encoded(kind, &values);
        prop_assert_eq!(Some(stored.len()), kind.row_bytes(values.len()));
        let weights = decoded(kind, &stored);
        let size = kind.block_elements();
        for (values, weights) in values.chunks_exact(size).zip(weights.chunks_exact(size)) {
            let floor = if is_k_type(kind) { 0.0 } else { f32::INFINITY };
            let low = values.iter().copied().fold(floor, f32::min);
            let high = values.iter().copied().fold(-floor, f32::max);
            let a = f64::from(low.abs().max(high.abs()));
            let bound = error_bound(kind, a, f64::from(high) - f64::from(low));
            for (v, w) in values.iter().zip(weights) {
                let error = (f64::from(*v) - f64::from(*w)).abs();
                prop_assert!(error <= bound, "{kind}: {v} became {w}: {error} > {bound}");
            }
        }
    }

    #[test]
    fn every_code_is_the_nearest_under_the_stored_scales(kind in quantized(), values in rows(16)) {
        let permitted: Vec<i32> = match kind {
            WeightType::Q4_0 => (-8..=7).collect(),
            WeightType::Q5_0 => (-16..=15).collect(),
            WeightType::Q8_0 => (-127..=127).collect(),
            WeightType::Q4_1 | WeightType::Q4_K => (0..=15).collect(),
            WeightType::Q5_1 | WeightType::Q5_K => (0..=31).collect(),
            WeightType::Q2_K => (0..=3).collect(),
            WeightType::Q3_K => (-4..=3).collect(),
            WeightType::Q6_K => (-32..=31).collect(),
            // The published table, ggml's kvalues_iq4nl.
            _ => vec![-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
        };
        let stored = encoded(kind, &values);
        let mut block = Unpacked::ZERO;
        let mut values = values.iter();
        for bytes in stored.chunks_exact(kind.block_bytes()) {
            let n = unpack(kind, bytes, &mut block);
            for i in 0..n {
                let v = f64::from(*values.next().expect("a value per weight"));
                let s = i / kind.sub_block();
                let (scale, min) = (f64::from(block.scales[s]), f64::from(block.mins[s]));
                let error = |code: i32| (scale * f64::from(code) + min - v).abs();
                let code = i32::from(block.codes[i]);
                prop_assert!(permitted.contains(&code), "{kind}: code {code}");
                let best = permitted.iter().map(|&c| error(c)).fold(f64::INFINITY, f64::min);
                // Ties fall either way; the f32 division may call a near-tie one.
                prop_assert!(error(code) <= best + 1e-5, "{kind}: {v} got {code}");
            }
        }
    }

    #[test]
    fn any_bytes_unpack_to_codes_within_the_range_of_the_type(
        kind in quantized(),
        bytes in proptest::collection::vec(any::<u8>(), 210),
    ) {
        let mut block = Unpacked { mins: [99.0; 16], ..Unpacked::ZERO };
        let n = unpack(kind, &bytes[..kind.block_bytes()], &mut block);
        prop_assert_eq!(n, kind.block_elements());
        let (low, high) = match kind {
            WeightType::Q4_0 => (-8, 7),
            WeightType::Q5_0 => (-16, 15),
            WeightType::Q4_1 | WeightType::Q4_K => (0, 15),
            WeightType::Q5_1 | WeightType::Q5_K => (0, 31),
            WeightType::Q2_K => (0, 3),
            WeightType::Q3_K => (-4, 3),
            WeightType::Q6_K => (-32, 31),
            WeightType::IQ4_NL => (-127, 113),
            _ => (-128, 127),
        };
        for code in &block.codes[..n] {
            prop_assert!((low..=high).contains(&i32::from(*code)), "{kind}: code {code}");
        }
        if !kind.has_min() {
            prop_assert!(block.mins[..n / kind.sub_block()].iter().all(|m| m.to_bits() == 0));
        }
    }

    /// An f64 sum over weights and activations differs from `dot` by rounding only. With t_j the exact terms
    /// that are added (one per sub-block, two with a minimum), each is made with one rounding (of the product
    /// of scales) and then passes through at most J fused additions: the error is at most about
    /// (J + 1) u sum |t_j|. Decoding rounds each weight once where it has a minimum, another u; one to spare.
    #[test]
    fn dot_is_the_dot_product(kind in quantized(), w in rows(64), x in rows(64)) {
        let stored = encoded(kind, &w);
        let weights = decoded(kind, &stored);
        let x = ActivationRow::quantize(&x);
        let mut exact = 0.0;
        for (k, w) in weights.iter().enumerate() {
            exact += f64::from(*w) * f64::from(x.scales[k / 32]) * f64::from(x.codes[k]);
        }
        let mut magnitude = 0.0;
        let mut block = Unpacked::ZERO;
        for (b, bytes) in stored.chunks_exact(kind.block_bytes()).enumerate() {
            for i in 0..unpack(kind, bytes, &mut block) {
                let s = i / kind.sub_block();
                let k = b * kind.block_elements() + i;
                let largest = f64::from(block.scales[s]).abs() * f64::from(block.codes[i]).abs()
                    + f64::from(block.mins[s]).abs();
                magnitude += largest * f64::from(x.scales[k / 32]) * f64::from(x.codes[k]).abs();
            }
        }
        let terms = (weights.len() / kind.sub_block() * (1 + usize::from(kind.has_min()))) as f64;
        let bound = 1.001 * (terms + 3.0) * UNIT * magnitude;
        let got = f64::from(dot(kind, &stored, &x));
        prop_assert!((got - exact).abs() <= bound, "{kind}: {got}, not {exact} +- {bound}");
    }

    /// The order of operations, written out once more: element by element from the unpacked form.
    #[test]
    fn dot_keeps_its_order(
        kind in quantized(),
        bytes in proptest::collection::vec(any::<u8>(), 2 * 210),
        x in rows(32),
    ) {
        let elements = 2 * kind.block_elements();
        let row = &bytes[..2 * kind.block_bytes()];
        let x = ActivationRow::quantize(&x[..elements]);
        let mut acc = 0.0f32;
        let (mut product, mut sum) = (0i64, 0i64);
        let mut block = Unpacked::ZERO;
        for k in 0..elements {
            let i = k % kind.block_elements();
            if i == 0 {
                unpack(kind, &row[k / kind.block_elements() * kind.block_bytes()..][..kind.block_bytes()], &mut block);
            }
            product += i64::from(block.codes[i]) * i64::from(x.codes[k]);
            sum += i64::from(x.codes[k]);
            if (k + 1) % kind.sub_block() == 0 {
                let s = i / kind.sub_block();
                let scale: f32 = block.scales[s] * x.scales[k / 32];
                acc = f32::mul_add(product as f32, scale, acc);
                if kind.has_min() {
                    let sum: f32 = sum as f32 * x.scales[k / 32];
                    acc = f32::mul_add(block.mins[s], sum, acc);
                }
                (product, sum) = (0, 0);
            }
        }
        let got = dot(kind, row, &x);
        prop_assert!(
            got.to_bits() == acc.to_bits() || got.is_nan() && acc.is_nan(),
            "{kind}: {got}, not {acc}"
        );
    }

    /// The contract of `quantize_activations` word by word, over all bit patterns of f32.
    #[test]
    fn activations_are_quantized_as_stated(
        bits in proptest::collection::vec(any::<u32>(), 32),
        exponent in proptest::option::of(0u32..255),
    ) {
        // With an exponent given, all values share it and none is NaN; else anything goes.
        let fix = |b: u32| exponent.map_or(b, |e| b & 0x807f_ffff | e << 23);
        let x: Vec<f32> = bits.into_iter().map(|b| f32::from_bits(fix(b))).collect();
        let got = ActivationRow::quantize(&x);
        let amax = x.iter().map(|v| v.to_bits() & 0x7fff_ffff).max().expect("values");
        let amax = f32::from_bits(amax);
        if !amax.is_finite() {
            prop_assert!(got.scales[0].is_nan());
            prop_assert_eq!(&got.codes, &vec![0; 32]);
        } else if amax < 1e-30 {
            prop_assert_eq!(got.scales[0].to_bits(), 0);
            prop_assert_eq!(&got.codes, &vec![0; 32]);
        } else {
            prop_assert_eq!(got.scales[0].to_bits(), (amax / 127.0).to_bits());
            let inverse = 127.0 / amax;
            for (code, v) in got.codes.iter().zip(&x) {
                let expected = (v * inverse).round_ties_even().clamp(-127.0, 127.0);
                prop_assert_eq!(f32::from(*code), expected, "{} of {}", v, amax);
            }
        }
        for (sum, codes) in got.sums.iter().zip(got.codes.chunks_exact(16)) {
            prop_assert_eq!(*sum, codes.iter().map(|&c| i32::from(c)).sum::<i32>());
        }
    }
}

#[test]
fn blocks_of_zeros_stay_zeros() {
    for kind in WeightType::ALL {
        for zero in [0.0f32, -0.0] {
            let weights = decoded(kind, &encoded(kind, &[zero; 256]));
            assert!(weights.iter().all(|w| *w == 0.0), "{kind}: {weights:?}");
        }
    }
}

#[test]
fn one_value_that_is_not_finite_spoils_its_block_and_no_other() {
    for kind in WeightType::ALL.into_iter().filter(|k| k.is_quantized()) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![1.0; 2 * 256];
            values[256 + 5] = bad;
            let weights = decoded(kind, &encoded(kind, &values));
            let spoiled = 256..256 + kind.block_elements();
            for (i, w) in weights.iter().enumerate() {
                assert_eq!(
                    w.is_nan(),
                    spoiled.contains(&i),
                    "{kind}: weight {i} is {w}"
                );
            }
        }
    }
}

#[test]
fn values_too_large_for_the_scales_are_cut_but_stay_finite() {
    for kind in WeightType::ALL.into_iter().filter(|k| k.is_quantized()) {
        let values: Vec<f32> = (0..256).map(|i| f32::MAX * (1 - i % 3) as f32).collect();
        let weights = decoded(kind, &encoded(kind, &values));
        for (v, w) in values.iter().zip(weights) {
            assert!(w.is_finite(), "{kind}: {v} became {w}");
        }
    }
}

#[test]
fn a_row_that_is_not_a_number_gives_nan_outputs() {
    for kind in WeightType::ALL.into_iter().filter(|k| k.is_quantized()) {
        let row = encoded(kind, &[0.5; 512]);
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 512];
            x[300] = bad;
            let mut x = ActivationRow::quantize(&x);
            assert!(x.scales[300 / 32].is_nan());
            assert!(dot(kind, &row, &x).is_nan(), "{kind} with {bad}");
            // The same storage takes another row afterwards.
            quantize_activations(&[1.0; 512], &mut x.codes, &mut x.scales, &mut x.sums);
            assert!(dot(kind, &row, &x).is_finite());
        }
    }
}

#[test]
fn float_rows_are_one_chain_of_fused_multiply_adds() {
    // 2^12 + 1 squared is 2^24 + 2^13 + 1: the last bit is lost when the product is rounded by itself.
    let v = 4097.0f32;
    let row = encoded(WeightType::F32, &[-16_785_408.0, v]);
    assert_eq!(dot_f32(WeightType::F32, &row, &[1.0, v]), 1.0);
    // And the order is that of k: 2^24 + 1 - 2^24 loses the 1, the other way round it does not.
    let big = 16_777_216.0;
    for kind in [WeightType::F32, WeightType::BF16] {
        let row = encoded(kind, &[big, 1.0, -big]);
        assert_eq!(dot_f32(kind, &row, &[1.0; 3]), 0.0);
        let row = encoded(kind, &[big, -big, 1.0]);
        assert_eq!(dot_f32(kind, &row, &[1.0; 3]), 1.0);
    }
    let row = encoded(WeightType::F16, &[1.5, -2.0]);
    assert_eq!(dot_f32(WeightType::F16, &row, &[3.0, 0.25]), 4.0);
}
