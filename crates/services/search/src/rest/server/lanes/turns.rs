//! [`RequestLane`]: the turns of one class of requests, given to roles one after the other.
//!
//! ```text
//!   ann   _search: 4 s, 3 s, 3 s   _count: 0 s          ann's search, bob's search, ann's count, ann's search, ..
//!   bob   _search: 0 s
//! ```
//!
//! Roles take turns; so do the operations of a role, as counts do not take as long as searches. Of one operation that one is next which has
//! waited longest, where it waits since its connection's last request has been over for as long as it took, at most [`DEFERRED_MAX`]:
//! who does much stands behind who does little, and nobody for long.
//!
//! Invariants: as many run as the bounds say, and one more if it is of a role of which none runs; nobody waits who might run. If too many wait,
//! a role that has more waiting than another one loses its last to it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use node::identity::RoleId;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::rest::server::options::LaneBounds;

/// How long a connection's use of the past counts at most: as long as clients have patience (a client's usual time is 10 s and more).
const DEFERRED_MAX: Duration = Duration::from_secs(10);

/// What a connection has used lately.
#[derive(Debug, Default)]
pub(in crate::rest::server) struct ConnectionUse(Mutex<Option<Instant>>);

impl ConnectionUse {
    /// A request of it took so long, and is over.
    pub(in crate::rest::server) fn took(&self, long: Duration) {
        *self.0.lock() = Some(Instant::now() + long.min(DEFERRED_MAX));
    }

    /// Since when a request that comes now waits.
    pub(in crate::rest::server) fn waits_since(&self) -> Instant {
        let now = Instant::now();
        self.0.lock().map_or(now, |deferred| deferred.max(now))
    }
}

/// Who takes turns with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::rest::server) enum TurnOwner {
    /// A role.
    Role(RoleId),
    /// Whoever comes from an address and has not proved yet who it is.
    Address(IpAddr),
}

/// Who asks for a turn.
#[derive(Debug, Clone, Copy)]
pub(in crate::rest::server) struct TurnAsker {
    /// Whose request it is.
    pub(in crate::rest::server) role: TurnOwner,
    /// What it does.
    pub(in crate::rest::server) operation: &'static str,
    /// Since when it waits.
    pub(in crate::rest::server) since: Instant,
}

/// The place of one that waits among those of its role and operation.
type WaitingPlace = (Instant, u64);

