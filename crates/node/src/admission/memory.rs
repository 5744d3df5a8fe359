//! Memory of frames that are not whole yet: which connection may read on.
//!
//! Short frames are not counted: so many connections as there may be, each with [`FREE_BYTES`], is what a node can
//! take. A longer one requests memory before each further [`STEP_BYTES`]. While the bound of its service or of the node
//! is reached, it waits, unread, so that its sender waits too. But one frame of each service is always read on,
//! whatever the bounds are: if all had half a message, none could ever finish. So the memory is at most the node's
//! bound, and a message for each service.
//!
//! While a connection waits, a frame that has not grown by a step within [`GRACE`] ends, and its connection with it: of
//! the address that holds most, the one that has not grown for longest. A connection that waits itself is not ended for
//! this, unless another address waits.
//!
//! A complete frame that waits until there is room for its message still counts: it takes memory as well.

use std::collections::HashMap;
use std::time::Duration;

use super::frame::Frame;
use super::state::{GRACE, Guest, Origin, State, Ticket};

/// Bytes of a frame that are not counted: above the 95th percentile of message sizes (9,989 bytes in public test messages),
/// and 16 MiB for 256 connections.
pub const FREE_BYTES: u64 = 64 << 10;

/// How much a long frame requests at a time. In the slowest link that is not cut off under pressure, 50 KiB/s.
pub const STEP_BYTES: u64 = 256 << 10;

/// The bounds of memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryBounds {
    pub(super) of_service: u64,
    pub(super) of_node: u64,
}

impl State {
    /// The frame of a connection would have `bytes` bytes: whether it may.
    pub(super) fn holds(&mut self, ticket: Ticket, bytes: u64, bounds: MemoryBounds, now: Duration) -> bool {
        let Some(service) = self.guests.get(&ticket).map(|guest| guest.service) else { return false };
        let others = || self.guests.iter().filter(|(other, _)| **other != ticket);
        let sum = |which: &dyn Fn(&Guest) -> bool| -> u64 {
            others().filter(|(_, guest)| which(guest)).filter_map(|(_, guest)| Some(guest.frame?.bytes)).sum()
        };
        let fits = sum(&|guest| guest.service == service) + bytes <= bounds.of_service
            && sum(&|_| true) + bytes <= bounds.of_node;
        let beyond = !fits
            && !others().any(|(_, guest)| guest.service == service && guest.frame.is_some_and(|frame| frame.beyond));
        let Some(guest) = self.guests.get_mut(&ticket) else { return false };
        let empty = Frame { bytes: 0, since: now, beyond: false, waits: false, whole: false };
        let frame = guest.frame.get_or_insert(empty);
        if !fits && !beyond {
            if !frame.waits {
                (frame.waits, frame.since) = (true, now);
            }
            return false;
        }
        *frame = Frame { bytes, since: now, beyond, waits: false, whole: false };
        true
    }

    /// The frame is whole: it is no longer up to its sender how long it takes.
    pub(super) fn whole(&mut self, ticket: Ticket) {
        if let Some(frame) = self.guests.get_mut(&ticket).and_then(|guest| guest.frame.as_mut()) {
            frame.whole = true;
        }
    }

    /// The frame is gone from memory.
    pub(super) fn releases(&mut self, ticket: Ticket) {
        if let Some(guest) = self.guests.get_mut(&ticket) {
            guest.frame = None;
        }
    }

    /// Bytes held by frames of a service, or of all.
    pub(super) fn held(&self, service: Option<usize>) -> u64 {
        let of = |guest: &&Guest| service.is_none_or(|service| guest.service == service);
        self.guests.values().filter(of).filter_map(|guest| Some(guest.frame?.bytes)).sum()
    }

