//! Real models agree with an independent float32 forward pass (numpy over dequantized weights), teacher-forced.
//!
//! Activations that are rounded to 8 bits differ from float32 a little, so the argmax has to agree wherever the
//! reference's first two logits are further apart than [`MARGIN`]. A model that is not here is skipped, aloud.

use std::path::Path;

use foredraft::common::TokenId;
use foredraft::cpu::{CpuBackend, CpuPath, available_threads};
use foredraft::formats::Checkpoint;
use foredraft::model::kv::{KvType, PageId, pages_for};
use foredraft::model::{
    Backend, Batch, Commit, Executor, ExecutorOptions, ProgramOptions, program_for,
};
use foredraft::models::{CATALOGUE, Store};
use foredraft::text::{ChatRequest, Message, Tokenizer};
use serde_json::Value;

/// Logits: llama.cpp itself differs from the reference up to 0.303.
const MARGIN: f64 = 0.35;
const CHUNK: usize = 32;

struct Case {
    prompt: String,
    prompt_ids: Vec<TokenId>,
    /// Fed one after the other, whatever this program would have said.
    forced: Vec<TokenId>,
    argmax: Vec<TokenId>,
    margin: Vec<f64>,
}

fn cases(file: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(file);
    let golden: Value =
        serde_json::from_slice(&std::fs::read(path).expect("the golden file")).expect("JSON");
    let ids = |value: &Value| -> Vec<TokenId> {
        let list = value.as_array().expect("ids").iter();
        list.map(|id| TokenId(id.as_u64().expect("an id") as u32))
            .collect()
    };
    let read = |case: &Value| Case {
        prompt: case["prompt"].as_str().expect("a prompt").to_owned(),
        prompt_ids: ids(&case["prompt_ids"]),
        forced: ids(&case["llamacpp_greedy"]),
        argmax: ids(&case["np_argmax_teacher_forced"]),
        margin: serde_json::from_value(case["np_margin_top1_top2"].clone()).expect("margins"),
    };
    golden["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .map(read)
        .collect()
}

/// The likeliest token after each of `tokens`, lowest id on ties.
fn argmaxes(executor: &mut dyn Executor, pages: &[PageId], tokens: &[TokenId]) -> Vec<TokenId> {
    let mut batch = Batch::new();
    let mut all = Vec::new();
    for chunk in tokens.chunks(CHUNK) {
        let committed = all.len();
        batch.clear();
        let sequence = batch.add_sequence(committed, [pages]);
        let mut slots = Vec::new();
        for token in chunk {
            slots.push(batch.push(sequence, *token, slots.last().copied(), true));
        }
        executor.forward(&batch).expect("a pass");
        executor.commit(Commit {
            slots: &slots,
            committed,
            tables: &[pages.to_vec()],
        });
        for index in 0..chunk.len() {
            let logits = executor.logits(index);
            let best = (1..logits.len())
                .fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
            all.push(TokenId(best as u32));
        }
    }
    all
}

fn check(alias: &str, golden: &str) {
    let entry = CATALOGUE
        .iter()
        .find(|e| e.alias == alias)
        .expect("an alias");
    let Some(path) = Store::from_env().expect("a store").find(entry) else {
        eprintln!("skipped: {alias} is not here (foredraft pull {alias})");
        return;
    };
    let checkpoint = Checkpoint::open(&path).expect("a checkpoint");
    let tokenizer = Tokenizer::open(checkpoint.vocabulary()).expect("a tokenizer");
    let program = program_for(&checkpoint, &ProgramOptions::default()).expect("a program");
    let context_tokens = 512;
    let options = ExecutorOptions {
        context_tokens,
        pages: vec![pages_for(context_tokens)],
        kv_type: KvType::F16,
        max_rows: CHUNK,
        max_slots: CHUNK,
        max_outputs: CHUNK,
    };
    let backend = CpuBackend::new(available_threads(), CpuPath::detect()).expect("a backend");
    let mut executor = backend
        .load(program, &checkpoint, &options)
        .expect("an executor");
    let pages: Vec<PageId> = (0..pages_for(context_tokens) as u32).map(PageId).collect();
    let (mut positions, mut clear, mut agree) = (0, 0, 0);
    for case in cases(golden) {
        let request = ChatRequest::new(vec![Message::user(case.prompt.as_str())]);
        let encoded = tokenizer.encode_chat(&request).expect("tokens");
        assert_eq!(encoded, case.prompt_ids, "{alias}: the prompt's tokens");

        let mut tokens = case.prompt_ids.clone();
        tokens.extend(&case.forced[..case.forced.len() - 1]);
        let got = argmaxes(executor.as_mut(), &pages, &tokens);
        let got = &got[case.prompt_ids.len() - 1..];
        for (i, (got, expected)) in got.iter().zip(&case.argmax).enumerate() {
            positions += 1;
            agree += usize::from(got == expected);
            if case.margin[i] > MARGIN {
                clear += 1;
                assert_eq!(
                    got, expected,
                    "{alias}, {:?}, token {i}, margin {}",
                    case.prompt, case.margin[i]
                );
            }
        }
    }
    assert!(clear > positions / 2, "most positions have a clear winner");
    eprintln!(
        "{alias}: {agree} of {positions} positions agree, all {clear} with a margin above {MARGIN}"
    );
}

#[test]
fn smollm2_agrees_with_float32() {
    check("smollm2-135m", "smollm2-135m-q4_1.json");
}

#[test]
fn qwen_coder_agrees_with_float32() {
    check("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-q4_k_m.json");
}
