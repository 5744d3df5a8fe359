//! Exports: a device with a name, what it allows, and who uses it.
//!
//! ```text
//!   open "vol-7/b@41"   --->  find "vol-7/b"  --->  epochs: lower refused, higher kept durably, older sessions cut
//!                                                     |
//!                              Session  <-------------+      ended when it is dropped
//! ```
//!
//! Invariants: a session of a lower epoch does nothing any more in the device when a higher one is answered; an export
//! that was removed admits nobody, and its sessions end after what they have begun.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::Device;
use node::identity::{Connected, RightsView};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::limiter::{Limits, LiveLimits};
use super::mailbox::{Course, Mailbox};
use super::range_locks::RangeLocks;
use super::rights::Visitor;
use crate::error::NbdError;
use crate::protocol::{ExportFacts, PAYLOAD_BYTES_MAX, PREFERRED_BLOCK_BYTES, answer, export_flag};

/// The longest name of an export.
const NAME_BYTES_MAX: usize = 200;

/// How long sessions of an epoch that is over get to end what they have begun. The client waits for the answer meanwhile: less than the
/// time that a negotiation has, so that it gets one.
const CUT_TIME: Duration = Duration::from_secs(5);

/// How far a higher epoch may be from the one in force: 2^20 terms. An owner's number is its term, which each opening of the volume
/// raises by one, and below it 32 bits of its own (`volume::Epoch::fence`); a copy may be away for many terms, or be made anew. An
/// epoch near the end of the numbers is of no owner, and would leave the next one none.
const EPOCH_STEP_MAX: u64 = 1 << 52;

/// Keeps the epoch of a copy of a volume. A client names the epoch under which it opens the export: `name@41`.
///
/// A lower one is refused, and one that is more than 1,048,576 (2^20) higher. A higher one is kept by [`EpochGate::raise`] before the client is answered, and ends the
/// sessions of older ones first, so that an owner that is no longer one cannot write.
pub trait EpochGate: Send + Sync + fmt::Debug {
    /// The epoch in force.
    fn current(&self) -> u64;

    /// Makes a higher epoch durable; persistent when it returns. It may wait for a medium.
    ///
    /// # Errors
    /// It could not; the reason, for the client and the log. The epoch in force is as before.
    fn raise(&self, epoch: u64) -> Result<(), String>;
}

/// A device that clients may open. Made by [`Export::new`], then changed as needed.
#[derive(Debug, Clone)]
pub struct Export {
    /// The name, without an epoch.
    pub name: String,
    /// The device.
    pub device: Arc<dyn Device>,
    /// For people; at most 4,096 bytes. Default: empty.
    pub description: String,
    /// Whether changes are refused. Default: false.
    pub read_only: bool,
    /// Whether clients may use several connections at a time: a flush of one covers the writes of all, since they share
    /// the device. Default: true.
    pub multi_conn: bool,
    /// Whether zeros without `NO_HOLE` take less time than writing: the device gives space up at once. Requests that
    /// allow nothing else are refused with `ENOTSUP` otherwise. Default: false.
    pub fast_zero: bool,
    /// Whether holes are looked for: reads of 64 KiB and more send them without their bytes. Default: true.
    pub sparse: bool,
    /// Limits of all sessions together, at first ([`NbdServer::limit`](super::NbdServer::limit)). Default: none.
    pub limits: Limits,
    /// Keeper of the epoch, where names have one. Default: none, and a name with an epoch is unknown.
    pub epochs: Option<Arc<dyn EpochGate>>,
}

impl Export {
    /// The device under a name.
    pub fn new(name: &str, device: Arc<dyn Device>) -> Export {
        let (name, description) = (name.to_owned(), String::new());
        Export {
            name,
            device,
            description,
            read_only: false,
            multi_conn: true,
            fast_zero: false,
            sparse: true,
            limits: Limits::default(),
            epochs: None,
        }
    }

