//! What a request asks of speculation, and what a response tells of it.

use foredraft_engine::{Completion, Speculation, SpeculationFigures, TreeShape};
use foredraft_speculate::Verify;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ApiError;

/// How drafts are used for a request: an object, or true, false, `"on"`, `"off"`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "true, false, \"on\", \"off\", or an object of enabled, draft_max, tree (\"chain\" or \"WxD\") and verify (\"auto\", \"rejection\", \"coupled\" or \"block\")"
)]
pub(crate) enum SpeculationParameters {
    /// Whether at all.
    Switch(bool),
    /// Whether at all, as a word.
    Word(SpeculationSwitch),
    /// In detail.
    Detailed(SpeculationDetails),
}

/// Whether drafts are used.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SpeculationSwitch {
    /// They are.
    On,
    /// They are not: plain decoding.
    Off,
}

/// How drafts are used, in detail. What is left out is as the server was started.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct SpeculationDetails {
    /// Whether at all.
    enabled: Option<bool>,
    /// The most tokens drafted a step.
    #[schema(minimum = 0, maximum = 255)]
    draft_max: Option<usize>,
    /// `chain`, or `WxD`: every token has W rivals to follow it, D levels deep.
    #[schema(pattern = r"^(auto|chain|[1-9]\d{0,2}x[1-9]\d{0,2})$")]
    tree: Option<String>,
    /// The rule by which drafted tokens are accepted; every rule leaves the distribution of the text as it is.
    verify: Option<VerifyName>,
}

/// The rules of acceptance.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VerifyName {
    /// `coupled` with a seed or at temperature 0, otherwise `rejection`.
    Auto,
    /// Speculative sampling.
    Rejection,
    /// What decoding without a draft would say with the same seed.
    Coupled,
    /// As `rejection`, but judging a chain as a whole.
    Block,
}

impl SpeculationParameters {
    /// As the engine takes it.
    ///
    /// # Errors
    /// 400 for a shape that is none.
    pub(crate) fn resolve(&self, defaults: &Speculation) -> Result<Speculation, ApiError> {
        let switched = |enabled| Speculation {
            enabled,
            ..*defaults
        };
        let details = match self {
            Self::Switch(enabled) => return Ok(switched(*enabled)),
            Self::Word(SpeculationSwitch::On) => return Ok(switched(true)),
            Self::Word(SpeculationSwitch::Off) => return Ok(switched(false)),
            Self::Detailed(details) => details,
        };
        Ok(Speculation {
            enabled: details.enabled.unwrap_or(defaults.enabled),
            verify: match details.verify {
                None => defaults.verify,
                Some(VerifyName::Auto) => Verify::Auto,
                Some(VerifyName::Rejection) => Verify::Rejection,
                Some(VerifyName::Coupled) => Verify::Coupled,
                Some(VerifyName::Block) => Verify::Block,
            },
            tree: match &details.tree {
                None => defaults.tree,
                Some(tree) => shape(tree)?,
            },
            draft_max: details.draft_max.or(defaults.draft_max),
        })
    }
}

fn shape(text: &str) -> Result<TreeShape, ApiError> {
    if let "auto" | "chain" = text {
        return Ok(TreeShape::Chain);
    }
    let number = |part: &str| part.parse::<usize>().ok().filter(|n| (1..=255).contains(n));
    let parts = text.split_once('x');
    match parts.map(|(width, depth)| (number(width), number(depth))) {
        Some((Some(width), Some(depth))) => Ok(TreeShape::Grid { width, depth }),
        _ => Err(ApiError::invalid(
            "speculation.tree",
            "write chain, or WxD such as 3x2 (3 rivals for each token, 2 levels)",
        )),
    }
}

/// What drafting did for the answers of a response, all together.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct SpeculationReport {
    /// What drafted; none for plain decoding.
    drafters: Vec<String>,
    /// The rule of acceptance: `rejection`, `coupled` or `block`; null for plain decoding.
    #[schema(required)]
    verify: Option<&'static str>,
    /// Passes of the model that chose tokens.
    steps: usize,
    /// Tokens that were drafted.
    drafted: usize,
    /// Of these, tokens that were emitted.
    accepted: usize,
    /// accepted / drafted; 0 when nothing was drafted.
    acceptance_rate: f64,
    /// For each depth from 1 on: of the steps that drafted so deep, the share that accepted as deep.
    accepted_by_depth: Vec<f64>,
    /// Tokens for each of the steps; 1 for plain decoding.
    tokens_per_step: f64,
}

