//! Writes entries, in one chain, and waits until they are durable.
//!
//! ```text
//!   record(entry)   lock: number, hash of the one before --> append to the journal --> ticket       order of numbers = order of LSNs
//!   wait(ticket)    group commit: whoever waits at the same time shares one write and one flush
//! ```
//!
//! Invariants:
//! 1. An entry is durable when `wait` or `durable` returns; every entry with a smaller number is then durable as well.
//! 2. An entry that is refused has not been appended, and the chain goes on without a gap.
//! 3. The place is bounded. When it is full, or the store has no room, or the newest entry cannot be read, entries are refused
//!    with the reason, so that what would need one is refused by its caller. Messages are taken and delivered without entries:
//!    nothing of that calls this.
//! 4. The entries of retention itself may go beyond the bound: they make room. Those of administrators may take a reserve at the
//!    end of the place. Those of names that nobody has proven leave the last eighth to others, where nothing removes old entries.
//! 5. Who asks how it is waits for nobody who appends: a medium that hangs holds these up.

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use store::{Direction, Lsn, Snapshot, Store, StoreError, TreeId};

use super::entry::{ActorKind, AuditEntry};
use super::frequent::FrequentEntries;
use super::reading::next;
use super::record::{AuditHead, ChainedEntry, EntryHash, KIND_AUDIT, RECORD_BYTES_MAX};
use super::rows::{AUDIT_TREE, decode_anchor, entry_key, number_of_key};
use crate::clock::Clock;
use crate::error::AuditRefused;

/// How much is kept, and how much there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditSettings {
    /// Entries older than this are removed. Default: none are.
    pub keep: Option<Duration>,
    /// When there are more bytes of entries, the oldest are removed. Default: none are.
    pub keep_bytes: Option<u64>,
    /// Bytes of entries beyond which entries are refused. Default 1 GiB.
    pub max_bytes: u64,
}

/// The largest place that is kept for administrators: some 50,000 entries.
const RESERVE_BYTES_MAX: u64 = 16 << 20;

impl AuditSettings {
    /// The bytes at the end of the place that only administration may take, so that an administrator can end what filled the rest:
    /// 1/16 of it, 16 MiB at most.
    pub fn reserve_bytes(&self) -> u64 {
        (self.max_bytes / 16).min(RESERVE_BYTES_MAX)
    }

    /// The bytes that an entry may not take, by whom it is.
    fn left_to_others(&self, room: RoomFor) -> u64 {
        match room {
            RoomFor::Stranger if self.keep_bytes.is_none() => (self.max_bytes / 8).max(self.reserve_bytes()),
            RoomFor::Use | RoomFor::Stranger => self.reserve_bytes(),
            RoomFor::Administration | RoomFor::Retention => 0,
        }
    }

    /// Whether it will soon be full: 4/5 are taken, and nothing goes because there is much.
    fn is_nearly_full(&self, bytes: u64) -> bool {
        self.keep_bytes.is_none() && bytes > self.max_bytes / 5 * 4
    }
}

impl Default for AuditSettings {
    fn default() -> AuditSettings {
        AuditSettings { keep: None, keep_bytes: None, max_bytes: 1 << 30 }
    }
}

/// An entry that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditTicket {
    pub(super) lsn: Lsn,
    /// Its number.
    pub number: u64,
}

/// Where the chain is.
#[derive(Debug, Default)]
pub(super) struct ChainState {
    /// The newest entry.
    pub(super) head: AuditHead,
    /// Bytes of all entries, ever.
    total: u64,
    /// Bytes of those that were removed.
    pub(super) removed: u64,
    /// The LSN of the newest entry of this start.
    last: Option<Lsn>,
}

/// How it is. Nobody appends while this is locked.
#[derive(Debug, Default)]
struct AuditHealth {
    /// Why the last entry was refused; none once one was taken, or there is room again.
    refusal: Option<AuditRefused>,
    /// Entries refused since the start.
    refused: u64,
    /// Bytes of the entries that are kept.
    bytes: u64,
    /// What cannot be read at the old end.
    damaged: Option<String>,
}

/// The audit of a node. See the module's text.
#[derive(Debug)]
pub struct Audit {
    store: Store,
    pub(super) tree: Option<TreeId>,
    clock: Clock,
    pub(super) settings: AuditSettings,
    /// Why nothing can be written.
    broken: Option<Arc<str>>,
    /// Locked while an entry is appended, and before `health`.
    state: Mutex<ChainState>,
    health: Mutex<AuditHealth>,
    frequent: Mutex<FrequentEntries>,
    opened: Instant,
}

