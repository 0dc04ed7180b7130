//! Hugging Face tensor names and their canonical (GGUF) counterparts.

use std::borrow::Cow;

/// The canonical name of a Hugging Face tensor; a name that has none is kept.
pub(crate) fn canonical(name: &str) -> Cow<'_, str> {
    let whole = match name {
        "model.embed_tokens.weight" => "token_embd.weight",
        "model.norm.weight" => "output_norm.weight",
        "lm_head.weight" => "output.weight",
        "lm_head.bias" => "output.bias",
        _ => return in_layer(name).map_or(Cow::Borrowed(name), Cow::Owned),
    };
    Cow::Borrowed(whole)
}

/// `model.layers.N.PART.weight` or `.bias` as `blk.N.PART.weight` or `.bias`.
fn in_layer(name: &str) -> Option<String> {
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let is_number =
        !layer.is_empty() && layer.len() <= 4 && layer.bytes().all(|b| b.is_ascii_digit());
    if !is_number || (layer.starts_with('0') && layer != "0") {
        return None;
    }
    let (part, kind) = rest.rsplit_once('.')?;
    if !matches!(kind, "weight" | "bias") {
        return None;
    }
    let part = match part {
        "input_layernorm" => "attn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "post_attention_layernorm" => "ffn_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    };
    Some(format!("blk.{layer}.{part}.{kind}"))
}

/// Whether a tensor only repeats what the configuration says: the rotary frequencies that early
/// checkpoints stored.
pub(crate) fn is_derived(name: &str) -> bool {
    name.ends_with(".rotary_emb.inv_freq")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated() {
        for (theirs, ours) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            (
                "model.layers.0.input_layernorm.weight",
                "blk.0.attn_norm.weight",
            ),
            (
                "model.layers.11.self_attn.q_proj.bias",
                "blk.11.attn_q.bias",
            ),
            (
                "model.layers.2.self_attn.k_proj.weight",
                "blk.2.attn_k.weight",
            ),
            (
                "model.layers.2.self_attn.v_proj.weight",
                "blk.2.attn_v.weight",
            ),
            (
                "model.layers.2.self_attn.o_proj.weight",
                "blk.2.attn_output.weight",
            ),
            (
                "model.layers.2.self_attn.q_norm.weight",
                "blk.2.attn_q_norm.weight",
            ),
            (
                "model.layers.2.self_attn.k_norm.weight",
                "blk.2.attn_k_norm.weight",
            ),
            (
                "model.layers.2.post_attention_layernorm.weight",
                "blk.2.ffn_norm.weight",
            ),
            (
                "model.layers.2.mlp.gate_proj.weight",
                "blk.2.ffn_gate.weight",
            ),
            ("model.layers.2.mlp.up_proj.weight", "blk.2.ffn_up.weight"),
            (
                "model.layers.2.mlp.down_proj.weight",
                "blk.2.ffn_down.weight",
            ),
        ] {
            assert_eq!(canonical(theirs), ours);
        }
    }

    #[test]
    fn other_names_are_kept() {
        // EAGLE and Medusa heads, and names that only look like a layer's.
        for name in [
            "fc.weight",
            "layers.0.self_attn.q_proj.weight",
            "d2t",
            "model.layers.00.mlp.up_proj.weight",
            "model.layers.-1.mlp.up_proj.weight",
            "model.layers.12345.mlp.up_proj.weight",
            "model.layers.1.mlp.up_proj.qweight",
            "model.layers.1.mlp.experts.0.weight",
            "model.layers.",
        ] {
            assert_eq!(canonical(name), name);
        }
    }
}
