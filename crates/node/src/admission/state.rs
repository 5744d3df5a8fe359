//! Which connections are accepted, which new ones may be, and which one ends for a new one: a state machine without
//! sockets and without a clock.
//!
//! ```text
//!   comes --> room for its address, its service, its descriptor? -- yes --> inside --proves--> proven
//!                     | no                                            |  frame (see memory)
//!                     v                                               v
//!             one that can go?      -- yes --> it goes, inside      leaves
//!                     | no
//!                     v
//!                  refused
//! ```
//!
//! A connection that may end for a new one is not proven (no message, no login) although [`GRACE`] is over. Among
//! those, the oldest one of the address with most of them ends. So a peer that fills a service with silent connections
//! loses one of them for each new connection, and a proven sender is never disconnected for another, however long it is
//! silent: senders in hospitals keep connections open for days.
//!
//! An address is an IPv4 address, or the first 64 bits of an IPv6 address: a host that has one of those has them all (RFC 4291,
//! section 2.5.4).

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use super::frame::Frame;
use super::{Bounds, Reason};

/// Time that a connection has to become proven before it can lose its place to another: a sender connects when it has
/// something to send, and a TLS handshake takes three times the way there and back.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Where a connection comes from, for the bound on each address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Origin {
    /// This machine's file system.
    Machine,
    V4(u32),
    V6(u64),
}

impl Origin {
    pub(super) fn of(peer: IpAddr) -> Origin {
        match peer.to_canonical() {
            IpAddr::V4(peer) => Origin::V4(peer.to_bits()),
            IpAddr::V6(peer) => Origin::V6((peer.to_bits() >> 64) as u64),
        }
    }
}

/// A connection, by a number that no other gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

/// A connection that is inside.
#[derive(Debug)]
pub(super) struct Guest {
    /// Position of its service.
    pub(super) service: usize,
    pub(super) origin: Origin,
    /// When it came.
    pub(super) since: Duration,
    pub(super) proven: bool,
    /// It was requested to end and has not ended yet; its place counts as free.
    pub(super) leaving: bool,
    /// Memory of the frame that it is at, where that is long.
    pub(super) frame: Option<Frame>,
}

/// A connection that has just been accepted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newcomer {
    /// Position of its service.
    pub(super) service: usize,
    pub(super) origin: Origin,
    /// Whether its descriptor is one of those kept for storage.
    pub(super) tight: bool,
}

/// The decision on a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is inside; the other has to go for it.
    Inside {
        ticket: Ticket,
        instead_of: Option<Ticket>,
    },
    Refused(Reason),
}

/// All accepted connections.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) guests: BTreeMap<Ticket, Guest>,
    last: u64,
}

impl State {
    /// A peer connects to a service that has these bounds.
    pub(super) fn comes(&mut self, newcomer: Newcomer, bounds: Bounds, now: Duration) -> Arrival {
        let Newcomer { service, origin, tight } = newcomer;
        let here = |guest: &Guest| guest.service == service;
        let same = |guest: &Guest| guest.service == service && guest.origin == origin;
        let short = if self.count(same) >= bounds.of_address {
            Some((Reason::Address, self.dispensable(same, now)))
        } else if self.count(here) >= bounds.sockets {
            Some((Reason::Full, self.dispensable(here, now)))
        } else if tight {
            Some((Reason::Descriptors, self.dispensable(|_| true, now)))
        } else {
            None
        };
        let instead_of = match short {
            None => None,
            Some((reason, None)) => return Arrival::Refused(reason),
            Some((_, Some(other))) => Some(other),
        };
        if let Some(other) = instead_of {
            self.sent_away(other);
        }
        self.last += 1;
        let ticket = Ticket(self.last);
        let guest = Guest { service, origin, since: now, proven: false, leaving: false, frame: None };
        self.guests.insert(ticket, guest);
        Arrival::Inside { ticket, instead_of }
    }

    /// It is proven; within the `bounds` of proven connections, if there are any.
    ///
    /// # Errors
    /// The bound that is reached; nothing changes then.
    pub(super) fn proves(&mut self, ticket: Ticket, bounds: Option<Bounds>) -> Result<(), Reason> {
        let Some(guest) = self.guests.get(&ticket) else { return Ok(()) };
        let (service, origin) = (guest.service, guest.origin);
        if let (Some(bounds), false) = (bounds, guest.proven) {
            let proven = |guest: &Guest| guest.service == service && guest.proven;
            if self.count(proven) >= bounds.sockets {
                return Err(Reason::Full);
            }
            if self.count(|guest| proven(guest) && guest.origin == origin) >= bounds.of_address {
                return Err(Reason::Address);
            }
        }
        if let Some(guest) = self.guests.get_mut(&ticket) {
            guest.proven = true;
        }
        Ok(())
    }

    /// Its socket is closed.
    pub(super) fn leaves(&mut self, ticket: Ticket) {
        self.guests.remove(&ticket);
    }

    /// It was requested to end.
    pub(super) fn sent_away(&mut self, ticket: Ticket) {
        if let Some(guest) = self.guests.get_mut(&ticket) {
            guest.leaving = true;
        }
    }

    fn count(&self, which: impl Fn(&Guest) -> bool) -> usize {
        self.guests.values().filter(|guest| !guest.leaving && which(guest)).count()
    }

