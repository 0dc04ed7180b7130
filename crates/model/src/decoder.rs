//! The decoder of the Llama family as a program: Llama, Mistral, SmolLM2, TinyLlama, Qwen 2 and Qwen 3.
//!
//! ```text
//! x = embedding[token]
//! per layer:  h = norm(x);  q, k, v = h Wq, h Wk, h Wv (+ bias);  q, k = rope(norm?(q), norm?(k))
//!             x = x + attention(q, k, v) Wo
//!             h = norm(x);  x = x + (silu(h Wg) * (h Wu)) Wd
//! logits = norm(x) Wout            (Wout = embedding when tied)
//! ```

use foredraft_formats::{Checkpoint, ModelConfig};

use crate::architecture::{Features, ModelError, ProgramOptions};
use crate::kv::KvGroup;
use crate::program::{BufferId, KvLayer, Op, Program, Projection, RopeId, RowSet, TapId, TapPoint};
use crate::rope::RopeTable;

/// The buffers that every layer uses.
struct Buffers {
    /// The residual stream.
    x: BufferId,
    /// Its normalised form.
    h: BufferId,
    query: BufferId,
    key: BufferId,
    value: BufferId,
    attended: BufferId,
    gate: BufferId,
    up: BufferId,
}

struct Builder<'a> {
    program: Program,
    checkpoint: &'a Checkpoint,
    config: &'a ModelConfig,
    features: Features,
    taps: &'a [TapPoint],
}

/// Emits the program. See [`crate::program_for`].
pub(crate) fn program(
    checkpoint: &Checkpoint,
    config: &ModelConfig,
    features: Features,
    options: &ProgramOptions,
) -> Result<Program, ModelError> {
    let mut builder = Builder {
        program: Program {
            vocabulary: config.vocabulary,
            context_tokens: config.context_tokens,
            taps: options.taps.clone(),
            ropes: vec![RopeTable::new(&config.rope)?],
            kv_groups: vec![KvGroup {
                layers: config.layers,
                kv_heads: config.kv_heads,
                head_dim: config.head_dim,
                window: config.window.map(|w| w as usize),
            }],
            ..Program::default()
        },
        checkpoint,
        config,
        features,
        taps: &options.taps,
    };
    let buffers = builder.buffers();
    let table = builder
        .program
        .matrix("token_embd.weight".into(), config.vocabulary, config.width);
    builder.program.ops.push(Op::Embed {
        table,
        out: buffers.x,
    });
    for layer in 0..config.layers {
        builder.tap(TapPoint::LayerInput(layer), buffers.x);
        builder.attention(layer, &buffers)?;
        builder.feed_forward(layer, &buffers);
    }
    builder.tap(TapPoint::LayerInput(config.layers), buffers.x);
    builder.head(&buffers);
    Ok(builder.program)
}

