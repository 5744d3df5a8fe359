//! What requests may change of an index: nothing of one that the node itself writes, and not what its settings `index.blocks.*` forbid.
//!
//! ```text
//!                            documents   mapping, settings, aliases, open, close   deletion
//!   write                    no          yes                                       yes
//!   read_only_allow_delete   no          no                                        yes
//!   read_only                no          no                                        no
//! ```
//!
//! A block can always be set and lifted.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::SearchIndex;
use crate::error::SearchError;

/// What the names of the settings begin with.
const BLOCKS: &str = "index.blocks.";

/// The blocks, with what Elasticsearch says of each.
const READ_ONLY: (&str, &str) = ("read_only", "5/index read-only (api)");
const READ_ONLY_ALLOW_DELETE: (&str, &str) =
    ("read_only_allow_delete", "12/disk usage exceeded flood-stage watermark, index has read-only-allow-delete block");
const WRITE: (&str, &str) = ("write", "8/index write (api)");

/// Errors: a value of a setting that no block can have, or a block that is not built.
pub(crate) fn check_block(name: &str, value: &Value) -> Result<(), SearchError> {
    let Some(block) = name.strip_prefix(BLOCKS) else { return Ok(()) };
    let known = [READ_ONLY.0, READ_ONLY_ALLOW_DELETE.0, WRITE.0].contains(&block);
    match value.as_str() {
        _ if value.is_null() => Ok(()),
        Some("false") => Ok(()),
        Some("true") if known => Ok(()),
        Some("true") => Err(SearchError::unsupported(format!("setting [{name}]"))),
        _ => Err(SearchError::argument(format!(
            "Failed to parse value [{}] as only [true] or [false] are allowed.",
            value.as_str().unwrap_or_default()
        ))),
    }
}

/// Errors: requests cannot change an index.
pub(super) fn check_writable(index: &SearchIndex) -> Result<(), SearchError> {
    check(index, &[READ_ONLY, READ_ONLY_ALLOW_DELETE])
}

/// Errors: requests cannot change its documents.
pub(super) fn check_documents_writable(index: &SearchIndex) -> Result<(), SearchError> {
    check(index, &[READ_ONLY, READ_ONLY_ALLOW_DELETE, WRITE])
}

/// Errors: requests cannot delete it.
pub(crate) fn check_deletable(index: &SearchIndex) -> Result<(), SearchError> {
    check(index, &[READ_ONLY])
}

/// Errors: requests cannot change these settings of it.
pub(crate) fn check_settings_writable(
    index: &SearchIndex,
    changes: &BTreeMap<String, Value>,
) -> Result<(), SearchError> {
    match changes.keys().all(|name| name.starts_with(BLOCKS)) {
        true => check(index, &[]),
        false => check_writable(index),
    }
}

fn check(index: &SearchIndex, blocks: &[(&str, &str)]) -> Result<(), SearchError> {
    let definition = index.definition.read();
    let name = &definition.name;
    let refused = |reason: String| Err(SearchError::new(403, "cluster_block_exception", reason).of(name));
    if index.is_fed() {
        return refused(format!(
            "index [{name}] is read-only: the node itself writes to it, and makes it again if it is lost"
        ));
    }
    let is_set = |block: &str| definition.settings.get(&format!("{BLOCKS}{block}")) == Some(&json!("true"));
    match blocks.iter().find(|(block, _)| is_set(block)) {
        Some((_, why)) => refused(format!("index [{name}] blocked by: [FORBIDDEN/{why}];")),
        None => Ok(()),
    }
}