/// Those of a role that wait, by operation; the first one is next.
type WaitingLines = VecDeque<(&'static str, BTreeMap<WaitingPlace, oneshot::Sender<RequestTurn>>)>;

#[derive(Debug, Default)]
struct RoleTurns {
    running: usize,
    waiting: usize,
    lines: WaitingLines,
}

#[derive(Debug, Default)]
struct LaneState {
    running: usize,
    waiting: usize,
    /// How many have waited so far: those of the same time are in the order of their coming.
    came: u64,
    /// Roles that have requests here.
    roles: HashMap<TurnOwner, RoleTurns>,
    /// Those of which some wait; the first one is next.
    order: VecDeque<TurnOwner>,
}

/// The turns of one class.
#[derive(Debug)]
pub(in crate::rest::server) struct RequestLane {
    bounds: LaneBounds,
    state: Mutex<LaneState>,
    idle: Notify,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(in crate::rest::server) struct RequestTurn {
    /// None if it was taken back.
    lane: Option<Arc<RequestLane>>,
    role: TurnOwner,
}

/// One that waits, until it is dropped.
struct WaitingOne<'a> {
    lane: &'a RequestLane,
    asker: TurnAsker,
    place: WaitingPlace,
}

impl RoleTurns {
    /// The next one that waits.
    fn next(&mut self) -> Option<oneshot::Sender<RequestTurn>> {
        let (operation, mut line) = self.lines.pop_front()?;
        let (_, next) = line.pop_first()?;
        if !line.is_empty() {
            self.lines.push_back((operation, line));
        }
        self.waiting -= 1;
        Some(next)
    }

    /// The last one of the longest line.
    fn last(&mut self) -> Option<oneshot::Sender<RequestTurn>> {
        let longest = (0..self.lines.len()).max_by_key(|at| self.lines[*at].1.len())?;
        let (_, last) = self.lines[longest].1.pop_last()?;
        if self.lines[longest].1.is_empty() {
            self.lines.remove(longest);
        }
        self.waiting -= 1;
        Some(last)
    }

    /// Leaves one out.
    fn remove(&mut self, operation: &str, place: &WaitingPlace) -> bool {
        let Some(at) = self.lines.iter().position(|(other, _)| *other == operation) else { return false };
        let removed = self.lines[at].1.remove(place).is_some();
        if self.lines[at].1.is_empty() {
            self.lines.remove(at);
        }
        self.waiting -= usize::from(removed);
        removed
    }
}

impl LaneState {
    fn may_run(&self, role: TurnOwner, bounds: LaneBounds) -> bool {
        let of_role = self.roles.get(&role).map_or(0, |turns| turns.running);
        self.running < bounds.running || (of_role == 0 && self.running == bounds.running)
    }

    fn begin(&mut self, role: TurnOwner) {
        self.running += 1;
        self.roles.entry(role).or_default().running += 1;
    }

    fn end(&mut self, role: TurnOwner) {
        self.running -= 1;
        if let Some(turns) = self.roles.get_mut(&role) {
            turns.running -= 1;
        }
        self.forget(role);
    }

    /// Leaves out what there is of a role that does not wait, or is not there at all.
    fn forget(&mut self, role: TurnOwner) {
        let (waiting, running) = self.roles.get(&role).map_or((0, 0), |turns| (turns.waiting, turns.running));
        if waiting == 0 {
            self.order.retain(|other| *other != role);
            if running == 0 {
                self.roles.remove(&role);
            }
        }
    }

    /// Takes the next one out that may run; it has begun.
    fn next(&mut self, bounds: LaneBounds) -> Option<(TurnOwner, oneshot::Sender<RequestTurn>)> {
        let at = self.order.iter().position(|role| self.may_run(*role, bounds))?;
        let role = self.order.remove(at)?;
        let next = self.roles.get_mut(&role)?.next()?;
        self.waiting -= 1;
        self.begin(role);
        if self.roles.get(&role).is_some_and(|turns| turns.waiting > 0) {
            self.order.push_back(role);
        }
        Some((role, next))
    }

    /// Has one wait. None if too many do.
    fn wait(&mut self, asker: TurnAsker, bounds: LaneBounds) -> Option<(WaitingPlace, oneshot::Receiver<RequestTurn>)> {
        let own = self.roles.get(&asker.role).map_or(0, |turns| turns.waiting);
        if self.waiting >= bounds.waiting {
            let (role, most) = self.roles.iter().map(|(role, turns)| (*role, turns.waiting)).max_by_key(|(_, n)| *n)?;
            if own + 1 >= most {
                return None;
            }
            // It learns by the end of its channel that it is refused.
            self.roles.get_mut(&role)?.last()?;
            self.waiting -= 1;
        }
        let (sender, receiver) = oneshot::channel();
        let place = (asker.since, self.came);
        self.came += 1;
        self.waiting += 1;
        let turns = self.roles.entry(asker.role).or_default();
        if turns.waiting == 0 {
            self.order.push_back(asker.role);
        }
        turns.waiting += 1;
        match turns.lines.iter_mut().find(|(operation, _)| *operation == asker.operation) {
            Some((_, line)) => drop(line.insert(place, sender)),
            None => turns.lines.push_back((asker.operation, BTreeMap::from([(place, sender)]))),
        }
        Some((place, receiver))
    }
}

impl RequestLane {
    pub(in crate::rest::server) fn new(bounds: LaneBounds) -> Arc<RequestLane> {
        Arc::new(RequestLane { bounds, state: Mutex::default(), idle: Notify::new() })
    }

    /// The next turn; none if too many wait already. It can be dropped while it waits.
    pub(in crate::rest::server) async fn turn(self: &Arc<RequestLane>, asker: TurnAsker) -> Option<RequestTurn> {
        let (place, turn) = {
            let mut state = self.state.lock();
            if state.may_run(asker.role, self.bounds) {
                state.begin(asker.role);
                return Some(RequestTurn { lane: Some(Arc::clone(self)), role: asker.role });
            }
            state.wait(asker, self.bounds)?
        };
        let _waits = WaitingOne { lane: self, asker, place };
        turn.await.ok()
    }

    /// One has ended: the next one begins, if it is still there.
    fn ended_one(self: &Arc<RequestLane>, mut role: TurnOwner) {
        loop {
            let next = {
                let mut state = self.state.lock();
                state.end(role);
                let next = state.next(self.bounds);
                if state.running == 0 {
                    self.idle.notify_waiters();
                }
                next
            };
            let Some((of, next)) = next else { return };
            match next.send(RequestTurn { lane: Some(Arc::clone(self)), role: of }) {
                Ok(()) => return,
                Err(mut turn) => {
                    turn.lane = None;
                    role = of;
                }
            }
        }
    }

    /// Waits until none runs.
    pub(super) async fn ended(&self) {
        loop {
            let idle = self.idle.notified();
            if self.state.lock().running == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl Drop for RequestTurn {
    fn drop(&mut self) {
        if let Some(lane) = self.lane.take() {
            lane.ended_one(self.role);
        }
    }
}

impl Drop for WaitingOne<'_> {
    fn drop(&mut self) {
        let mut state = self.lane.state.lock();
        let turns = state.roles.get_mut(&self.asker.role);
        if turns.is_some_and(|turns| turns.remove(self.asker.operation, &self.place)) {
            state.waiting -= 1;
            state.forget(self.asker.role);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: TurnOwner = TurnOwner::Role(RoleId(1));
    const BOB: TurnOwner = TurnOwner::Role(RoleId(2));
    const EVE: TurnOwner = TurnOwner::Address(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    fn lane(running: usize, waiting: usize) -> Arc<RequestLane> {
        RequestLane::new(LaneBounds { running, waiting })
    }

    fn asker(role: TurnOwner, operation: &'static str, since: Instant) -> TurnAsker {
        TurnAsker { role, operation, since }
    }

    /// Has requests wait, one after the other, and returns what they tell when they have their turn or are refused.
    async fn wait_all(
        lane: &Arc<RequestLane>,
        askers: &[(&'static str, TurnAsker)],
    ) -> tokio::sync::mpsc::UnboundedReceiver<(&'static str, Option<RequestTurn>)> {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        for (name, asker) in askers {
            let before = lane.state.lock().came;
            let (lane, tell, name, asker) = (Arc::clone(lane), tell.clone(), *name, *asker);
            let of = Arc::clone(&lane);
            tokio::spawn(async move { drop(tell.send((name, of.turn(asker).await))) });
            while lane.state.lock().came == before {
                tokio::task::yield_now().await;
            }
        }
        told
    }

    #[tokio::test]
    async fn roles_take_turns_and_so_do_their_operations_and_who_did_little_goes_first() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let lane = lane(1, 10);
        let (first, extra) = (lane.turn(asker(ANN, "_search", now)).await, lane.turn(asker(EVE, "_search", now)).await);
        assert!(first.is_some() && extra.is_some(), "a role of which none runs has a place");
        let mut told = wait_all(
            &lane,
            &[
                ("ann searches much", asker(ANN, "_search", later(8))),
                ("ann searches", asker(ANN, "_search", later(2))),
                ("ann searches again", asker(ANN, "_search", later(2))),
                ("ann counts", asker(ANN, "_count", later(9))),
                ("bob searches", asker(BOB, "_search", later(10))),
            ],
        )
        .await;
        drop(first);
        let mut order = Vec::new();
        let (name, ann) = told.recv().await.expect("one has its turn");
        order.push(name);
        drop((ann, extra));
        while order.len() < 5 {
            let (name, turn) = told.recv().await.expect("one has its turn");
            order.push(name);
            drop(turn);
        }
        assert_eq!(
            order,
            ["ann searches", "bob searches", "ann counts", "ann searches again", "ann searches much"],
            "in this order"
        );
        lane.ended().await;
        let state = lane.state.lock();
        assert!(state.roles.is_empty() && state.order.is_empty() && state.waiting == 0, "{state:?}");
    }

    #[tokio::test]
    async fn a_role_with_many_waiting_loses_one_to_a_role_with_few_and_is_refused_itself() {
        let now = Instant::now();
        let lane = lane(1, 3);
        let running = lane.turn(asker(ANN, "_search", now)).await;
        let other = lane.turn(asker(EVE, "_search", now)).await;
        let mut told = wait_all(
            &lane,
            &[
                ("first", asker(ANN, "_search", now)),
                ("second", asker(ANN, "_search", now)),
                ("third", asker(ANN, "_search", now)),
                ("bob", asker(BOB, "_search", now)),
            ],
        )
        .await;
        let (name, turn) = told.recv().await.expect("one is refused");
        assert!(name == "third" && turn.is_none(), "{name}");
        assert!(lane.turn(asker(ANN, "_search", now)).await.is_none(), "ann has most");
        assert!(lane.turn(asker(BOB, "_search", now)).await.is_none(), "bob would have as many");
        drop((running, other));
        for expected in ["first", "bob", "second"] {
            let (name, turn) = told.recv().await.expect("one has its turn");
            assert!(turn.is_some() && name == expected, "{name}");
        }
        lane.ended().await;
    }

    #[tokio::test]
    async fn one_that_goes_away_while_it_waits_takes_no_turn_and_no_place() {
        let now = Instant::now();
        let lane = lane(1, 1);
        let (first, other) = (lane.turn(asker(ANN, "", now)).await, lane.turn(asker(BOB, "", now)).await);
        let waits = {
            let lane = Arc::clone(&lane);
            tokio::spawn(async move { lane.turn(asker(ANN, "", now)).await.is_some() })
        };
        while lane.state.lock().waiting == 0 {
            tokio::task::yield_now().await;
        }
        assert!(lane.turn(asker(ANN, "", now)).await.is_none(), "one waits already");
        waits.abort();
        assert!(waits.await.expect_err("it was ended").is_cancelled());
        assert_eq!(lane.state.lock().waiting, 0, "one that goes away is no longer counted");
        drop((first, other));
        assert!(lane.turn(asker(ANN, "", now)).await.is_some());
        lane.ended().await;
        assert!(lane.state.lock().roles.is_empty());
    }

    #[test]
    fn a_connection_s_use_counts_for_as_long_as_it_took_and_ten_seconds_at_most() {
        let used = ConnectionUse::default();
        assert!(used.waits_since() <= Instant::now());
        for (took, least, most) in [(0, 0, 0), (3, 2, 3), (100, 9, 10)] {
            let before = Instant::now();
            used.took(Duration::from_secs(took));
            let since = used.waits_since();
            assert!(since >= before + Duration::from_secs(least), "{took}");
            assert!(since <= Instant::now() + Duration::from_secs(most), "{took}");
        }
    }
}
