//! `config.json` in the forms that real models ship, and what is refused in it.
#![allow(clippy::unwrap_used)]

mod common;

use common::hf_config;
use foredraft_formats::{ModelConfig, RopeLayout, RopeScaling};

/// The configuration of a small llama with more keys.
fn read(more: &str) -> ModelConfig {
    ModelConfig::from_hf_json(&hf_config(more)).unwrap()
}

/// The message that refuses a small llama with more keys.
fn refusal(more: &str) -> String {
    ModelConfig::from_hf_json(&hf_config(more))
        .expect_err(more)
        .to_string()
}

/// The configuration of another architecture.
fn of_class(class: &str, more: &str) -> Result<ModelConfig, String> {
    let text = hf_config(more).replace("LlamaForCausalLM", class);
    ModelConfig::from_hf_json(&text).map_err(|error| error.to_string())
}

#[test]
fn what_is_absent_has_transformers_defaults() {
    let config = read("");
    assert_eq!((config.layers, config.width, config.ffn_width), (2, 64, 96));
    assert_eq!((config.heads, config.kv_heads, config.head_dim), (4, 2, 16));
    assert_eq!((config.vocabulary, config.context_tokens), (10, 128));
    assert_eq!(
        (config.norm_eps, config.window, config.tied_embeddings),
        (1e-5, None, false)
    );
    assert_eq!((config.rope.base, config.rope.dims), (10_000.0, 16));
    assert_eq!(
        (config.rope.layout, config.rope.scaling),
        (RopeLayout::Halves, RopeScaling::None)
    );
    let text = hf_config("").replace(r#""num_key_value_heads": 2,"#, "");
    assert_eq!(ModelConfig::from_hf_json(&text).unwrap().kv_heads, 4);
}

#[test]
fn llama_3_1() {
    // From the config.json of Meta-Llama-3.1-8B-Instruct.
    let config = read(
        r#", "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}"#,
    );
    assert_eq!(config.rope.base, 500_000.0);
    let scaling = RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_context: 8192,
    };
    assert_eq!(config.rope.scaling, scaling);
}

