//! The audit passes where it should and fails where it should.

use std::ops::ControlFlow;
use std::sync::Arc;

use foredraft::common::{Position, TokenId};
use foredraft::cpu::{CpuBackend, CpuPath};
use foredraft::engine::{EngineOptions, Event, Request, Speculation};
use foredraft::formats::Checkpoint;
use foredraft::model::kv::{KvType, PageId};
use foredraft::model::{
    Backend, Batch, Commit, Executor, ExecutorOptions, PageCopy, ProgramOptions, Slot, program_for,
    unwatched,
};
use foredraft::speculate::{
    Chance, Distribution, DistributionError, DraftDraw, Draw, KeyedChance, NodeIndex, NoiseKey,
    Origin, Replacement, SamplingSettings, Target as Probabilities, TokenTree, Verdict, Verifier,
    Verify, VerifyError, VerifyRule, draw_children,
};
use foredraft::text::Tokenizer;
use foredraft_testing::stories260k;

use super::bits::{self, Bench};
use super::distribution;
use super::drafts::{Drafts, Target};
use super::frequencies::{Exact, LENGTH, Tally, judge};
use super::memo::MemoBackend;
use super::report::{AuditReport, Check, Kind};
use super::steps::Steps;
use crate::args::values::Draft;

fn target() -> Target {
    let checkpoint: Checkpoint = stories260k();
    let tokenizer = Arc::new(Tokenizer::open(checkpoint.vocabulary()).expect("a tokenizer"));
    Target {
        checkpoint,
        tokenizer,
    }
}

fn backend(threads: usize) -> CpuBackend {
    CpuBackend::new(threads, CpuPath::detect()).expect("a backend")
}

fn options() -> EngineOptions {
    EngineOptions {
        context_tokens: Some(super::CONTEXT_TOKENS),
        max_draft_nodes: super::MOST_NODES,
        ..EngineOptions::default()
    }
}

fn noise() -> Vec<Draft> {
    vec![Draft::Model("self-noise".into())]
}

/// Runs `with` on a bench of stories260K.
fn on_bench<T>(drafts: &[Draft], tokens: usize, with: impl FnOnce(&Bench<'_>) -> T) -> T {
    let target = target();
    let drafts = Drafts::open(drafts, &target).expect("drafts");
    let (one, two) = (backend(1), backend(2));
    with(&Bench {
        target: &target,
        drafts: &drafts,
        options: &options(),
        backends: &[(1, &one as &dyn Backend), (2, &two)],
        tokens,
    })
}

/// A covering set of all settings, on answers short enough for every `cargo test`.
#[test]
fn every_answer_is_that_of_plain_decoding() {
    on_bench(&[], 40, |bench| {
        let factors = bits::factors(bench.drafts.sets().len(), 2);
        let rows: Vec<bits::Row> = super::rows(&factors, false)
            .map(|row| bits::Row::new(&row))
            .collect();
        let steps = Steps::new("bits", rows.len());
        let checks = bits::checks(bench, &rows, &steps).expect("checks");
        assert_eq!(checks.len(), rows.len());
        for check in &checks {
            assert_eq!(check.difference, None, "{}", check.name);
            assert_eq!((check.passed, check.samples), (true, 40), "{}", check.name);
        }
        let accepted: u64 = checks.iter().map(|check| check.accepted).sum();
        let drafted: u64 = checks.iter().map(|check| check.drafted).sum();
        assert!(
            accepted > 200 && drafted > accepted + 500,
            "both are tried: {accepted} accepted of {drafted}"
        );
    });
}

/// `rejection` with a seed draws exactly, but other texts than plain decoding: a row that claims more is found out.
#[test]
fn a_rule_that_changes_bits_fails_its_row() {
    on_bench(&noise(), 40, |bench| {
        // The draft, chain 3, temperature 0.7, `auto`, no transforms, one thread.
        let sound = bits::Row::new(&[0, 1, 1, 0, 0, 0]);
        let wrong = bits::Row {
            verify: ("rejection", Verify::Rejection),
            ..sound
        };
        let steps = Steps::new("bits", 2);
        let checks = bits::checks(bench, &[sound, wrong], &steps).expect("checks");
        let passed: Vec<bool> = checks.iter().map(|check| check.passed).collect();
        assert_eq!(passed, [true, false]);
        let difference = checks[1].difference.as_deref().expect("what differs");
        assert!(difference.starts_with("token "), "{difference}");
    });
}

/// One setting of each verifier.
#[test]
fn frequencies_are_those_of_the_model() {
    on_bench(&noise(), 0, |bench| {
        let rows =
            [[0, 0, 1, 0], [0, 1, 0, 4], [0, 2, 1, 1]].map(|row| distribution::Row::new(&row));
        let steps = Steps::new("distribution", rows.len());
        let checks = distribution::checks(bench, &rows, 2500, &steps).expect("checks");
        assert_eq!(checks.len(), 9);
        for check in &checks {
            assert!(check.passed, "{}: {:?}", check.name, check.p_value);
            assert!(check.accepted > 1000 && check.drafted > check.accepted + 1000);
        }
    });
}

/// Emits a draw from p itself where it rejects: what the residual is there to prevent.
struct ResidualForgotten;

impl Verifier for ResidualForgotten {
    fn name(&self) -> &'static str {
        "residual forgotten"
    }

    fn verify(
        &mut self,
        tree: &TokenTree,
        target: &mut dyn Probabilities,
        chance: &mut dyn Chance,
        verdict: &mut Verdict,
    ) -> Result<(), VerifyError> {
        verdict.accepted.clear();
        let mut node = NodeIndex::ROOT;
        loop {
            let depth = tree.depth(node);
            let p = target.distribution(tree, node);
            let p = p.map_err(|source| VerifyError::Distribution { depth, source })?;
            let child = tree.children(node).next();
            let accepted = child.filter(|&child| {
                let (q, _) = tree.sampled(node).expect("a sampled child");
                let [p, q] = [p, q].map(|of| f64::from(of.probability(tree.token(child))));
                chance.accept(depth, 0, p, q)
            });
            let Some(child) = accepted else {
                let kind = child.map_or(Draw::Bonus, |_| Draw::Residual);
                verdict.next = chance.draw(depth, kind, p);
                verdict.origin = child.map_or(Origin::Bonus, |_| Origin::Corrected);
                return Ok(());
            };
            verdict.accepted.push(child);
            node = child;
        }
    }
}

