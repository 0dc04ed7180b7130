//! What the fuzz targets share.

use foredraft_formats::{Checkpoint, VocabularySource};

/// Does everything that a user of an opened checkpoint may do, and checks what the crate promises:
/// every view has exactly the bytes its shape asks for, inside the file, and every name is found.
pub fn use_all(model: &Checkpoint) {
    let mut total = 0u64;
    for tensor in model.raw_tensors() {
        let row = tensor
            .element
            .row_bytes(tensor.shape.width())
            .expect("whole blocks");
        assert_eq!(tensor.data.len(), row * tensor.shape.rows());
        assert!(tensor.data.iter().fold(0, |all, byte| all | byte) as u16 <= 255); // reads every byte
        assert!(model.raw_tensor(tensor.name).is_some());
        total += tensor.data.len() as u64;
    }
    assert!(total <= model.file_bytes(), "tensors do not overlap");
    for tensor in model.tensors() {
        let found = model.tensor(tensor.name).expect("a listed tensor");
        assert_eq!((found.kind, found.shape), (tensor.kind, tensor.shape));
    }
    if let VocabularySource::Gguf(metadata) = model.vocabulary() {
        assert!(metadata.value("tokenizer.ggml.model").is_some());
    }
    if let Some(metadata) = model.metadata() {
        assert_eq!(metadata.iter().count(), metadata.len());
        for (key, value) in metadata.iter() {
            assert!(
                !value.to_string().contains('\n'),
                "one line, whatever the file says"
            );
            let _ = (
                metadata.str(key),
                metadata.u32(key),
                metadata.i64(key),
                metadata.f32(key),
            );
            let _ = (
                metadata.bool(key),
                metadata.str_array(key),
                metadata.f32_array(key),
            );
            let _ = (
                metadata.i32_array(key),
                metadata.u32_array(key),
                metadata.bool_array(key),
            );
        }
    }
    check_config(model.config());
}

/// What every hyperparameter promises once it is given out.
pub fn check_config(
    config: Result<
        impl std::borrow::Borrow<foredraft_formats::ModelConfig>,
        foredraft_formats::FormatError,
    >,
) {
    match config {
        Err(error) => check_message(&error),
        Ok(config) => {
            let config = config.borrow();
            assert!(config.layers > 0 && config.width > 0 && config.vocabulary > 0);
            assert!(config.heads % config.kv_heads == 0);
            assert!(config.rope.dims % 2 == 0 && config.rope.dims <= config.head_dim);
            assert!(config.norm_eps > 0.0 && config.rope.base.is_finite());
        }
    }
}

/// A message is one line of bounded length without control characters.
pub fn check_message(error: &foredraft_formats::FormatError) {
    let message = error.to_string();
    assert!(message.len() < 4096, "{message}");
    assert!(!message.contains(|c: char| c.is_control()), "{message:?}");
}