/// Which bound counts for an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RoomFor {
    /// The bound of the settings without the reserve.
    Use,
    /// The same without what strangers leave to others.
    Stranger,
    /// The bound of the settings: what administrators do.
    Administration,
    /// None: it makes room.
    Retention,
}

impl Audit {
    /// The audit of a store that was opened with the audit's interpreter. It opens in any case: where the newest entry cannot be
    /// read, every later one is refused with the reason, and everything else of the node works.
    pub fn open(store: &Store, settings: AuditSettings, clock: Clock) -> Arc<Audit> {
        let (tree, state, damaged, broken) = match found(store) {
            Ok((tree, state, damaged)) => (Some(tree), state, damaged, None),
            Err(error) => (None, ChainState::default(), None, Some(Arc::from(error.to_string()))),
        };
        if let Some(why) = &broken {
            tracing::error!(
                why = &**why,
                "the audit cannot be written: bodies are not shown, and nothing is administered"
            );
        }
        let health = AuditHealth { bytes: state.total - state.removed, damaged, ..AuditHealth::default() };
        let (state, health) = (Mutex::new(state), Mutex::new(health));
        let (frequent, opened) = (Mutex::default(), Instant::now());
        Arc::new(Audit { store: store.clone(), tree, clock, settings, broken, state, health, frequent, opened })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ChainState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> MutexGuard<'_, AuditHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store that it lies in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Appends an entry; it is durable when [`wait`](Audit::wait) or [`durable`](Audit::durable) has returned.
    ///
    /// # Errors
    /// `AuditRefused`: nothing was appended, and what needed the entry must not happen.
    pub fn record(&self, entry: AuditEntry) -> Result<AuditTicket, AuditRefused> {
        let room = match entry.actor.kind {
            ActorKind::Claimed => RoomFor::Stranger,
            _ if entry.is_administration() => RoomFor::Administration,
            _ => RoomFor::Use,
        };
        self.append(entry, room)
    }

    /// Appends the entry of something that anybody can cause again and again, for all ports: a refusal, or what needs no right that
    /// is recorded, as a login. Of each actor at each port refusals have 20 in 10 seconds at most, and so has each other action; the
    /// next one says in `left_out` how many had none. `None`: it has none.
    ///
    /// # Errors
    /// As [`record`](Audit::record).
    pub fn record_bounded(&self, entry: AuditEntry) -> Result<Option<AuditTicket>, AuditRefused> {
        self.bounded(entry).map(|entry| self.record(entry)).transpose()
    }

    /// The same entry, if it is one of those that are recorded: for who records it later, and lets nobody wait until then.
    pub fn bounded(&self, entry: AuditEntry) -> Option<AuditEntry> {
        let now_ms = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let left_out = self.frequent.lock().unwrap_or_else(PoisonError::into_inner).apply(&entry, now_ms)?;
        Some(if left_out > 0 { entry.with("left_out", left_out.to_string()) } else { entry })
    }

    pub(super) fn append(&self, entry: AuditEntry, room: RoomFor) -> Result<AuditTicket, AuditRefused> {
        let mut state = self.lock();
        let appended = self.append_to(&mut state, entry, room);
        let mut health = self.health();
        health.refused += u64::from(appended.is_err());
        match &appended {
            // Others have room; that little is left is a trouble of its own.
            Err(AuditRefused::Full { .. }) if room == RoomFor::Stranger => {}
            Err(why) => health.refusal = Some(why.clone()),
            // What has a place of its own does not say that others have one.
            Ok(_) if room == RoomFor::Use => health.refusal = None,
            Ok(_) => {}
        }
        health.bytes = self.bytes_of(&state);
        appended
    }

    fn append_to(&self, state: &mut ChainState, entry: AuditEntry, room: RoomFor) -> Result<AuditTicket, AuditRefused> {
        if let Some(why) = &self.broken {
            return Err(AuditRefused::Failed(Arc::clone(why)));
        }
        let time_us = u64::try_from(self.clock.now_us()).unwrap_or(0);
        let AuditHead { number, hash: previous } = state.head;
        let number = number + 1;
        let chained = ChainedEntry { number, time_us, bytes_before: state.total, previous, cut: false, entry };
        let record = chained.encode();
        let bytes = state.total - state.removed;
        let reserve = self.settings.left_to_others(room);
        let max = self.settings.max_bytes - reserve;
        if room != RoomFor::Retention && bytes + record.len() as u64 > max {
            return Err(AuditRefused::Full { bytes, max, reserve });
        }
        let (hash, len) = (EntryHash::of(&record), record.len() as u64);
        let lsn = self.store.append(KIND_AUDIT, record).map_err(|error| match error {
            StoreError::Full(why) => AuditRefused::NoRoom(why),
            error => AuditRefused::Failed(error.to_string().into()),
        })?;
        state.head = AuditHead { number, hash };
        state.total += len;
        state.last = Some(lsn);
        Ok(AuditTicket { lsn, number })
    }

    /// Returns when an entry is durable. It blocks; those who wait at the same time share a flush.
    ///
    /// # Errors
    /// `Failed`: it is not known whether the entry will be found, and what needed it must not happen.
    pub fn wait(&self, ticket: AuditTicket) -> Result<(), AuditRefused> {
        self.store.commit(ticket.lsn).map_err(|error| AuditRefused::Failed(error.to_string().into()))
    }

    /// The same for a task of a runtime.
    ///
    /// # Errors
    /// As [`wait`](Audit::wait).
    pub async fn durable(self: &Arc<Self>, ticket: AuditTicket) -> Result<(), AuditRefused> {
        // On persistent memory a commit takes less time than another thread for it.
        if self.store.is_inline() {
            return self.wait(ticket);
        }
        let this = Arc::clone(self);
        let waited = tokio::task::spawn_blocking(move || this.wait(ticket)).await;
        waited.unwrap_or_else(|_| Err(AuditRefused::Failed("the node is stopping".into())))
    }

    /// Writes an entry, and returns when it is durable.
    ///
    /// # Errors
    /// As [`record`](Audit::record) and [`wait`](Audit::wait).
    pub async fn write(self: &Arc<Self>, entry: AuditEntry) -> Result<AuditTicket, AuditRefused> {
        let this = Arc::clone(self);
        let write = move || {
            let ticket = this.record(entry)?;
            this.wait(ticket).map(|()| ticket)
        };
        if self.store.is_inline() {
            return write();
        }
        // On a thread from the beginning: a medium that hangs holds an append up too.
        let written = tokio::task::spawn_blocking(write).await;
        written.unwrap_or_else(|_| Err(AuditRefused::Failed("the node is stopping".into())))
    }

    /// As [`record_bounded`](Audit::record_bounded), and returns when it is durable.
    ///
    /// # Errors
    /// As [`write`](Audit::write).
    pub async fn write_bounded(self: &Arc<Self>, entry: AuditEntry) -> Result<Option<AuditTicket>, AuditRefused> {
        let this = Arc::clone(self);
        let write = move || {
            let ticket = this.record_bounded(entry)?;
            ticket.map_or(Ok(()), |ticket| this.wait(ticket)).map(|()| ticket)
        };
        let written = tokio::task::spawn_blocking(write).await;
        written.unwrap_or_else(|_| Err(AuditRefused::Failed("the node is stopping".into())))
    }

    /// Returns when readers see every entry that was appended; after a failure of the store, all that they will.
    ///
    /// # Errors
    /// The store's.
    pub fn wait_visible(&self) -> Result<(), StoreError> {
        let last = self.lock().last;
        match last.map(|last| self.store.wait_visible(last)) {
            None | Some(Err(StoreError::Poisoned { .. })) => Ok(()),
            Some(visible) => visible,
        }
    }

    /// The newest entry. It may not be durable yet.
    pub fn head(&self) -> AuditHead {
        self.lock().head
    }

    /// Bytes of the entries that are kept.
    pub fn bytes(&self) -> u64 {
        self.health().bytes
    }

    pub(super) fn bytes_of(&self, state: &ChainState) -> u64 {
        state.total - state.removed
    }

    /// Notes how much retention has removed.
    pub(super) fn set_removed(&self, removed: u64) {
        let mut state = self.lock();
        state.removed = removed;
        self.health().bytes = self.bytes_of(&state);
    }

    /// Notes what cannot be read at the old end.
    pub(super) fn set_damaged(&self, damaged: Option<String>) {
        self.health().damaged = damaged;
    }

    /// Why entries are refused at present, and how many were, that they soon will be, or what cannot be read at the old end; none where all is
    /// well.
    pub fn trouble(&self) -> Option<String> {
        let health = self.health();
        let broken = || self.broken.clone().map(AuditRefused::Failed);
        match broken().or_else(|| health.refusal.clone()) {
            Some(why) => Some(format!("{why} ({} entries were refused since the start)", health.refused)),
            None if self.settings.is_nearly_full(health.bytes) => {
                let (bytes, max) = (health.bytes, self.settings.max_bytes);
                Some(format!(
                    "{bytes} of {max} bytes are taken, and nothing is removed: what needs an entry is refused when it is full"
                ))
            }
            None => health.damaged.clone(),
        }
    }

    /// Looks whether there is room again, after an entry found none.
    pub(super) fn look_for_room(&self) {
        let refusal = self.health().refusal.clone();
        let is_over = match refusal {
            Some(AuditRefused::NoRoom(_)) => self.store.try_room(RECORD_BYTES_MAX as u64).is_ok(),
            Some(AuditRefused::Full { .. }) => {
                self.bytes() + RECORD_BYTES_MAX as u64 <= self.settings.max_bytes - self.settings.reserve_bytes()
            }
            Some(AuditRefused::Failed(_)) | None => false,
        };
        if is_over {
            self.health().refusal = None;
        }
    }
}

/// What cannot be read at the old end; it goes with the entries around it when they are removed.
#[derive(Debug, Default)]
pub(super) struct OldDamage {
    count: u64,
    first: String,
}

impl OldDamage {
    pub(super) fn add(&mut self, why: &str) {
        if self.count == 0 {
            self.first = why.to_owned();
        }
        self.count += 1;
    }

