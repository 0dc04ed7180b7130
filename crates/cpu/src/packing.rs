//! Packing at load: the tensors of a checkpoint become panels in memory.
//!
//! All threads take runs of panels off one list, so that a thread beside a busy neighbour holds nobody up. A run's part of
//! the file is given back once it is packed: what is resident is the packed weights and a few runs of the file, never a
//! whole tensor twice.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foredraft_formats::{Checkpoint, Tensor};
use foredraft_model::{LoadError, LoadProgress, LoadWatch, MatrixSpec, Program};
use foredraft_quant::{PANEL_ROWS, pack_panel};

use crate::storage::{PageKind, Storage};
use crate::weights::{Matrix, check_shape, find, load_vector, matrix_bytes, panel_bytes};

/// Bytes that a run packs, about: some milliseconds of work, so that taking one costs nothing and an end that is asked
/// for comes at once.
const RUN_BYTES: usize = 2 << 20;
/// Times that a load tells of its progress, between start and end.
const TOLD: u64 = 64;

/// The weights of a program in memory.
pub(crate) struct Weights {
    pub(crate) matrices: Vec<Matrix>,
    pub(crate) vectors: Vec<Vec<f32>>,
}

/// Loads all weights of a program with this many threads.
pub(crate) fn load_weights(
    program: &Program,
    checkpoint: &Checkpoint,
    threads: usize,
    pages: PageKind,
    watch: LoadWatch<'_>,
) -> Result<Weights, LoadError> {
    let vectors = program.vectors.iter();
    Ok(Weights {
        vectors: vectors
            .map(|spec| load_vector(spec, checkpoint))
            .collect::<Result<_, LoadError>>()?,
        matrices: load_matrices(&program.matrices, checkpoint, threads, pages, watch)?,
    })
}

/// Packs matrices into one storage.
pub(crate) fn load_matrices(
    specs: &[MatrixSpec],
    checkpoint: &Checkpoint,
    threads: usize,
    pages: PageKind,
    watch: LoadWatch<'_>,
) -> Result<Vec<Matrix>, LoadError> {
    let mut sources = Vec::with_capacity(specs.len());
    let mut total = 0;
    for spec in specs {
        let tensor = find(checkpoint, &spec.name)?;
        check_shape(&spec.name, &tensor, spec.rows, spec.width)?;
        let (codes, scales) = matrix_bytes(tensor.kind, spec.rows, spec.width);
        let middle = total + codes;
        sources.push((spec, tensor, total..middle, middle..middle + scales));
        total = middle + scales;
    }
    let mut storage = Storage::with_pages(total, pages)?;
    let mut runs = Vec::new();
    let mut rest = storage.bytes_mut();
    for (spec, tensor, codes, scales) in &sources {
        let (own_codes, after) = rest.split_at_mut(codes.len());
        let (own_scales, after) = after.split_at_mut(scales.len());
        split(spec, *tensor, own_codes, own_scales, &mut runs);
        rest = after;
    }
    pack_all(runs, checkpoint, threads, total as u64, watch)?;
    let storage = Arc::new(storage);
    let sources = sources.into_iter();
    Ok(sources
        .map(|(spec, tensor, codes, scales)| Matrix {
            kind: tensor.kind,
            rows: spec.rows,
            width: spec.width,
            storage: Arc::clone(&storage),
            codes,
            scales,
        })
        .collect())
}

/// Some panels of a matrix and the memory that they go to.
struct Run<'a> {
    spec: &'a MatrixSpec,
    tensor: Tensor<'a>,
    panels: Range<usize>,
    codes: &'a mut [u8],
    scales: &'a mut [u8],
}

