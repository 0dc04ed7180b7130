//! What a draft changes of an answer: nothing (the cases "Text differs", "Silently wrong", "Penalties", "Trees").

mod common;

use common::drafters::{Sampling, Scripted};
use common::{answer, bits, engine_with, greedy, ids, prompt, tokenizer};
use foredraft_common::{Position, TokenId};
use foredraft_cpu::{CpuBackend, CpuPath};
use foredraft_drafters::ModelDrafter;
use foredraft_drafters::copies::with_noise;
use foredraft_engine::{
    Completion, DraftModel, Engine, EngineOptions, Request, Speculation, SpeculationFigures,
    TreeShape,
};
use foredraft_formats::Checkpoint;
use foredraft_model::kv::KvType;
use foredraft_model::{Backend, Batch, ExecutorOptions, ProgramOptions, program_for, unwatched};
use foredraft_speculate::{
    AllowedTokens, Distribution, Drafter, History, Lookup, NoiseKey, SamplingSettings, Transforms,
    Verify, sample,
};
use foredraft_testing::stories260k;

/// Chains of 1, 3 and 8 and trees of 2x2, 3x3 and 4x2.
fn shapes() -> [Speculation; 6] {
    let speculation = |tree, draft_max| Speculation {
        tree,
        draft_max,
        ..Speculation::default()
    };
    let chain = |nodes| speculation(TreeShape::Chain, Some(nodes));
    let grid = |width, depth| speculation(TreeShape::Grid { width, depth }, None);
    [
        chain(1),
        chain(3),
        chain(8),
        grid(2, 2),
        grid(3, 3),
        grid(4, 2),
    ]
}

fn speculative_engine(threads: usize, kv_type: KvType) -> Engine {
    let options = EngineOptions {
        max_draft_nodes: 39,
        kv_type,
        ..EngineOptions::default()
    };
    engine_with(&stories260k(), threads, &options)
}

/// A seeded request for 200 tokens and their log probabilities; the text may not end by itself.
fn long(temperature: f32, transforms: bool) -> Request {
    let off = SamplingSettings::unchanged();
    let on = SamplingSettings {
        repeat_penalty: 1.15,
        frequency_penalty: 0.3,
        presence_penalty: 0.2,
        top_k: 30,
        top_p: 0.93,
        min_p: 0.02,
        ..off.clone()
    };
    let mut sampling = if transforms { on } else { off };
    sampling.temperature = temperature;
    sampling.seed = Some(11);
    sampling.logit_bias = vec![(TokenId(1), -100.0), (TokenId(2), -100.0)];
    if transforms {
        sampling.logit_bias.push((TokenId(300), 1.5));
    }
    Request {
        max_tokens: Some(200),
        logprobs: Some(2),
        speculation: Speculation::off(),
        ..Request::new(prompt("Once upon a time, Tom"), sampling)
    }
}

fn assert_same(got: &Completion, plain: &Completion, what: &str) {
    assert_eq!(got.tokens, plain.tokens, "{what}");
    assert_eq!(got.text, plain.text, "{what}");
    assert_eq!(bits(got), bits(plain), "{what}");
    assert_eq!(got.finish_reason, plain.finish_reason, "{what}");
}

fn speculative(request: &Request, speculation: Speculation) -> Request {
    Request {
        speculation,
        ..request.clone()
    }
}

fn figures(completion: &Completion) -> &SpeculationFigures {
    completion.speculation.as_ref().expect("it was speculated")
}

/// The answer by definition: row after row through an executor, the transforms, and the draw of the seed's noise.
fn by_definition(request: &Request) -> Vec<TokenId> {
    let checkpoint = stories260k();
    let program = program_for(&checkpoint, &ProgramOptions::default()).expect("a program");
    let options = ExecutorOptions {
        context_tokens: 512,
        pages: vec![1; program.kv_groups.len()],
        kv_type: KvType::F16,
        max_rows: 64,
        max_slots: 512,
        max_outputs: 1,
    };
    let backend = CpuBackend::new(1, CpuPath::Portable).expect("a backend");
    let mut executor = backend
        .load(program, &checkpoint, &options, &mut unwatched)
        .expect("an executor");
    let mut allowed = AllowedTokens::all(512);
    for id in (0..512)
        .map(TokenId)
        .filter(|id| !tokenizer().can_emit(*id))
    {
        allowed.ban(id);
    }
    let (mut batch, mut history) = (Batch::new(), History::new(&request.prompt));
    let groups = vec![&[][..]; options.pages.len()];
    let sequence = batch.add_sequence(0, groups);
    let (mut text, mut parent, mut read) = (request.prompt.clone(), None, 0);
    while text.len() < request.prompt.len() + request.max_tokens.expect("a number") {
        // Nothing is ever committed: all of the text is in flight.
        batch.next_pass();
        for (i, &token) in text.iter().enumerate().skip(read) {
            parent = Some(batch.push(sequence, token, parent, i + 1 == text.len()));
        }
        read = text.len();
        executor.forward(&batch).expect("a pass");
        let mut p = Distribution::one_hot(TokenId(0));
        Transforms::new()
            .apply(
                executor.logits(0),
                &request.sampling,
                history.view(),
                &allowed,
                &mut p,
            )
            .expect("a distribution");
        let token = sample(
            &p,
            &NoiseKey {
                seed: request.sampling.seed.expect("a seed"),
                choice: request.choice,
                position: Position(text.len() as u32),
            },
        );
        text.push(token);
        history.push(token);
    }
    text.split_off(request.prompt.len())
}

