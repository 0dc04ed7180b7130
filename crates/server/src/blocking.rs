//! Work that takes the processor for longer than a connection should wait: templates and tokenizers.

use crate::error::ApiError;

/// Does `work` on a thread where it holds up nobody. The runtime bounds how many there are.
///
/// # Errors
/// 500 when it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let result = tokio::task::spawn_blocking(work).await;
    result.map_err(|_| ApiError::defect())
}