/// Cuts a matrix into runs.
fn split<'a>(
    spec: &'a MatrixSpec,
    tensor: Tensor<'a>,
    mut codes: &'a mut [u8],
    mut scales: &'a mut [u8],
    runs: &mut Vec<Run<'a>>,
) {
    let (code_bytes, scale_bytes) = panel_bytes(tensor.kind, spec.width);
    let panels = spec.rows.div_ceil(PANEL_ROWS);
    let step = (RUN_BYTES / (code_bytes + scale_bytes).max(1)).max(1);
    for start in (0..panels).step_by(step) {
        let panels = start..panels.min(start + step);
        let (own_codes, rest_codes) = codes.split_at_mut(panels.len() * code_bytes);
        let (own_scales, rest_scales) = scales.split_at_mut(panels.len() * scale_bytes);
        (codes, scales) = (rest_codes, rest_scales);
        runs.push(Run {
            spec,
            tensor,
            panels,
            codes: own_codes,
            scales: own_scales,
        });
    }
}

/// Packs all runs. The calling thread works too, and is the one that tells `watch`.
fn pack_all(
    runs: Vec<Run<'_>>,
    checkpoint: &Checkpoint,
    threads: usize,
    total_bytes: u64,
    watch: LoadWatch<'_>,
) -> Result<(), LoadError> {
    let mut tell = |loaded_bytes| {
        watch(LoadProgress {
            loaded_bytes,
            total_bytes,
        })
    };
    if tell(0).is_break() {
        return Err(LoadError::Interrupted);
    }
    let helpers = threads.min(runs.len()).saturating_sub(1);
    let runs = Mutex::new(runs.into_iter());
    let (packed, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let pack_one = || {
        let next = runs.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(run) = next.filter(|_| !stop.load(Ordering::Relaxed)) else {
            return false;
        };
        let bytes = run.codes.len() + run.scales.len();
        run.pack(checkpoint);
        packed.fetch_add(bytes as u64, Ordering::Relaxed);
        true
    };
    let ended = std::thread::scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|| while pack_one() {});
        }
        let step = total_bytes / TOLD;
        let mut next = step;
        while pack_one() {
            let loaded = packed.load(Ordering::Relaxed);
            if loaded >= next && loaded < total_bytes {
                next = loaded + step;
                if tell(loaded).is_break() {
                    stop.store(true, Ordering::Relaxed);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    });
    if ended.is_break() || tell(total_bytes).is_break() {
        return Err(LoadError::Interrupted);
    }
    Ok(())
}

impl Run<'_> {
    /// Packs the run, then gives its part of the file back.
    fn pack(self, checkpoint: &Checkpoint) {
        let Tensor { kind, data, .. } = self.tensor;
        let (code_bytes, scale_bytes) = panel_bytes(kind, self.spec.width);
        let row_bytes = data.len() / self.spec.rows.max(1);
        let file_range = |panels: Range<usize>| {
            let row = |panel: usize| self.spec.rows.min(panel * PANEL_ROWS) * row_bytes;
            row(panels.start)..row(panels.end)
        };
        for (i, panel) in self.panels.clone().enumerate() {
            let rows = data[file_range(panel..panel + 1)].chunks_exact(row_bytes);
            let codes = &mut self.codes[i * code_bytes..(i + 1) * code_bytes];
            let scales = &mut self.scales[i * scale_bytes..(i + 1) * scale_bytes];
            match kind.block_bytes() {
                _ if kind.is_quantized() => pack_panel(kind, rows, self.spec.width, codes, scales),
                2 => pack_floats::<2>(rows, codes),
                _ => pack_floats::<4>(rows, codes),
            }
        }
        checkpoint.release(&self.spec.name, file_range(self.panels));
    }
}

