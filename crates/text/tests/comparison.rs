//! Real vocabularies against each other.

mod common;

use common::{from_gguf, shared, smollm2, stories260k};
use foredraft_text::{Tokenizer, VocabularyComparison};

#[test]
fn smollm2_and_stories260k_are_compatible_with_themselves_only() {
    let (large, small) = (smollm2(), stories260k());
    for tokenizer in [&large, &small] {
        let found = VocabularyComparison::new(tokenizer, tokenizer);
        assert_eq!(found.check(), Ok(()));
        assert_eq!((found.only_target, found.only_draft), (0, 0));
    }
    let found = VocabularyComparison::new(&large, &small);
    assert!(!found.is_compatible());
    assert_eq!(found.shared, 512);
}

/// Qwen2.5's file names 151646 tokens and pads the rest; Qwen3 names more.
#[test]
fn qwen2_pads_what_qwen3_names() {
    let (Some(qwen2), Some(qwen3)) = (shared("vocab/ggml-vocab-qwen2.gguf"), shared("vocab/qwen3"))
    else {
        return;
    };
    let qwen2 = from_gguf(&qwen2);
    let qwen3 = Tokenizer::from_json_directory(&qwen3).expect("a tokenizer");
    let found = VocabularyComparison::new(&qwen3, &qwen2);
    assert_eq!(found.check(), Ok(()));
    assert_eq!(found.shared, 151_646);
    assert_eq!(
        (found.only_target, found.only_draft),
        (qwen3.vocabulary_len() - 151_646, 0)
    );
    assert!(found.only_target > 0);
}

#[test]
fn vocabularies_of_different_families_differ_with_both_texts() {
    let (Some(gpt2), Some(starcoder)) = (
        shared("vocab/ggml-vocab-gpt-2.gguf"),
        shared("vocab/ggml-vocab-starcoder.gguf"),
    ) else {
        return;
    };
    // 49152 tokens each, and other ones.
    let (starcoder, smollm2) = (from_gguf(&starcoder), smollm2());
    assert_eq!(starcoder.vocabulary_len(), smollm2.vocabulary_len());
    let found = VocabularyComparison::new(&starcoder, &smollm2);
    assert!(found.differing > 40_000, "{}", found.differing);
    let found = VocabularyComparison::new(&from_gguf(&gpt2), &starcoder);
    let first = &found.first_differences[0];
    assert_ne!(first.target.text, first.draft.text);
    let message = found.check().expect_err("a mismatch").to_string();
    assert!(
        message.contains(&format!("{:?}", first.target.text))
            && message.contains(&format!("{:?}", first.draft.text)),
        "{message}"
    );
}
