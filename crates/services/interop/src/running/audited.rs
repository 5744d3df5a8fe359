//! When the entry of a request of the control socket is written to the audit. Which requests have one is in `control_request`.
//!
//! ```text
//!   a change       entry "granted", durable --> done            and if it fails: entry "failed", which names the first one
//!   a read         read --> entry with its outcome, durable --> the response        the bodies of a message, the audit itself
//!   begun          as a change, as far as a flood of them leaves room                  a tail, whose reads have entries of their own
//!   refused        entry "refused" --> the refusal              of an action whose use has an entry; of a flood of them, some
//!
//!   the audit takes no entry: a change is not begun, a body is not shown          but for `stop` and reading the audit,
//!                                                                                 with which a full audit is set right
//! ```
//!
//! A change goes on to its end though its client hangs up, so that its entries say what became of it. Work that reports how far it
//! has come ends then by itself, and fails. A change at which the node ends may have neither.

use std::sync::Arc;
use std::time::Duration;

use device::supervise::caught;
use node::audit::{AuditEntry, AuditOutcome, AuditTicket, EntryMarks, Reads};
use node::task::session;
use node::{Audit, NodeError};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::error::InteropError;

/// How long a request that goes on without its entry waits for it: a medium that hangs must not keep a node from being stopped.
const PATIENCE: Duration = Duration::from_secs(3);

/// When the entry of a request is written, and what happens if it cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audited {
    /// Before it; without it the change is not begun.
    Change,
    /// The same, but the change happens without an entry too.
    Allowed,
    /// As a change, but of what needs no right whose uses are recorded, and can be asked for without end: a flood of it has some entries.
    Begun,
    /// With its outcome, before the response; without it there is no response.
    Read,
    /// The same, but the response is given without an entry too.
    Shown,
    /// As a read, where the right was one whose uses are recorded: a right for a time, by a broken glass.
    Used,
}

/// What a request has done.
pub(super) struct Answered {
    /// The response.
    pub value: Value,
    /// The bodies in it.
    pub reads: Reads,
    /// Why a part of it was refused.
    pub refused: Option<String>,
    /// Whether a right was used whose uses are recorded.
    pub is_recorded: bool,
    /// What is remarkable about the rights by which something was shown.
    pub marks: EntryMarks,
}

impl Answered {
    /// A response without bodies.
    pub(super) fn with(value: Value) -> Answered {
        Answered { value, reads: Reads::default(), refused: None, is_recorded: false, marks: EntryMarks::default() }
    }
}

/// Handles a request, with its entries.
///
/// # Errors
/// Those of the request, and `Audit` where it was not done because the audit takes no entry.
pub(super) async fn handle(
    audit: &Arc<Audit>,
    entry: Option<(Audited, AuditEntry)>,
    work: impl Future<Output = Result<Answered, InteropError>> + Send + 'static,
) -> Result<Value, InteropError> {
    let Some((audited, entry)) = entry else { return Ok(work.await?.value) };
    match audited {
        Audited::Change | Audited::Allowed | Audited::Begun => {
            let (audit, (answer, answered)) = (Arc::clone(audit), oneshot::channel());
            session("change", async move {
                // Who asked for it may be gone.
                let _ = answer.send(change(&audit, audited, entry, work).await);
            });
            answered.await.unwrap_or(Err(InteropError::Stopping))
        }
        Audited::Read | Audited::Shown | Audited::Used => {
            let read = work.await;
            let entry = match &read {
                Ok(Answered { refused: Some(why), .. }) => entry.ended(AuditOutcome::Refused, why.clone()),
                Ok(Answered { reads, .. }) => AuditEntry { reads: reads.clone(), ..entry },
                Err(error) => entry.ended(outcome_of(error), error.to_string()),
            };
            let entry = entry.marked(read.as_ref().map(|read| read.marks).unwrap_or_default());
            if audited != Audited::Used || read.as_ref().is_ok_and(|read| read.is_recorded) {
                write(audit, audited, entry).await?;
            }
            Ok(read?.value)
        }
    }
}

/// Makes a change, with its entries.
async fn change(
    audit: &Arc<Audit>,
    audited: Audited,
    entry: AuditEntry,
    work: impl Future<Output = Result<Answered, InteropError>>,
) -> Result<Value, InteropError> {
    let written = write(audit, audited, entry.clone()).await?;
    let done = caught(work).await.unwrap_or_else(|why| {
        tracing::error!(why, action = entry.action, "a change ended by a panic, and no other; report it");
        Err(InteropError::Refused("a fault of the program ended it, and the node's log has the text".to_owned()))
    });
    if let (Err(error), Some(ticket)) = (&done, written) {
        let failed = entry.with("entry", ticket.number.to_string());
        if let Err(why) = audit.write(failed.ended(outcome_of(error), error.to_string())).await {
            tracing::error!(%why, entry = ticket.number, "that a change failed could not be written to the audit");
        }
    }
    Ok(done?.value)
}