    /// Which of `among` can go for a newcomer.
    fn dispensable(&self, among: impl Fn(&Guest) -> bool, now: Duration) -> Option<Ticket> {
        let mut unproven: HashMap<Origin, usize> = HashMap::new();
        let silent = || self.guests.iter().filter(|(_, guest)| !guest.proven && !guest.leaving && among(guest));
        for (_, guest) in silent() {
            *unproven.entry(guest.origin).or_default() += 1;
        }
        let had_time = silent().filter(|(_, guest)| now.saturating_sub(guest.since) >= GRACE);
        // Of the address with most; then the one that came first. Tickets are given in that order.
        had_time.max_by_key(|(ticket, guest)| (unproven[&guest.origin], std::cmp::Reverse(**ticket))).map(|(t, _)| *t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { sockets: 4, of_address: 3 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn from(origin: u32, service: usize, tight: bool) -> Newcomer {
        Newcomer { service, origin: Origin::V4(origin), tight }
    }

    /// What happens, in words: `at SECOND comes ADDRESS SERVICE [tight]`, `proves TICKET`, `leaves TICKET`; behind `=` what
    /// follows from it: a ticket, `TICKET for TICKET`, or why it was refused.
    fn play(script: &[&str]) {
        let mut state = State::default();
        for line in script {
            let (event, expected) = line.split_once(" = ").unwrap_or((line, ""));
            let words: Vec<&str> = event.split_whitespace().collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "proves" => state.proves(Ticket(number(1)), None).expect("there is no bound"),
                "leaves" => state.leaves(Ticket(number(1))),
                _ => {
                    let newcomer = from(number(3) as u32, number(4) as usize, words.len() > 5);
                    let made = match state.comes(newcomer, BOUNDS, seconds(number(1))) {
                        Arrival::Refused(reason) => reason.name().to_owned(),
                        Arrival::Inside { ticket, instead_of: None } => format!("{}", ticket.0),
                        Arrival::Inside { ticket, instead_of: Some(other) } => format!("{} for {}", ticket.0, other.0),
                    };
                    assert_eq!(made, expected, "{line}");
                }
            }
        }
    }

    #[test]
    fn a_service_and_each_address_have_bounds_of_their_own() {
        play(&[
            "at 0 comes 7 0 = 1",
            "at 0 comes 7 0 = 2",
            "at 0 comes 7 0 = 3",
            "at 0 comes 7 0 = address_full",
            "at 0 comes 8 0 = 4",
            "at 0 comes 8 0 = full",
            "at 0 comes 8 1 = 5",
            "leaves 2",
            "at 0 comes 7 0 = 6",
        ]);
    }

    #[test]
    fn a_newcomer_takes_the_place_of_who_came_first_of_the_address_with_most_that_proved_nothing() {
        play(&[
            "at 0 comes 8 0 = 1",
            "at 1 comes 7 0 = 2",
            "at 2 comes 7 0 = 3",
            "at 3 comes 7 0 = 4",
            "at 4 comes 9 0 = full",
            "at 7 comes 9 0 = 5 for 2",
            // It is still ending: its place is given to another, and it is not requested to end again.
            "at 7 comes 9 0 = 6 for 3",
            "leaves 2",
            "leaves 3",
            // One of each, but for two of 9 that have had no time yet.
            "at 8 comes 7 0 = 7 for 1",
        ]);
    }

    #[test]
    fn whoever_has_proven_what_it_is_for_keeps_its_place_however_long_it_is_silent() {
        play(&[
            "at 0 comes 7 0 = 1",
            "at 0 comes 7 0 = 2",
            "at 0 comes 7 0 = 3",
            "at 0 comes 8 0 = 4",
            "proves 1",
            "proves 2",
            "proves 3",
            "at 1000000 comes 9 0 = 5 for 4",
            "proves 5",
            "at 2000000 comes 6 0 = full",
            "at 2000000 comes 7 0 = address_full",
        ]);
    }

    #[test]
    fn an_address_at_its_bound_loses_its_own_connections_and_no_others() {
        play(&[
            "at 0 comes 8 0 = 1",
            "at 1 comes 7 0 = 2",
            "at 1 comes 7 0 = 3",
            "at 1 comes 7 0 = 4",
            "at 9 comes 7 0 = 5 for 2",
        ]);
    }

    #[test]
    fn without_a_descriptor_to_spare_somebody_of_any_service_goes_or_the_newcomer_does() {
        play(&[
            "at 0 comes 7 1 = 1",
            "at 0 comes 8 0 = 2",
            "proves 2",
            "at 4 comes 9 0 tight = descriptors",
            "at 9 comes 9 0 tight = 3 for 1",
            "at 9 comes 9 0 tight = descriptors",
        ]);
    }

    #[test]
    fn of_those_that_have_proven_themselves_there_can_be_fewer_than_of_those_that_try() {
        let mut state = State::default();
        let wide = Bounds { sockets: 10, of_address: 10 };
        let inner = Bounds { sockets: 3, of_address: 2 };
        let mut come = |origin| match state.comes(from(origin, 0, false), wide, seconds(0)) {
            Arrival::Inside { ticket, .. } => state.proves(ticket, Some(inner)),
            Arrival::Refused(reason) => panic!("{reason:?}"),
        };
        let answers = [7, 7, 7, 8, 9].map(&mut come);
        let expected = [Ok(()), Ok(()), Err(Reason::Address), Ok(()), Err(Reason::Full)];
        assert_eq!(answers, expected);
    }

    #[test]
    fn whoever_has_half_an_address_of_ipv6_has_all_that_begin_so() {
        let of = |text: &str| Origin::of(text.parse().expect("an address"));
        assert_eq!(of("fd00:1:2:3::1"), of("fd00:1:2:3:ffff::2"));
        assert_ne!(of("fd00:1:2:3::1"), of("fd00:1:2:4::1"));
        assert_eq!(of("::ffff:10.1.2.3"), of("10.1.2.3"));
    }
}