impl SpeculationReport {
    /// Of these answers to one request.
    pub(crate) fn new(completions: &[Completion]) -> Self {
        let mut figures = completions
            .iter()
            .filter_map(|answer| answer.speculation.as_ref());
        let Some(first) = figures.next() else {
            let tokens = completions.iter().map(|answer| answer.tokens.len()).sum();
            return Self {
                drafters: Vec::new(),
                verify: None,
                steps: tokens,
                drafted: 0,
                accepted: 0,
                acceptance_rate: 0.0,
                accepted_by_depth: Vec::new(),
                tokens_per_step: if tokens == 0 { 0.0 } else { 1.0 },
            };
        };
        let mut total = first.clone();
        figures.for_each(|more| add(&mut total, more));
        Self {
            verify: Some(total.verify),
            steps: total.steps,
            drafted: total.drafted,
            accepted: total.accepted,
            acceptance_rate: total.acceptance_rate(),
            accepted_by_depth: total.acceptance_by_depth(),
            tokens_per_step: total.tokens_per_step(),
            drafters: total.drafters,
        }
    }
}

/// Adds the figures of another answer to the same request: the same drafters, the same rule.
fn add(total: &mut SpeculationFigures, more: &SpeculationFigures) {
    total.steps += more.steps;
    total.emitted += more.emitted;
    total.drafted += more.drafted;
    total.accepted += more.accepted;
    for (total, more) in [
        (&mut total.offered_by_depth, &more.offered_by_depth),
        (&mut total.accepted_by_depth, &more.accepted_by_depth),
    ] {
        total.resize(total.len().max(more.len()), 0);
        for (total, more) in total.iter_mut().zip(more) {
            *total += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn resolve(value: Value) -> Result<Speculation, ApiError> {
        let parameters: SpeculationParameters = serde_json::from_value(value).expect("a form");
        let defaults = Speculation {
            draft_max: Some(5),
            verify: Verify::Block,
            ..Speculation::default()
        };
        parameters.resolve(&defaults)
    }

    #[test]
    fn what_is_left_out_is_as_the_server_was_started() {
        let defaults = resolve(json!({})).expect("valid");
        assert_eq!((defaults.enabled, defaults.draft_max), (true, Some(5)));
        for on in [json!(true), json!("on")] {
            assert_eq!(resolve(on).expect("valid"), defaults);
        }
        for off in [json!(false), json!("off"), json!({"enabled": false})] {
            let off = resolve(off).expect("valid");
            assert_eq!((off.enabled, off.nodes()), (false, 0));
        }
        let all = json!({"draft_max": 9, "tree": "3x2", "verify": "auto"});
        let all = resolve(all).expect("valid");
        assert_eq!((all.draft_max, all.verify), (Some(9), Verify::Auto));
        assert_eq!(all.tree, TreeShape::Grid { width: 3, depth: 2 });
        for wrong in ["", "x", "3x", "0x1", "256x1", "3x2x1"] {
            assert!(resolve(json!({"tree": wrong})).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_of_several_answers_add_up() {
        let figures = |drafted, accepted, emitted, by_depth: [&[usize]; 2]| SpeculationFigures {
            drafters: vec!["lookup".into()],
            verify: "coupled",
            steps: 2,
            emitted,
            drafted,
            accepted,
            offered_by_depth: by_depth[0].to_vec(),
            accepted_by_depth: by_depth[1].to_vec(),
        };
        let mut total = figures(3, 1, 3, [&[2, 1], &[1, 0]]);
        add(&mut total, &figures(5, 4, 6, [&[2, 2, 1], &[2, 1, 1]]));
        assert_eq!((total.drafted, total.accepted), (8, 5));
        assert_eq!((total.steps, total.emitted), (4, 9));
        assert_eq!(total.acceptance_by_depth(), [0.75, 1.0 / 3.0, 1.0]);
    }
}
