//! What a pass walks: the program's operations, a quantized linear layer joined with the one that makes its input.
//!
//! A norm or a gated activation that only one quantized linear layer reads is never written down in full: it goes straight into the
//! rounding to 8 bits. That saves a meeting of all threads, and with few rows a second one, since each thread
//! then rounds for itself.

use foredraft_model::{BufferId, Op, Program, Projection, VectorId};

/// What a linear layer reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Input {
    /// A buffer as it is.
    Buffer(BufferId),
    /// Its RMSNorm.
    Norm {
        input: BufferId,
        weight: VectorId,
        eps: f32,
    },
    /// `silu(gate) * up`.
    Gated { gate: BufferId, up: BufferId },
}

impl Input {
    /// The buffer whose rows and width the input has.
    pub(super) fn shape(self) -> BufferId {
        match self {
            Input::Buffer(buffer) | Input::Norm { input: buffer, .. } => buffer,
            Input::Gated { gate, .. } => gate,
        }
    }
}

/// A stage of a pass; all threads meet after each.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// An operation by itself.
    Single(Op),
    /// A linear layer whose matrices are all quantized.
    Quantized {
        input: Input,
        outputs: Vec<Projection>,
    },
}

/// The steps of a program; `is_quantized` tells a matrix's type.
pub(super) fn steps(program: &Program, is_quantized: impl Fn(usize) -> bool) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::with_capacity(program.ops.len());
    for (index, op) in program.ops.iter().enumerate() {
        let Op::Linear { input, outputs } = op else {
            steps.push(Step::Single(op.clone()));
            continue;
        };
        if !outputs.iter().all(|o| is_quantized(o.weight.index())) {
            steps.push(Step::Single(op.clone()));
            continue;
        }
        let is_last_reader = !is_read(&program.ops[index + 1..], *input);
        let joined = match steps.last() {
            Some(Step::Single(before)) if is_last_reader => joined(before, *input),
            _ => None,
        };
        if joined.is_some() {
            steps.pop();
        }
        steps.push(Step::Quantized {
            input: joined.unwrap_or(Input::Buffer(*input)),
            outputs: outputs.clone(),
        });
    }
    steps
}

/// The input that `op` makes in `buffer`, if it can be made on the way.
fn joined(op: &Op, buffer: BufferId) -> Option<Input> {
    match *op {
        Op::RmsNorm {
            input,
            weight,
            eps,
            out,
        } if out == buffer => Some(Input::Norm { input, weight, eps }),
        Op::SiluProduct { gate, up } if gate == buffer => Some(Input::Gated { gate, up }),
        _ => None,
    }
}

/// Whether any of `ops` reads what `buffer` holds before it is written anew.
fn is_read(ops: &[Op], buffer: BufferId) -> bool {
    for op in ops {
        let (reads, writes) = match op {
            Op::Embed { out, .. } => (vec![], vec![*out]),
            Op::RmsNorm { input, out, .. } | Op::Gather { input, out } => {
                (vec![*input], vec![*out])
            }
            Op::Linear { input, outputs } => {
                let added = outputs.iter().filter(|o| o.accumulate).map(|o| o.out);
                let replaced = outputs.iter().filter(|o| !o.accumulate).map(|o| o.out);
                (
                    added.chain([*input]).collect(),
                    replaced.collect::<Vec<BufferId>>(),
                )
            }
            Op::RotateAndCache {
                query, key, value, ..
            } => (vec![*query, *key, *value], vec![]),
            Op::Attend { query, out, .. } => (vec![*query], vec![*out]),
            Op::SiluProduct { gate, up } => (vec![*gate, *up], vec![]),
            Op::Tap { input, .. } => (vec![*input], vec![]),
        };
        if reads.contains(&buffer) {
            return true;
        }
        if writes.contains(&buffer) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use foredraft_model::{MatrixId, TapId};

    use super::*;

    const X: BufferId = BufferId(0);
    const H: BufferId = BufferId(1);
    const Y: BufferId = BufferId(2);
    const U: BufferId = BufferId(3);

    fn norm() -> Op {
        Op::RmsNorm {
            input: X,
            weight: VectorId(0),
            eps: 1e-5,
            out: H,
        }
    }

    fn linear(input: BufferId, out: BufferId) -> Op {
        Op::Linear {
            input,
            outputs: vec![Projection {
                weight: MatrixId(0),
                bias: None,
                out,
                accumulate: false,
            }],
        }
    }

    fn inputs(ops: Vec<Op>, is_quantized: bool) -> Vec<Option<Input>> {
        let program = Program {
            ops,
            ..Program::default()
        };
        let input = |step: &Step| match step {
            Step::Single(_) => None,
            Step::Quantized { input, .. } => Some(*input),
        };
        steps(&program, |_| is_quantized)
            .iter()
            .map(input)
            .collect()
    }

    #[test]
    fn a_norm_and_a_gate_join_the_layer_that_reads_them() {
        let gate = Op::SiluProduct { gate: Y, up: U };
        let ops = vec![norm(), linear(H, Y), gate, linear(Y, X)];
        let weight = VectorId(0);
        let norm = Input::Norm {
            input: X,
            weight,
            eps: 1e-5,
        };
        let gated = Input::Gated { gate: Y, up: U };
        assert_eq!(inputs(ops.clone(), true), [Some(norm), Some(gated)]);
        assert_eq!(inputs(ops, false), [None; 4], "float layers read buffers");
    }

    #[test]
    fn what_somebody_reads_later_is_written_down() {
        let tap = Op::Tap {
            input: H,
            tap: TapId(0),
        };
        let read = vec![norm(), linear(H, Y), tap.clone()];
        assert_eq!(inputs(read, true), [None, Some(Input::Buffer(H)), None]);
        let written_before = vec![norm(), linear(H, Y), norm(), linear(H, Y), tap];
        let joined = inputs(written_before, true);
        assert!(matches!(joined[0], Some(Input::Norm { .. })));
        assert_eq!(joined[1..], [None, Some(Input::Buffer(H)), None]);
    }
}
