//! Rotary embedding in a `config.json`, in the forms of transformers 4 and 5.
//!
//! Names, defaults and formulas: `modeling_rope_utils.py` of transformers.

use super::json::Json;
use super::section::Section;
use crate::error::quote;
use crate::gguf::yarn_magnitude;
use crate::{FormatError, RopeConfig, RopeLayout, RopeScaling};

/// The rotary embedding that the configuration `root` describes.
pub(super) fn read(
    root: Section<'_>,
    head_dim: usize,
    context_tokens: usize,
) -> Result<RopeConfig, FormatError> {
    // Version 5 writes one object, version 4 `rope_theta` beside an optional `rope_scaling`.
    let section = match root.object("rope_parameters", "rope_parameters.")? {
        Some(section) => Some(section),
        None => root.object("rope_scaling", "rope_scaling.")?,
    };
    if let Some(section) = section
        && let Some((key, _)) = section
            .pairs
            .iter()
            .find(|(_, value)| matches!(value, Json::Object(_) | Json::Other("an object")))
    {
        return Err(section.unsupported(
            key,
            "(another rotation per kind of layer)",
            "one rotation for all layers",
        ));
    }
    let number = |key: &str| match section
        .map(|section| section.number(key))
        .transpose()?
        .flatten()
    {
        Some(value) => Ok(Some(value)),
        None => root.number(key),
    };
    let rotated = number("partial_rotary_factor")?.unwrap_or(1.0);
    if !(rotated > 0.0 && rotated <= 1.0) {
        let problem = format!("{rotated} is not above 0 and at most 1");
        return Err(FormatError::damaged(
            root.file,
            root.field("partial_rotary_factor"),
            problem,
        ));
    }
    Ok(RopeConfig {
        base: number("rope_theta")?.unwrap_or(10_000.0),
        dims: (head_dim as f64 * rotated) as usize, // truncated, as in transformers
        layout: RopeLayout::Halves,
        scaling: section.map_or(Ok(RopeScaling::None), |section| {
            scaling(root, section, context_tokens)
        })?,
    })
}

fn scaling(
    root: Section<'_>,
    section: Section<'_>,
    context_tokens: usize,
) -> Result<RopeScaling, FormatError> {
    let kind = match section.str("rope_type")? {
        Some(kind) => kind,
        None => section.str("type")?.unwrap_or("default"),
    };
    let original_context = match section.count("original_max_position_embeddings")? {
        Some(tokens) => Some(tokens),
        None => root.count("original_max_position_embeddings")?,
    };
    match kind {
        "default" => Ok(RopeScaling::None),
        "linear" => Ok(RopeScaling::Linear {
            factor: section.needed_f32("factor")?,
        }),
        "llama3" => Ok(RopeScaling::Llama3 {
            factor: section.needed_f32("factor")?,
            low_freq_factor: section.needed_f32("low_freq_factor")?,
            high_freq_factor: section.needed_f32("high_freq_factor")?,
            original_context: original_context
                .ok_or_else(|| section.missing("original_max_position_embeddings"))?,
        }),
        "yarn" => yarn(section, original_context.unwrap_or(context_tokens)),
        other => {
            Err(section.unsupported("rope_type", quote(other), "default, linear, llama3, yarn"))
        }
    }
}

fn yarn(section: Section<'_>, original_context: usize) -> Result<RopeScaling, FormatError> {
    if section.bool("truncate")? == Some(false) {
        return Err(section.unsupported("truncate", "false", "true"));
    }
    let factor = section.needed_f32("factor")?;
    let f32 = |key: &str| Ok::<_, FormatError>(section.number(key)?.map(|value| value as f32));
    let attention_factor = match (
        f32("attention_factor")?,
        f32("mscale")?,
        f32("mscale_all_dim")?,
    ) {
        (Some(stated), _, _) => Some(stated),
        (None, Some(numerator), Some(denominator)) if numerator != 0.0 && denominator != 0.0 => {
            Some(yarn_magnitude(factor, numerator) / yarn_magnitude(factor, denominator))
        }
        _ => None,
    };
    Ok(RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: f32("beta_fast")?.unwrap_or(32.0),
        beta_slow: f32("beta_slow")?.unwrap_or(1.0),
        attention_factor,
    })
}
