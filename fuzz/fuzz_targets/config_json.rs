//! Any text as a `config.json`.
#![no_main]

use foredraft_formats::ModelConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        foredraft_fuzz::check_config(ModelConfig::from_hf_json(text));
    }
});