impl Builder<'_> {
    fn buffers(&mut self) -> Buffers {
        let c = self.config;
        let (q, kv) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let mut all = |name, width| self.program.buffer(name, width, RowSet::All);
        Buffers {
            x: all("residual", c.width),
            h: all("normed", c.width),
            query: all("query", q),
            key: all("key", kv),
            value: all("value", kv),
            attended: all("attended", q),
            gate: all("gate", c.ffn_width),
            up: all("up", c.ffn_width),
        }
    }

    fn tap(&mut self, point: TapPoint, input: BufferId) {
        for (i, _) in self.taps.iter().enumerate().filter(|(_, p)| **p == point) {
            let tap = TapId(i as u32);
            self.program.ops.push(Op::Tap { input, tap });
        }
    }

    fn norm(&mut self, name: String, input: BufferId, out: BufferId) {
        let weight = self.program.vector(name, self.config.width);
        let eps = self.config.norm_eps;
        self.program.ops.push(Op::RmsNorm {
            input,
            weight,
            eps,
            out,
        });
    }

    /// `{name}.weight`, with `{name}.bias` when the file has one.
    fn projection(&mut self, name: &str, rows: usize, width: usize, out: BufferId) -> Projection {
        let bias_name = format!("{name}.bias");
        let bias = (self.checkpoint.tensor(&bias_name).is_some())
            .then(|| self.program.vector(bias_name, rows));
        Projection {
            weight: self.program.matrix(format!("{name}.weight"), rows, width),
            bias,
            out,
            accumulate: false,
        }
    }

    /// A tensor that the architecture always has: without it the model would run, and say something else.
    fn require(&self, name: &str) -> Result<(), ModelError> {
        match self.checkpoint.tensor(name) {
            Some(_) => Ok(()),
            None => Err(ModelError::MissingTensor {
                architecture: self.config.architecture.clone(),
                name: name.to_owned(),
            }),
        }
    }

    fn attention(&mut self, layer: usize, b: &Buffers) -> Result<(), ModelError> {
        let c = self.config;
        let prefix = format!("blk.{layer}");
        let (q, kv) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        self.norm(format!("{prefix}.attn_norm.weight"), b.x, b.h);
        if self.features.qkv_bias {
            for part in ["q", "k", "v"] {
                self.require(&format!("{prefix}.attn_{part}.bias"))?;
            }
        }
        let outputs = vec![
            self.projection(&format!("{prefix}.attn_q"), q, c.width, b.query),
            self.projection(&format!("{prefix}.attn_k"), kv, c.width, b.key),
            self.projection(&format!("{prefix}.attn_v"), kv, c.width, b.value),
        ];
        self.program.ops.push(Op::Linear {
            input: b.h,
            outputs,
        });
        let (mut query_norm, mut key_norm) = (None, None);
        if self.features.qk_norm {
            let names = ["q", "k"].map(|part| format!("{prefix}.attn_{part}_norm.weight"));
            for name in &names {
                self.require(name)?;
            }
            let [query, key] = names.map(|name| self.program.vector(name, c.head_dim));
            (query_norm, key_norm) = (Some(query), Some(key));
        }
        let place = KvLayer { group: 0, layer };
        self.program.ops.push(Op::RotateAndCache {
            query: b.query,
            key: b.key,
            value: b.value,
            query_norm,
            key_norm,
            eps: c.norm_eps,
            rope: RopeId(0),
            layer: place,
        });
        self.program.ops.push(Op::Attend {
            query: b.query,
            layer: place,
            scale: (1.0 / (c.head_dim as f64).sqrt()) as f32,
            out: b.attended,
        });
        let out = self.projection(&format!("{prefix}.attn_output"), c.width, q, b.x);
        self.residual(b.attended, out);
        Ok(())
    }

    fn feed_forward(&mut self, layer: usize, b: &Buffers) {
        let c = self.config;
        let prefix = format!("blk.{layer}");
        self.norm(format!("{prefix}.ffn_norm.weight"), b.x, b.h);
        let outputs = vec![
            self.projection(&format!("{prefix}.ffn_gate"), c.ffn_width, c.width, b.gate),
            self.projection(&format!("{prefix}.ffn_up"), c.ffn_width, c.width, b.up),
        ];
        self.program.ops.push(Op::Linear {
            input: b.h,
            outputs,
        });
        self.program.ops.push(Op::SiluProduct {
            gate: b.gate,
            up: b.up,
        });
        let down = self.projection(&format!("{prefix}.ffn_down"), c.width, c.ffn_width, b.x);
        self.residual(b.gate, down);
    }

    fn residual(&mut self, input: BufferId, projection: Projection) {
        let outputs = vec![Projection {
            accumulate: true,
            ..projection
        }];
        self.program.ops.push(Op::Linear { input, outputs });
    }

    /// Logits of the rows that are asked for: gathered before the norm, so that a prompt pays for one row.
    fn head(&mut self, b: &Buffers) {
        let c = self.config;
        if self.taps.contains(&TapPoint::Final) {
            self.norm("output_norm.weight".into(), b.x, b.h);
            self.tap(TapPoint::Final, b.h);
        }
        let gathered = self
            .program
            .buffer("output residual", c.width, RowSet::Outputs);
        let normed = self
            .program
            .buffer("output normed", c.width, RowSet::Outputs);
        let logits = self.program.buffer("logits", c.vocabulary, RowSet::Outputs);
        self.program.ops.push(Op::Gather {
            input: b.x,
            out: gathered,
        });
        self.norm("output_norm.weight".into(), gathered, normed);
        let name = match self.checkpoint.tensor("output.weight") {
            Some(_) => "output",
            None => "token_embd",
        };
        let mut head = self.projection(name, c.vocabulary, c.width, logits);
        head.bias = None;
        self.program.ops.push(Op::Linear {
            input: normed,
            outputs: vec![head],
        });
        self.program.logits = Some(logits);
    }
}
