use std::sync::{Arc, Mutex};

use foredraft_common::{Position, TokenId};
use foredraft_speculate::{
    AllowedTokens, DistributionError, DraftDraw, History, NodeIndex, NoiseKey, SamplingSettings,
};

use super::*;

const CHAIN: TreeShape = TreeShape::Chain;
const GRID: TreeShape = TreeShape::Grid { width: 2, depth: 2 };

/// What drafters were asked: name, call, sequences.
type Log = Arc<Mutex<Vec<(&'static str, &'static str, Vec<u64>)>>>;

/// Drafts for the sequences that it knows, its own tokens.
struct Fake {
    name: &'static str,
    source: u8,
    knows: &'static [u64],
    /// At its first `extend`.
    trouble: Option<fn() -> DraftError>,
    log: Log,
}

impl Fake {
    fn log(&self, call: &'static str, sequences: &[SequenceView<'_>]) {
        let ids = sequences.iter().map(|view| view.id.0).collect();
        let mut log = self.log.lock().expect("nobody panics here");
        log.push((self.name, call, ids));
    }
}

impl Drafter for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn read(&mut self, sequences: &[SequenceView<'_>]) -> Result<(), DraftError> {
        self.log("read", sequences);
        Ok(())
    }

    fn begin(&mut self, sequences: &[SequenceView<'_>]) -> Result<(), DraftError> {
        self.log("begin", sequences);
        Ok(())
    }

    fn extend(
        &mut self,
        sequences: &[SequenceView<'_>],
        trees: &mut [TokenTree],
        budgets: &[NodeBudget],
    ) -> Result<(), DraftError> {
        self.log("extend", sequences);
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble());
        }
        for ((view, tree), budget) in sequences.iter().zip(trees).zip(budgets) {
            if !self.knows.contains(&view.id.0) {
                continue;
            }
            let deepest = tree.nodes().map(|node| tree.depth(node)).max().unwrap_or(0);
            let level: Vec<NodeIndex> = tree.at_depth(deepest).collect();
            let mut left = budget.nodes;
            for node in level {
                for _ in 0..budget.width.min(left) {
                    let token = TokenId(u32::from(self.source) * 100 + tree.len() as u32);
                    tree.push(node, token, self.source, 0.5);
                    left -= 1;
                }
            }
        }
        Ok(())
    }

    fn observe(&mut self, sequences: &[SequenceView<'_>], verdicts: &[Verdict]) {
        self.log("observe", sequences);
        // A verdict's next token names its sequence in these tests.
        for (view, verdict) in sequences.iter().zip(verdicts) {
            assert_eq!(view.id.0, u64::from(verdict.next.0));
        }
    }

    fn forget(&mut self, sequence: SequenceId) {
        let mut log = self.log.lock().expect("nobody panics here");
        log.push((self.name, "forget", vec![sequence.0]));
    }
}

/// Sequences 0, 1, ... of these shapes, a step of theirs.
struct Bench {
    drafters: Drafters,
    log: Log,
    limits: Vec<Limits>,
    trees: Vec<TokenTree>,
    failed: Vec<Vec<bool>>,
}

impl Bench {
    fn new(limits: &[(TreeShape, usize, usize)]) -> Self {
        let of = |&(shape, nodes, depth)| Limits {
            shape,
            nodes,
            depth,
        };
        Self {
            drafters: Drafters::default(),
            log: Log::default(),
            limits: limits.iter().map(of).collect(),
            trees: vec![TokenTree::new(TokenId(1)); limits.len()],
            failed: vec![Vec::new(); limits.len()],
        }
    }

    fn add(
        &mut self,
        name: &'static str,
        knows: &'static [u64],
        trouble: Option<fn() -> DraftError>,
    ) {
        let fake = Fake {
            name,
            source: self.drafters.members.len() as u8,
            knows,
            trouble,
            log: Arc::clone(&self.log),
        };
        let more = Drafters::new(vec![Box::new(fake)]).members;
        self.drafters.members.extend(more);
    }

    /// A step; gives who was warned.
    fn step(&mut self) -> Vec<usize> {
        self.act(Drafters::grow)
    }

    /// What drafters are asked in a step, and the end of it.
    fn act(&mut self, what: fn(&mut Drafters, &mut [Lane<'_>], Report<'_>)) -> Vec<usize> {
        self.log.lock().expect("fine").clear();
        let (history, sampling) = (History::new(&[]), SamplingSettings::greedy());
        let allowed = AllowedTokens::all(1000);
        let view = |id| SequenceView {
            id: SequenceId(id),
            tokens: &[TokenId(1)],
            history: &history,
            sampling: &sampling,
            allowed: &allowed,
            key: NoiseKey {
                seed: 0,
                choice: 0,
                position: Position(1),
            },
            draw: DraftDraw::Ranked,
        };
        let mut lanes = Vec::new();
        let parts = self
            .trees
            .iter_mut()
            .zip(&self.limits)
            .zip(&mut self.failed);
        for (id, ((tree, &limits), failed)) in (0..).zip(parts) {
            tree.reset(TokenId(1));
            lanes.push(Lane {
                view: view(id),
                limits,
                tree,
                failed,
            });
        }
        let mut warned = Vec::new();
        what(&mut self.drafters, &mut lanes, &mut |lane, _| {
            warned.push(lane);
        });
        let mut verdicts: Vec<Verdict> = (0..self.trees.len() as u32)
            .map(|next| Verdict {
                next: TokenId(next),
                ..Verdict::new()
            })
            .collect();
        let outcomes = (0..)
            .zip(&mut verdicts)
            .map(|(id, verdict)| (view(id), verdict));
        self.drafters.observe(&mut outcomes.collect::<Vec<_>>());
        warned
    }

    /// The sources of a tree's nodes.
    fn sources(&self, lane: usize) -> Vec<u8> {
        let tree = &self.trees[lane];
        tree.nodes().skip(1).map(|n| tree.node(n).source).collect()
    }

    /// Who was told of a call, and which sequences: every call of that name.
    fn told(&self, call: &str) -> Vec<(&'static str, Vec<u64>)> {
        let log = self.log.lock().expect("fine");
        let of_call = log.iter().filter(|entry| entry.1 == call);
        of_call.map(|entry| (entry.0, entry.2.clone())).collect()
    }
}

/// A chain has one author, a grid all; whoever has nothing to do for a sequence hears nothing of it.
#[test]
fn chains_have_one_author_and_grids_are_shared() {
    let mut bench = Bench::new(&[(CHAIN, 3, 9), (CHAIN, 2, 9), (GRID, 6, 9), (CHAIN, 5, 9)]);
    bench.add("first", &[0, 2], None);
    bench.add("second", &[0, 1, 2], None);
    assert!(bench.step().is_empty());
    assert_eq!(bench.sources(0), [0, 0, 0]);
    assert_eq!(bench.sources(1), [1, 1]);
    // The first fills each level of the grid, so the second finds no room in it.
    assert_eq!(bench.sources(2), [0; 6]);
    assert!(bench.sources(3).is_empty());
    let others = vec![1, 2, 3];
    let told = vec![("first", vec![0, 1, 2, 3]), ("second", others)];
    assert_eq!(bench.told("begin"), told);
    assert_eq!(bench.told("observe"), told);
}

#[test]
fn a_drafter_that_is_not_needed_is_not_told_of_the_step() {
    let mut bench = Bench::new(&[(CHAIN, 3, 9), (CHAIN, 2, 9)]);
    bench.add("first", &[0, 1], None);
    bench.add("costly", &[0, 1], None);
    bench.step();
    assert!(bench.told("begin").iter().all(|(name, _)| *name == "first"));
    assert_eq!((bench.sources(0).len(), bench.sources(1).len()), (3, 2));
}

/// Chains and grids of the last drafter grow beside each other: one call a level.
#[test]
fn one_call_serves_all_shapes_of_a_level() {
    let mut bench = Bench::new(&[(CHAIN, 3, 9), (GRID, 6, 9), (CHAIN, 8, 2)]);
    bench.add("only", &[0, 1, 2], None);
    bench.step();
    // The depth that may be emitted bounds the last chain.
    let lens = [0, 1, 2].map(|lane| bench.sources(lane).len());
    assert_eq!(lens, [3, 6, 2]);
    assert_eq!(bench.told("extend").len(), 3);
}

#[test]
fn a_row_without_a_distribution_costs_its_own_sequence_the_drafter() {
    let mut bench = Bench::new(&[(CHAIN, 2, 9), (CHAIN, 2, 9)]);
    bench.add(
        "troubled",
        &[0, 1],
        Some(|| DraftError::Distribution {
            drafter: "troubled".into(),
            sequence: SequenceId(1),
            source: DistributionError::NothingPossible,
        }),
    );
    assert_eq!(bench.step(), [1]);
    // What it knows of both may be half done.
    assert_eq!(bench.told("forget").len(), 2);
    assert!(bench.told("observe").is_empty());
    assert!(bench.step().is_empty());
    assert_eq!(bench.told("begin"), [("troubled", vec![0])]);
    assert_eq!((bench.sources(0).len(), bench.sources(1).len()), (2, 0));
}

#[test]
fn a_panic_is_a_failure_like_any_other() {
    let mut bench = Bench::new(&[(CHAIN, 2, 9), (CHAIN, 2, 9)]);
    bench.add("first", &[0, 1], Some(|| panic!("as planned")));
    bench.add("second", &[1], None);
    assert_eq!(bench.step(), [0, 1]);
    assert_eq!((bench.sources(0), bench.sources(1)), (vec![], vec![1, 1]));
    assert!(bench.step().is_empty());
    assert_eq!(bench.told("begin"), [("second", vec![0, 1])]);
}

/// Who reads a text on is asked by all drafters, but for those that failed for it; nobody observes it.
#[test]
fn a_text_that_is_read_is_read_by_all_drafters() {
    let mut bench = Bench::new(&[(CHAIN, 0, 9), (CHAIN, 0, 9)]);
    bench.add("first", &[], None);
    bench.add("second", &[], None);
    bench.failed[1] = vec![true];
    bench.act(Drafters::read);
    let told = [("first", vec![0]), ("second", vec![0, 1])];
    assert_eq!(bench.told("read"), told);
    assert!(bench.told("begin").is_empty() && bench.told("observe").is_empty());
}