#[test]
fn plain_decoding_is_its_definition() {
    let mut engine = speculative_engine(1, KvType::F16);
    for (temperature, transforms, choice) in [(0.7, true, 0), (1.3, false, 2), (0.0, true, 0)] {
        let request = Request {
            choice,
            ..long(temperature, transforms)
        };
        assert_eq!(
            answer(&mut engine, &request).tokens,
            by_definition(&request)
        );
    }
}

/// Ids, text and log probabilities, as bits: every drafter, shape, temperature and number of threads.
fn text_equals_plain(transforms: bool) {
    for (threads, temperatures) in [(1, &[0.0, 0.7, 1.3][..]), (2, &[0.7])] {
        let mut engine = speculative_engine(threads, KvType::F16);
        for (t, &temperature) in temperatures.iter().enumerate() {
            let request = long(temperature, transforms);
            engine.set_drafters(Vec::new());
            let plain = answer(&mut engine, &request);
            assert_eq!((plain.tokens.len(), plain.logprobs.len()), (200, 200));
            for (s, shape) in shapes().into_iter().enumerate() {
                let verify = [Verify::Auto, Verify::Coupled][(s + t + threads) % 2];
                let request = speculative(&request, Speculation { verify, ..shape });
                let scripted = Scripted::new(&[&request.prompt, &plain.tokens], 5);
                let drafters: [Box<dyn Drafter + Send>; 2] =
                    [Box::new(Lookup::new(0)), Box::new(scripted)];
                for drafter in drafters {
                    let name = drafter.name().to_owned();
                    engine.set_drafters(vec![drafter]);
                    let got = answer(&mut engine, &request);
                    let what = format!("{name} {shape:?} t {temperature}, {threads} threads");
                    assert_same(&got, &plain, &what);
                    if name == "scripted" {
                        let f = figures(&got);
                        assert!(f.accepted > 50 && f.drafted > f.accepted, "{what}: {f:?}");
                        assert!(f.steps < 150 && f.emitted == 200, "{what}: {f:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn text_differs_no_draft_changes_a_bit() {
    text_equals_plain(false);
}

#[test]
fn penalties_and_truncation_see_the_drafted_tokens_as_plain_decoding_would() {
    text_equals_plain(true);
}

/// A draft that is a model: stories260K with noise on its weights, which agrees with itself often and not always.
#[test]
fn text_differs_not_with_a_model_as_the_draft() {
    let (model, noisy) = (stories260k(), with_noise(&stories260k(), 0.15, 1));
    let noisy = Checkpoint::from_bytes(noisy.expect("a copy")).expect("a model");
    let backend = CpuBackend::new(1, CpuPath::detect()).expect("a backend");
    let options = EngineOptions {
        max_draft_nodes: 39,
        ..EngineOptions::default()
    };
    let loaded = Engine::load_with_drafts(
        &model,
        &[&noisy],
        tokenizer(),
        &backend,
        &options,
        &mut unwatched,
    );
    let (mut engine, mut drafts) = loaded.expect("both");
    let DraftModel { executor, options } = drafts.remove(0);
    let drafter = ModelDrafter::new("model", 0, executor, options);
    engine.set_drafters(vec![Box::new(drafter)]);
    for (temperature, transforms) in [(0.0, true), (0.7, false), (1.3, true)] {
        let request = long(temperature, transforms);
        let plain = answer(&mut engine, &request);
        for shape in shapes() {
            let got = answer(&mut engine, &speculative(&request, shape));
            assert_same(&got, &plain, &format!("{shape:?} t {temperature}"));
            let f = figures(&got);
            assert!(f.accepted > 10 && f.drafted > f.accepted, "{f:?}");
        }
    }
}

/// A step of a tree whose accepted path lies scattered in the scratch: what is committed must be what was accepted.
#[test]
fn trees_commit_scattered_slots_and_the_next_answer_reads_them() {
    let mut engine = speculative_engine(2, KvType::F16);
    let request = long(0.0, false);
    let plain = answer(&mut engine, &request);
    let scripted = Scripted::new(&[&request.prompt, &plain.tokens], 7);
    engine.set_drafters(vec![Box::new(scripted)]);
    let grid = shapes()[4];
    let got = answer(&mut engine, &speculative(&request, grid));
    assert_same(&got, &plain, "3x3");
    // All but the last token stand in pages that speculation wrote: an answer that goes on from them is the same.
    let text = [request.prompt.as_slice(), &plain.tokens].concat();
    let more = greedy(text, 60);
    let from_cache = answer(&mut engine, &more);
    assert_eq!(from_cache.usage.cached_tokens, more.prompt.len() - 1);
    let fresh = answer(&mut speculative_engine(1, KvType::F16), &more);
    assert_eq!(from_cache.tokens, fresh.tokens);
}

#[test]
fn text_differs_neither_by_chunks_nor_by_8_bit_pages() {
    for kv_type in [KvType::F16, KvType::Q8] {
        let mut engine = speculative_engine(2, kv_type);
        let generated = answer(&mut engine, &greedy(ids(&[1]), 420));
        // 300 tokens: a chunk of 256, and one of 44 that carries a tree.
        let start = [&ids(&[1])[..], &generated.tokens[..299]].concat();
        let expected = &generated.tokens[299..419];
        let request = greedy(start.clone(), 120);
        let mut fresh = speculative_engine(1, kv_type);
        assert_eq!(answer(&mut fresh, &request).tokens, expected, "{kv_type:?}");
        for speculation in shapes() {
            let scripted = Scripted::new(&[&start, expected], 7);
            fresh.forget();
            fresh.set_drafters(vec![Box::new(scripted)]);
            let got = answer(&mut fresh, &speculative(&request, speculation));
            assert_eq!(got.tokens, expected, "{kv_type:?} {speculation:?}");
            assert!(
                got.timings.first_tokens > 1,
                "the prompt's last pass carries a tree"
            );
        }
    }
    let texts = [KvType::F16, KvType::Q8].map(|kv_type| {
        let request = Request {
            logprobs: Some(0),
            ..greedy(ids(&[1]), 50)
        };
        bits(&answer(&mut speculative_engine(1, kv_type), &request))
    });
    assert_ne!(texts[0], texts[1], "8-bit pages are really in use");
}

/// At temperature 0 every rule emits the argmax.
#[test]
fn silently_wrong_temperature_0_is_the_argmax_under_every_rule() {
    let mut engine = speculative_engine(1, KvType::F16);
    let request = Request {
        sampling: SamplingSettings::greedy(),
        ..long(0.0, false)
    };
    let plain = answer(&mut engine, &request);
    let text = [request.prompt.as_slice(), &plain.tokens].concat();
    for verify in [
        Verify::Auto,
        Verify::Rejection,
        Verify::Coupled,
        Verify::Block,
    ] {
        for shape in shapes() {
            engine.set_drafters(vec![Box::new(Sampling(text.clone()))]);
            let request = speculative(&request, Speculation { verify, ..shape });
            let got = answer(&mut engine, &request);
            assert_same(&got, &plain, &format!("{verify:?} {shape:?}"));
        }
    }
}

/// `rejection` and `block` with a seed: their own text, and the same one every time.
#[test]
fn silently_wrong_rejection_with_a_seed_reproduces_itself() {
    let mut engines = [1, 2].map(|threads| speculative_engine(threads, KvType::F16));
    let plain = answer(&mut engines[0], &long(1.0, true));
    let text = [&long(1.0, true).prompt[..], &plain.tokens].concat();
    for verify in [Verify::Rejection, Verify::Block] {
        let [_, short, chain, _, grid, _] = shapes();
        for shape in [short, chain, grid] {
            let mut run = |seed, engine: usize| {
                let mut request = speculative(&long(1.0, true), Speculation { verify, ..shape });
                request.sampling.seed = Some(seed);
                let sampling = Box::new(Sampling(text.clone()));
                engines[engine].set_drafters(vec![Box::new(Lookup::new(0)), sampling]);
                answer(&mut engines[engine], &request)
            };
            let first = run(3, 0);
            assert_same(&run(3, 1), &first, &format!("{verify:?} {shape:?}"));
            assert_ne!(run(4, 0).tokens, first.tokens);
            let figures = figures(&first);
            assert!(figures.drafted > figures.accepted && figures.accepted > 0);
            assert_eq!(figures.verify, format!("{verify:?}").to_lowercase());
        }
    }
}

/// Several drafters: a grid is shared, a chain has one author.
#[test]
fn trees_are_shared_and_chains_are_not() {
    let mut engine = speculative_engine(1, KvType::F16);
    let request = long(0.7, false);
    let plain = answer(&mut engine, &request);
    for shape in shapes() {
        let scripted = |every| Box::new(Scripted::new(&[&request.prompt, &plain.tokens], every));
        let mut fallback = scripted(4);
        fallback.wrong = |number| TokenId(300 + number as u32 % 5);
        engine.set_drafters(vec![Box::new(Lookup::new(0)), scripted(3), fallback]);
        let mut deepest = 0;
        let request = speculative(&request, shape);
        let got = engine
            .generate(&request, &mut |event| {
                if let foredraft_engine::Event::Step(step) = event {
                    deepest = deepest.max(step.tree.len() - 1);
                    if shape.tree == TreeShape::Chain {
                        assert!(step.tree.is_chain());
                    }
                }
                std::ops::ControlFlow::Continue(())
            })
            .expect("an answer");
        assert_same(&got, &plain, &format!("{shape:?}"));
        assert_eq!(
            deepest,
            shape.nodes(),
            "the trees fill their budget, never more"
        );
    }
}