    fn facts(&self) -> ExportFacts {
        let mut flags = export_flag::HAS_FLAGS | export_flag::FLUSH | export_flag::FUA | export_flag::CACHE;
        flags |= export_flag::DONT_FRAGMENT;
        flags |= match self.read_only {
            true => export_flag::READ_ONLY,
            false => export_flag::TRIM | export_flag::WRITE_ZEROES | export_flag::FAST_ZERO,
        };
        if self.multi_conn {
            flags |= export_flag::MULTI_CONN;
        }
        ExportFacts {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: self.device.len(),
            flags,
            min_block: 1,
            preferred_block: PREFERRED_BLOCK_BYTES,
            max_payload: PAYLOAD_BYTES_MAX,
            has_epochs: self.epochs.is_some(),
        }
    }
}

/// What sessions of an export have done.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) errors: AtomicU64,
}

/// What an export has done since it was added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportStatus {
    /// Its name.
    pub name: String,
    /// Open sessions.
    pub sessions: usize,
    /// The epoch in force, if it has epochs.
    pub epoch: Option<u64>,
    /// Reads that were requested.
    pub reads: u64,
    /// Writes, trims and zeros.
    pub writes: u64,
    /// Flushes, and writes with FUA.
    pub flushes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
}

/// An export in service.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) settings: Export,
    pub(super) facts: ExportFacts,
    /// The same for a client that may only read: it has no right to write, or states no epoch although there are epochs.
    looking: ExportFacts,
    /// Locks of its blocks, where these are larger than a byte.
    pub(super) locks: RangeLocks,
    pub(super) limits: LiveLimits,
    pub(super) counters: Counters,
    is_closed: AtomicBool,
    /// Held while an epoch is compared and raised, until the session has its place; also by a raise whose client is gone.
    opening: Arc<tokio::sync::Mutex<()>>,
    sessions: Mutex<Sessions>,
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Sessions {
    next: u64,
    open: HashMap<u64, Seated>,
}

/// A session's mailbox, its epoch, which client it is of, 0 for unknown, and who that is.
#[derive(Debug, Clone)]
struct Seated {
    mailbox: Arc<Mailbox>,
    epoch: u64,
    client: u64,
    visitor: Visitor,
}

/// The right to open an export, of one client at a time.
type Opening = tokio::sync::OwnedMutexGuard<()>;

/// Why an export is not opened: kind of [`answer`], and a text.
pub(super) type Refused = (u32, String);

