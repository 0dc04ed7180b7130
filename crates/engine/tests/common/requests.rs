//! Requests of every kind.

use foredraft_common::TokenId;
use foredraft_engine::{Request, Speculation, TreeShape};
use foredraft_speculate::{SamplingSettings, Verify};

use super::{greedy, prompt};

/// What is special about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Greedy,
    Sampled,
    Penalised,
    Stopped,
    LongPrompt,
    /// One of three choices with one prompt and seed.
    OfThree,
    Cancelled,
    NotSpeculated,
    Tree,
    /// Sampled drafts, which a seed repeats only if the trees are the same.
    Rejection,
    /// Nothing but the prompt is wanted.
    OnlyRead,
}

/// A request, and when its caller leaves.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) request: Request,
    /// Tokens after which it is cancelled.
    pub(crate) cancelled_after: Option<usize>,
}

const STARTS: [&str; 6] = [
    "Once upon a time",
    "Lily and Tom went to the park. They",
    "One day, a big dog",
    "The cat sat on the mat. The cat sat on",
    "Tim had a red ball. He liked to play with the red ball. One day, Tim and his red ball",
    "Mom said",
];

/// A long text that repeats itself, and begins as some others do.
fn long_prompt(number: usize) -> Vec<TokenId> {
    let start = STARTS[number % 2];
    let words =
        (0..20 + number % 9).map(|i| format!(" and then {} came", STARTS[(number + i) % 6]));
    let mut tokens = prompt(&(start.to_owned() + &words.collect::<String>()));
    tokens.truncate(420);
    tokens
}

fn sampling(number: usize) -> SamplingSettings {
    SamplingSettings {
        temperature: [0.6, 0.9, 1.2][number % 3],
        seed: Some(number as u64 * 7 + 1),
        ..SamplingSettings::unchanged()
    }
}

/// As many requests, of all kinds, in an order that mixes them.
pub(crate) fn mixed(count: usize) -> Vec<Case> {
    use Kind::*;
    let kinds = [
        Greedy,
        LongPrompt,
        Sampled,
        OfThree,
        OfThree,
        OfThree,
        Penalised,
        Rejection,
        Stopped,
        Cancelled,
        Tree,
        NotSpeculated,
        OnlyRead,
    ];
    let case = |number| case(number, kinds[number % kinds.len()]);
    (0..count).map(case).collect()
}

fn case(number: usize, kind: Kind) -> Case {
    let start = prompt(STARTS[number * 5 % 6]);
    let mut request = Request {
        sampling: sampling(number),
        logprobs: number.is_multiple_of(2).then_some(number % 3),
        ..greedy(start, 20 + number * 11 % 60)
    };
    let speculation = &mut request.speculation;
    match kind {
        Kind::Greedy => request.sampling = SamplingSettings::greedy(),
        Kind::Sampled => speculation.draft_max = Some(1 + number % 12),
        Kind::Penalised => {
            request.sampling.repeat_penalty = 1.2;
            request.sampling.frequency_penalty = 0.4;
            request.sampling.top_k = 40;
            request.sampling.top_p = 0.9;
            request.sampling.logit_bias = vec![(TokenId(300), 2.0), (TokenId(2), -100.0)];
        }
        Kind::Stopped => request.stop = vec!["the".into(), ". S".into()],
        Kind::LongPrompt => request.prompt = long_prompt(number),
        Kind::OfThree => {
            // The three next to each other are of one request.
            let first = number - (number % 13 - 3);
            request.prompt = long_prompt(first);
            request.sampling = sampling(first);
            request.choice = (number - first) as u32;
        }
        Kind::Cancelled | Kind::OnlyRead => {}
        Kind::NotSpeculated => *speculation = Speculation::off(),
        Kind::Tree => {
            let (width, depth) = [(2, 2), (3, 3), (4, 2)][number % 3];
            speculation.tree = TreeShape::Grid { width, depth };
            speculation.draft_max = Some(31);
        }
        Kind::Rejection => {
            speculation.verify = [Verify::Rejection, Verify::Block][number % 2];
            speculation.draft_max = Some(2 + number % 7);
        }
    }
    if kind == Kind::OnlyRead {
        request.max_tokens = Some(0);
    }
    Case {
        kind,
        request,
        cancelled_after: (kind == Kind::Cancelled).then_some(1 + number % 17),
    }
}
