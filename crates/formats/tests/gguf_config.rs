//! Hyperparameters in GGUF metadata: defaults, the variants that writers use, and what is refused.
#![allow(clippy::unwrap_used)]

mod common;

use common::small_llama;
use foredraft_formats::write::GgufWriter;
use foredraft_formats::{Checkpoint, ModelConfig, RopeLayout, RopeScaling};
use foredraft_quant::WeightType;

fn read(edit: impl FnOnce(&mut GgufWriter<'_>)) -> Result<ModelConfig, String> {
    let mut writer = small_llama();
    edit(&mut writer);
    let model = Checkpoint::from_bytes(writer.finish().unwrap()).unwrap();
    model.config().cloned().map_err(|error| error.to_string())
}

#[track_caller]
fn refused(edit: impl FnOnce(&mut GgufWriter<'_>), parts: &[&str]) {
    let message = read(edit).unwrap_err();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn what_is_absent_has_the_formats_defaults() {
    let config = read(|_| {}).unwrap();
    assert_eq!(
        (
            config.layers,
            config.width,
            config.ffn_width,
            config.vocabulary
        ),
        (2, 64, 96, 10)
    );
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (4, 2, 16));
    assert_eq!((config.rope.base, config.rope.dims), (10_000.0, 16));
    assert_eq!(
        (config.rope.layout, config.rope.scaling),
        (RopeLayout::Interleaved, RopeScaling::None)
    );
    assert_eq!((config.window, config.tied_embeddings), (None, true));
}

#[test]
fn head_width_is_its_own_number() {
    let wide = |w: &mut GgufWriter<'_>| {
        w.u32("llama.attention.key_length", 32)
            .u32("llama.attention.value_length", 32);
    };
    assert_eq!(read(wide).unwrap().head_dim, 32);
    refused(
        |w| {
            w.u32("llama.attention.key_length", 32)
                .u32("llama.attention.value_length", 16);
        },
        &["`llama.attention.value_length`", "16", "32"],
    );
}

#[test]
fn counts_may_be_arrays_when_all_layers_agree() {
    let same = read(|w| {
        w.u32_array("llama.attention.head_count_kv", &[4, 4]);
    });
    assert_eq!(same.unwrap().kv_heads, 4);
    refused(
        |w| {
            w.u32_array("llama.attention.head_count_kv", &[4, 2]);
        },
        &[
            "`llama.attention.head_count_kv`",
            "different value in each layer",
        ],
    );
    refused(
        |w| {
            w.u32_array("llama.attention.head_count_kv", &[]);
        },
        &["the array is empty"],
    );
}

#[test]
fn rope_layout_follows_the_architecture() {
    for (architecture, layout) in [
        ("llama", RopeLayout::Interleaved),
        ("qwen2", RopeLayout::Halves),
        ("qwen3", RopeLayout::Halves),
    ] {
        let model = Checkpoint::from_bytes(small_llama().finish().unwrap()).unwrap();
        let mut writer = GgufWriter::new();
        for key in model
            .metadata()
            .unwrap()
            .keys()
            .filter(|key| key.starts_with("llama."))
        {
            let value = model.metadata().unwrap().value(key).unwrap();
            let key = key.replace("llama", architecture);
            match value {
                foredraft_formats::Value::Unsigned(value) => writer.u32(&key, value as u32),
                foredraft_formats::Value::F32(value) => writer.f32(&key, value),
                other => panic!("{other}"),
            };
        }
        writer
            .str("general.architecture", architecture)
            .u32(&format!("{architecture}.vocab_size"), 10);
        let model = Checkpoint::from_bytes(writer.finish().unwrap()).unwrap();
        assert_eq!(model.config().unwrap().rope.layout, layout);
    }
}

#[test]
fn rope_scaling() {
    let scaling = |edit: fn(&mut GgufWriter<'_>)| read(edit).map(|config| config.rope.scaling);
    let linear = Ok(RopeScaling::Linear { factor: 4.0 });
    assert_eq!(
        scaling(|w| {
            w.str("llama.rope.scaling.type", "linear")
                .f32("llama.rope.scaling.factor", 4.0);
        }),
        linear
    );
    assert_eq!(
        scaling(|w| {
            w.f32("llama.rope.scale_linear", 4.0);
        }),
        linear
    );
    assert_eq!(
        scaling(|w| {
            w.f32("llama.rope.scaling.factor", 0.0);
        }),
        Ok(RopeScaling::None)
    );
    assert_eq!(
        scaling(|w| {
            w.str("llama.rope.scaling.type", "none")
                .f32("llama.rope.scaling.factor", 4.0);
        }),
        Ok(RopeScaling::None)
    );
    let yarn = scaling(|w| {
        w.str("llama.rope.scaling.type", "yarn")
            .f32("llama.rope.scaling.factor", 4.0)
            .u32("llama.rope.scaling.original_context_length", 32)
            .f32("llama.rope.scaling.attn_factor", 2.0);
    });
    let Ok(RopeScaling::Yarn {
        attention_factor: Some(magnitude),
        original_context: 32,
        ..
    }) = yarn
    else {
        panic!("{yarn:?}")
    };
    // 2 * (0.1 ln 4 + 1) = 2.2772589
    assert!((magnitude - 2.277_258_9).abs() < 1e-6, "{magnitude}");
    for kind in ["longrope", "dynamic"] {
        refused(
            |w| {
                w.str("llama.rope.scaling.type", kind);
            },
            &["`llama.rope.scaling.type`", kind],
        );
    }
    refused(
        |w| {
            w.i32_array("llama.rope.dimension_sections", &[1, 2, 3]);
        },
        &["mrope", "not supported"],
    );
}

#[test]
fn rope_factors_are_a_tensor() {
    let bytes = |factors: &[f32]| {
        factors
            .iter()
            .flat_map(|f| f.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let with = |factors: &[f32]| {
        let (count, data) = (factors.len(), bytes(factors));
        read(|w| {
            w.tensor("rope_freqs.weight", WeightType::F32, &[count], data);
        })
    };
    let factors = [1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0];
    assert_eq!(
        with(&factors).unwrap().rope.scaling,
        RopeScaling::Factors(factors.to_vec())
    );
    assert!(
        with(&factors[..4])
            .unwrap_err()
            .contains("4 factors for 16 rotated dimensions")
    );
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let mut factors = factors;
        factors[3] = bad;
        assert!(with(&factors).unwrap_err().contains("`rope_freqs.weight`"));
    }
    refused(
        |w| {
            w.tensor("rope_freqs.weight", WeightType::F16, &[8], vec![0; 16]);
        },
        &["`rope_freqs.weight`: type", "F16"],
    );
    let data = bytes(&factors);
    refused(
        |w| {
            w.tensor("rope_freqs.weight", WeightType::F32, &[8], data)
                .f32("llama.rope.scaling.factor", 2.0);
        },
        &["together with the tensor `rope_freqs.weight`"],
    );
}

#[test]
fn every_hyperparameter_is_checked() {
    for (key, value, parts) in [
        ("llama.block_count", 0, ["number of layers", "zero"]),
        ("llama.block_count", 1 << 30, ["number of layers", "1024"]),
        ("llama.embedding_length", 0, ["width of the model", "zero"]),
        ("llama.embedding_length", 66, ["4 heads", "66"]),
        (
            "llama.feed_forward_length",
            u32::MAX,
            ["feed-forward", "4294967295"],
        ),
        ("llama.attention.head_count", 0, ["0 heads", "width"]),
        (
            "llama.attention.head_count_kv",
            0,
            ["key-value heads", "zero"],
        ),
        (
            "llama.attention.head_count_kv",
            3,
            ["3 does not divide", "4 heads"],
        ),
        ("llama.context_length", 0, ["context length", "zero"]),
        (
            "llama.rope.dimension_count",
            18,
            ["rotated dimensions", "18"],
        ),
        ("llama.rope.dimension_count", 7, ["rotated dimensions", "7"]),
        ("llama.expert_count", 8, ["`llama.expert_count`", "8"]),
        (
            "llama.attention.key_length",
            1 << 20,
            ["width of a head", "4096"],
        ),
    ] {
        refused(
            |w| {
                w.u32(key, value);
            },
            &parts,
        );
    }
    for (key, value) in [
        ("llama.attention.layer_norm_rms_epsilon", f32::NAN),
        ("llama.attention.layer_norm_rms_epsilon", 0.0),
        ("llama.rope.freq_base", f32::INFINITY),
        ("llama.rope.freq_base", -1.0),
    ] {
        refused(
            |w| {
                w.f32(key, value);
            },
            &["not a finite number above zero"],
        );
    }
    refused(
        |w| {
            w.str("llama.block_count", "2");
        },
        &["`llama.block_count`", "the string `2`"],
    );
    refused(
        |w| {
            w.str_array("tokenizer.ggml.tokens", &["t"; 11]);
        },
        &["`token_embd.weight`", "11 tokens", "10 rows"],
    );
    assert!(
        read(|w| {
            w.str_array("tokenizer.ggml.tokens", &["t"; 9]);
        })
        .is_ok(),
        "padding is fine"
    );
}

#[test]
fn a_missing_hyperparameter_is_named() {
    let mut writer = GgufWriter::new();
    writer
        .str("general.architecture", "llama")
        .u32("llama.embedding_length", 64);
    let model = Checkpoint::from_bytes(writer.finish().unwrap()).unwrap();
    let message = model.config().unwrap_err().to_string();
    assert!(
        message.contains("metadata `llama.attention.head_count` is missing"),
        "{message}"
    );
    let model = Checkpoint::from_bytes(GgufWriter::new().finish().unwrap()).unwrap();
    assert!(
        model
            .config()
            .unwrap_err()
            .to_string()
            .contains("`general.architecture` is missing")
    );
    let mut writer = GgufWriter::new();
    writer.str("general.architecture", "mamba");
    let model = Checkpoint::from_bytes(writer.finish().unwrap()).unwrap();
    let message = model.config().unwrap_err().to_string();
    assert!(
        message.contains("the architecture `mamba` is not supported"),
        "{message}"
    );
}
