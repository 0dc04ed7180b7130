//! Attention against its definition in f64, and its bits for every path and every company.

use foredraft_model::kv::{KvGroup, PageId};
use foredraft_quant::f16_to_f32;

use super::*;
use crate::path::{CpuPath, Isa};

/// Pages of one head, and what a query can see of them.
struct Case<'a> {
    head_dim: usize,
    pool: &'a [u8],
    scratch: &'a [u8],
    pages: &'a [PageId],
    committed: usize,
}

const SCALE: f32 = 0.4;
const QUERIES: usize = 8;

trait Kernel: Element + Sized {
    fn attend(
        isa: Isa,
        source: Source<'_, Self>,
        queries: &mut [Query<'_>],
        part: Option<usize>,
        space: &mut Workspace,
    );
}

impl Kernel for Half {
    fn attend(
        isa: Isa,
        source: Source<'_, Half>,
        queries: &mut [Query<'_>],
        part: Option<usize>,
        space: &mut Workspace,
    ) {
        attend_half(isa, source, queries, part, space);
    }
}

impl Kernel for Byte {
    fn attend(
        isa: Isa,
        source: Source<'_, Byte>,
        queries: &mut [Query<'_>],
        part: Option<usize>,
        space: &mut Workspace,
    ) {
        attend_byte(isa, source, queries, part, space);
    }
}

fn group(head_dim: usize) -> KvGroup {
    KvGroup {
        layers: 1,
        kv_heads: 1,
        head_dim,
        window: None,
    }
}

fn source<'a, E: Element>(case: &Case<'a>) -> Source<'a, E> {
    let store = |bytes: &'a [u8]| Store {
        elements: bytemuck::cast_slice(bytes),
        scales: if E::SCALED {
            bytemuck::cast_slice(bytes)
        } else {
            &[]
        },
    };
    Source::new(
        &group(case.head_dim),
        (0, 0),
        [store(case.pool), store(case.scratch)],
        (case.pages, case.committed),
        SCALE,
    )
}

/// Pages of random-looking contents. They grow: the largest score is in the last part, or in the first where the
/// pages are taken backwards.
fn pages(head_dim: usize, count: usize, is_scaled: bool, step: f64) -> Vec<u32> {
    let shape = group(head_dim);
    let page_bytes = shape.page_bytes(crate::kv::kv_type(is_scaled));
    let mut words = vec![0u32; count * page_bytes / 4];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    for (p, page) in bytes.chunks_exact_mut(page_bytes).enumerate() {
        let size = 0.2 + p as f64 / count as f64;
        let wave = |i: usize| ((p * shape.page_elements() + i) as f64 * step).sin();
        if is_scaled {
            for (i, code) in page[..shape.page_elements()].iter_mut().enumerate() {
                *code = (wave(i) * 127.0) as i8 as u8;
            }
            for i in 0..shape.page_scales() {
                let scale = (size * (1.0 + 0.1 * wave(7 * i)) / 127.0) as f32;
                let at = shape.page_elements() + 4 * i;
                page[at..at + 4].copy_from_slice(&scale.to_le_bytes());
            }
        } else {
            for (i, half) in page.chunks_exact_mut(2).enumerate() {
                half.copy_from_slice(&half::f16::from_f64(wave(i) * size).to_le_bytes());
            }
        }
    }
    words
}

/// Softmax attention in f64, straight from the definition.
fn naive(case: &Case<'_>, is_scaled: bool, query: &[f32], path: &[Slot], first: usize) -> Vec<f64> {
    let dim = case.head_dim;
    let shape = group(dim);
    let page_bytes = shape.page_bytes(crate::kv::kv_type(is_scaled));
    let place = |position: usize| match position.checked_sub(case.committed) {
        None => (
            &case.pool[case.pages[position / 16].index() * page_bytes..][..page_bytes],
            position % 16,
        ),
        Some(j) => (
            &case.scratch[path[j].index() / 16 * page_bytes..][..page_bytes],
            path[j].index() % 16,
        ),
    };
    let element = |page: &[u8], at: usize, scale_at: usize| {
        if is_scaled {
            let bytes = &page[4 * scale_at..4 * scale_at + 4];
            let scale = f32::from_le_bytes(bytes.try_into().expect("four"));
            f64::from(page[at] as i8) * f64::from(scale)
        } else {
            f64::from(f16_to_f32(u16::from_le_bytes([
                page[2 * at],
                page[2 * at + 1],
            ])))
        }
    };
    let end = case.committed + path.len();
    let score = |position: usize| {
        let (page, lane) = place(position);
        let scale_at = shape.key_scale_offset(0, 0) + lane;
        let terms = query.iter().enumerate();
        let dot: f64 = terms
            .map(|(d, q)| f64::from(*q) * element(page, d * 16 + lane, scale_at))
            .sum();
        dot * f64::from(SCALE)
    };
    let scores: Vec<f64> = (first..end).map(score).collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let value = |d: usize| {
        let terms = weights.iter().zip(first..end);
        terms.map(move |(weight, position)| {
            let (page, lane) = place(position);
            let scale_at = shape.value_scale_offset(0, 0) + lane;
            weight * element(page, shape.value_offset(0, 0) + lane * dim + d, scale_at)
        })
    };
    (0..dim).map(|d| value(d).sum::<f64>() / sum).collect()
}

