//! Any bytes as a GGUF file.
#![no_main]

use foredraft_formats::Checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Checkpoint::from_bytes(bytes.to_vec()) {
        Ok(model) => foredraft_fuzz::use_all(&model),
        Err(error) => foredraft_fuzz::check_message(&error),
    }
});
