//! [`LoginThrottle`]: how long the next attempt to log in has to wait; a pure state machine.
//!
//! ```text
//!   attempt  --go-->  succeeded: the user's failures are forgotten
//!      |                 failed: the user, the address, and the two together wait longer: 2 x each time, up to a bound
//!      +--wait
//! ```
//!
//! An attempt counts from its begin, so that many at once are no way around it; one that does not end holds up others for
//! [`PENDING_MS`], and must not succeed after it. A pair of user and address that has
//! logged in before waits for its own failures only: who guesses a user's password elsewhere does not keep the user out.
//! A pair that has not, as after a restart, is let through once in [`WAIT_MS_MAX`] for each user, if the address is another one than that
//! which makes the user wait: one stranger keeps nobody out, and many guess twice as much at most.
//! An attempt from this machine never waits for failures of the user elsewhere, and at most a second: the last
//! administrator always gets in there.
//!
//! Invariants: memory is bounded, whatever names and addresses come; nobody is locked out for longer than
//! [`WAIT_MS_MAX`]. Names are kept as keyed hashes, so a mistyped password in place of a name is not kept.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;

/// The longest wait after a failure, in milliseconds.
pub const WAIT_MS_MAX: u64 = 30_000;

/// The longest wait of attempts from this machine.
const LOCAL_WAIT_MS_MAX: u64 = 1_000;

/// Failures of a user that cost nothing: people mistype.
const FREE_OF_USER: u32 = 3;

/// Failures from an address that cost nothing: many may be behind it.
const FREE_OF_ADDRESS: u32 = 10;

/// The first wait, doubled with each failure after it.
const FIRST_WAIT_MS: u64 = 250;

/// Attempts at once by one user or from one address, before the first failure.
const PENDING_MAX: u32 = 32;

/// How long an attempt waits for others that are under way.
const PENDING_WAIT_MS: u64 = 100;

/// How long an attempt that does not end holds up others; it has failed then, whatever proves it later.
pub(super) const PENDING_MS: u64 = 10_000;

/// After this time without a failure it is forgotten.
const FORGOTTEN_MS: u64 = 15 * 60_000;

/// Most entries.
const ENTRIES_MAX: usize = 8_192;

/// Most pairs that have logged in before. They have a bound of their own, so no failure pushes them out.
const KNOWN_MAX: usize = 8_192;

/// How many entries are given up at once: looking for them takes long, so it is done seldom.
const GIVEN_UP: usize = 512;

/// Who tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    user: Option<u64>,
    address: Option<u64>,
    pair: u64,
    is_local: bool,
    /// Whether only failures of this very pair count: it is known, or on this machine.
    alone: bool,
}

