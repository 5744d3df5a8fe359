//! Writing anew the files of all indices that older data keys have encrypted.

use std::ops::ControlFlow;

use super::Indices;
use crate::directory::OnBytes;
use crate::error::SearchError;
use crate::index;

/// Writes anew the files of all indices that another data key than this newest one encrypts. Searches and operations go on. Durable when it
/// returns, unless `on_bytes` ended it.
///
/// Errors: the first index whose files could not be written anew, after all others; an index that cannot be opened.
pub fn rewrite_files(indices: &Indices, data_key: u32, on_bytes: OnBytes<'_>) -> Result<ControlFlow<()>, SearchError> {
    let mut failed = None;
    for index in indices.all() {
        match index::rewrite_files(&index, data_key, on_bytes) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
            // It was deleted.
            Err(_) if indices.get(&index.name()).is_none() => {}
            Err(error) => {
                tracing::warn!(index = index.name(), %error, "files of a search index were not written anew");
                failed.get_or_insert(error);
            }
        }
    }
    if let Some(red) = indices.red().first() {
        let name = &red.definition.name;
        let why = format!("index {name} cannot be opened, and its files keep their data key: {}; delete it", red.why);
        failed.get_or_insert(SearchError::internal(why));
    }
    failed.map_or(Ok(ControlFlow::Continue(())), Err)
}