fn outcome_of(error: &InteropError) -> AuditOutcome {
    if matches!(error, InteropError::Denied(_)) { AuditOutcome::Refused } else { AuditOutcome::Failed }
}

/// Writes that a request was refused. It is refused whether or not that can be written.
pub(super) async fn refused(audit: &Arc<Audit>, entry: AuditEntry, outcome: AuditOutcome, why: String) {
    // Nothing is begun or shown without it.
    _ = write(audit, Audited::Shown, entry.ended(outcome, why)).await;
}

/// Writes an entry; of what was not done, as far as a flood of them leaves room. None where there is none and the request goes on
/// nevertheless.
async fn write(audit: &Arc<Audit>, audited: Audited, entry: AuditEntry) -> Result<Option<AuditTicket>, InteropError> {
    let is_done = entry.outcome == AuditOutcome::Granted && audited != Audited::Begun;
    if matches!(audited, Audited::Change | Audited::Read | Audited::Used | Audited::Begun) {
        let written = if is_done { audit.write(entry).await.map(Some) } else { audit.write_bounded(entry).await };
        return Ok(written.map_err(NodeError::from)?);
    }
    // On a thread: a medium that hangs holds an append up too.
    let writing = Arc::clone(audit);
    let written = tokio::task::spawn_blocking(move || {
        let ticket = if is_done { Some(writing.record(entry)?) } else { writing.record_bounded(entry)? };
        ticket.map_or(Ok(()), |ticket| writing.wait(ticket)).map(|()| ticket)
    });
    let why = match tokio::time::timeout(PATIENCE, written).await {
        Ok(Ok(Ok(ticket))) => return Ok(ticket),
        Ok(Ok(Err(refused))) => refused.to_string(),
        Ok(Err(_)) => "the node is stopping".to_owned(),
        Err(_) => "it is not durable yet".to_owned(),
    };
    tracing::error!(why, "an entry of the audit could not be written; the request goes on, since it needs none");
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use device::{MemoryShelf, Shelf};
    use node::{AuditSettings, Clock};
    use store::{Places, Store};

    use super::*;

    fn audit() -> Arc<Audit> {
        let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
        let interpreter = Some(crate::rows::interpreter());
        let (store, _) = Store::open(places, store::Options { interpreter, ..Default::default() }).expect("it opens");
        Audit::open(&store, AuditSettings::default(), Clock::system())
    }

    #[tokio::test]
    async fn a_change_whose_client_hangs_up_goes_on_to_its_end() {
        let (audit, is_done) = (audit(), Arc::new(AtomicBool::new(false)));
        let entry = || Some((Audited::Change, AuditEntry::new("production.reload", "")));
        let ((began, begun), (go, gone)) = (oneshot::channel(), oneshot::channel::<()>());
        let done = Arc::clone(&is_done);
        let work = async move {
            began.send(()).expect("the test waits");
            gone.await.expect("the test lives");
            done.store(true, Ordering::Release);
            Err(InteropError::Refused("no".to_owned()))
        };
        tokio::select! {
            _ = handle(&audit, entry(), work) => panic!("it has not ended"),
            begun = begun => begun.expect("it begins"),
        }
        assert_eq!(audit.head().number, 1);
        go.send(()).expect("it waits");
        while audit.head().number < 2 {
            tokio::task::yield_now().await;
        }
        assert!(is_done.load(Ordering::Acquire), "the second entry says that it failed");
        let panics = async { panic!("on purpose") };
        handle(&audit, entry(), panics).await.expect_err("a panic is an error of the request");
        assert_eq!(audit.head().number, 4);
    }

    #[tokio::test]
    async fn what_is_begun_again_and_again_has_twenty_entries_and_is_begun_nevertheless() {
        let (audit, mut done) = (audit(), 0);
        for _ in 0..50 {
            let entry = Some((Audited::Begun, AuditEntry::new("message.tail", "")));
            let answered = handle(&audit, entry, async { Ok(Answered::with(Value::Null)) }).await;
            done += usize::from(answered.is_ok());
        }
        assert_eq!((done, audit.head().number), (50, 20));
        let entry = Some((Audited::Begun, AuditEntry::new("message.tail", "")));
        let fails = async { Err(InteropError::Refused("as many as may be".to_owned())) };
        handle(&audit, entry, fails).await.expect_err("it fails");
        assert_eq!(audit.head().number, 20, "that it failed has no entry either");
    }
}
