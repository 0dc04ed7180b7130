//! The drafts that a command line names, opened, checked against the model's vocabulary, and made drafters.

use std::sync::Arc;

use foredraft::drafters::ModelDrafter;
use foredraft::engine::DraftModel;
use foredraft::formats::Checkpoint;
use foredraft::models;
use foredraft::speculate::{Drafter, Lookup};
use foredraft::text::{Tokenizer, VocabularyComparison};

use crate::args::values::Draft;
use crate::exit::Exit;
use crate::output;
use crate::progress::Stderr;

/// Drafts that shall be loaded with a model.
#[derive(Default)]
pub(crate) struct Drafts {
    drafts: Vec<(Draft, Option<Checkpoint>)>,
    /// The most nodes that they may draft in a step; `None` as many as the engine reserves by itself.
    pub(super) most_nodes: Option<usize>,
}

impl Drafts {
    /// Opens the models among the drafts. `most_nodes` are drafted in a step.
    ///
    /// # Errors
    /// When a model is not there, or its tokens are not those of the model that it shall draft for.
    pub(crate) fn open(
        drafts: Vec<Draft>,
        most_nodes: usize,
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<Self, Exit> {
        let open = |draft: Draft| -> Result<(Draft, Option<Checkpoint>), Exit> {
            let checkpoint = match &draft {
                Draft::Model(name) => Some(open_model(name, tokenizer)?),
                Draft::Auto | Draft::None | Draft::Lookup => None,
            };
            Ok((draft, checkpoint))
        };
        Ok(Self {
            most_nodes: (!drafts.is_empty()).then_some(most_nodes),
            drafts: drafts.into_iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    /// The models among them, in order.
    pub(super) fn checkpoints(&self) -> Vec<&Checkpoint> {
        let models = self.drafts.iter().filter_map(|(_, model)| model.as_ref());
        models.collect()
    }

    /// The drafters, numbered in order; `models` are the loaded ones.
    pub(super) fn drafters(self, models: Vec<DraftModel>) -> Vec<Box<dyn Drafter + Send>> {
        let mut models = models.into_iter();
        let mut drafters: Vec<Box<dyn Drafter + Send>> = Vec::new();
        for (draft, _) in self.drafts {
            // There are as many drafters as options on a command line.
            let source = drafters.len() as u8;
            match draft {
                Draft::Auto | Draft::None => {}
                Draft::Lookup => drafters.push(Box::new(Lookup::new(source))),
                Draft::Model(_) => {
                    if let Some(DraftModel { executor, options }) = models.next() {
                        let name = draft.to_string();
                        let drafter = ModelDrafter::new(name, source, executor, options);
                        drafters.push(Box::new(drafter));
                    }
                }
            }
        }
        drafters
    }
}

/// Opens a model that shall draft.
///
/// # Errors
/// When it is not there, or its tokens are not those of the model that it shall draft for.
pub(crate) fn open_model(name: &str, tokenizer: &Tokenizer) -> Result<Checkpoint, Exit> {
    let model = models::resolve(name, &Stderr::new())?;
    let checkpoint = model.open()?;
    let own = Tokenizer::open(checkpoint.vocabulary())?;
    let comparison = VocabularyComparison::new(tokenizer, &own);
    comparison.check().map_err(|mismatch| {
        let name = output::printable(&model.name);
        Exit::input(anyhow::Error::new(mismatch).context(format!("{name} cannot draft here")))
    })?;
    Ok(checkpoint)
}
