//! Writing anew what older data keys have encrypted of an index: its files. Documents and the table of files lie in the store.

use std::ops::ControlFlow;

use super::SearchIndex;
use crate::directory::{self, OnBytes};
use crate::error::SearchError;

/// How often files are looked for that a merge has made meanwhile: one that began under an older data key has some at most once.
const ROUNDS: usize = 8;

/// Writes anew the files of an index that another data key than this newest one encrypts, until the table of files names no such one.
/// Searches and operations go on. Durable when it returns, unless `on_bytes` ended it.
///
/// Errors: those of the medium and of the store; the index is being made again (503), or was deleted.
pub(crate) fn rewrite_files(
    index: &SearchIndex,
    data_key: u32,
    on_bytes: OnBytes<'_>,
) -> Result<ControlFlow<()>, SearchError> {
    for _ in 0..ROUNDS {
        index.check_deleted()?;
        let directory = index.lock_writer()?.directory.clone();
        let ControlFlow::Continue(count) = directory.rewrite(data_key, on_bytes)? else {
            return Ok(ControlFlow::Break(()));
        };
        let named = directory::data_keys_in_use(&index.place.store, index.trees.files)?;
        if count == 0 && named.iter().all(|key| *key == data_key) {
            return Ok(ControlFlow::Continue(()));
        }
        // Files were exchanged, which no operation shows.
        index.lock_writer()?.bytes += 1;
        index.persist()?;
    }
    Err(SearchError::busy("merges of the index keep making files of an older data key; repeat it"))
}
