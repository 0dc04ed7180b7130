//! Any bytes as a `tokenizer.json`; what opens must encode and detokenize.
#![no_main]

use foredraft_text::{Detokenizer, Special, Tokenizer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(tokenizer) = Tokenizer::from_json(bytes) else {
        return;
    };
    for special in [Special::Parse, Special::AsText] {
        if let Ok(ids) = tokenizer.encode("a b\n<s>\u{e9}\u{1f999}", special) {
            let mut text = Detokenizer::new(&tokenizer);
            for id in ids {
                assert!(id.index() < tokenizer.vocabulary_len());
                text.push(id);
            }
        }
    }
});