    pub(super) fn row(&mut self, number: u64) {
        self.add(&format!("entry {number} cannot be read: it was changed"));
    }

    /// As it is reported.
    pub(super) fn report(&self) -> Option<String> {
        let more = self.count.checked_sub(1)?;
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        Some(format!("old entries of the audit are damaged (new ones are taken): {}{more}", self.first))
    }
}

/// The oldest entry that can be read: damage at the old end keeps nobody from writing at the new one, and the check reports it.
fn oldest_readable(
    snapshot: &Snapshot,
    tree: TreeId,
    first: &[u8],
    damage: &mut OldDamage,
) -> Result<Option<ChainedEntry>, StoreError> {
    let mut cursor = snapshot.scan(tree, Bound::Included(first), Bound::Unbounded, Direction::Forward);
    while let Some((number, row)) = next(&mut cursor, &mut |why| damage.add(why))? {
        match ChainedEntry::decode(&row) {
            None => damage.row(number),
            read => return Ok(read),
        }
    }
    Ok(None)
}

/// The end of the chain, its tree, and what cannot be read at its old end.
fn found(store: &Store) -> Result<(TreeId, ChainState, Option<String>), StoreError> {
    let damaged = |what: &str| StoreError::Corrupt(format!("{what} of {AUDIT_TREE} cannot be read").into());
    let snapshot = store.snapshot();
    let tree = snapshot.tree(AUDIT_TREE)?.ok_or_else(|| damaged("the tree"))?;
    let (all, first) = (Bound::Unbounded, entry_key(1));
    let newest = snapshot.scan(tree, all, all, Direction::Backward).next()?;
    let decode = |row: &[u8]| ChainedEntry::decode(row).ok_or_else(|| damaged("an entry"));
    let Some((key, row)) = newest else { return Ok((tree, ChainState::default(), None)) };
    if number_of_key(&key) == Some(0) {
        // Retention keeps the newest entry, so that this is not a state that it leaves.
        decode_anchor(&row).ok_or_else(|| damaged("the anchor"))?;
        return Err(damaged("what follows the anchor"));
    }
    let entry = decode(&row)?;
    let (number, hash) = (entry.number, EntryHash::of(&row));
    if number_of_key(&key) != Some(number) {
        return Err(damaged("the newest entry"));
    }
    let total = entry.bytes_before.saturating_add(row.len() as u64);
    let mut damage = OldDamage::default();
    let oldest = oldest_readable(&snapshot, tree, &first, &mut damage)?;
    let removed = oldest.map_or(total, |entry| entry.bytes_before).min(total);
    let state = ChainState { head: AuditHead { number, hash }, total, removed, last: None };
    Ok((tree, state, damage.report()))
}
