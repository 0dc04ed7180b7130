//! stories260K with another vocabulary or other rows.

use foredraft_formats::ElementType;
use foredraft_formats::write::GgufWriter;
use foredraft_quant::WeightType;

use crate::stories260k;

/// Keys of the lists that have an entry for each token: texts, scores, kinds.
const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
const KINDS: &str = "tokenizer.ggml.token_type";

/// stories260K as a GGUF file after `change` of its 512 tokens' texts (more are ordinary tokens), and padded to `rows` rows of
/// embeddings and logits.
///
/// Row 512 + n of the padding is three times row n: its logit is three times that of token n, so that whoever looks at the
/// padding finds the largest values there.
///
/// # Panics
/// When the repository's copy is not as expected.
pub fn stories260k_with(change: impl FnOnce(&mut Vec<String>), rows: usize) -> Vec<u8> {
    let model = stories260k();
    let metadata = model.metadata().expect("a GGUF file");
    let tokens = metadata.str_array(TOKENS).ok().flatten();
    let scores = metadata.f32_array(SCORES).ok().flatten();
    let kinds = metadata.i32_array(KINDS).ok().flatten();
    let tokens = tokens.expect("tokens").into_iter().map(str::to_owned);
    let mut tokens: Vec<String> = tokens.collect();
    let (mut scores, mut kinds) = (scores.expect("scores"), kinds.expect("kinds"));
    change(&mut tokens);
    scores.resize(tokens.len(), 0.0);
    kinds.resize(tokens.len(), 1);
    let mut writer = GgufWriter::new();
    let replaced = [TOKENS, SCORES, KINDS, "llama.vocab_size"];
    writer.copy(metadata, |key| !replaced.contains(&key));
    writer.str_array(TOKENS, &tokens);
    writer.f32_array(SCORES, &scores);
    writer.i32_array(KINDS, &kinds);
    for tensor in model.raw_tensors() {
        let mut dims = tensor.shape.dims().to_vec();
        let mut data = tensor.data.to_vec();
        if matches!(tensor.name, "token_embd.weight" | "output.weight") {
            assert_eq!(tensor.element, ElementType::Weight(WeightType::F32));
            pad(&mut data, rows * tensor.shape.width());
            dims[0] = rows;
        }
        writer.raw_tensor(tensor.name, tensor.element, &dims, data);
    }
    writer.finish().expect("it can be written")
}

/// Pads F32 values to `len` of them with three times those that are there, from the first on.
fn pad(data: &mut Vec<u8>, len: usize) {
    let (values, _) = data.as_chunks::<4>();
    let missing = len - values.len();
    let more: Vec<u8> = values
        .iter()
        .cycle()
        .take(missing)
        .flat_map(|&value| (3.0 * f32::from_le_bytes(value)).to_le_bytes())
        .collect();
    data.extend(more);
}