/// The target's probabilities after a text and a path of the tree.
struct Ahead<'e, 'a> {
    exact: &'e mut Exact<'a>,
    text: &'e [TokenId],
    p: Distribution,
}

impl Probabilities for Ahead<'_, '_> {
    fn distribution(
        &mut self,
        tree: &TokenTree,
        node: NodeIndex,
    ) -> Result<&Distribution, DistributionError> {
        let mut path = Vec::new();
        tree.path(node, &mut path);
        let after = self.exact.after(&[self.text, &path].concat());
        self.p = after.expect("the model runs");
        Ok(&self.p)
    }
}

/// A step as the engine makes it, but with any verifier: a chain of two drawn from `q`, verified against `p`.
fn draw(
    verifier: &mut dyn Verifier,
    (p, q): (&mut Exact<'_>, &mut Exact<'_>),
    seed: u64,
) -> [TokenId; LENGTH] {
    let mut text: Vec<TokenId> = Vec::new();
    let mut verdict = Verdict::new();
    while text.len() < LENGTH {
        let position = Position((p.prompt.len() + text.len()) as u32);
        let key = NoiseKey {
            seed,
            choice: 0,
            position,
        };
        let mut tree = TokenTree::new(TokenId(0));
        let mut node = NodeIndex::ROOT;
        for _ in 0..2 {
            let mut path = Vec::new();
            tree.path(node, &mut path);
            let q = q.after(&[text.as_slice(), &path].concat()).expect("q");
            let how = DraftDraw::Sampled(Replacement::Without);
            draw_children(&mut tree, node, &q, how, 1, key, 0);
            node = tree.children(node).next().expect("a child");
        }
        let mut target = Ahead {
            exact: &mut *p,
            text: &text,
            p: Distribution::one_hot(TokenId(0)),
        };
        let mut chance = KeyedChance(key);
        verifier
            .verify(&tree, &mut target, &mut chance, &mut verdict)
            .expect("a verdict");
        text.extend(verdict.accepted.iter().map(|&node| tree.token(node)));
        text.push(verdict.next);
    }
    [text[0], text[1], text[2]]
}

/// The same 20,000 draws, the same tests: a lossy verifier is found in every one of them, the product's in none.
#[test]
fn a_lossy_verifier_is_found_at_once() {
    let target = target();
    let drafts = Drafts::open(&noise(), &target).expect("drafts");
    let backend = backend(1);
    let memo = MemoBackend::new(&backend);
    let mut engine = drafts
        .engine(&[0], &target, &memo, &options())
        .expect("an engine");
    let memos = memo.memos();
    let tokenizer = &target.tokenizer;
    let prompt = tokenizer
        .encode_prompt("Tom had a", foredraft::text::Special::AsText)
        .expect("tokens");
    let sampling = SamplingSettings {
        top_k: 20,
        ..SamplingSettings::unchanged()
    };
    let allowed = distribution::allowed(tokenizer);
    let exact = |memo: usize| Exact::new(&memos[memo], &prompt, &sampling, &allowed);
    let p_values = |verifier: &mut dyn Verifier| {
        let (mut p, mut q) = (exact(0), exact(1));
        let mut tally = Tally::default();
        for seed in 0..20_000 {
            tally.add(draw(verifier, (&mut p, &mut q), seed));
        }
        judge(&tally, &mut p)
            .expect("answers")
            .map(|answer| answer.p_value)
    };
    let sound = p_values(&mut *VerifyRule::Rejection.verifier());
    let lossy = p_values(&mut ResidualForgotten);
    assert!(sound.iter().all(|&p| p > 1e-4), "{sound:?}");
    assert!(lossy.iter().all(|&p| p < 1e-9), "{lossy:?}");
    // And the memo is what makes it cheap: the engine itself, asked the same again, runs no network.
    let request = Request {
        max_tokens: Some(3),
        speculation: Speculation::off(),
        ..Request::new(prompt.clone(), sampling.clone())
    };
    let mut ask = |seed| {
        let mut request = request.clone();
        request.sampling.seed = Some(seed);
        let mut tokens = Vec::new();
        engine
            .generate(&request, &mut |event| {
                if let Event::Token { token, .. } = event {
                    tokens.push(token);
                }
                ControlFlow::Continue(())
            })
            .expect("an answer");
        tokens
    };
    let first = ask(5);
    let computed = memos[0].computed();
    assert_eq!(ask(5), first);
    assert_eq!(memos[0].computed(), computed);
}

