//! Sizes that follow from a program and what is reserved for it.

use foredraft_model::{ExecutorOptions, Op, Program, RowSet};

use crate::kernels::attention::{SPLIT, part_len};

/// Whether a linear layer reads this matrix.
pub(crate) fn is_streamed(program: &Program, matrix: usize) -> bool {
    program.ops.iter().any(|op| match op {
        Op::Linear { outputs, .. } => outputs.iter().any(|o| o.weight.index() == matrix),
        _ => false,
    })
}

/// Rows that a buffer is reserved for.
pub(crate) fn rows(set: RowSet, options: &ExecutorOptions) -> usize {
    match set {
        RowSet::All => options.max_rows,
        RowSet::Outputs => options.max_outputs,
    }
}

/// Up to so many rows the parts of long contexts are shared out among the threads.
pub(crate) const SPLIT_ROWS: usize = 8;

/// Values of the results of those parts: those of one layer, the widest.
pub(crate) fn part_elements(program: &Program, options: &ExecutorOptions) -> usize {
    let parts = options.context_tokens.div_ceil(SPLIT);
    if parts < 2 {
        return 0;
    }
    let of = |op: &Op| match op {
        Op::Attend { query, layer, .. } => {
            let dim = program.kv_groups[layer.group].head_dim;
            program.buffers[query.index()].width / dim * part_len(dim)
        }
        _ => 0,
    };
    program.ops.iter().map(of).max().unwrap_or(0) * parts * SPLIT_ROWS
}

/// The widest input of a linear layer.
pub(crate) fn widest_input(program: &Program) -> usize {
    program.matrices.iter().map(|m| m.width).max().unwrap_or(0)
}

/// The widest head of a KV group.
pub(crate) fn widest_head(program: &Program) -> usize {
    program
        .kv_groups
        .iter()
        .map(|g| g.head_dim)
        .max()
        .unwrap_or(0)
}

/// The width of the residual stream, which all taps share.
pub(crate) fn tap_width(program: &Program) -> usize {
    program.buffers.first().map_or(0, |b| b.width)
}