#[test]
fn rope_parameters_of_version_5() {
    let config = read(r#", "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}"#);
    assert_eq!(
        (config.rope.base, config.rope.scaling),
        (1e6, RopeScaling::None)
    );
    let config =
        read(r#", "rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4}"#);
    assert_eq!(
        (config.rope.base, config.rope.scaling),
        (5e5, RopeScaling::Linear { factor: 4.0 })
    );
    let per_layer = r#", "rope_parameters": {"full_attention": {"rope_type": "default"}}"#;
    assert!(
        refusal(per_layer).contains("`rope_parameters.full_attention`"),
        "{}",
        refusal(per_layer)
    );
}

#[test]
fn yarn() {
    // As the model card of Qwen2.5 tells users to write it; "type" is the older key.
    let config = read(
        r#", "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}"#,
    );
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 32768,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: None,
    };
    assert_eq!(config.rope.scaling, expected);
    // DeepSeek's mscale pair: equal values cancel.
    let config = read(
        r#", "rope_scaling": {"factor": 40, "mscale": 0.7, "mscale_all_dim": 0.7, "type": "yarn"}"#,
    );
    let RopeScaling::Yarn {
        attention_factor,
        original_context,
        ..
    } = config.rope.scaling
    else {
        panic!("not YaRN")
    };
    assert_eq!((attention_factor, original_context), (Some(1.0), 128));
}

#[test]
fn unsupported_scalings_are_refused_by_name() {
    for kind in ["dynamic", "longrope", "su", "mrope", "proportional"] {
        let message = refusal(&format!(
            r#", "rope_scaling": {{"type": "{kind}", "factor": 2.0}}"#
        ));
        assert!(
            message.contains(&format!("`{kind}` is not supported")),
            "{message}"
        );
    }
    assert!(
        refusal(r#", "rope_scaling": {"type": "linear"}"#)
            .contains("`rope_scaling.factor` is missing")
    );
    assert!(refusal(r#", "rope_scaling": {"type": "linear", "factor": 0}"#).contains("above zero"));
    assert!(refusal(r#", "rope_scaling": {"type": "linear", "factor": -2.5}"#).contains("-2.5"));
}

#[test]
fn qwen3_has_heads_wider_than_the_model() {
    // From the config.json of Qwen3-0.6B: 16 heads of 128 in a model of 1024.
    let text = r#"{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "use_sliding_window": false, "vocab_size": 151936}"#;
    let config = ModelConfig::from_hf_json(text).unwrap();
    assert_eq!(config.architecture, "qwen3");
    assert_eq!(
        (config.heads, config.kv_heads, config.head_dim, config.width),
        (16, 8, 128, 1024)
    );
    assert_eq!(
        (config.window, config.tied_embeddings, config.rope.base),
        (None, true, 1e6)
    );
}

#[test]
fn the_sliding_window_counts_where_transformers_counts_it() {
    let window = r#", "sliding_window": 4096"#;
    assert_eq!(read(window).window, None);
    let mistral = of_class("MistralForCausalLM", window).unwrap();
    assert_eq!(
        (mistral.architecture.as_str(), mistral.window),
        ("llama", Some(4096))
    );
    assert_eq!(
        of_class("MistralForCausalLM", r#", "sliding_window": null"#)
            .unwrap()
            .window,
        None
    );
    assert_eq!(
        of_class("MistralForCausalLM", "").unwrap().window,
        Some(4096)
    );

    let qwen = |more: &str| {
        of_class(
            "Qwen2ForCausalLM",
            &format!(r#", "sliding_window": 32{more}"#),
        )
    };
    assert_eq!(qwen("").unwrap().window, None);
    assert_eq!(
        qwen(r#", "use_sliding_window": false, "max_window_layers": 0"#)
            .unwrap()
            .window,
        None
    );
    let sliding = r#", "use_sliding_window": true, "max_window_layers""#;
    assert_eq!(qwen(&format!("{sliding}: 0")).unwrap().window, Some(32));
    assert_eq!(qwen(&format!("{sliding}: 2")).unwrap().window, None);
    let mixture = qwen(&format!("{sliding}: 1")).unwrap_err();
    assert!(
        mixture.contains("`sliding_window` in 1 of 2 layers is not supported"),
        "{mixture}"
    );

    let types = |kinds: &str| {
        qwen(&format!(
            r#", "use_sliding_window": true, "layer_types": [{kinds}]"#
        ))
    };
    assert_eq!(
        types(r#""full_attention", "full_attention""#)
            .unwrap()
            .window,
        None
    );
    assert_eq!(
        types(r#""sliding_attention", "sliding_attention""#)
            .unwrap()
            .window,
        Some(32)
    );
    assert!(
        types(r#""sliding_attention", "full_attention""#)
            .unwrap_err()
            .contains("1 of 2")
    );
    assert!(
        types(r#""full_attention""#)
            .unwrap_err()
            .contains("1 entries for 2 layers")
    );
    assert!(
        types(r#""full_attention", "linear_attention""#)
            .unwrap_err()
            .contains("`linear_attention`")
    );
}

#[test]
fn other_architectures_are_refused_by_name() {
    // One whose keys differ fails here with its name; one whose keys agree is named by `architecture`.
    let error =
        ModelConfig::from_hf_json(r#"{"architectures": ["GPT2LMHeadModel"], "n_embd": 768}"#);
    let message = error.unwrap_err().to_string();
    assert!(
        message.contains("the architecture `GPT2LMHeadModel` is not supported"),
        "{message}"
    );
    assert!(message.contains("llama, qwen2, qwen3"), "{message}");
    assert_eq!(
        of_class("GemmaForCausalLM", "").unwrap().architecture,
        "GemmaForCausalLM"
    );
    let text = hf_config(r#", "model_type": "qwen2""#)
        .replace(r#""architectures": ["LlamaForCausalLM"],"#, "");
    assert_eq!(
        ModelConfig::from_hf_json(&text).unwrap().architecture,
        "qwen2"
    );
    let message = ModelConfig::from_hf_json("{}").unwrap_err().to_string();
    assert!(message.contains("`architectures` is missing"), "{message}");
}

#[test]
fn what_would_change_the_arithmetic_is_refused() {
    let message = refusal(r#", "quantization_config": {"quant_method": "gptq", "bits": 4}"#);
    assert!(
        message.contains("`quantization_config` `gptq` is not supported"),
        "{message}"
    );
    let message = refusal(r#", "hidden_act": "gelu""#);
    assert!(message.contains("`hidden_act` `gelu`"), "{message}");
}

#[test]
fn every_hyperparameter_is_checked() {
    let replaced = |key: &str, value: &str| {
        let text = hf_config("");
        let start = text.find(&format!("\"{key}\"")).unwrap() + key.len() + 2;
        let end = start + text[start..].find([',', '}']).unwrap();
        let text = format!("{}: {value}{}", &text[..start], &text[end..]);
        ModelConfig::from_hf_json(&text).expect_err(key).to_string()
    };
    for (key, value, part) in [
        ("num_hidden_layers", "0", "number of layers: it is zero"),
        ("num_hidden_layers", "1025", "the limit is 1024"),
        (
            "num_hidden_layers",
            "18446744073709551615",
            "the number of layers",
        ),
        ("num_hidden_layers", "-1", "expected a count"),
        ("num_hidden_layers", "2.0", "expected a count"),
        ("num_hidden_layers", "\"2\"", "is `2`, expected a count"),
        (
            "num_hidden_layers",
            "null",
            "`num_hidden_layers` is missing",
        ),
        ("hidden_size", "0", "it is zero"),
        ("hidden_size", "65", "4 heads do not divide the width 65"),
        ("hidden_size", "4194304", "the limit is 1048576"),
        ("intermediate_size", "0", "feed-forward"),
        ("intermediate_size", "8388608", "the limit is 4194304"),
        ("num_attention_heads", "0", "heads"),
        ("num_key_value_heads", "0", "it is zero"),
        ("num_key_value_heads", "3", "3 does not divide the 4 heads"),
        ("num_key_value_heads", "8", "8 does not divide the 4 heads"),
        ("vocab_size", "0", "vocabulary: it is zero"),
        ("vocab_size", "4294967296", "vocabulary"),
        ("max_position_embeddings", "0", "context length: it is zero"),
        ("rms_norm_eps", "0", "epsilon"),
        ("rms_norm_eps", "-1e-5", "epsilon"),
        ("rms_norm_eps", "1e300", "epsilon"),
        ("rms_norm_eps", "1.0", "not small"),
    ] {
        let message = replaced(key, value);
        assert!(
            message.starts_with("config.json: ") && message.contains(part),
            "{key} {value}: {message}"
        );
    }
    for (more, part) in [
        (r#", "head_dim": 0"#, "width of a head: it is zero"),
        (
            r#", "head_dim": 15"#,
            "rotated dimensions: 15 is not an even number",
        ),
        (r#", "head_dim": 8192"#, "the limit is 4096"),
        (r#", "rope_theta": 0"#, "base of the rotary embedding"),
        (r#", "partial_rotary_factor": 1.5"#, "1.5"),
        (
            r#", "partial_rotary_factor": 0.01"#,
            "rotated dimensions: 0",
        ),
        (r#", "vocab_size": 10"#, "occurs twice"),
        (r#", "rope_scaling": [1]"#, "expected an object"),
    ] {
        let message = refusal(more);
        assert!(message.contains(part), "{more}: {message}");
    }
    assert_eq!(read(r#", "partial_rotary_factor": 0.5"#).rope.dims, 8);
}