/// Attends with the queries in groups of `together`; `[queries][head_dim]`.
fn run<E: Kernel>(
    isa: Isa,
    case: &Case<'_>,
    values: &[f32],
    seen: &[(&[Slot], usize)],
    together: usize,
) -> Vec<f32> {
    let dim = case.head_dim;
    let mut out = vec![9.0; values.len()];
    let mut space = Workspace::new(dim);
    let mut queries: Vec<Query<'_>> = values
        .chunks(dim)
        .zip(out.chunks_mut(dim))
        .zip(seen)
        .map(|((values, out), (path, first))| Query {
            values,
            path,
            first: *first,
            out,
        })
        .collect();
    for group in queries.chunks_mut(together) {
        E::attend(isa, source(case), group, None, &mut space);
    }
    drop(queries);
    out
}

/// The same, each part by itself and then combined.
fn run_parts<E: Kernel>(
    isa: Isa,
    case: &Case<'_>,
    values: &[f32],
    seen: &[(&[Slot], usize)],
) -> Vec<f32> {
    let dim = case.head_dim;
    let longest = seen.iter().map(|(path, _)| path.len()).max();
    let parts = (case.committed + longest.expect("a query")).div_ceil(SPLIT);
    let len = parts * part_len(dim);
    let mut made = vec![9.0; seen.len() * len];
    let mut space = Workspace::new(dim);
    for part in (0..parts).rev() {
        let places = made.chunks_mut(len);
        let places = places.map(|query| &mut query[part * part_len(dim)..][..part_len(dim)]);
        let mut queries: Vec<Query<'_>> = (values.chunks(dim).zip(places).zip(seen))
            .map(|((values, out), (path, first))| Query {
                values,
                path,
                first: *first,
                out,
            })
            .collect();
        for group in queries.chunks_mut(3) {
            E::attend(isa, source(case), group, Some(part), &mut space);
        }
    }
    let mut out = vec![9.0; values.len()];
    for (out, made) in out.chunks_mut(dim).zip(made.chunks(len)) {
        combine_parts(isa, made, out);
    }
    out
}

/// Queries of heads of rows of a tree, some with the same path, some leaving it early; more than one group.
fn tree_paths() -> [Vec<Slot>; QUERIES] {
    [
        &[0, 1, 2, 5, 17, 40][..],
        &[0, 1, 2, 5, 17, 40],
        &[0, 1, 2, 5, 18],
        &[0, 1, 3],
        &[0],
        &[0, 1, 2, 5, 17],
        &[0, 4, 19, 20, 21, 22, 23],
        &[0, 1, 2],
    ]
    .map(|path| path.iter().copied().map(Slot).collect())
}

fn check<E: Kernel>() {
    for head_dim in [8, 64, 72] {
        let pool = pages(head_dim, 160, E::SCALED, 0.37);
        let scratch = pages(head_dim, 3, E::SCALED, 0.59);
        let forwards: Vec<PageId> = (0..160).map(PageId).collect();
        let backwards: Vec<PageId> = (0..160).rev().map(PageId).collect();
        let paths = tree_paths();
        let values: Vec<f32> = (0..QUERIES * head_dim)
            .map(|i| (i as f32 * 0.83).cos())
            .collect();
        // Contexts on both sides of the split, windows that begin in either part or move with the row.
        for (committed, first, step) in [
            (0, 0, 0),
            (37, 0, 0),
            (1021, 0, 0),
            (1090, 0, 0),
            (2100, 0, 0),
            (1090, 37, 3),
            (2100, 1500, 1),
            (1022, 1020, 1),
        ] {
            for table in [&forwards, &backwards] {
                let case = Case {
                    head_dim,
                    pool: bytemuck::cast_slice(&pool),
                    scratch: bytemuck::cast_slice(&scratch),
                    pages: table,
                    committed,
                };
                let seen: Vec<(&[Slot], usize)> = paths
                    .iter()
                    .map(|path| (&path[..], first + path.len().checked_div(step).unwrap_or(0)))
                    .map(|(path, first)| (path, first.min(committed)))
                    .collect();
                let mut expected: Option<Vec<f32>> = None;
                for isa in CpuPath::ALL.into_iter().filter_map(Isa::new) {
                    for together in 1..=QUERIES {
                        let out = run::<E>(isa, &case, &values, &seen, together);
                        let label = format!(
                            "{} dim {head_dim} committed {committed} first {first} together {together}",
                            isa.path()
                        );
                        let expected = expected.get_or_insert_with(|| out.clone());
                        assert!(out == *expected, "{label}");
                    }
                    let out = run_parts::<E>(isa, &case, &values, &seen);
                    let path = isa.path();
                    assert!(
                        Some(out) == expected,
                        "{path} dim {head_dim} committed {committed} first {first} by parts"
                    );
                }
                let got = expected.expect("a path");
                let queries = values.chunks(head_dim).zip(got.chunks(head_dim));
                for (n, ((query, got), (path, first))) in queries.zip(&seen).enumerate() {
                    let expected = naive(&case, E::SCALED, query, path, *first);
                    for (got, expected) in got.iter().zip(expected) {
                        assert!(
                            (f64::from(*got) - expected).abs() < 1e-4,
                            "dim {head_dim} committed {committed} query {n}: {got}, not {expected}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn attention_over_halves_is_softmax_attention_on_every_path_and_in_every_company() {
    check::<Half>();
}

#[test]
fn attention_over_bytes_is_softmax_attention_on_every_path_and_in_every_company() {
    check::<Byte>();
}
