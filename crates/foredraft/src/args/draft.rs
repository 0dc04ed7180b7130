//! Where drafted tokens come from, and how they are checked.

use clap::{Args, ValueEnum};
use foredraft::engine::{Speculation, TreeShape};
use foredraft::speculate;

use super::values::{self, Draft, Tree};
use crate::exit::Exit;

/// Options about drafting. None of them changes what is said.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Draft options (they change the speed, never what is said)")]
pub(crate) struct DraftOptions {
    /// What drafts: auto (the best at hand; in this version nothing, so decoding is plain), none, lookup (continues
    /// text as it went before) or model:MODEL (a small model with the same vocabulary); repeatable: they share the tree
    #[arg(long = "draft", value_name = "DRAFT")]
    drafts: Vec<Draft>,

    /// Most tokens to draft a step [default: 8 for a chain, all of a tree WxD]
    #[arg(long, value_name = "N", value_parser = values::count::<255>)]
    draft_max: Option<usize>,

    /// Shape of what is drafted: auto (in this version chain), chain (one token after the other), or WxD: each
    /// token has W rivals to follow it, D levels deep
    #[arg(long, value_name = "auto|chain|WxD", default_value_t = Tree(TreeShape::Chain))]
    tree: Tree,

    /// Rule by which drafted tokens are accepted; every rule leaves the distribution of the text as it is
    #[arg(long, value_enum, default_value_t = Verify::Auto, value_name = "RULE")]
    verify: Verify,
}

/// `--verify`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verify {
    /// coupled with --seed or at temperature 0, otherwise rejection
    Auto,
    /// Accept by probability, correct from what is left (speculative sampling)
    Rejection,
    /// Accept what decoding without a draft would say with the same seed
    Coupled,
    /// As rejection, but judging a chain as a whole
    Block,
}

impl DraftOptions {
    /// Whether any draft is named, auto and none included.
    pub(crate) fn is_given(&self) -> bool {
        !self.drafts.is_empty()
    }

    /// The shape, as it is written on the command line.
    pub(crate) fn tree_name(&self) -> String {
        self.tree.to_string()
    }

    /// What drafts, in the order in which they are asked; none for plain decoding.
    ///
    /// # Errors
    /// When they contradict or repeat each other.
    pub(crate) fn drafts(&self) -> Result<Vec<Draft>, Exit> {
        let stand_alone = |draft: &Draft| matches!(draft, Draft::Auto | Draft::None);
        if self.drafts.iter().any(stand_alone) {
            return match self.drafts.len() {
                1 => Ok(Vec::new()),
                _ => Err(Exit::input(anyhow::anyhow!(
                    "--draft auto and --draft none stand alone: give one of them, or the drafts that shall be used"
                ))),
            };
        }
        let mut drafts = self.drafts.clone();
        // Those that say the same whatever is drawn come before those that draw.
        drafts.sort_by_key(|draft| matches!(draft, Draft::Model(_)));
        match (1..drafts.len()).find(|&i| drafts[..i].contains(&drafts[i])) {
            Some(i) => Err(Exit::input(anyhow::anyhow!(
                "--draft {} is given twice: once is enough",
                crate::output::printable(&drafts[i].to_string())
            ))),
            None => Ok(drafts),
        }
    }

    /// As the engine takes it.
    pub(crate) fn speculation(&self) -> Speculation {
        Speculation {
            enabled: true,
            verify: match self.verify {
                Verify::Auto => speculate::Verify::Auto,
                Verify::Rejection => speculate::Verify::Rejection,
                Verify::Coupled => speculate::Verify::Coupled,
                Verify::Block => speculate::Verify::Block,
            },
            tree: self.tree.0,
            draft_max: self.draft_max,
        }
    }
}
