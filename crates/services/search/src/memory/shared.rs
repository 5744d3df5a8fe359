//! [`SearchMemory`]: memory that all searches share, and the turns of those that have to wait for it.
//!
//! ```text
//!   ann   holds 300 MiB     wants 256 MiB more: waits until another search ends
//!   bob   holds   0 MiB     wants   8 MiB: is next, as his searches hold the least
//! ```
//!
//! A role has three quarters of it at most, or one search that holds more. A search that holds some takes what there is, as it gives back only
//! by going on; of those that hold none that one is next whose role holds the least, and of these the one that waits longest.
//!
//! Invariants: no more is taken than there is; nobody waits longer than [`WAIT_MAX`], nor where nobody is left that could give back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use node::identity::RoleId;
use parking_lot::{Condvar, Mutex};

use crate::error::SearchError;
use crate::waiting::waiting;

/// How long a search waits for memory: as long as clients have patience (a client's usual time is 10 s and more).
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Most searches that wait.
const WAITING_MAX: usize = 256;

/// How often one that waits looks whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// Memory that all searches of a node have.
#[derive(Debug)]
pub struct SearchMemory {
    bytes: u64,
    /// What those of one role may have of it together.
    share: u64,
    /// Searches so far: each has a number.
    came: AtomicU64,
    state: Mutex<MemoryShares>,
    changed: Condvar,
}

/// Who asks for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryAsker {
    /// The number of its search.
    pub(super) number: u64,
    /// Whose search it is; none: nobody's, which has no share.
    pub(super) owner: Option<RoleId>,
}

/// How long a search waits for memory at most.
#[derive(Clone, Debug)]
pub struct MemoryPatience {
    cancelled: Arc<AtomicBool>,
    until: Option<Instant>,
}

impl MemoryPatience {
    /// Until it is cancelled, its time is over, or it has waited for ten seconds.
    pub fn new(cancelled: Arc<AtomicBool>, until: Option<Instant>) -> MemoryPatience {
        MemoryPatience { cancelled, until }
    }

    fn ends(&self) -> Instant {
        let most = Instant::now() + WAIT_MAX;
        self.until.map_or(most, |until| until.min(most))
    }
}

/// A search that waits.
#[derive(Clone, Copy, Debug)]
struct MemoryWait {
    /// Those that came later have a greater one.
    ticket: u64,
    more: u64,
}

/// A search that holds memory, or waits for it.
#[derive(Debug)]
struct SearchPart {
    owner: Option<RoleId>,
    held: u64,
    waits: Option<MemoryWait>,
}

#[derive(Debug)]
struct MemoryShares {
    left: u64,
    /// The least that was left at any time.
    least: u64,
    tickets: u64,
    /// By the numbers of searches.
    parts: HashMap<u64, SearchPart>,
    /// What those of a role hold together.
    of_role: HashMap<Option<RoleId>, u64>,
}

impl MemoryShares {
    fn held(&self, number: u64) -> u64 {
        self.parts.get(&number).map_or(0, |part| part.held)
    }

    /// What the other searches of its owner hold.
    fn held_beside(&self, asker: MemoryAsker) -> u64 {
        self.of_role.get(&asker.owner).map_or(0, |held| held.saturating_sub(self.held(asker.number)))
    }

    /// Whether its role has no more than its share with so much more.
    fn is_within_share(&self, asker: MemoryAsker, more: u64, share: u64) -> bool {
        let beside = self.held_beside(asker);
        asker.owner.is_none() || beside == 0 || beside + self.held(asker.number) + more <= share
    }

    /// The least one is next: what its role holds, whether it holds nothing itself, when it came.
    fn rank(&self, asker: MemoryAsker, ticket: u64) -> (u64, bool, u64) {
        let held = self.held(asker.number);
        (held + self.held_beside(asker), held == 0, ticket)
    }

    fn ticket(&self, number: u64) -> u64 {
        let waits = self.parts.get(&number).and_then(|part| part.waits);
        waits.map_or(u64::MAX, |waits| waits.ticket)
    }

    fn may_take(&self, asker: MemoryAsker, more: u64, share: u64) -> bool {
        if more > self.left || !self.is_within_share(asker, more, share) {
            return false;
        }
        // Little of what is left goes past those that wait for more than there is.
        if self.held(asker.number) > 0 || more <= self.left / 8 {
            return true;
        }
        let own = self.rank(asker, self.ticket(asker.number));
        let is_before = |(number, part): (&u64, &SearchPart)| {
            let other = MemoryAsker { number: *number, owner: part.owner };
            part.waits.is_some_and(|waits| {
                *number != asker.number
                    && self.is_within_share(other, waits.more, share)
                    && self.rank(other, waits.ticket) < own
            })
        };
        !self.parts.iter().any(is_before)
    }

