#!/usr/bin/env python3
"""Writes a small seed corpus for each fuzz target to corpus/<target>/. Needs nothing but Python.

    python3 fuzz/seeds.py && cargo +nightly fuzz run gguf -- -max_total_time=600
"""

import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<B", U64: "<Q", I64: "<q", F64: "<d"}


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, item):
    return string(item) if kind == STRING else struct.pack(SCALARS[kind], item)


def pair(key, kind, item):
    if isinstance(item, list):
        elements = b"".join(value(kind, element) for element in item)
        return string(key) + struct.pack("<IIQ", ARRAY, kind, len(item)) + elements
    return string(key) + struct.pack("<I", kind) + value(kind, item)


def gguf(pairs, tensors, version=3, alignment=32):
    """Tensors: name, dimensions innermost first, type, bytes."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs)) + b"".join(pair(*p) for p in pairs)
    offset, data = 0, b""
    for name, dims, kind, length in tensors:
        out += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
        out += struct.pack("<IQ", kind, offset)
        data += bytes(length) + bytes(-length % alignment)
        offset = len(data)
    return out + bytes(-len(out) % alignment) + data


LLAMA = [
    ("general.architecture", STRING, "llama"),
    ("llama.block_count", U32, 1),
    ("llama.embedding_length", U32, 32),
    ("llama.feed_forward_length", U32, 32),
    ("llama.attention.head_count", U32, 2),
    ("llama.attention.head_count_kv", U32, [1]),
    ("llama.context_length", U32, 16),
    ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
    ("llama.rope.dimension_count", U64, 16),
    ("llama.rope.freq_base", F32, 1e4),
]
TOKENS = [
    ("tokenizer.ggml.model", STRING, "gpt2"),
    ("tokenizer.ggml.tokens", STRING, ["a", "b"]),
    ("tokenizer.ggml.scores", F32, [0.0, -1.0]),
    ("tokenizer.ggml.token_type", I32, [1, 3]),
    ("tokenizer.ggml.add_bos_token", BOOL, 1),
]
SCALING = [
    ("llama.rope.scaling.type", STRING, "yarn"),
    ("llama.rope.scaling.factor", F32, 4.0),
    ("llama.rope.scaling.attn_factor", F32, 2.0),
    ("llama.attention.sliding_window", U32, 8),
]
OTHERS = [("general.alignment", U32, 64), ("k.i8", I8, -1), ("k.i16", I16, [-1]), ("k.f64", F64, 0.5), ("k.i64", I64, -1)]
EMBEDDING = ("token_embd.weight", [32, 2], 0, 256)
QUANTIZED = [("q4", [32, 2], 2, 36), ("q6", [256], 14, 210), ("d2t", [2], 27, 16)]

HEADER = {
    "__metadata__": {"format": "pt"},
    "model.embed_tokens.weight": {"dtype": "F32", "shape": [2, 64], "data_offsets": [0, 512]},
    "model.layers.0.self_attn.q_proj.weight": {"dtype": "BF16", "shape": [8, 8], "data_offsets": [512, 640]},
    "d2t": {"dtype": "I64", "shape": [2], "data_offsets": [640, 656]},
}
CONFIG = {
    "architectures": ["MistralForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 1e4, "sliding_window": 32, "tie_word_embeddings": True, "hidden_act": "silu",
}


def corpus():
    llama3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64}
    yarn = {"type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.7, "beta_fast": 32}
    qwen = {"use_sliding_window": True, "max_window_layers": 0, "layer_types": ["full_attention", "full_attention"]}
    header = json.dumps(HEADER).encode()
    yield "gguf", [
        gguf([], []),
        gguf(LLAMA, [EMBEDDING], version=2),
        gguf(LLAMA + TOKENS, [EMBEDDING, ("rope_freqs.weight", [8], 0, 32)]),
        gguf(LLAMA + SCALING, [EMBEDDING]),
        gguf(OTHERS, QUANTIZED, alignment=64),
    ]
    yield "safetensors", [
        struct.pack("<Q", len(header)) + header + bytes(656),
        bytes([164]) + header,
        bytes([0]) + b"{}",
    ]
    yield "config_json", [
        json.dumps(CONFIG | more).encode()
        for more in (
            {},
            {"architectures": ["LlamaForCausalLM"], "rope_scaling": llama3, "head_dim": 16},
            {"architectures": ["Qwen2ForCausalLM"], "rope_scaling": yarn} | qwen,
            {"model_type": "qwen3", "architectures": None, "rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 2}},
        )
    ]


for target, seeds in corpus():
    folder = ROOT / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed{number}").write_bytes(seed)
    print(f"{folder.relative_to(ROOT.parent)}: {len(seeds)} seeds")
