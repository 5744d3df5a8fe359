//! `encryption.rewrite` of a data directory: what the last rewrite has come to, and where the next start goes on with it.

use std::path::Path;

use encryption::{SEAL_BYTES, Sealer};
use serde::{Deserialize, Serialize};
use store::RewritePlace;

use crate::error::NodeError;

/// The file of a data directory that says what is being rewritten.
pub(super) const FILE: &str = "encryption.rewrite";

/// What has become of the last rewrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RewriteState {
    /// It runs, or goes on at the next start.
    Running,
    /// Nothing that it met needs an older data key.
    Complete,
    /// A request ended it.
    Stopped,
    /// It cannot go on: see the reason.
    Failed,
}

/// How far the last rewrite has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RewriteStatus {
    /// What has become of it.
    pub state: RewriteState,
    /// The number of the data key that everything gets.
    pub data_key: u32,
    /// Bytes a second at most, of reading and writing.
    pub bytes_per_second: u64,
    /// Whether journal of older keys is given up that only `[journal] keep` holds.
    #[serde(default)]
    pub drops_kept_journal: bool,
    /// When it was requested, microseconds since 1970.
    pub begun_us: i64,
    /// What it is at: `index files`, `pages`, `journal`.
    pub part: String,
    /// Pages that were looked at.
    pub pages: u64,
    /// Pages in use.
    pub pages_total: u64,
    /// Pages of trees that were written anew since this process began.
    pub renewed: u64,
    /// Values in extents that were, too.
    pub values: u64,
    /// Bytes of index files that were read and written, too.
    pub file_bytes: u64,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Why it failed, or what it could not rewrite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What is in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordFile {
    pub(super) status: RewriteStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) place: Option<SealedPlace>,
}

/// A place, in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SealedPlace {
    data_key: u32,
    tree: u32,
    /// Ciphertext and seal: keys of rows are data.
    pub(super) key: Vec<u8>,
    pages: u64,
}

/// What the key of a place is bound to.
const SEALED: &[u8] = b"rewrite place";

impl SealedPlace {
    pub(super) fn of(place: &RewritePlace, sealer: &Sealer) -> SealedPlace {
        let RewritePlace { data_key, tree, key, pages } = place;
        let mut key = key.clone();
        key.resize(key.len() + SEAL_BYTES, 0);
        sealer.seal(SEALED, &mut key);
        SealedPlace { data_key: *data_key, tree: *tree, key, pages: *pages }
    }

    /// None: it was sealed with a key that is not there, or was changed. Then everything is looked at again.
    pub(super) fn open(mut self, sealer: &Sealer) -> Option<RewritePlace> {
        let key = sealer.open(SEALED, &mut self.key).ok()?.to_vec();
        Some(RewritePlace { data_key: self.data_key, tree: self.tree, key, pages: self.pages })
    }
}

/// What the last rewrite of a data directory has come to, as its file says; `None` if there was none.
///
/// # Errors
/// `File`: it cannot be read; `Refused`: it is none.
pub fn recorded(data: &Path) -> Result<Option<RewriteStatus>, NodeError> {
    Ok(read(data)?.map(|file| file.status))
}

pub(super) fn read(data: &Path) -> Result<Option<RecordFile>, NodeError> {
    let path = data.join(FILE);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(NodeError::file("read", &path)(error)),
    };
    let unreadable = |error| {
        let path = path.display();
        NodeError::Refused(format!(
            "{path} cannot be read: {error}; remove it, and begin `terrace encryption rewrite` again"
        ))
    };
    serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
}