impl Attempt {
    fn subjects(self) -> impl Iterator<Item = Subject> {
        let user = self.user.filter(|_| !self.alone).map(Subject::User);
        let address = self.address.filter(|_| !self.alone).map(Subject::Address);
        [Some(Subject::Pair(self.pair)), user, address].into_iter().flatten()
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginEvent {
    /// Somebody wants to try.
    Begins,
    /// An attempt that was let go ended, rightly.
    Succeeded,
    /// An attempt that was let go ended, wrongly or not at all.
    Failed,
    /// An attempt that was let go could not be decided: it is not the user's failure.
    Unjudged,
}

/// What the attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It goes on.
    Go,
    /// It waits for so many milliseconds, and begins again.
    Wait(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    failures: u32,
    pending: u32,
    until_ms: u64,
    last_ms: u64,
    /// When the last attempt began.
    begun_ms: u64,
    /// Of a user: from where that was.
    from: Option<u64>,
    /// Of a user: when an attempt from another address may be let through again.
    spare_ms: u64,
}

impl Entry {
    /// Whether an attempt at a user need not wait for those from another address.
    fn spares(&self, attempt: Attempt, now_ms: u64) -> bool {
        self.from != attempt.address && now_ms >= self.spare_ms
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    User(u64),
    Address(u64),
    Pair(u64),
}

/// The failures of late.
#[derive(Debug, Default)]
pub struct LoginThrottle {
    hasher: RandomState,
    entries: HashMap<Subject, Entry>,
    /// The pairs that have logged in before.
    known: HashMap<u64, Entry>,
}

impl LoginThrottle {
    /// An attempt by a user (`None`: a token, which names none) from an address (`None`: the control socket). Of an IPv6
    /// address the first 64 bits count: one host may have all the rest.
    pub fn attempt(&self, user: Option<&str>, address: Option<IpAddr>) -> Attempt {
        let network = address.map(|address| match address.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64 | 1 << 63,
        });
        let is_local = address.is_none_or(|address| address.to_canonical().is_loopback());
        let user = user.map(|user| self.hasher.hash_one(user));
        let pair = self.hasher.hash_one((user, network));
        let is_known = self.known.contains_key(&pair);
        Attempt { user, address: network, pair, is_local, alone: is_known || is_local }
    }

    /// Processes what happened at a time in milliseconds, by a clock that never goes back. Only [`LoginEvent::Begins`]
    /// can have to wait.
    pub fn apply(&mut self, attempt: Attempt, event: LoginEvent, now_ms: u64) -> Turn {
        match event {
            LoginEvent::Begins => self.begins(attempt, now_ms),
            LoginEvent::Succeeded => self.succeeded(attempt, now_ms),
            LoginEvent::Failed => self.failed(attempt, now_ms),
            LoginEvent::Unjudged => self.unjudged(attempt),
        }
    }

    /// How many failures are remembered, for the status.
    pub fn failures(&self) -> u64 {
        let pairs = self.entries.iter().filter(|(of, _)| matches!(of, Subject::Pair(_)));
        pairs.map(|(_, entry)| entry).chain(self.known.values()).map(|entry| u64::from(entry.failures)).sum()
    }

    fn get_mut(&mut self, subject: Subject) -> Option<&mut Entry> {
        match subject {
            Subject::Pair(pair) if self.known.contains_key(&pair) => self.known.get_mut(&pair),
            _ => self.entries.get_mut(&subject),
        }
    }

    /// The entry, made if it is not there: it may have been given up meanwhile.
    fn entry(&mut self, subject: Subject, now_ms: u64) -> &mut Entry {
        match subject {
            Subject::Pair(pair) if self.known.contains_key(&pair) => self.known.entry(pair).or_default(),
            _ => {
                if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&subject) {
                    make_room(&mut self.entries, now_ms);
                }
                self.entries.entry(subject).or_default()
            }
        }
    }

    fn begins(&mut self, attempt: Attempt, now_ms: u64) -> Turn {
        let (mut wait, mut is_spared) = (0, false);
        for subject in attempt.subjects() {
            let Some(entry) = self.get_mut(subject) else { continue };
            if now_ms.saturating_sub(entry.last_ms) > FORGOTTEN_MS {
                *entry = Entry::default();
            }
            if now_ms.saturating_sub(entry.begun_ms) > PENDING_MS {
                entry.pending = 0;
            }
            let at_once = if entry.failures > free(subject) { 1 } else { PENDING_MAX };
            let pending = if entry.pending >= at_once { PENDING_WAIT_MS } else { 0 };
            let own = entry.until_ms.saturating_sub(now_ms).max(pending);
            if own > 0 && matches!(subject, Subject::User(_)) && entry.spares(attempt, now_ms) {
                is_spared = true;
                continue;
            }
            wait = wait.max(own);
        }
        if wait > 0 {
            return Turn::Wait(wait);
        }
        for subject in attempt.subjects() {
            let entry = self.entry(subject, now_ms);
            entry.pending += 1;
            (entry.last_ms, entry.begun_ms) = (now_ms, now_ms);
            if matches!(subject, Subject::User(_)) {
                entry.from = attempt.address;
                entry.spare_ms = if is_spared { now_ms + WAIT_MS_MAX } else { entry.spare_ms };
            }
        }
        Turn::Go
    }

    fn succeeded(&mut self, attempt: Attempt, now_ms: u64) -> Turn {
        for subject in attempt.subjects() {
            let Some(entry) = self.get_mut(subject) else { continue };
            entry.pending = entry.pending.saturating_sub(1);
            match subject {
                // One user's right password says nothing about guesses at others from the same address.
                Subject::Address(_) => {}
                Subject::User(_) => (entry.failures, entry.until_ms) = (0, 0),
                Subject::Pair(pair) => {
                    let known = Entry { failures: 0, until_ms: 0, last_ms: now_ms, ..*entry };
                    self.entries.remove(&subject);
                    if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&pair) {
                        make_room(&mut self.known, now_ms);
                    }
                    self.known.insert(pair, known);
                }
            }
        }
        let is_idle = |entry: &Entry| entry.failures == 0 && entry.pending == 0;
        for subject in attempt.subjects() {
            if self.entries.get(&subject).is_some_and(is_idle) {
                self.entries.remove(&subject);
            }
        }
        Turn::Go
    }

