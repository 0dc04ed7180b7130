//! Whole models: the same one in both formats, vocabularies, real ones.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{hf_config, safetensors, small_llama, stories_gguf, stories_hf, use_all};
use foredraft_formats::{Checkpoint, ModelConfig, RopeLayout, Tensor, VocabularySource};
use foredraft_quant::WeightType;

#[test]
fn stories_says_the_same_in_both_formats() {
    let gguf = Checkpoint::open(&stories_gguf()).unwrap();
    let hf = Checkpoint::open(&stories_hf()).unwrap();
    assert_eq!(
        (gguf.format_name(), hf.format_name()),
        ("GGUF v3", "safetensors")
    );
    assert_eq!((gguf.file_bytes(), hf.file_bytes()), (1_054_432, 1_044_984));
    let ours = gguf.config().unwrap();
    assert_eq!(ours.rope.layout, RopeLayout::Interleaved);
    let mut theirs = ModelConfig {
        name: ours.name.clone(),
        ..hf.config().unwrap().clone()
    };
    assert_eq!(theirs.rope.layout, RopeLayout::Halves);
    theirs.rope.layout = RopeLayout::Interleaved;
    assert_eq!(*ours, theirs);
    // The numbers of karpathy's stories260K: 5 layers, 64 wide, 8 heads of which 4 have keys.
    assert_eq!(
        (ours.layers, ours.width, ours.heads, ours.kv_heads),
        (5, 64, 8, 4)
    );
    assert_eq!(use_all(&gguf) > 0, use_all(&hf) > 0);
}

#[test]
fn stories_has_the_same_weights_in_both_formats() {
    let gguf = Checkpoint::open(&stories_gguf()).unwrap();
    let hf = Checkpoint::open(&stories_hf()).unwrap();
    assert_eq!((gguf.tensors().count(), hf.tensors().count()), (47, 47));
    for ours in gguf.tensors() {
        let theirs = hf
            .tensor(ours.name)
            .unwrap_or_else(|| panic!("{} is missing", ours.name));
        assert_eq!(
            (ours.kind, ours.shape),
            (theirs.kind, theirs.shape),
            "{}",
            ours.name
        );
        if ours.name.contains("attn_q") || ours.name.contains("attn_k") {
            assert_eq!(interleaved(&theirs, 8), ours.data, "{}", ours.name);
        } else {
            assert!(ours.data == theirs.data, "{}", ours.name);
        }
    }
}

/// The rows of q or k in the order of GGUF's llama files: within each head, row `i` of the first half
/// is followed by row `i` of the second (`LlamaModel.permute` of convert_hf_to_gguf.py).
fn interleaved(tensor: &Tensor<'_>, head_dim: usize) -> Vec<u8> {
    let row = tensor.data.len() / tensor.shape.rows();
    let rows: Vec<&[u8]> = tensor.data.chunks(row).collect();
    let heads = rows.chunks(head_dim).flat_map(|head| {
        (0..head_dim / 2).flat_map(move |pair| [head[pair], head[pair + head_dim / 2]])
    });
    heads.flatten().copied().collect()
}

#[test]
fn the_vocabulary_is_where_the_format_keeps_it() {
    let gguf = Checkpoint::open(&stories_gguf()).unwrap();
    let VocabularySource::Gguf(metadata) = gguf.vocabulary() else {
        panic!("no vocabulary")
    };
    let tokens = metadata
        .str_array("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap();
    assert_eq!(
        (tokens.len(), tokens[0], tokens[1], tokens[2]),
        (512, "<unk>", "<s>", "</s>")
    );
    assert_eq!(
        metadata
            .f32_array("tokenizer.ggml.scores")
            .unwrap()
            .unwrap()
            .len(),
        512
    );
    assert_eq!(
        metadata
            .i32_array("tokenizer.ggml.token_type")
            .unwrap()
            .unwrap()[..4],
        [2, 3, 3, 6]
    );
    let hf = Checkpoint::open(&stories_hf()).unwrap();
    let VocabularySource::HuggingFace { directory } = hf.vocabulary() else {
        panic!("no vocabulary")
    };
    assert_eq!(directory, stories_hf());
    let bare = Checkpoint::from_bytes(small_llama().finish().unwrap()).unwrap();
    assert!(matches!(bare.vocabulary(), VocabularySource::None));
}

#[test]
fn bytes_of_the_program_are_a_model() {
    static STORIES: &[u8] = include_bytes!("../../foredraft/assets/stories260K.f32.gguf");
    let model = Checkpoint::from_static("stories260k", STORIES).unwrap();
    assert_eq!(
        (model.path(), model.tensors().count()),
        (Path::new("stories260k"), 47)
    );
    model.release("token_embd.weight", 0..100);
    assert!(
        model
            .tensor_of_shape("token_embd.weight", &[512, 64])
            .is_ok()
    );
    let error = model
        .tensor_of_shape("token_embd.weight", &[64, 512])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("its shape is [512, 64], the configuration asks for [64, 512]"),
        "{error}"
    );
    let error = model
        .tensor_of_shape("blk.5.attn_q.weight", &[64, 64])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("stories260k: tensor `blk.5.attn_q.weight` is missing"),
        "{error}"
    );
}

