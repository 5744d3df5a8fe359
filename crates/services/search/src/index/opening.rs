//! What an index begins with: the library's index over its files, or an empty one, and the next sequence number.

use std::collections::BTreeSet;
use std::ops::Bound;

use store::{Direction, Store, StoreError};
use tantivy::directory::Directory;
use tantivy::{Index, IndexReader, IndexSettings, ReloadPolicy};

use super::Trees;
use super::rows::{self, DOCUMENT, TOMBSTONE};
use crate::directory::{self, ShelfDirectory};
use crate::error::SearchError;
use crate::mapping::Mapping;
use crate::schema;

/// Text columns that an index has beyond those of its mapping; each takes a byte for each document.
const SPARE_TEXTS: u32 = 4;

/// A reader that sees what the last refresh made.
pub(super) fn reader_of(index: &Index) -> Result<IndexReader, SearchError> {
    Ok(index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into()?)
}

/// An index without a document.
pub(super) fn new_index(directory: impl Into<Box<dyn Directory>>, mapping: &Mapping) -> Result<Index, SearchError> {
    let spare = SPARE_TEXTS.max(mapping.columns().texts / 2);
    let settings = IndexSettings { docstore_compression: tantivy::store::Compressor::None, ..IndexSettings::default() };
    let index = Index::create(directory, schema::of_mapping(mapping, spare), settings)?;
    schema::register(&index).map_err(SearchError::internal)?;
    Ok(index)
}

/// The library's index in a directory: an empty one, with the reason, if the one that was there cannot be read.
pub(super) fn library_index(
    directory: &ShelfDirectory,
    mapping: &Mapping,
) -> Result<(Index, Option<String>), SearchError> {
    if directory.is_empty() {
        return Ok((new_index(directory.clone(), mapping)?, None));
    }
    let opened = Index::open(directory.clone()).and_then(|index| index.reader().map(|_| index));
    let opened = opened.map_err(|error| error.to_string());
    match opened.and_then(|index| schema::register(&index).map(|()| index)) {
        Ok(index) => Ok((index, None)),
        Err(why) => {
            directory.clear();
            Ok((new_index(directory.clone(), mapping)?, Some(why)))
        }
    }
}

/// The number after the last operation in the store.
pub(super) fn next_seq(store: &Store, trees: Trees) -> Result<u64, SearchError> {
    let snapshot = store.snapshot();
    let mut next = 0;
    for kind in [DOCUMENT, TOMBSTONE] {
        let (from, to) = (rows::key(kind, 0), rows::key(kind, u64::MAX));
        let mut cursor = snapshot.scan(trees.docs, Bound::Included(&from), Bound::Included(&to), Direction::Backward);
        if let Some((key, _)) = cursor.next_key()? {
            next = next.max(rows::seq_of(kind, &key).map_or(0, |seq| seq + 1));
        }
    }
    Ok(next)
}

/// The numbers of the data keys that the index files of an encrypted store are encrypted with. Other data of search lies in the store.
///
/// # Errors
/// The store's; `Refused` where a file cannot be read as one.
pub fn data_keys_in_use(store: &Store) -> Result<BTreeSet<u32>, StoreError> {
    let mut keys = BTreeSet::new();
    for (name, table) in store.snapshot().trees()? {
        if name.starts_with("search.") && name.ends_with(".files") {
            keys.extend(directory::data_keys_in_use(store, table)?);
        }
    }
    Ok(keys)
}

/// Names of an index's trees.
pub(super) fn tree_names(uuid: &str) -> [String; 3] {
    ["docs", "ids", "files"].map(|part| format!("search.{uuid}.{part}"))
}
