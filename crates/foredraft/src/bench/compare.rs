//! Plain decoding against a draft: the same prompts, one next to the other.

use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft::common::TokenId;
use foredraft::engine::{
    Completion, Engine, FinishReason, Phases, Request, Speculation, SpeculationFigures,
};
use foredraft::formats::Checkpoint;
use foredraft::speculate::{SamplingSettings, VerifyRule};
use foredraft::text::Tokenizer;

use super::prompts;
use super::report::{DraftReport, Spread, StepReport};
use crate::args::values::Draft;
use crate::commands::bench::BenchArgs;
use crate::exit::Exit;
use crate::load::{self, Drafts, engine_error};
use crate::{interrupt, output};

/// Tokens of the answers that nobody counts: they put caches and clocks into the state that a step finds.
const UNCOUNTED_TOKENS: usize = 8;

/// What is compared, whatever drafts.
pub(super) struct Comparison<'a> {
    args: &'a BenchArgs,
    prompts: Vec<Vec<TokenId>>,
    sampling: SamplingSettings,
    speculation: Speculation,
}

/// The answers of one side, summed up.
#[derive(Default)]
struct Side {
    rates: Vec<f64>,
    steps: usize,
    phases: Phases,
}

impl<'a> Comparison<'a> {
    /// Reads the prompts.
    pub(super) fn new(args: &'a BenchArgs, tokenizer: &Tokenizer) -> Result<Self, Exit> {
        let texts = prompts::read(args.prompts.as_deref(), args.prompt_count)?;
        let encode = |text: &String| prompts::tokens(tokenizer, text, args.raw);
        let sampling = SamplingSettings {
            temperature: args.temperature,
            seed: args.seed,
            ..SamplingSettings::unchanged()
        };
        sampling.validate().map_err(Exit::input)?;
        Ok(Self {
            args,
            prompts: texts.iter().map(encode).collect::<Result<_, _>>()?,
            sampling,
            speculation: args.draft.speculation(),
        })
    }

    /// Loads the model with the draft, and answers every prompt without it and with it.
    pub(super) fn run(
        &self,
        draft: &Draft,
        opened: Drafts,
        checkpoint: &Checkpoint,
        tokenizer: &Arc<Tokenizer>,
    ) -> Result<DraftReport, Exit> {
        let loaded = load::load_with_drafts(checkpoint, tokenizer, &self.args.options, opened)?;
        let mut engine = loaded.engine;
        for speculation in [Speculation::off(), self.speculation] {
            if let Some(prompt) = self.prompts.first() {
                self.answer(&mut engine, prompt, UNCOUNTED_TOKENS, speculation)?;
            }
        }
        let (mut plain, mut drafted) = (Side::default(), Side::default());
        let (mut ratios, mut figures, mut identical) = (Vec::new(), None, true);
        for _ in 0..self.args.rounds() {
            for (number, prompt) in (1..).zip(&self.prompts) {
                let tokens = self.args.tokens;
                let without = self.answer(&mut engine, prompt, tokens, Speculation::off())?;
                let with = self.answer(&mut engine, prompt, tokens, self.speculation)?;
                identical &= without.tokens == with.tokens && without.text == with.text;
                let rates = (plain.count(&without), drafted.count(&with));
                if let (Some(without), Some(with)) = rates {
                    ratios.push(with / without);
                    output::stderr_line(&format!(
                        "{}, prompt {number} of {}: {without:.1} plain, {with:.1} tokens/s",
                        output::printable(&draft.to_string()),
                        self.prompts.len()
                    ));
                }
                add(&mut figures, with.speculation);
            }
        }
        let figures =
            figures.ok_or_else(|| Exit::failed(anyhow::anyhow!("nothing was drafted")))?;
        Ok(self.report(draft, [plain, drafted], &ratios, &figures, identical))
    }