#[test]
fn a_copied_vocabulary_is_the_same() {
    let stories = Checkpoint::open(&stories_gguf()).unwrap();
    let mut writer = small_llama();
    writer.copy(stories.metadata().unwrap(), |key| {
        key.starts_with("tokenizer.")
    });
    writer.tensor(
        "blk.0.attn_norm.weight",
        WeightType::Q4_0,
        &[2, 32],
        vec![3; 36],
    );
    let copy = Checkpoint::from_bytes(writer.finish().unwrap()).unwrap();
    let tokens = |model: &Checkpoint| {
        let tokens = model
            .metadata()
            .unwrap()
            .str_array("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap();
        tokens.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tokens(&copy), tokens(&stories));
    let tensor = copy.tensor("blk.0.attn_norm.weight").unwrap();
    assert_eq!(
        (tensor.kind, tensor.shape.dims(), tensor.data),
        (WeightType::Q4_0, &[2, 32][..], &[3; 36][..])
    );
}

#[test]
fn what_the_configuration_says_about_the_output_layer_counts() {
    let header = |with_output: bool| {
        let embedding = r#""model.embed_tokens.weight": {"dtype": "F32", "shape": [10, 64], "data_offsets": [0, 2560]}"#;
        let output = r#", "lm_head.weight": {"dtype": "F32", "shape": [10, 64], "data_offsets": [2560, 5120]}"#;
        let json = format!("{{{embedding}{}}}", if with_output { output } else { "" });
        safetensors(&json, if with_output { 5120 } else { 2560 })
    };
    let open = |tie: &str, with_output| {
        Checkpoint::from_safetensors(&hf_config(tie), vec![header(with_output)]).unwrap()
    };
    let tied = |model: &Checkpoint| model.config().unwrap().tied_embeddings;
    let (yes, no) = (
        r#", "tie_word_embeddings": true"#,
        r#", "tie_word_embeddings": false"#,
    );
    for (tie, with_output, expected) in [
        (yes, false, true),
        (yes, true, true),
        (no, true, false),
        ("", true, false),
        ("", false, true),
    ] {
        let model = open(tie, with_output);
        assert_eq!(tied(&model), expected, "{tie} {with_output}");
        assert_eq!(
            model.tensor("output.weight").is_none(),
            expected,
            "{tie} {with_output}"
        );
    }
    let error = open(no, false).config().unwrap_err().to_string();
    assert!(
        error.contains("`lm_head.weight`") && error.contains("missing"),
        "{error}"
    );
    let text = hf_config("").replace("\"vocab_size\": 10", "\"vocab_size\": 11");
    let model = Checkpoint::from_safetensors(&text, vec![header(true)]).unwrap();
    let error = model.config().unwrap_err().to_string();
    assert!(
        error.contains("`vocab_size`: it says 11, the embedding has 10 rows"),
        "{error}"
    );
}

/// The folder with data too large for the repository, if it is there.
fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FOREDRAFT_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")),
        PathBuf::from,
    );
    let path = root.join(name);
    if !path.exists() {
        foredraft_testing::skipped(&format!(
            "{} does not exist (set FOREDRAFT_SHARED)",
            path.display()
        ));
        return None;
    }
    Some(path)
}

#[test]
fn vocabulary_only_files_open() {
    // Numbers of tokens as the gguf Python package reads them.
    for (name, tokens) in [("gpt-2", 50_257), ("qwen2", 151_936), ("starcoder", 49_152)] {
        let Some(path) = shared(&format!("data/vocab/ggml-vocab-{name}.gguf")) else {
            return;
        };
        let model = Checkpoint::open(&path).unwrap();
        assert_eq!(model.tensors().count(), 0);
        let VocabularySource::Gguf(metadata) = model.vocabulary() else {
            panic!("no vocabulary")
        };
        assert_eq!(
            metadata
                .str_array("tokenizer.ggml.tokens")
                .unwrap()
                .unwrap()
                .len(),
            tokens
        );
        assert_eq!(model.config().is_ok(), name == "qwen2");
        use_all(&model);
    }
}

/// SmolLM2, where `foredraft pull smollm2-135m` puts it.
fn smollm2() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = variable("FOREDRAFT_HOME")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("foredraft")))
        .or_else(|| Some(variable("HOME")?.join(".cache/foredraft")))?;
    let path = home.join("models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        foredraft_testing::skipped(&format!(
            "{} does not exist (foredraft pull smollm2-135m)",
            path.display()
        ));
        return None;
    }
    Some(path)
}

#[test]
fn smollm2_opens() {
    let Some(path) = smollm2() else { return };
    let model = Checkpoint::open(&path).unwrap();
    let config = model.config().unwrap();
    assert_eq!(
        (
            config.layers,
            config.width,
            config.ffn_width,
            config.vocabulary
        ),
        (30, 576, 1536, 49_152)
    );
    assert_eq!(
        (
            config.heads,
            config.kv_heads,
            config.head_dim,
            config.context_tokens
        ),
        (9, 3, 64, 8192)
    );
    assert_eq!(
        (model.file_bytes(), model.tensors().count()),
        (98_362_432, 272)
    );
    assert_eq!(
        model.tensor("token_embd.weight").unwrap().kind,
        WeightType::Q8_0
    );
    assert_eq!(
        model
            .tensor_of_shape("blk.29.attn_k.weight", &[192, 576])
            .unwrap()
            .kind,
        WeightType::Q4_1
    );
    use_all(&model);
    model.release("token_embd.weight", 10..20);
    model.release("token_embd.weight", usize::MAX - 1..usize::MAX);
    use_all(&model);
}
