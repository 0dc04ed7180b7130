//! What drafts in an audit: the drafts asked for, each alone and all together.

use std::sync::Arc;

use foredraft::drafters::{ModelDrafter, copies};
use foredraft::engine::{Engine, EngineOptions};
use foredraft::formats::Checkpoint;
use foredraft::model::{Backend, unwatched};
use foredraft::speculate::{Drafter, Lookup};
use foredraft::text::Tokenizer;

use crate::args::values::Draft;
use crate::exit::Exit;
use crate::load::{engine_error, open_model};
use crate::output;

/// Names of the copies, as in `--draft model:self-noise`.
const NOISE: &str = "self-noise";
const LAYERS: &str = "self-layers";
/// Noise of the copy, by the root mean square of each matrix: it is then wrong about as often as right.
const NOISE_SIZE: f32 = 0.15;

/// A draft that is ready to be loaded.
struct Candidate {
    name: String,
    /// None for `lookup`.
    weights: Option<Checkpoint>,
}

/// The drafts of an audit.
pub(super) struct Drafts {
    candidates: Vec<Candidate>,
}

/// The model under audit.
pub(super) struct Target {
    pub(super) checkpoint: Checkpoint,
    pub(super) tokenizer: Arc<Tokenizer>,
}

impl Drafts {
    /// Opens the drafts asked for, or those that every model has. Those that say the same whatever is drawn come first.
    ///
    /// # Errors
    /// When a draft is no draft, is not there, or has another vocabulary, or the model cannot be copied.
    pub(super) fn open(asked: &[Draft], target: &Target) -> Result<Self, Exit> {
        let mut drafts = asked.to_vec();
        if drafts.is_empty() {
            let copies = [NOISE, LAYERS].map(|name| Draft::Model(name.to_owned()));
            drafts.push(Draft::Lookup);
            drafts.extend(copies);
        }
        drafts.sort_by_key(|draft| matches!(draft, Draft::Model(_)));
        drafts.dedup();
        let candidates = drafts.iter().map(|draft| open(draft, target));
        let candidates = candidates.collect::<Result<_, _>>()?;
        Ok(Self { candidates })
    }

    /// Who drafts together: each alone, then all, by their numbers.
    pub(super) fn sets(&self) -> Vec<Vec<usize>> {
        let count = self.candidates.len();
        let mut sets: Vec<Vec<usize>> = (0..count).map(|one| vec![one]).collect();
        if count > 1 {
            sets.push((0..count).collect());
        }
        sets
    }

    /// The names of a set.
    pub(super) fn name(&self, set: &[usize]) -> String {
        match set.len() {
            count if count > 2 && count == self.candidates.len() => "all drafts".to_owned(),
            _ => {
                let names = set.iter().map(|&i| self.candidates[i].name.as_str());
                names.collect::<Vec<_>>().join(" + ")
            }
        }
    }

    /// Loads the model and a set of its drafts, as `run` does.
    ///
    /// # Errors
    /// When they do not fit.
    pub(super) fn engine(
        &self,
        set: &[usize],
        target: &Target,
        backend: &dyn Backend,
        options: &EngineOptions,
    ) -> Result<Engine, Exit> {
        let candidates = set.iter().map(|&i| &self.candidates[i]);
        let weights = candidates.clone().filter_map(|c| c.weights.as_ref());
        let loaded = Engine::load_with_drafts(
            &target.checkpoint,
            &weights.collect::<Vec<_>>(),
            Arc::clone(&target.tokenizer),
            backend,
            options,
            &mut unwatched,
        );
        let (mut engine, models) = loaded.map_err(engine_error)?;
        let mut models = models.into_iter();
        let mut drafters: Vec<Box<dyn Drafter + Send>> = Vec::new();
        for (source, candidate) in (0u8..).zip(candidates) {
            match &candidate.weights {
                None => drafters.push(Box::new(Lookup::new(source))),
                Some(_) => drafters.extend(models.next().map(|model| -> Box<dyn Drafter + Send> {
                    let name = candidate.name.as_str();
                    Box::new(ModelDrafter::new(
                        name,
                        source,
                        model.executor,
                        model.options,
                    ))
                })),
            }
        }
        engine.set_drafters(drafters);
        Ok(engine)
    }
}

fn open(draft: &Draft, target: &Target) -> Result<Candidate, Exit> {
    let copied = |bytes: Result<Vec<u8>, copies::CopyError>| -> Result<Checkpoint, Exit> {
        let bytes = bytes.map_err(|error| {
            let context = format!("no copy of the model can draft for it ({draft})");
            Exit::input(anyhow::Error::new(error).context(context))
        })?;
        Ok(Checkpoint::from_bytes(bytes)?)
    };
    let model = &target.checkpoint;
    let weights = match draft {
        Draft::Lookup => None,
        Draft::Model(name) if name == NOISE => {
            Some(copied(copies::with_noise(model, NOISE_SIZE, 1))?)
        }
        Draft::Model(name) if name == LAYERS => {
            let kept = kept_layers(model.config()?.layers);
            Some(copied(copies::with_layers(model, &kept))?)
        }
        Draft::Model(name) => Some(open_model(name, &target.tokenizer)?),
        Draft::Auto | Draft::None => {
            let asked = output::printable(&draft.to_string());
            return Err(Exit::input(anyhow::anyhow!(
                "--draft {asked} gives an audit nothing to check: name lookup, model:MODEL, model:{NOISE} or model:{LAYERS}"
            )));
        }
    };
    let name = output::printable(&draft.to_string());
    Ok(Candidate { name, weights })
}

/// All layers but every fourth, the first and the last among them: a copy that is right as often as a draft is.
fn kept_layers(layers: usize) -> Vec<usize> {
    let keeps = |&layer: &usize| layer % 4 != 2 || layer + 1 == layers;
    (0..layers).filter(keeps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_the_first_and_the_last_layer() {
        assert_eq!(kept_layers(1), [0]);
        assert_eq!(kept_layers(3), [0, 1, 2]);
        assert_eq!(kept_layers(5), [0, 1, 3, 4]);
        assert_eq!(kept_layers(8), [0, 1, 3, 4, 5, 7]);
    }
}