    fn failed(&mut self, attempt: Attempt, now_ms: u64) -> Turn {
        for subject in attempt.subjects() {
            let most = if attempt.is_local { LOCAL_WAIT_MS_MAX } else { WAIT_MS_MAX };
            let entry = self.entry(subject, now_ms);
            entry.pending = entry.pending.saturating_sub(1);
            entry.failures = entry.failures.saturating_add(1);
            entry.last_ms = now_ms;
            if let Some(beyond) = entry.failures.checked_sub(free(subject) + 1) {
                entry.until_ms = now_ms + (FIRST_WAIT_MS << beyond.min(16)).min(most);
            }
        }
        Turn::Go
    }

    fn unjudged(&mut self, attempt: Attempt) -> Turn {
        for subject in attempt.subjects() {
            if let Some(entry) = self.get_mut(subject) {
                entry.pending = entry.pending.saturating_sub(1);
            }
        }
        Turn::Go
    }
}

/// Gives up the entries that cost least to forget: of the fewest failures the oldest.
fn make_room<K: Copy + Eq + Hash>(entries: &mut HashMap<K, Entry>, now_ms: u64) {
    let cost = |entry: &Entry| {
        (now_ms.saturating_sub(entry.last_ms) <= FORGOTTEN_MS, entry.failures.max(entry.pending), entry.last_ms)
    };
    let mut all: Vec<_> = entries.iter().map(|(key, entry)| (cost(entry), *key)).collect();
    if all.len() > GIVEN_UP {
        all.select_nth_unstable_by_key(GIVEN_UP, |(cost, _)| *cost);
    }
    all.iter().take(GIVEN_UP).for_each(|(_, key)| _ = entries.remove(key));
}

