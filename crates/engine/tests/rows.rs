//! Which row of logits a token comes from, and what of a row counts (the cases "Stop, logprobs" and "Vocabulary").

mod common;

use common::drafters::Scripted;
use common::{answer, engine, engine_with, greedy, prompt, tokenizer};
use foredraft_common::TokenId;
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_drafters::ModelDrafter;
use foredraft_engine::{
    Completion, DraftModel, Engine, EngineOptions, Request, Speculation, TreeShape,
};
use foredraft_formats::Checkpoint;
use foredraft_model::kv::KvType;
use foredraft_model::{Backend, Batch, ExecutorOptions, ProgramOptions, program_for, unwatched};
use foredraft_speculate::{Lookup, SamplingSettings};
use foredraft_testing::{stories260k, stories260k_with};

/// A chain of eight and a tree of three levels.
const SHAPES: [TreeShape; 2] = [TreeShape::Chain, TreeShape::Grid { width: 3, depth: 2 }];

/// 120 tokens at temperature 0.8 under penalties, with the three most probable beside each.
fn request() -> Request {
    Request {
        sampling: SamplingSettings {
            temperature: 0.8,
            seed: Some(4),
            repeat_penalty: 1.2,
            frequency_penalty: 0.3,
            top_k: 40,
            logit_bias: vec![(TokenId(300), 2.0), (TokenId(2), -100.0)],
            ..SamplingSettings::unchanged()
        },
        logprobs: Some(3),
        ..greedy(prompt("Once upon a time"), 120)
    }
}

fn drafted(request: &Request, tree: TreeShape) -> Request {
    let speculation = Speculation {
        tree,
        ..Speculation::default()
    };
    Request {
        speculation,
        ..request.clone()
    }
}

/// The logits after each token of a text, from the model's program run by itself: one path, nothing committed.
fn rows(model: &Checkpoint, text: &[TokenId]) -> Vec<Vec<f32>> {
    let program = program_for(model, &ProgramOptions::default()).expect("a program");
    let options = ExecutorOptions {
        context_tokens: 512,
        pages: vec![1; program.kv_groups.len()],
        kv_type: KvType::F16,
        max_rows: 32,
        max_slots: 512,
        max_outputs: 32,
    };
    let backend = CpuBackend::new(1, CpuPath::Portable).expect("a backend");
    let mut executor = backend
        .load(program, model, &options, &mut unwatched)
        .expect("an executor");
    let mut batch = Batch::new();
    let sequence = batch.add_sequence(0, vec![&[][..]; options.pages.len()]);
    let (mut rows, mut parent) = (Vec::new(), None);
    for tokens in text.chunks(options.max_rows) {
        batch.next_pass();
        for &token in tokens {
            parent = Some(batch.push(sequence, token, parent, true));
        }
        executor.forward(&batch).expect("a pass");
        rows.extend((0..tokens.len()).map(|output| executor.logits(output).to_vec()));
    }
    rows
}

/// ln softmax by its definition.
fn log_probability(row: &[f32], token: TokenId) -> f32 {
    let sum: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
    (f64::from(row[token.index()]) - sum.ln()) as f32
}

fn assert_of_their_rows(got: &Completion, prompt: &[TokenId], what: &str) {
    let text = [prompt, &got.tokens].concat();
    let rows = rows(&stories260k(), &text);
    assert_eq!(got.logprobs.len(), got.tokens.len(), "{what}");
    let own_rows = &rows[prompt.len() - 1..];
    for (place, (logprob, row)) in got.logprobs.iter().zip(own_rows).enumerate() {
        let close = |got: f32, token: TokenId| {
            let expected = log_probability(row, token);
            let off = (got - expected).abs();
            assert!(off < 1e-4, "{what}, token {place}: {got}, not {expected}");
        };
        close(logprob.log_probability, got.tokens[place]);
        let mut ids: Vec<u32> = (0..row.len() as u32).collect();
        ids.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]));
        let top: Vec<u32> = logprob.top.iter().map(|(token, _)| token.0).collect();
        assert_eq!(top, ids[..3], "{what}, token {place}");
        for &(token, got) in &logprob.top {
            close(got, token);
        }
    }
}

/// Of the model's own distribution, before the request's settings, at the very position: for tokens that were drafted, that
/// replace a rejected one, and that follow a whole draft, and also where the answer is cut within a run.
#[test]
fn stop_logprobs_are_of_the_row_that_each_token_was_chosen_from() {
    let request = request();
    let mut engine = engine();
    let plain = answer(&mut engine, &request);
    assert_of_their_rows(&plain, &request.prompt, "plain");
    // Every third step or so ends with a rejection.
    let scripted = Scripted::new(&[&request.prompt, &plain.tokens], 7);
    engine.set_drafters(vec![Box::new(scripted)]);
    for tree in SHAPES {
        for stop in [Vec::new(), vec!["Lily".to_owned()]] {
            let what = format!("{tree:?}, stop {stop:?}");
            let request = Request {
                stop,
                ..drafted(&request, tree)
            };
            let got = answer(&mut engine, &request);
            assert_of_their_rows(&got, &request.prompt, &what);
            assert!(got.speculation.expect("speculated").accepted > 3, "{what}");
        }
    }
}

/// The model padded to twice its vocabulary, with a drafter that is padded too.
fn padded_engine(model: &Checkpoint) -> Engine {
    let backend = CpuBackend::new(1, CpuPath::detect()).expect("a backend");
    let options = EngineOptions::default();
    let loaded = Engine::load_with_drafts(
        model,
        &[model],
        tokenizer(),
        &backend,
        &options,
        &mut unwatched,
    );
    let (mut engine, mut drafts) = loaded.expect("both");
    let DraftModel { executor, options } = drafts.remove(0);
    let drafter = ModelDrafter::new("padded", 1, executor, options);
    engine.set_drafters(vec![Box::new(Lookup::new(0)), Box::new(drafter)]);
    engine
}

/// A table of embeddings that goes on behind the vocabulary, with logits there that would win: neither model nor draft emits
/// one, and no probability is less for it.
#[test]
fn vocabulary_padding_is_never_emitted_and_never_counts() {
    let padded = Checkpoint::from_bytes(stories260k_with(|_| {}, 1024)).expect("a model");
    let text = prompt("Once upon a time, there was");
    let winners = rows(&padded, &text).into_iter().filter(|row| {
        let largest = row.iter().copied().fold(f32::MIN, f32::max);
        row.iter().position(|&logit| logit == largest) >= Some(512)
    });
    assert_eq!(winners.count(), text.len(), "the padding would win");
    let mut original = engine_with(&stories260k(), 1, &EngineOptions::default());
    let mut padded = padded_engine(&padded);
    let greedy = Request {
        sampling: SamplingSettings::greedy(),
        ..request()
    };
    for request in [request(), greedy] {
        let expected = answer(&mut original, &request);
        let plain = Request {
            speculation: Speculation::off(),
            ..request.clone()
        };
        let requests = SHAPES.map(|tree| drafted(&request, tree));
        for request in [plain].iter().chain(&requests) {
            let got = answer(&mut padded, request);
            let what = format!("{:?}", request.speculation);
            assert_eq!(got.tokens, expected.tokens, "{what}");
            assert_eq!(got.logprobs, expected.logprobs, "{what}");
            if let Some(figures) = got.speculation {
                // The draft is the model itself: it is right wherever lookup does not speak.
                assert!(figures.accepted > 60, "{what}: {figures:?}");
            }
        }
    }
}