/// What the memo says are the bits that the network says.
#[test]
fn a_memo_changes_no_bit() {
    let target = target();
    let drafts = Drafts::open(&noise(), &target).expect("drafts");
    let backend = backend(1);
    let memo = MemoBackend::new(&backend);
    let prompt = target
        .tokenizer
        .encode_prompt(
            "Once upon a time there was a dog and a cat, and the dog was big. Once upon a",
            foredraft::text::Special::AsText,
        )
        .expect("tokens");
    let request = Request {
        max_tokens: Some(60),
        logprobs: Some(2),
        ..Request::new(prompt, SamplingSettings::greedy())
    };
    let mut answers = [&backend as &dyn Backend, &memo].map(|backend| {
        let mut engine = drafts
            .engine(&[0], &target, backend, &options())
            .expect("an engine");
        engine
            .generate(&request, &mut |_| ControlFlow::Continue(()))
            .expect("an answer")
    });
    let [plain, remembered] = &mut answers;
    assert_eq!(plain.tokens, remembered.tokens);
    assert_eq!(plain.logprobs, remembered.logprobs);
    assert_eq!(plain.speculation, remembered.speculation);
}

#[test]
fn a_memo_follows_copied_pages() {
    let (target, backend) = (target(), backend(1));
    let memo = MemoBackend::new(&backend);
    let options = ExecutorOptions {
        context_tokens: 32,
        pages: vec![2],
        kv_type: KvType::F16,
        max_rows: 8,
        max_slots: 8,
        max_outputs: 1,
    };
    let write = |executor: &mut dyn Executor, committed, page, tokens: &[u32]| {
        let tables = [vec![PageId(page)]];
        let mut batch = Batch::new();
        let sequence = batch.add_sequence(committed, tables.iter().map(Vec::as_slice));
        let mut slots: Vec<Slot> = Vec::new();
        for (i, &token) in tokens.iter().enumerate() {
            let (parent, is_last) = (slots.last().copied(), i + 1 == tokens.len());
            slots.push(batch.push(sequence, TokenId(token), parent, is_last));
        }
        executor.forward(&batch).expect("a pass");
        let logits = executor.logits(0).to_vec();
        executor.commit(Commit {
            slots: &slots,
            committed,
            tables: &tables,
        });
        logits
    };
    let [plain, remembered] = [&backend as &dyn Backend, &memo].map(|backend| {
        let model = &target.checkpoint;
        let program = program_for(model, &ProgramOptions::default()).expect("a program");
        let loaded = backend.load(program, model, &options, &mut unwatched);
        let mut executor = loaded.expect("an executor");
        write(&mut *executor, 0, 0, &[1, 403, 407, 261, 378]);
        let (group, from, to) = (0, PageId(0), PageId(1));
        executor.copy_pages(&[PageCopy { group, from, to }]);
        // The first three go on in the second page.
        write(&mut *executor, 3, 1, &[90, 91]);
        [0, 1].map(|page| write(&mut *executor, 5, page, &[30]))
    });
    assert_eq!(plain, remembered);
    assert_ne!(plain[0], plain[1]);
}

#[test]
fn a_failed_check_is_told_in_json_table_and_exit_code() {
    let check = |name: &str, passed: bool, p_value: Option<f64>| Check {
        name: name.into(),
        kind: p_value.map_or(Kind::Bits, |_| Kind::Distribution),
        passed,
        p_value,
        samples: 200,
        drafted: 9,
        accepted: 5,
        repeated: false,
        difference: (!passed).then(|| "token 3 is 7".into()),
    };
    let mut report = AuditReport {
        model: "m".into(),
        passed: false,
        full: false,
        seconds: 1.5,
        notes: Vec::new(),
        checks: vec![check("a", true, Some(1e-7)), check("b", false, None)],
    };
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["passed"], false);
    assert_eq!(json["checks"][0]["kind"], "distribution");
    assert_eq!(json["checks"][0]["p_value"], 1e-7);
    assert_eq!(json["checks"][1]["kind"], "bits");
    assert!(json["checks"][1]["p_value"].is_null());
    assert_eq!(json["checks"][1]["samples"], 200);
    let table = super::report::table(&report);
    assert!(table.contains("1.0e-7") && table.contains("NO"), "{table}");
    assert!(table.ends_with("m: 2 checks, 1 failed, 1.5 s\n"), "{table}");
    assert_eq!(super::outcome(&report).expect_err("a failure").code(), 1);
    report.checks.pop();
    assert!(super::outcome(&report).is_ok());
}