/// Transposes rows of little-endian floats of `BYTES` into `[width][16]` of the machine's own.
fn pack_floats<'a, const BYTES: usize>(rows: impl Iterator<Item = &'a [u8]>, out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<BYTES>();
    for (lane, row) in rows.enumerate() {
        let (values, _) = row.as_chunks::<BYTES>();
        for (column, value) in out.chunks_exact_mut(PANEL_ROWS).zip(values) {
            column[lane] = *value;
            if cfg!(target_endian = "big") {
                column[lane].reverse();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use foredraft_formats::write::GgufWriter;
    use foredraft_model::unwatched;
    use foredraft_quant::{WeightType, decode, encode};

    use super::*;

    const ROWS: usize = 5000;
    const WIDTH: usize = 512;
    /// One for each path of the packer.
    const KINDS: [WeightType; 3] = [WeightType::Q8_0, WeightType::F16, WeightType::F32];

    /// A file of matrices that are several runs each, with a last panel that is not full.
    fn several_runs() -> (tempfile::TempDir, Checkpoint, Vec<MatrixSpec>) {
        let mut writer = GgufWriter::new();
        writer.str("general.architecture", "llama");
        let mut specs = Vec::new();
        for kind in KINDS {
            let values: Vec<f32> = (0..ROWS * WIDTH)
                .map(|i| (i % 8191) as f32 - 4000.0)
                .collect();
            let mut bytes = Vec::new();
            encode(kind, &values, &mut bytes);
            let name = kind.to_string();
            writer.tensor(&name, kind, &[ROWS, WIDTH], bytes);
            specs.push(MatrixSpec {
                name,
                rows: ROWS,
                width: WIDTH,
            });
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("m.gguf");
        std::fs::write(&path, writer.finish().expect("a file")).expect("a file");
        let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
        (directory, checkpoint, specs)
    }

    #[test]
    fn every_row_is_packed_whatever_the_threads() {
        let (_directory, checkpoint, specs) = several_runs();
        for (threads, pages) in [(1, PageKind::Ordinary), (3, PageKind::Large)] {
            let matrices = load_matrices(&specs, &checkpoint, threads, pages, &mut unwatched);
            let matrices = matrices.expect("matrices");
            for (spec, matrix) in specs.iter().zip(&matrices) {
                let tensor = checkpoint.tensor(&spec.name).expect("a tensor");
                let rows = tensor.data.chunks_exact(tensor.data.len() / ROWS);
                let (mut expected, mut got) = (vec![0.0; WIDTH], vec![1.0; WIDTH]);
                for (row, bytes) in rows.enumerate() {
                    decode(tensor.kind, bytes, &mut expected);
                    matrix.decode_row(row, &mut got);
                    assert_eq!(got, expected, "{} row {row}", spec.name);
                }
            }
        }
    }

    #[test]
    fn a_watcher_hears_of_all_bytes_in_order() {
        let (_directory, checkpoint, specs) = several_runs();
        let mut told = Vec::new();
        let mut watch = |at: LoadProgress| {
            told.push((at.loaded_bytes, at.total_bytes));
            ControlFlow::Continue(())
        };
        load_matrices(&specs, &checkpoint, 1, PageKind::Large, &mut watch).expect("matrices");
        // A panel for each 16 rows, the last one padded: 313 of them.
        let total = 313 * 16 * (WIDTH * (1 + 2 + 4) + WIDTH / 32 * 2) as u64;
        assert_eq!(told.first(), Some(&(0, total)));
        assert_eq!(told.last(), Some(&(total, total)));
        assert!(told.is_sorted() && told.len() > 2 && told.len() <= TOLD as usize + 2);
    }

    #[test]
    fn a_watcher_may_end_the_loading_at_any_time() {
        let (_directory, checkpoint, specs) = several_runs();
        // Start and end are always told; what lies between surely only where one thread does all.
        for (calls, threads) in [(1, 2), (2, 2), (3, 1)] {
            let mut left = calls;
            let mut watch = |_: LoadProgress| {
                left -= 1;
                match left {
                    0 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            };
            let result = load_matrices(&specs, &checkpoint, threads, PageKind::Large, &mut watch);
            assert!(matches!(result, Err(LoadError::Interrupted)));
            assert_eq!(left, 0, "told no more after the end");
        }
    }
}
