//! `--trace`: every step as a line of JSON.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use foredraft::common::TokenId;
use foredraft::engine::{Phases, StepReport, TokenOrigin};
use foredraft::speculate::{NodeIndex, Origin, TokenTree};
use foredraft::text::Tokenizer;
use serde::Serialize;

use crate::exit::Exit;

/// A file of steps.
pub(super) struct Trace {
    path: PathBuf,
    file: BufWriter<File>,
    /// The names of the drafters, by the number that their nodes carry.
    drafters: Vec<String>,
    step: usize,
    error: Option<std::io::Error>,
}

/// A line: one step.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Counts the steps of all answers of the run, from 0.
    step: usize,
    /// The last token before the step.
    root: Token<'a>,
    /// What was drafted to follow it; node 0 is the root.
    drafted: Vec<Node<'a>>,
    /// The accepted nodes in order.
    accepted: Vec<u32>,
    /// The token that the model itself chose after them.
    next: Token<'a>,
    /// `plain`, `corrected` or `bonus`.
    origin: TokenOrigin,
    /// Tokens emitted: one more than accepted, or fewer where the answer ended before.
    emitted: usize,
    /// Where the time went.
    seconds: Phases,
}

#[derive(Debug, Serialize)]
struct Token<'a> {
    token: TokenId,
    /// Its bytes as text; what is no UTF-8 on its own is U+FFFD.
    text: Cow<'a, str>,
}

#[derive(Debug, Serialize)]
struct Node<'a> {
    node: u32,
    parent: u32,
    depth: u32,
    #[serde(flatten)]
    token: Token<'a>,
    drafter: Option<&'a str>,
    /// How probable the drafter held it.
    confidence: f32,
    /// Whether it was drawn (otherwise it was chosen by rank, lookup or the target's own noise).
    sampled: bool,
}

impl Trace {
    /// Opens the file, which is written anew.
    pub(super) fn create(path: &Path, drafters: Vec<String>) -> Result<Self, Exit> {
        let file = File::create(path).map_err(|error| failed(path, error))?;
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            drafters,
            step: 0,
            error: None,
        })
    }

    /// Writes a step. A write that fails is told by [`Trace::flush`].
    pub(super) fn write(&mut self, report: StepReport<'_>, tokenizer: &Tokenizer) {
        let StepReport { tree, verdict, .. } = report;
        let token = |token: TokenId| Token {
            token,
            text: String::from_utf8_lossy(tokenizer.token_bytes(token)),
        };
        let line = Line {
            step: self.step,
            root: token(tree.token(NodeIndex::ROOT)),
            drafted: tree
                .nodes()
                .skip(1)
                .map(|index| node(tree, index, token(tree.token(index)), &self.drafters))
                .collect(),
            accepted: verdict.accepted.iter().map(|node| node.0).collect(),
            next: token(verdict.next),
            origin: match (tree.len(), verdict.origin) {
                (1, _) => TokenOrigin::Plain,
                (_, Origin::Corrected) => TokenOrigin::Corrected,
                (_, Origin::Bonus) => TokenOrigin::Bonus,
            },
            emitted: report.emitted,
            seconds: report.phases,
        };
        let written = serde_json::to_writer(&mut self.file, &line).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|()| self.file.write_all(b"\n")) {
            self.error.get_or_insert(error);
        }
        self.step += 1;
    }

    /// All steps so far are in the file, or why they are not.
    pub(super) fn flush(&mut self) -> Result<(), Exit> {
        match self.error.take().map_or_else(|| self.file.flush(), Err) {
            Ok(()) => Ok(()),
            Err(error) => Err(failed(&self.path, error)),
        }
    }
}

fn node<'a>(
    tree: &TokenTree,
    index: NodeIndex,
    token: Token<'a>,
    drafters: &'a [String],
) -> Node<'a> {
    let node = tree.node(index);
    Node {
        node: index.0,
        parent: node.parent.0,
        depth: node.depth,
        token,
        drafter: drafters.get(usize::from(node.source)).map(String::as_str),
        confidence: node.confidence,
        sampled: node.is_sampled,
    }
}

fn failed(path: &Path, error: std::io::Error) -> Exit {
    Exit::failed(anyhow::Error::new(error).context(format!("cannot write {}", path.display())))
}
