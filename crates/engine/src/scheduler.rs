//! Who gets how many rows of the next pass: pure arithmetic over numbers.
//!
//! A pass has a bounded number of rows, and of rows whose logits are wanted (*outputs*). A sequence that *decodes* has one
//! pending token, its root; one that *reads* has more: a prompt, or text that is computed again. A row is a pending
//! token or a drafted node, and the root and each node is an output too.
//!
//! 1. Every root of a decoding sequence is in the pass.
//! 2. Texts are read in what is left, the oldest first; while others decode, in at most `prompt_rows` rows a step, so that
//!    a long prompt delays a running answer by little each time. Alone a prompt gets the whole pass.
//! 3. Nodes share the rest fairly: whoever gets fewer than it wants, gets as many as any other, or one less.
//!
//! A sequence may want its nodes *whole*: under `rejection` and `block` a seed repeats its text only if its trees do not
//! depend on the company. It then waits for a step that has room for all of them. The longest waiting goes first, and one
//! whole tree fits beside all roots ([`PassLimits::serves`]), so nobody waits for ever.

/// What a sequence has to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Want {
    /// Tokens that have not been through the model: at least 1, the last of which is the root.
    pub(crate) pending: usize,
    /// Nodes that it may draft with the root.
    pub(crate) nodes: usize,
    /// All of them, or no root.
    pub(crate) whole: bool,
    /// Steps in a row that had no row for it.
    pub(crate) waited: u32,
}

impl Want {
    fn decodes(&self) -> bool {
        self.pending == 1
    }
}

/// What a sequence gets of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Pending tokens that are run; with all of them the root is.
    pub(crate) rows: usize,
    /// Nodes that may be drafted; none without the root.
    pub(crate) nodes: usize,
}

/// What a pass may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PassLimits {
    /// Rows.
    pub(crate) rows: usize,
    /// Rows whose logits are wanted.
    pub(crate) outputs: usize,
    /// Rows for reading while others decode: at least 1.
    pub(crate) prompt_rows: usize,
}

impl PassLimits {
    /// Whether a pass has a row for each of `sequences` and for one tree of `nodes` beside them. Where it has, every
    /// sequence advances again and again, whatever the others want.
    pub(crate) fn serves(&self, sequences: usize, nodes: usize) -> bool {
        let least = sequences.saturating_add(nodes);
        sequences > 0 && least <= self.rows.min(self.outputs) && self.prompt_rows > 0
    }
}

/// Shares out passes. It keeps nothing from one to the next but memory.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    /// Scratch: sequences in the order in which they are served.
    order: Vec<usize>,
}

/// What is left of a pass.
struct Rest {
    rows: usize,
    outputs: usize,
}

impl Rest {
    fn take(&mut self, rows: usize, outputs: usize) {
        self.rows -= rows;
        self.outputs -= outputs;
    }

    /// Rows that are outputs too.
    fn outputs(&self) -> usize {
        self.rows.min(self.outputs)
    }
}

impl Scheduler {
    /// Fills `shares`, one for each of `wants`, which stand in the order of their age.
    pub(crate) fn share_out(
        &mut self,
        wants: &[Want],
        limits: PassLimits,
        shares: &mut Vec<Share>,
    ) {
        shares.clear();
        shares.resize(wants.len(), Share::default());
        let mut rest = Rest {
            rows: limits.rows,
            outputs: limits.outputs,
        };
        // One row is kept for whoever reads, so that roots and whole trees cannot keep a text from being read.
        let kept = usize::from(wants.iter().any(|want| !want.decodes())).min(rest.rows);
        rest.rows -= kept;
        self.order_by_waiting(wants);
        for &i in &self.order {
            if rest.outputs() > 0 {
                shares[i].rows = 1;
                rest.take(1, 1);
            }
        }
        let whole = |&i: &usize| wants[i].whole && wants[i].nodes > 0;
        let mut trees = self.order.iter().copied().filter(whole);
        if let Some(first) = trees.next() {
            add_tree(&wants[first], &mut shares[first], &mut rest);
        }
        rest.rows += kept;
        read(wants, limits.prompt_rows, shares, &mut rest);
        for i in trees {
            add_tree(&wants[i], &mut shares[i], &mut rest);
        }
        self.add_nodes(wants, shares, &mut rest);
    }

    /// Those that decode, the longest waiting first, then by age.
    fn order_by_waiting(&mut self, wants: &[Want]) {
        self.order.clear();
        let decoding = (0..wants.len()).filter(|&i| wants[i].decodes());
        self.order.extend(decoding);
        self.order
            .sort_by_key(|&i| std::cmp::Reverse(wants[i].waited));
    }

    /// Shares what is left among the trees that may be of any size: equally, until the small ones have what they want.
    fn add_nodes(&mut self, wants: &[Want], shares: &mut [Share], rest: &mut Rest) {
        self.order.clear();
        let open = (0..wants.len())
            .filter(|&i| shares[i].rows == wants[i].pending && !wants[i].whole)
            .filter(|&i| wants[i].nodes > 0);
        self.order.extend(open);
        self.order.sort_by_key(|&i| wants[i].nodes);
        let mut left = rest.outputs();
        for (served, &i) in self.order.iter().enumerate() {
            let fair = left / (self.order.len() - served);
            shares[i].nodes = wants[i].nodes.min(fair);
            left -= shares[i].nodes;
        }
    }
}

/// Adds all nodes of a tree to its root, or takes the root away.
fn add_tree(want: &Want, share: &mut Share, rest: &mut Rest) {
    if share.rows == 0 {
        return;
    }
    if want.nodes <= rest.outputs() {
        share.nodes = want.nodes;
        rest.take(want.nodes, want.nodes);
    } else {
        *share = Share::default();
        rest.rows += 1;
        rest.outputs += 1;
    }
}

/// Gives rows to those that read, the oldest first.
fn read(wants: &[Want], prompt_rows: usize, shares: &mut [Share], rest: &mut Rest) {
    let others_decode = shares.iter().any(|share| share.rows > 0);
    let mut most = match others_decode {
        true => prompt_rows.min(rest.rows),
        false => rest.rows,
    };
    for (want, share) in wants.iter().zip(shares) {
        if want.decodes() {
            continue;
        }
        let mut rows = want.pending.min(most);
        if rows == want.pending {
            let nodes = if want.whole { want.nodes } else { 0 };
            let fits = rest.outputs > nodes && rest.rows - rows >= nodes;
            if fits {
                share.nodes = nodes;
                rest.take(nodes, nodes + 1);
            } else {
                rows -= 1; // its root in a later step
            }
        }
        share.rows = rows;
        rest.rows -= rows;
        most = (most - rows).min(rest.rows);
    }
}

#[cfg(test)]
mod tests;
