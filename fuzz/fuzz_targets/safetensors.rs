//! Any bytes as a safetensors file: once as they are, once as the JSON of a header whose length is right
//! (the length field would otherwise be all that is ever tried).
#![no_main]

use foredraft_formats::{Checkpoint, safetensors::Header};
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 2, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5}"#;

fn open(bytes: Vec<u8>) {
    let header = Header::parse(&bytes);
    match Checkpoint::from_safetensors(CONFIG, vec![bytes]) {
        Ok(model) => {
            assert!(header.is_ok_and(|header| header.len() >= model.raw_tensors().count()));
            foredraft_fuzz::use_all(&model);
        }
        Err(error) => foredraft_fuzz::check_message(&error),
    }
}

fuzz_target!(|bytes: &[u8]| {
    open(bytes.to_vec());
    if let [data, header @ ..] = bytes {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.resize(file.len() + usize::from(*data) * 4, 1);
        open(file);
    }
});
