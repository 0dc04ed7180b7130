//! What a request asks of speculation, and what it is told of it.

use foredraft_speculate::Verify;
use serde::Serialize;

/// Drafted nodes of a step when a request names no number.
pub const DEFAULT_DRAFT_NODES: usize = 8;

/// The shape that drafters may grow a step's tree to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TreeShape {
    /// A path: every node has one child.
    #[default]
    Chain,
    /// Every node has `width` children, `depth` levels: `width + width^2 + ... + width^depth` nodes.
    Grid {
        /// Children of a node.
        width: usize,
        /// Levels.
        depth: usize,
    },
}

impl TreeShape {
    /// Whether it is a path.
    pub fn is_chain(self) -> bool {
        self == Self::Chain
    }

    /// Children of a node.
    pub fn width(self) -> usize {
        match self {
            Self::Chain => 1,
            Self::Grid { width, .. } => width,
        }
    }

    /// Levels that `nodes` drafted nodes can fill.
    pub fn depth(self, nodes: usize) -> usize {
        match self {
            Self::Chain => nodes,
            Self::Grid { depth, .. } => depth.min(nodes),
        }
    }

    /// Nodes of a level, the first being 1.
    pub fn nodes_of_level(self, level: usize) -> usize {
        self.width()
            .saturating_pow(u32::try_from(level).unwrap_or(u32::MAX))
    }

    /// Nodes of all levels; none for a chain, whose length is the request's to choose.
    pub fn nodes(self) -> Option<usize> {
        match self {
            Self::Chain => None,
            // From width 2 on the sum is out of range long before the levels are many.
            Self::Grid {
                width: 0 | 1,
                depth,
            } => Some(depth.saturating_mul(self.width())),
            Self::Grid { depth, .. } => Some(
                (1..=depth.min(usize::BITS as usize)).fold(0, |sum: usize, level| {
                    sum.saturating_add(self.nodes_of_level(level))
                }),
            ),
        }
    }
}

/// How a request is speculated upon. Nothing here changes what is said: the text's distribution is the model's own, and
/// with a seed or at temperature 0 so is every bit (with [`Verify::Auto`] and [`Verify::Coupled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speculation {
    /// Whether the engine's drafters may draft for this request.
    pub enabled: bool,
    /// The rule by which drafted tokens are accepted.
    pub verify: Verify,
    /// The shape of a step's tree.
    pub tree: TreeShape,
    /// The most nodes drafted a step; `None`: [`DEFAULT_DRAFT_NODES`] for a chain, all of a grid's.
    pub draft_max: Option<usize>,
}

impl Default for Speculation {
    fn default() -> Self {
        Self {
            enabled: true,
            verify: Verify::Auto,
            tree: TreeShape::Chain,
            draft_max: None,
        }
    }
}

impl Speculation {
    /// Plain decoding, whatever drafters there are.
    pub fn off() -> Self {
        Self {
            enabled: false,
            ..Self::default()
        }
    }

    /// The most nodes drafted a step.
    pub fn nodes(&self) -> usize {
        if !self.enabled {
            return 0;
        }
        match (self.tree.nodes(), self.draft_max) {
            (Some(all), Some(most)) => all.min(most),
            (Some(all), None) => all,
            (None, most) => most.unwrap_or(DEFAULT_DRAFT_NODES),
        }
    }
}

/// What speculation did for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpeculationFigures {
    /// The drafters that took part, as they name themselves.
    pub drafters: Vec<String>,
    /// The rule that drafted tokens were accepted by: `rejection`, `coupled` or `block`.
    pub verify: &'static str,
    /// Trees that were verified: one for each step, the prompt's last pass among them.
    pub steps: usize,
    /// Tokens that were emitted.
    pub emitted: usize,
    /// Nodes that were drafted.
    pub drafted: usize,
    /// Of these, nodes whose token was emitted.
    pub accepted: usize,
    /// For each depth from 1 on, steps that drafted a node of that depth.
    pub offered_by_depth: Vec<usize>,
    /// For each depth from 1 on, steps that emitted one.
    pub accepted_by_depth: Vec<usize>,
}

