//! Writes entries of the audit for the server, so that no session waits for the store of the node.
//!
//! ```text
//!   note  --> a short queue --> one task --> Audit       what does not fit is lost, and counted in the log
//!   write -------------------------------> Audit         durable when it returns, or refused
//! ```
//!
//! The store may lie on a medium that waits for these very exports: a session that waited for it would wait for itself.
//! A client that opens an export again and again has one entry a minute for it, and one that is refused has some of its refusals.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use node::Audit;
use node::audit::AuditEntry;
use node::identity::RoleId;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::origin::Origin;

/// Entries that wait.
const QUEUE: usize = 256;

/// How often the same opening has an entry.
const AGAIN: Duration = Duration::from_secs(60);

/// Openings that are remembered.
const REMEMBERED: usize = 4096;

/// Who opened what, in which mode.
type Opening = (RoleId, Origin, String, bool);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Recorder {
    audit: Arc<Audit>,
    queue: mpsc::Sender<AuditEntry>,
    waiting: Mutex<Option<mpsc::Receiver<AuditEntry>>>,
    opened: Mutex<HashMap<Opening, Instant>>,
    /// Whether the last entry was lost.
    is_losing: AtomicBool,
}

impl Recorder {
    pub(super) fn new(audit: &Arc<Audit>) -> Recorder {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let (audit, waiting) = (Arc::clone(audit), Mutex::new(Some(waiting)));
        Recorder { audit, queue, waiting, opened: Mutex::default(), is_losing: AtomicBool::new(false) }
    }

    /// The task that writes what is noted, of the first call; it ends with the recorder.
    pub(super) fn work(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let mut waiting = self.waiting.lock().take()?;
        let audit = Arc::clone(&self.audit);
        Some(async move {
            while let Some(entry) = waiting.recv().await {
                let audit = Arc::clone(&audit);
                let written = tokio::task::spawn_blocking(move || audit.record(entry)).await;
                if let Ok(Err(error)) = written {
                    tracing::warn!(%error, "an opened export, or a login that failed, has no entry in the audit");
                }
            }
        })
    }

    /// Enters something as far as there is room.
    pub(super) fn note(&self, entry: AuditEntry) {
        let is_lost = self.queue.try_send(entry).is_err();
        // One line until something is taken again: clients must not fill the log.
        if is_lost && !self.is_losing.swap(true, Ordering::Relaxed) {
            tracing::warn!("entries of opened exports do not reach the audit: it is too slow, or full");
        } else if !is_lost {
            self.is_losing.store(false, Ordering::Relaxed);
        }
    }

    /// The same for something that was refused, as far as a flood of that leaves room.
    pub(super) fn note_refused(&self, entry: AuditEntry) {
        if let Some(entry) = self.audit.bounded(entry) {
            self.note(entry);
        }
    }

    /// The same for an opened export, unless it has an entry of the last minute.
    pub(super) fn note_opened(&self, entry: AuditEntry, by: (RoleId, Origin, &str, bool)) {
        let (role, origin, export, is_read_only) = by;
        let now = Instant::now();
        {
            let mut opened = self.opened.lock();
            if opened.len() >= REMEMBERED {
                opened.retain(|_, at| now.duration_since(*at) < AGAIN);
            }
            let key = (role, origin, export.to_owned(), is_read_only);
            if opened.get(&key).is_some_and(|at| now.duration_since(*at) < AGAIN) {
                return;
            }
            if opened.len() < REMEMBERED {
                opened.insert(key, now);
            }
        }
        self.note(entry);
    }

    /// Enters something durably.
    ///
    /// # Errors
    /// Why it cannot be entered.
    pub(super) async fn write(&self, entry: AuditEntry) -> Result<(), String> {
        let audit = Arc::clone(&self.audit);
        let written = tokio::task::spawn_blocking(move || audit.record(entry).and_then(|ticket| audit.wait(ticket)));
        match written.await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err("the server is stopping".to_owned()),
        }
    }
}
