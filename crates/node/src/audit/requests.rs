//! The requests about the audit, and where they are answered: by a running node over its control socket, or from the data of a
//! stopped one, without changing it.
//!
//! ```text
//!   terrace audit ...  --  `audit {"verb": "read", ...}`  -->  a running node: answer
//!                                                              a stopped one:  AuditPlace itself
//!   terrace restore    --  note: an entry into the data of a stopped node, by a command that changed it
//! ```

use std::path::Path;
use std::sync::Arc;

use device::{FileOptions, FileShelf, Shelf};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{Interpreter, Places, Store};

use super::chain::ChainReport;
use super::entry::AuditEntry;
use super::reading::{AuditPage, AuditQuery, AuditReader};
use super::record::AuditHead;
use super::writing::{Audit, AuditSettings};
use crate::clock::Clock;
use crate::control;
use crate::error::NodeError;
use crate::location::{IMAGES, JOURNAL, PAGES};
use crate::lock::DirectoryLock;
use crate::maintenance::NodeFolder;
use crate::stopped;

/// The word that a request begins with.
pub const AUDIT_REQUEST: &str = "audit";

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum AuditRequest {
    /// A page of entries.
    Read {
        /// Which.
        query: AuditQuery,
    },
    /// The newest entry.
    Head,
    /// A check of the chain.
    Verify {
        /// Heads that were kept elsewhere.
        #[serde(default)]
        heads: Vec<AuditHead>,
    },
}

impl AuditRequest {
    /// Reads a request, of what follows its word.
    ///
    /// # Errors
    /// `Refused`: it is none.
    pub fn of(text: &str) -> Result<AuditRequest, NodeError> {
        let read = serde_json::from_str(text);
        read.map_err(|error| NodeError::Refused(format!("`{text}` is no request about the audit: {error}")))
    }

    /// The line that is sent.
    pub fn line(&self) -> String {
        format!("{AUDIT_REQUEST} {}", serde_json::to_string(self).expect("plain data becomes JSON"))
    }

    fn answer(&self, reader: &AuditReader) -> Result<Value, NodeError> {
        Ok(match self {
            AuditRequest::Read { query } => json!(reader.page(query)?),
            AuditRequest::Head => json!(reader.head()?),
            AuditRequest::Verify { heads } => json!(reader.verify(heads)?),
        })
    }
}

/// Answers a request of a running node. Every entry that was written before it is in the response.
///
/// # Errors
/// The store's.
pub async fn answer(audit: &Arc<Audit>, request: AuditRequest) -> Result<Value, NodeError> {
    let audit = Arc::clone(audit);
    let read = move || {
        audit.wait_visible()?;
        request.answer(&AuditReader::at(audit.store().snapshot())?)
    };
    tokio::task::spawn_blocking(read).await.unwrap_or(Err(NodeError::Stopping))
}

/// The audit of a node, whether it runs or not, or of a backup.
#[derive(Debug)]
pub struct AuditPlace {
    source: PlaceSource,
}

#[derive(Debug)]
enum PlaceSource {
    /// A node runs there.
    Node(std::path::PathBuf),
    /// None does, and the directory is held meanwhile.
    Stopped { store: Store, _lock: Option<DirectoryLock> },
}

impl AuditPlace {
    /// Opens the audit of what lies in a folder. `interpreter` is that of all records of the node.
    ///
    /// # Errors
    /// There is no node and no backup, or it cannot be read.
    pub fn open(folder: &Path, interpreter: Arc<dyn Interpreter>) -> Result<AuditPlace, NodeError> {
        let found = NodeFolder::find(folder)?;
        if let NodeFolder::Running(data) = found {
            return Ok(AuditPlace { source: PlaceSource::Node(data) });
        }
        let (store, lock) = found.open(interpreter)?;
        Ok(AuditPlace { source: PlaceSource::Stopped { store, _lock: lock } })
    }

    fn request(&self, request: &AuditRequest) -> Result<Value, NodeError> {
        match &self.source {
            PlaceSource::Node(data) => control::request(data, &request.line()),
            PlaceSource::Stopped { store, .. } => request.answer(&AuditReader::at(store.snapshot())?),
        }
    }

    /// A page of entries.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn page(&self, query: &AuditQuery) -> Result<AuditPage, NodeError> {
        control::read_response(self.request(&AuditRequest::Read { query: query.clone() })?)
    }

    /// The newest entry.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn head(&self) -> Result<AuditHead, NodeError> {
        control::read_response(self.request(&AuditRequest::Head)?)
    }

    /// A check of the chain, against heads that were kept elsewhere.
    ///
    /// # Errors
    /// It cannot be read at all.
    pub fn verify(&self, heads: &[AuditHead]) -> Result<ChainReport, NodeError> {
        control::read_response(self.request(&AuditRequest::Verify { heads: heads.to_vec() })?)
    }
}

/// Writes an entry into the audit of the stopped node at `data`, whose journal, images and pages lie in its data directory, as
/// a restore makes them.
///
/// # Errors
/// The store cannot be opened, or the entry cannot be written.
pub fn note(data: &Path, interpreter: Arc<dyn Interpreter>, entry: AuditEntry) -> Result<(), NodeError> {
    note_under(&DirectoryLock::acquire(data)?, interpreter, entry)
}

/// As [`note`], by who has the lock of the data directory.
///
/// # Errors
/// As there.
pub fn note_under(lock: &DirectoryLock, interpreter: Arc<dyn Interpreter>, entry: AuditEntry) -> Result<(), NodeError> {
    let data = lock.data();
    let open = |name: &str| -> Result<Arc<dyn Shelf>, NodeError> {
        Ok(Arc::new(FileShelf::open(&data.join(name), FileOptions::default())?))
    };
    let places = Places { journal: open(JOURNAL)?, images: open(IMAGES)?, data: open(PAGES)? };
    let store = stopped::open_to_write(places, interpreter, crate::encryption::to_write(data)?)?;
    // The bound is that of a setting which is not known here.
    let audit = Audit::open(&store, AuditSettings { max_bytes: u64::MAX, ..AuditSettings::default() }, Clock::system());
    let written = audit.record(entry).and_then(|ticket| audit.wait(ticket));
    store.close()?;
    Ok(written?)
}