    /// Answers a prompt that is read from its first token on.
    fn answer(
        &self,
        engine: &mut Engine,
        prompt: &[TokenId],
        tokens: usize,
        speculation: Speculation,
    ) -> Result<Completion, Exit> {
        let request = Request {
            max_tokens: Some(tokens),
            speculation,
            ..Request::new(prompt.to_vec(), self.sampling.clone())
        };
        engine.forget();
        let completion = engine.generate(&request, &mut |_| match interrupt::requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        let completion = completion.map_err(engine_error)?;
        match completion.finish_reason {
            FinishReason::Cancelled => Err(Exit::Interrupted),
            _ => Ok(completion),
        }
    }

    fn report(
        &self,
        draft: &Draft,
        [plain, drafted]: [Side; 2],
        ratios: &[f64],
        figures: &SpeculationFigures,
        identical: bool,
    ) -> DraftReport {
        let (greedy, seeded) = (self.args.temperature == 0.0, self.args.seed.is_some());
        let rule = self.speculation.verify.resolve(seeded, greedy);
        // Otherwise two texts of one distribution were compared, which are rarely the same.
        let is_promised = greedy || (seeded && rule == VerifyRule::Coupled);
        DraftReport {
            draft: draft.to_string(),
            verify: figures.verify,
            tree: self.args.draft.tree_name(),
            draft_max: self.speculation.nodes(),
            batch: 1,
            temperature: self.args.temperature,
            seed: self.args.seed,
            prompts: match &self.args.prompts {
                Some(path) => path.display().to_string(),
                None => "built in".to_owned(),
            },
            prompt_count: self.prompts.len(),
            plain_tokens_per_s: Spread::of(&plain.rates),
            tokens_per_s: Spread::of(&drafted.rates),
            ratio: Spread::of(ratios),
            identical: is_promised.then_some(identical),
            tokens_per_step: figures.tokens_per_step(),
            acceptance_rate: figures.acceptance_rate(),
            accepted_by_depth: figures.acceptance_by_depth(),
            plain_step: StepReport::new(plain.steps, &plain.phases),
            step: StepReport::new(drafted.steps, &drafted.phases),
        }
    }
}

impl Side {
    /// Counts an answer, and gives its tokens a second after those that came with the prompt's last pass: none where
    /// nothing came after them.
    fn count(&mut self, completion: &Completion) -> Option<f64> {
        let timings = &completion.timings;
        self.steps += timings.steps;
        self.phases += timings.decode;
        let tokens = completion.tokens.len() - timings.first_tokens;
        if tokens == 0 || timings.decode_seconds <= 0.0 {
            return None;
        }
        let rate = tokens as f64 / timings.decode_seconds;
        self.rates.push(rate);
        Some(rate)
    }
}

/// Adds what speculation did for one more answer.
fn add(sum: &mut Option<SpeculationFigures>, more: Option<SpeculationFigures>) {
    let (Some(sum), Some(more)) = (sum.as_mut(), &more) else {
        *sum = sum.take().or(more);
        return;
    };
    sum.steps += more.steps;
    sum.emitted += more.emitted;
    sum.drafted += more.drafted;
    sum.accepted += more.accepted;
    add_each(&mut sum.offered_by_depth, &more.offered_by_depth);
    add_each(&mut sum.accepted_by_depth, &more.accepted_by_depth);
}

fn add_each(sums: &mut Vec<usize>, more: &[usize]) {
    sums.resize(sums.len().max(more.len()), 0);
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_several_answers_add_up() {
        let figures = |steps, offered: &[usize], accepted: &[usize]| SpeculationFigures {
            drafters: vec!["lookup".into()],
            verify: "coupled",
            steps,
            emitted: 2 * steps,
            drafted: offered.iter().sum(),
            accepted: accepted.iter().sum(),
            offered_by_depth: offered.to_vec(),
            accepted_by_depth: accepted.to_vec(),
        };
        let mut sum = None;
        add(&mut sum, None);
        assert_eq!(sum, None);
        add(&mut sum, Some(figures(3, &[2], &[1])));
        add(&mut sum, Some(figures(5, &[2, 4], &[2, 1])));
        assert_eq!(sum, Some(figures(8, &[4, 4], &[3, 1])));
    }
}