impl Served {
    /// # Errors
    /// [`NbdError::Name`].
    pub(super) fn new(settings: Export) -> Result<Served, NbdError> {
        let name = &settings.name;
        let is_name =
            (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(|c: char| c == '@' || c.is_control());
        if !is_name || settings.description.len() > crate::protocol::STRING_BYTES_MAX {
            return Err(NbdError::Name { name: name.clone() });
        }
        let block = settings.device.block_bytes();
        assert!(block.is_power_of_two() && block <= PREFERRED_BLOCK_BYTES, "a device of blocks of {block} bytes");
        let facts = settings.facts();
        let writing = export_flag::TRIM | export_flag::WRITE_ZEROES | export_flag::FAST_ZERO;
        let looking = ExportFacts { flags: facts.flags & !writing | export_flag::READ_ONLY, ..facts.clone() };
        Ok(Served {
            facts,
            looking,
            locks: RangeLocks::default(),
            limits: LiveLimits::new(settings.limits),
            counters: Counters::default(),
            is_closed: AtomicBool::new(false),
            opening: Arc::default(),
            sessions: Mutex::default(),
            count: watch::Sender::new(0),
            settings,
        })
    }

    /// Puts other limits in force, also for sessions that wait.
    pub(super) fn limit(&self, limits: Limits) {
        self.limits.change(limits);
        self.sessions.lock().open.values().for_each(|seated| seated.mailbox.wake());
    }

    /// Whether a client that only looks, and may write or not, may see it under this epoch.
    pub(super) fn look(&self, epoch: Option<u64>, may_write: bool) -> Result<(), Refused> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err((answer::SHUTDOWN, format!("{} is no longer exported", self.facts.name)));
        }
        match (&self.settings.epochs, epoch) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err((answer::UNKNOWN, format!("{} has no epochs", self.facts.name))),
            // It may read, and nothing else: who reads before it owns learns the epoch that it needs.
            (Some(_), None) => Ok(()),
            // An epoch is that of an owner, who writes: it ends the sessions of others.
            (Some(_), Some(_)) if !may_write => {
                Err((answer::POLICY, format!("{} is opened with an epoch by who may write it", self.facts.name)))
            }
            (Some(gate), Some(epoch)) => match gate.current() {
                current if epoch < current => Err((answer::POLICY, format!("epoch {epoch} is over: it is {current}"))),
                current if epoch - current > EPOCH_STEP_MAX => Err((
                    answer::POLICY,
                    format!(
                        "epoch {epoch} is too far from the one in force, {current}: owners come one after the other"
                    ),
                )),
                _ => Ok(()),
            },
        }
    }

    /// What a session with this epoch may do, of a client that may write or not.
    pub(super) fn facts_for(&self, epoch: Option<u64>, may_write: bool) -> &ExportFacts {
        let is_looking = !may_write || (self.settings.epochs.is_some() && epoch.is_none());
        if is_looking { &self.looking } else { &self.facts }
    }

    /// Opens it for a session of a client, 0 for one that is not known. Its visitor may read it.
    pub(super) async fn open(
        self: &Arc<Served>,
        epoch: Option<u64>,
        client: u64,
        visitor: &Visitor,
    ) -> Result<Session, Refused> {
        let may_write = visitor.allowed(&self.facts.name).write;
        if client != 0 {
            // It has given its older connection up. A request of that must not come after one of this, which is newer. Others who
            // open the export do not wait for that.
            // Of its own: a number that another role drew, or guessed, ends nothing of this one's.
            let role = visitor.role_id();
            let is_own = |other: &Seated| other.client == client && other.visitor.role_id() == role;
            self.cut("an older connection of this client", is_own).await?;
        }
        let connected = visitor.connect()?;
        let mut opening = Arc::clone(&self.opening).lock_owned().await;
        self.look(epoch, may_write)?;
        if let (Some(gate), Some(epoch)) = (&self.settings.epochs, epoch) {
            if epoch > gate.current() {
                opening = self.raise(Arc::clone(gate), epoch, opening).await?;
            }
            // Also of an epoch that is in force already: whoever raised it may have been gone before this was over.
            self.cut(&format!("an epoch before {epoch}"), |other| other.epoch < epoch).await?;
        }
        let mailbox = Arc::new(Mailbox::default());
        let number = {
            let mut sessions = self.sessions.lock();
            sessions.next += 1;
            let number = sessions.next;
            let visitor = visitor.clone();
            let seated = Seated { mailbox: Arc::clone(&mailbox), epoch: epoch.unwrap_or(0), client, visitor };
            sessions.open.insert(number, seated);
            self.count.send_replace(sessions.open.len());
            number
        };
        let session = Session { export: Arc::clone(self), mailbox, number, epoch, _connected: connected };
        // It may have been closed in between, or a right lost: then it is in the list, or it is noticed here.
        let allowed = visitor.allowed(&self.facts.name);
        if !allowed.read {
            return Err(unknown());
        }
        if !allowed.write {
            session.mailbox.make_read_only();
        }
        self.look(epoch, allowed.write)?;
        drop(opening);
        Ok(session)
    }

    /// Keeps a higher epoch. It goes on if the client does not wait for it, and nobody opens the export meanwhile.
    async fn raise(&self, gate: Arc<dyn EpochGate>, epoch: u64, opening: Opening) -> Result<Opening, Refused> {
        let raised = tokio::task::spawn_blocking(move || gate.raise(epoch).map(|()| opening)).await;
        let raised = raised.unwrap_or_else(|_| Err("keeping the epoch panicked".to_owned()));
        raised.map_err(|why| {
            tracing::warn!(export = self.facts.name, epoch, why, "a higher epoch could not be kept: refused");
            (answer::POLICY, format!("epoch {epoch} cannot be kept: {why}"))
        })
    }

    /// Ends the sessions that are over, and waits until nothing of them is in the device.
    async fn cut(&self, whose: &str, is_over: impl Fn(&Seated) -> bool) -> Result<(), Refused> {
        let older = || self.sessions.lock().open.values().filter(|other| is_over(other)).cloned().collect::<Vec<_>>();
        for seated in older() {
            seated.mailbox.restrict(Course::Cut);
        }
        let mut count = self.count.subscribe();
        // Not inside `wait_for`: it would hold the count's lock here, while a session that ends takes both the other way round.
        let gone =
            tokio::time::timeout(CUT_TIME, async { while !older().is_empty() && count.changed().await.is_ok() {} });
        if gone.await.is_err() {
            // Their requests are still in the device: the new owner must not begin beside them.
            return Err((answer::POLICY, format!("requests of {whose} are not complete yet: try again")));
        }
        Ok(())
    }

    /// Puts changed rights in force for the open sessions.
    pub(super) fn revise(&self, view: &RightsView) {
        let (mut ended, mut read_only) = (Vec::new(), Vec::new());
        for seated in self.sessions.lock().open.values() {
            let allowed = seated.visitor.allowed_by(view, &self.facts.name);
            if !allowed.read && seated.mailbox.restrict(Course::Cut) {
                ended.push(seated.visitor.role());
            } else if !allowed.write && seated.mailbox.make_read_only() {
                read_only.push(seated.visitor.role());
            }
        }
        for (roles, what) in [(ended, "sessions end"), (read_only, "sessions are read-only from now on")] {
            if let Some(role) = roles.first() {
                let (export, sessions) = (&self.facts.name, roles.len());
                tracing::info!(export, sessions, role, "{what}: the right was lost; `role` is the first one's");
            }
        }
    }

    /// Admits nobody any more and lets the sessions end; returns how many are left after `patience`, which are cut.
    pub(super) async fn close(&self, patience: Duration) -> usize {
        self.is_closed.store(true, Ordering::Release);
        let restrict = |course| {
            for seated in self.sessions.lock().open.values() {
                seated.mailbox.restrict(course);
            }
        };
        for (course, patience) in [(Course::Drain, patience), (Course::Cut, CUT_TIME)] {
            restrict(course);
            let mut count = self.count.subscribe();
            let gone = tokio::time::timeout(patience, async { count.wait_for(|count| *count == 0).await.is_ok() });
            if matches!(gone.await, Ok(true)) {
                return 0;
            }
        }
        self.sessions.lock().open.len()
    }

    pub(super) fn status(&self) -> ExportStatus {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { reads, writes, flushes, read_bytes, written_bytes, errors } = &self.counters;
        ExportStatus {
            name: self.facts.name.clone(),
            sessions: self.sessions.lock().open.len(),
            epoch: self.settings.epochs.as_ref().map(|gate| gate.current()),
            reads: of(reads),
            writes: of(writes),
            flushes: of(flushes),
            read_bytes: of(read_bytes),
            written_bytes: of(written_bytes),
            errors: of(errors),
        }
    }
}