    /// Whether all that could give memory back wait themselves, this one since the shortest time: it is the one to give up.
    fn is_stuck(&self, asker: MemoryAsker, more: u64, share: u64) -> bool {
        if self.held(asker.number) == 0 {
            return false;
        }
        // Those of others count too where one of its role waits for what these hold: it ends then, and gives back.
        let by_share = !self.is_within_share(asker, more, share)
            && self.parts.iter().all(|(number, part)| {
                let other = MemoryAsker { number: *number, owner: part.owner };
                part.owner != asker.owner
                    || part.held == 0
                    || part.waits.is_none_or(|waits| !self.is_within_share(other, waits.more, share))
            });
        let own = self.ticket(asker.number);
        let mut holders =
            self.parts.iter().filter(|(_, part)| part.held > 0 && (!by_share || part.owner == asker.owner));
        // One that may take goes on as soon as it wakes.
        holders.all(|(number, part)| {
            let other = MemoryAsker { number: *number, owner: part.owner };
            part.waits.is_some_and(|waits| {
                waits.ticket <= own && (*number == asker.number || !self.may_take(other, waits.more, share))
            })
        })
    }

    fn part(&mut self, asker: MemoryAsker) -> &mut SearchPart {
        let new = SearchPart { owner: asker.owner, held: 0, waits: None };
        self.parts.entry(asker.number).or_insert(new)
    }

    fn take(&mut self, asker: MemoryAsker, more: u64) {
        self.left -= more;
        self.least = self.least.min(self.left);
        let part = self.part(asker);
        part.held += more;
        let owner = part.owner;
        *self.of_role.entry(owner).or_default() += more;
    }

    fn wait(&mut self, asker: MemoryAsker, more: u64) {
        self.tickets += 1;
        let ticket = self.tickets;
        self.part(asker).waits = Some(MemoryWait { ticket, more });
    }

    fn end_wait(&mut self, asker: MemoryAsker) {
        self.part(asker).waits = None;
        self.forget(asker.number);
    }

    fn give(&mut self, number: u64, bytes: u64) {
        if let Some(part) = self.parts.get_mut(&number) {
            let given = bytes.min(part.held);
            part.held -= given;
            self.left += given;
            let owner = part.owner;
            let of_role = self.of_role.entry(owner).or_default();
            *of_role -= given;
            if *of_role == 0 {
                self.of_role.remove(&owner);
            }
        }
        self.forget(number);
    }

    fn forget(&mut self, number: u64) {
        if self.parts.get(&number).is_some_and(|part| part.held == 0 && part.waits.is_none()) {
            self.parts.remove(&number);
        }
    }
}

impl SearchMemory {
    /// So many bytes.
    pub fn new(bytes: u64) -> Arc<SearchMemory> {
        let (parts, of_role) = (HashMap::new(), HashMap::new());
        let state = MemoryShares { left: bytes, least: bytes, tickets: 0, parts, of_role };
        let share = bytes - bytes / 4;
        let (came, changed) = (AtomicU64::new(0), Condvar::new());
        Arc::new(SearchMemory { bytes, share, came, state: Mutex::new(state), changed })
    }

    /// Bytes that no search has.
    pub fn left(&self) -> u64 {
        self.state.lock().left
    }

    /// The most bytes that searches had at the same time.
    pub fn peak(&self) -> u64 {
        self.bytes - self.state.lock().least
    }

    /// Searches that wait for memory.
    pub fn waiting(&self) -> usize {
        self.state.lock().parts.values().filter(|part| part.waits.is_some()).count()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A search that has nothing yet.
    pub(super) fn asker(&self) -> MemoryAsker {
        MemoryAsker { number: self.came.fetch_add(1, Ordering::Relaxed), owner: None }
    }

    /// Takes memory for a search, which waits for it as long as it may.
    ///
    /// Errors: there is not so much, and waiting does not help, or did not; it was cancelled.
    pub(super) fn take(
        &self,
        asker: MemoryAsker,
        more: u64,
        patience: Option<&MemoryPatience>,
    ) -> Result<(), SearchError> {
        let patience = {
            let mut state = self.state.lock();
            if state.may_take(asker, more, self.share) {
                state.take(asker, more);
                return Ok(());
            }
            let waits = state.parts.values().filter(|part| part.waits.is_some()).count();
            let helps = state.held(asker.number).saturating_add(more) <= self.bytes && waits < WAITING_MAX;
            patience.filter(|_| helps).ok_or_else(|| self.full())?
        };
        waiting(|| self.wait(asker, more, patience))
    }

    fn wait(&self, asker: MemoryAsker, more: u64, patience: &MemoryPatience) -> Result<(), SearchError> {
        let ends = patience.ends();
        let mut state = self.state.lock();
        state.wait(asker, more);
        let done = loop {
            if patience.cancelled.load(Ordering::Relaxed) {
                break Err(SearchError::cancelled());
            }
            if state.may_take(asker, more, self.share) {
                state.take(asker, more);
                break Ok(());
            }
            if Instant::now() >= ends || state.is_stuck(asker, more, self.share) {
                break Err(self.full());
            }
            self.changed.wait_for(&mut state, LOOK);
        };
        state.end_wait(asker);
        drop(state);
        // Who stood behind it may be next.
        self.changed.notify_all();
        done
    }

    /// Gives memory of a search back.
    pub(super) fn give(&self, asker: MemoryAsker, bytes: u64) {
        if bytes > 0 {
            self.state.lock().give(asker.number, bytes);
            self.changed.notify_all();
        }
    }

    fn full(&self) -> SearchError {
        too_much(&format!("what all searches find takes more than [{}] bytes of memory: repeat it later", self.bytes))
    }
}

/// Elasticsearch's refusal of a request for which there is not enough memory.
pub(super) fn too_much(what: &str) -> SearchError {
    SearchError::new(429, "circuit_breaking_exception", format!("[request] Data too large: {what}"))
}
