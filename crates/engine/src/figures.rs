//! What an engine has done since it was loaded, as plain counters.

use foredraft_model::kv::KvType;
use foredraft_model::{Batch, Op, Program};

use crate::error::EngineError;
use crate::pages::PageFigures;
use crate::request::{FinishReason, Phases};
use crate::task::Task;

/// Counters of an engine: they only grow, but for the pages, which are as they are at this moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineFigures {
    /// Requests that ended.
    pub ended: EndedFigures,
    /// Tokens of the prompts of requests that began.
    pub prompt_tokens: u64,
    /// Of these, tokens whose keys and values were there already.
    pub cached_prompt_tokens: u64,
    /// Steps of single sequences that had a draft to verify, and emitted something.
    pub drafting_steps: u64,
    /// Tokens emitted.
    pub generated_tokens: u64,
    /// Times that a running sequence gave up its pages and was put back.
    pub preemptions: u64,
    /// Forward passes of the model: one a step.
    pub passes: u64,
    /// Rows of these passes.
    pub rows: u64,
    /// Of these, rows of prompts and of text that was computed again, the last token of each left out.
    pub prompt_rows: u64,
    /// Steps of single sequences that emitted something. Plain decoding emits one token each.
    pub sequence_steps: u64,
    /// KV pages.
    pub pages: PageFigures,
    /// What each drafter drafted.
    pub drafters: Vec<DrafterFigures>,
    /// Bytes of weights that the passes read: each all that [`Memory::streamed_bytes`](foredraft_model::Memory) tells.
    pub weight_bytes: u64,
    /// Bytes of keys and values that the passes read, each position of a sequence once for a pass.
    pub kv_bytes: u64,
    /// Multiplications and additions of the linear layers, two for each weight and row.
    pub operations: f64,
    /// Seconds of the steps.
    pub phases: Phases,
}

/// Requests that ended, by what ended them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedFigures {
    /// [`FinishReason::EndOfText`].
    pub end_of_text: u64,
    /// [`FinishReason::StopString`].
    pub stop_string: u64,
    /// [`FinishReason::MaxTokens`].
    pub max_tokens: u64,
    /// [`FinishReason::Context`].
    pub context: u64,
    /// [`FinishReason::Cancelled`].
    pub cancelled: u64,
    /// An error.
    pub failed: u64,
}

impl EndedFigures {
    pub(crate) fn count(&mut self, result: &Result<FinishReason, EngineError>) {
        let counter = match result {
            Ok(FinishReason::EndOfText) => &mut self.end_of_text,
            Ok(FinishReason::StopString) => &mut self.stop_string,
            Ok(FinishReason::MaxTokens) => &mut self.max_tokens,
            Ok(FinishReason::Context) => &mut self.context,
            Ok(FinishReason::Cancelled) => &mut self.cancelled,
            Err(_) => &mut self.failed,
        };
        *counter += 1;
    }
}

/// What a drafter drafted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DrafterFigures {
    /// Its name.
    pub name: String,
    /// Nodes that it drafted of each depth, from 1 on.
    pub drafted: Vec<u64>,
    /// Of these, nodes whose token was emitted.
    pub accepted: Vec<u64>,
    /// Tokens of texts that it had to read when it began with them; 0 where it reads none.
    pub prompt_tokens: u64,
    /// Of these, tokens whose keys and values it had already.
    pub cached_prompt_tokens: u64,
}

impl DrafterFigures {
    fn add(counts: &mut Vec<u64>, depth: usize) {
        if counts.len() < depth {
            counts.resize(depth, 0);
        }
        if let Some(count) = depth.checked_sub(1).and_then(|place| counts.get_mut(place)) {
            *count += 1;
        }
    }
}

/// What a pass costs, from the program's shapes.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    /// Bytes of weights.
    pub(crate) streamed_bytes: u64,
    /// Of each layer group the bytes of a position, and its window.
    kv: Vec<(u64, Option<usize>)>,
    /// Weights that each row meets, and those that each output meets beside them.
    row_weights: f64,
    output_weights: f64,
}

impl Costs {
    pub(crate) fn new(program: &Program, kv_type: KvType, streamed_bytes: u64) -> Self {
        let position_bytes = |group: &foredraft_model::kv::KvGroup| {
            (group.page_bytes(kv_type) / foredraft_model::kv::PAGE_POSITIONS) as u64
        };
        let (mut row_weights, mut output_weights) = (0.0, 0.0);
        for op in &program.ops {
            let Op::Linear { outputs, .. } = op else {
                continue;
            };
            for projection in outputs {
                let matrix = &program.matrices[projection.weight.index()];
                let weights = matrix.rows as f64 * matrix.width as f64;
                match Some(projection.out) == program.logits {
                    true => output_weights += weights,
                    false => row_weights += weights,
                }
            }
        }
        let groups = program.kv_groups.iter();
        Self {
            streamed_bytes,
            kv: groups.map(|g| (position_bytes(g), g.window)).collect(),
            row_weights,
            output_weights,
        }
    }
}

impl EngineFigures {
    /// Counts a pass over `batch`; see [`EngineFigures::count_rows`] for what each sequence has in it.
    pub(crate) fn count_pass(&mut self, batch: &Batch, costs: &Costs) {
        let (rows, outputs) = (batch.rows().len(), batch.outputs().len());
        self.passes += 1;
        self.rows += rows as u64;
        self.weight_bytes += costs.streamed_bytes;
        self.operations +=
            2.0 * (rows as f64 * costs.row_weights + outputs as f64 * costs.output_weights);
    }

    /// Counts what a sequence has in a pass.
    pub(crate) fn count_rows(&mut self, task: &Task, costs: &Costs) {
        let share = task.part.share;
        let last = usize::from(task.part.has_root);
        self.prompt_rows += (share.rows - last.min(share.rows)) as u64;
        let positions = task.sequence.committed() + share.rows + task.part.tree.len() - 1;
        for &(bytes, window) in &costs.kv {
            self.kv_bytes += bytes * window.unwrap_or(usize::MAX).min(positions) as u64;
        }
    }

    /// Counts what a sequence emitted in a step, and whose drafts those were.
    pub(crate) fn count_emitted(&mut self, task: &Task) {
        let part = &task.part;
        if part.emitted == 0 {
            return;
        }
        self.sequence_steps += 1;
        self.drafting_steps += u64::from(part.tree.len() > 1);
        self.generated_tokens += part.emitted as u64;
        let accepted = part.verdict.accepted.iter().take(part.emitted);
        let mut count = |node, of: fn(&mut DrafterFigures) -> &mut Vec<u64>| {
            let node = part.tree.node(node);
            if let Some(drafter) = self.drafters.get_mut(usize::from(node.source)) {
                DrafterFigures::add(of(drafter), node.depth as usize);
            }
        };
        for node in part.tree.nodes().skip(1) {
            count(node, |drafter| &mut drafter.drafted);
        }
        for &node in accepted {
            count(node, |drafter| &mut drafter.accepted);
        }
    }
}