/// A session's place at its export; given back when it is dropped, which is when nothing of it is in the device.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) export: Arc<Served>,
    pub(super) mailbox: Arc<Mailbox>,
    number: u64,
    epoch: Option<u64>,
    /// Its place among the connections of its role.
    _connected: Option<Connected>,
}

impl Session {
    /// What it may do.
    pub(super) fn facts(&self) -> &ExportFacts {
        self.export.facts_for(self.epoch, !self.mailbox.is_read_only())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut sessions = self.export.sessions.lock();
        sessions.open.remove(&self.number);
        self.export.count.send_replace(sessions.open.len());
    }
}

/// The answer to a name that is not there, or that the client may not know of.
pub(super) fn unknown() -> Refused {
    (answer::UNKNOWN, "there is no such export".to_owned())
}

/// A name as a client states it, without its epoch, and the epoch. `None`: what follows the `@` is no epoch.
pub(super) fn split_epoch(name: &str) -> Option<(&str, Option<u64>)> {
    match name.rsplit_once('@') {
        None => Some((name, None)),
        Some((name, epoch)) if epoch.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some((name, Some(epoch.parse().ok()?)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_what_follows_the_at_sign_and_nothing_else() {
        assert_eq!(split_epoch("vol-7/b@41"), Some(("vol-7/b", Some(41))));
        assert_eq!(split_epoch("vol-7/b"), Some(("vol-7/b", None)));
        for wrong in ["a@", "a@x", "a@-1", "a@+1", "a@1 ", "a@99999999999999999999"] {
            assert_eq!(split_epoch(wrong), None, "{wrong}");
        }
    }
}