    /// The connection whose frame ends, so that the waiting connection may get memory. It then counts as ended.
    pub(super) fn makes_room(&mut self, waiting: Ticket, bounds: MemoryBounds, now: Duration) -> Option<Ticket> {
        let (service, origin) = self.guests.get(&waiting).map(|guest| (guest.service, guest.origin))?;
        let service_full = self.held(Some(service)) + STEP_BYTES > bounds.of_service;
        let among = |guest: &Guest| !service_full || guest.service == service;
        // The connections that are ending free enough for now.
        if self.guests.values().any(|guest| guest.leaving && guest.frame.is_some() && among(guest)) {
            return None;
        }
        let mut held: HashMap<Origin, u64> = HashMap::new();
        for guest in self.guests.values().filter(|guest| among(guest)) {
            *held.entry(guest.origin).or_default() += guest.frame.map_or(0, |frame| frame.bytes);
        }
        let stalled = |guest: &Guest| {
            let had_time = |frame: &Frame| now.saturating_sub(frame.since) >= GRACE;
            let frame = guest.frame.filter(|frame| frame.bytes > 0 && !frame.whole && had_time(frame))?;
            (!frame.waits || guest.origin != origin).then_some(frame.since)
        };
        let candidates =
            self.guests.iter().filter(|(ticket, guest)| **ticket != waiting && !guest.leaving && among(guest));
        let (_, _, ticket) = candidates
            .filter_map(|(ticket, guest)| Some((held[&guest.origin], std::cmp::Reverse(stalled(guest)?), *ticket)))
            .max()?;
        self.sent_away(ticket);
        Some(ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Bounds;
    use super::super::state::{Arrival, Newcomer};
    use super::*;

    const MIB: u64 = 1 << 20;
    const BOUNDS: MemoryBounds = MemoryBounds { of_service: 10 * MIB, of_node: 15 * MIB };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// So many connections: address and service of each. Their tickets are 1, 2, ...
    fn inside(all: &[(u32, usize)]) -> State {
        let mut state = State::default();
        for (origin, service) in all {
            let newcomer = Newcomer { service: *service, origin: Origin::V4(*origin), tight: false };
            let arrival = state.comes(newcomer, Bounds { sockets: 100, of_address: 100 }, seconds(0));
            assert!(matches!(arrival, Arrival::Inside { .. }));
        }
        state
    }

    #[test]
    fn frames_read_on_up_to_the_bound_and_then_one_of_each_service() {
        let mut state = inside(&[(7, 0), (7, 0), (7, 0), (7, 1), (7, 1)]);
        // Ticket, MiB that it would have, whether it may.
        let table = [
            (1, 6, true),
            (2, 4, true),
            (3, 1, true), // beyond the service's bound: the one that may
            (2, 5, false),
            (1, 7, false),
            (3, 16, true),
            (4, 1, true), // beyond the node's bound, and the first of its service
            (5, 1, false),
        ];
        for (at, (ticket, mib, granted)) in table.into_iter().enumerate() {
            assert_eq!(state.holds(Ticket(ticket), mib * MIB, BOUNDS, seconds(0)), granted, "step {at}");
        }
        assert_eq!((state.held(None), state.held(Some(1))), (27 * MIB, MIB));
        state.releases(Ticket(3));
        assert!(state.holds(Ticket(2), 5 * MIB, BOUNDS, seconds(1)), "it is its turn");
        assert!(!state.holds(Ticket(1), 7 * MIB, BOUNDS, seconds(1)));
        state.leaves(Ticket(2));
        assert!(state.holds(Ticket(1), 7 * MIB, BOUNDS, seconds(1)), "a connection that ends gives back what it held");
    }

    #[test]
    fn while_somebody_waits_the_frame_ends_that_has_not_grown_for_longest_of_the_address_with_most() {
        let mut state = inside(&[(7, 0), (7, 0), (8, 0), (9, 0)]);
        assert!(state.holds(Ticket(3), 3 * MIB, BOUNDS, seconds(0)));
        assert!(state.holds(Ticket(1), 4 * MIB, BOUNDS, seconds(1)));
        assert!(state.holds(Ticket(2), 3 * MIB, BOUNDS, seconds(2)));
        assert!(state.holds(Ticket(2), 4 * MIB, BOUNDS, seconds(2)), "the one beyond the bound");
        assert!(!state.holds(Ticket(4), MIB, BOUNDS, seconds(3)));
        assert_eq!(state.makes_room(Ticket(4), BOUNDS, seconds(4)), None, "all of them have grown a moment ago");
        assert_eq!(state.makes_room(Ticket(4), BOUNDS, seconds(7)), Some(Ticket(1)), "the address 7 holds most");
        assert_eq!(state.makes_room(Ticket(4), BOUNDS, seconds(7)), None, "one at a time");
        state.leaves(Ticket(1));
        assert!(state.holds(Ticket(4), MIB, BOUNDS, seconds(8)));
    }

    #[test]
    fn a_frame_that_is_whole_or_waits_itself_is_not_to_blame() {
        let mut state = inside(&[(7, 0), (7, 0), (7, 0), (9, 0)]);
        assert!(state.holds(Ticket(1), 9 * MIB, BOUNDS, seconds(0)));
        state.whole(Ticket(1));
        assert!(state.holds(Ticket(4), MIB, BOUNDS, seconds(0)));
        assert!(state.holds(Ticket(2), MIB, BOUNDS, seconds(0)), "the one beyond the bound");
        state.whole(Ticket(2));
        assert!(!state.holds(Ticket(3), MIB, BOUNDS, seconds(0)));
        assert!(!state.holds(Ticket(4), 2 * MIB, BOUNDS, seconds(0)));
        assert_eq!(state.makes_room(Ticket(3), BOUNDS, seconds(60)), Some(Ticket(4)), "it is of another address");
        let mut state = inside(&[(7, 0), (7, 0), (7, 0)]);
        assert!(state.holds(Ticket(1), 10 * MIB, BOUNDS, seconds(0)));
        state.whole(Ticket(1));
        assert!(state.holds(Ticket(2), MIB, BOUNDS, seconds(58)));
        assert!(!state.holds(Ticket(3), MIB, BOUNDS, seconds(0)));
        assert_eq!(state.makes_room(Ticket(3), BOUNDS, seconds(60)), None);
    }

    #[test]
    fn a_service_that_is_within_its_bound_has_others_make_room() {
        let mut state = inside(&[(7, 0), (8, 1), (9, 1)]);
        assert!(state.holds(Ticket(1), 10 * MIB, BOUNDS, seconds(0)));
        assert!(state.holds(Ticket(2), 5 * MIB, BOUNDS, seconds(0)));
        assert!(state.holds(Ticket(2), 6 * MIB, BOUNDS, seconds(0)), "the one of its service beyond the node's bound");
        assert!(!state.holds(Ticket(3), MIB, BOUNDS, seconds(1)));
        assert_eq!(state.makes_room(Ticket(3), BOUNDS, seconds(9)), Some(Ticket(1)));
    }
}