impl SpeculationFigures {
    pub(crate) fn new(drafters: Vec<String>, verify: &'static str) -> Self {
        Self {
            drafters,
            verify,
            steps: 0,
            emitted: 0,
            drafted: 0,
            accepted: 0,
            offered_by_depth: Vec::new(),
            accepted_by_depth: Vec::new(),
        }
    }

    /// Counts a step: `drafted` nodes down to `depth`, `emitted` tokens of which `accepted` had been drafted.
    pub(crate) fn count(&mut self, drafted: usize, depth: usize, accepted: usize, emitted: usize) {
        self.steps += 1;
        self.drafted += drafted;
        self.accepted += accepted;
        self.emitted += emitted;
        if self.offered_by_depth.len() < depth {
            self.offered_by_depth.resize(depth, 0);
            self.accepted_by_depth.resize(depth, 0);
        }
        for count in &mut self.offered_by_depth[..depth] {
            *count += 1;
        }
        for count in &mut self.accepted_by_depth[..accepted] {
            *count += 1;
        }
    }

    /// Of all drafted nodes the share whose token was emitted; 0 when none was drafted. (Of a tree's siblings at most
    /// one can be.)
    pub fn acceptance_rate(&self) -> f64 {
        share(self.accepted, self.drafted)
    }

    /// Tokens emitted for each pass of the model: 1 for plain decoding.
    pub fn tokens_per_step(&self) -> f64 {
        share(self.emitted, self.steps)
    }

    /// For each depth from 1 on: of the steps that drafted so deep, the share whose accepted path reached it.
    pub fn acceptance_by_depth(&self) -> Vec<f64> {
        let counts = self.accepted_by_depth.iter().zip(&self.offered_by_depth);
        counts
            .map(|(&accepted, &offered)| share(accepted, offered))
            .collect()
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(width: usize, depth: usize) -> TreeShape {
        TreeShape::Grid { width, depth }
    }

    #[test]
    fn shapes_count_their_nodes() {
        // 2 + 4, 3 + 9 + 27, 4 + 16.
        let nodes = [grid(2, 2), grid(3, 3), grid(4, 2), grid(1, 5), grid(0, 5)];
        assert_eq!(nodes.map(TreeShape::nodes), [6, 39, 20, 5, 0].map(Some));
        assert_eq!(grid(9, usize::MAX).nodes(), Some(usize::MAX));
        assert_eq!(
            [1, 2, 3].map(|level| grid(3, 3).nodes_of_level(level)),
            [3, 9, 27]
        );
        assert_eq!((TreeShape::Chain.depth(7), grid(3, 3).depth(39)), (7, 3));
    }

    #[test]
    fn a_request_gets_the_nodes_it_asks_for() {
        let nodes = |enabled, tree, draft_max| {
            let verify = Verify::Auto;
            Speculation {
                enabled,
                verify,
                tree,
                draft_max,
            }
            .nodes()
        };
        assert_eq!(nodes(true, TreeShape::Chain, None), DEFAULT_DRAFT_NODES);
        assert_eq!(nodes(true, TreeShape::Chain, Some(3)), 3);
        assert_eq!(nodes(true, grid(3, 3), None), 39);
        assert_eq!(nodes(true, grid(3, 3), Some(10)), 10);
        assert_eq!(nodes(false, grid(3, 3), Some(10)), 0);
    }

    #[test]
    fn figures_add_up() {
        let mut figures = SpeculationFigures::new(vec!["lookup".into()], "coupled");
        figures.count(3, 3, 2, 3);
        figures.count(6, 2, 0, 1);
        figures.count(0, 0, 0, 1);
        assert_eq!(
            (figures.drafted, figures.accepted, figures.emitted),
            (9, 2, 5)
        );
        assert_eq!(figures.acceptance_by_depth(), [0.5, 0.5, 0.0]);
        assert_eq!(figures.tokens_per_step(), 5.0 / 3.0);
        assert_eq!(figures.acceptance_rate(), 2.0 / 9.0);
    }
}