fn free(subject: Subject) -> u32 {
    match subject {
        Subject::User(_) | Subject::Pair(_) => FREE_OF_USER,
        Subject::Address(_) => FREE_OF_ADDRESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));
    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Guesses as fast as it is let. Returns how many guesses there were in a time.
    fn guesses(throttle: &mut LoginThrottle, address: IpAddr, users: &[&str], from_ms: u64, for_ms: u64) -> u32 {
        let (mut now, mut done) = (from_ms, 0);
        while now < from_ms + for_ms {
            let mut soonest = u64::MAX;
            for user in users {
                let attempt = throttle.attempt(Some(user), Some(address));
                match throttle.apply(attempt, LoginEvent::Begins, now) {
                    Turn::Go => {
                        throttle.apply(attempt, LoginEvent::Failed, now);
                        done += 1;
                        soonest = 0;
                    }
                    Turn::Wait(wait) => soonest = soonest.min(wait),
                }
            }
            now += soonest.max(1);
        }
        done
    }

    #[test]
    fn guesses_at_one_user_or_at_many_from_one_address_become_few() {
        let mut throttle = LoginThrottle::default();
        let hour = 3_600_000;
        let at_one = guesses(&mut throttle, ELSEWHERE, &["ann"], 0, hour);
        assert!((100..150).contains(&at_one), "{at_one} in an hour");
        let names: Vec<String> = (0..200).map(|number| format!("user{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut throttle = LoginThrottle::default();
        let at_many = guesses(&mut throttle, ELSEWHERE, &names, 0, hour);
        assert!(at_many < 200, "{at_many} in an hour");
    }

    #[test]
    fn attempts_at_once_are_bounded_and_one_after_failures() {
        let mut throttle = LoginThrottle::default();
        let attempt = throttle.attempt(Some("ann"), Some(ELSEWHERE));
        let went = (0..1000).filter(|_| throttle.apply(attempt, LoginEvent::Begins, 0) == Turn::Go).count();
        assert_eq!(went, PENDING_MAX as usize);
        (0..went).for_each(|_| _ = throttle.apply(attempt, LoginEvent::Failed, 0));
        assert!(matches!(throttle.apply(attempt, LoginEvent::Begins, 1), Turn::Wait(wait) if wait > 20_000));
        let later = WAIT_MS_MAX + 1;
        let went = (0..1000).filter(|_| throttle.apply(attempt, LoginEvent::Begins, later) == Turn::Go).count();
        assert_eq!(went, 1);
    }

    #[test]
    fn who_has_not_logged_in_before_is_kept_out_by_no_single_stranger_and_many_guess_twice_as_much_at_most() {
        let tries = |throttle: &mut LoginThrottle, from: IpAddr, now: u64| {
            let attempt = throttle.attempt(Some("ann"), Some(from));
            (attempt, throttle.apply(attempt, LoginEvent::Begins, now))
        };
        // A stranger who guesses as soon as it may, and one whose attempts do not end.
        for ends in [true, false] {
            let mut throttle = LoginThrottle::default();
            guesses(&mut throttle, ELSEWHERE, &["ann"], 0, 60_000);
            let mut now = 60_000;
            while now < 200_000 {
                let (attempt, turn) = tries(&mut throttle, ELSEWHERE, now);
                if ends && turn == Turn::Go {
                    throttle.apply(attempt, LoginEvent::Failed, now);
                }
                now += 250;
            }
            let (attempt, turn) = tries(&mut throttle, HOME, now);
            assert_eq!(turn, Turn::Go, "{ends}");
            throttle.apply(attempt, LoginEvent::Succeeded, now);
            assert!(throttle.attempt(Some("ann"), Some(HOME)).alone, "and is known from then on");
        }
        // Each guess from another address.
        let (mut throttle, mut went) = (LoginThrottle::default(), 0);
        for number in 0..40_000_u32 {
            let now = u64::from(number) * 90;
            let (attempt, turn) = tries(&mut throttle, IpAddr::V4((0x0b00_0000 + number).into()), now);
            if turn == Turn::Go {
                went += 1;
                throttle.apply(attempt, LoginEvent::Failed, now);
            }
        }
        assert!(went < 300, "{went} in an hour, of which one address alone has 150");
    }

    #[test]
    fn who_logged_in_before_from_an_address_is_not_kept_out_by_guesses_elsewhere() {
        let mut throttle = LoginThrottle::default();
        let own = throttle.attempt(Some("ann"), Some(HOME));
        assert_eq!(throttle.apply(own, LoginEvent::Begins, 0), Turn::Go);
        throttle.apply(own, LoginEvent::Succeeded, 0);
        let own = throttle.attempt(Some("ann"), Some(HOME));
        guesses(&mut throttle, ELSEWHERE, &["ann"], 1, 60_000);
        assert_eq!(throttle.apply(own, LoginEvent::Begins, 60_002), Turn::Go);
        throttle.apply(own, LoginEvent::Failed, 60_002);
        assert_eq!(throttle.apply(own, LoginEvent::Begins, 60_003), Turn::Go, "its own failures are few");
    }

    #[test]
    fn this_machine_waits_for_a_second_at_most_whatever_happens() {
        let mut throttle = LoginThrottle::default();
        guesses(&mut throttle, ELSEWHERE, &["root"], 0, 600_000);
        guesses(&mut throttle, LOOPBACK, &["root"], 0, 600_000);
        for address in [Some(LOOPBACK), None] {
            let attempt = throttle.attempt(Some("root"), address);
            let turn = throttle.apply(attempt, LoginEvent::Begins, 600_000);
            assert!(matches!(turn, Turn::Go | Turn::Wait(0..=LOCAL_WAIT_MS_MAX)), "{turn:?}");
        }
    }

    #[test]
    fn memory_is_bounded_and_hostile_names_do_not_push_out_a_user_that_is_guessed_at() {
        let mut throttle = LoginThrottle::default();
        guesses(&mut throttle, ELSEWHERE, &["ann"], 0, 60_000);
        for number in 0..9_000u32 {
            let address = IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0b00_0000 + number));
            let attempt = throttle.attempt(Some(&number.to_string()), Some(address));
            if throttle.apply(attempt, LoginEvent::Begins, 60_000) == Turn::Go {
                throttle.apply(attempt, LoginEvent::Failed, 60_000);
            }
        }
        assert!(throttle.entries.len() <= ENTRIES_MAX + 3, "{}", throttle.entries.len());
        let attempt = throttle.attempt(Some("ann"), Some(ELSEWHERE));
        assert!(matches!(throttle.apply(attempt, LoginEvent::Begins, 60_000), Turn::Wait(_)));
    }

    #[test]
    fn an_attempt_that_does_not_end_holds_up_the_user_for_ten_seconds() {
        let mut throttle = LoginThrottle::default();
        guesses(&mut throttle, ELSEWHERE, &["ann"], 0, 60_000);
        let begun = 60_000 + WAIT_MS_MAX;
        let attempt = throttle.attempt(Some("ann"), Some(HOME));
        assert_eq!(throttle.apply(attempt, LoginEvent::Begins, begun), Turn::Go);
        assert!(matches!(throttle.apply(attempt, LoginEvent::Begins, begun + PENDING_MS), Turn::Wait(_)));
        assert_eq!(throttle.apply(attempt, LoginEvent::Begins, begun + PENDING_MS + 1), Turn::Go);
    }

    #[test]
    fn an_attempt_that_could_not_be_decided_is_no_failure() {
        let mut throttle = LoginThrottle::default();
        let attempt = throttle.attempt(Some("ann"), Some(ELSEWHERE));
        for _ in 0..100 {
            assert_eq!(throttle.apply(attempt, LoginEvent::Begins, 0), Turn::Go);
            throttle.apply(attempt, LoginEvent::Unjudged, 0);
        }
        assert_eq!(throttle.failures(), 0);
    }

    #[test]
    fn failures_do_not_push_out_who_logged_in_before_and_they_are_bounded_too() {
        let mut throttle = LoginThrottle::default();
        let address = |number: u32| Some(IpAddr::V4(std::net::Ipv4Addr::from_bits(0x0b00_0000 + number)));
        let mut ends = |number: u32, event| {
            let attempt = throttle.attempt(Some(&number.to_string()), address(number));
            if throttle.apply(attempt, LoginEvent::Begins, u64::from(number)) == Turn::Go {
                throttle.apply(attempt, event, u64::from(number));
            }
        };
        ends(0, LoginEvent::Succeeded);
        (1..10_000).for_each(|number| ends(number, LoginEvent::Failed));
        assert!(throttle.attempt(Some("0"), address(0)).alone, "it is known still");
        let mut ends = |number: u32| {
            let attempt = throttle.attempt(Some(&number.to_string()), address(number));
            throttle.apply(attempt, LoginEvent::Begins, u64::from(number));
            throttle.apply(attempt, LoginEvent::Succeeded, u64::from(number));
        };
        (20_000..30_000).for_each(&mut ends);
        assert!(throttle.known.len() <= KNOWN_MAX && throttle.attempt(Some("29999"), address(29_999)).alone);
        assert!(!throttle.attempt(Some("0"), address(0)).alone, "the oldest is given up");
    }

    #[test]
    fn failures_are_forgotten_after_a_while_and_by_a_login() {
        let mut throttle = LoginThrottle::default();
        guesses(&mut throttle, ELSEWHERE, &["ann"], 0, 60_000);
        let attempt = throttle.attempt(Some("ann"), Some(ELSEWHERE));
        assert_eq!(throttle.apply(attempt, LoginEvent::Begins, 60_000 + WAIT_MS_MAX + FORGOTTEN_MS), Turn::Go);
        throttle.apply(attempt, LoginEvent::Succeeded, 60_000 + WAIT_MS_MAX + FORGOTTEN_MS);
        assert_eq!(throttle.failures(), 0);
    }
}
