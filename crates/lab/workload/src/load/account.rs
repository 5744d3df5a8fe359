//! The account of every message sent and every delivery received.
//!
//! ```text
//!            service 0                 service 1
//!            sent 5, acknowledged 4    ...
//! billing    t t t t .  highest 3      one cell a message: when its first delivery came (ms + 1), 0 = not yet
//! laboratory t t . t .  highest 3      message 2 is missing: lost if it never comes, out of order if it comes now
//! ...
//! ```
//!
//! Rules, for each interface:
//! - every acknowledged message is delivered (else *lost*); one never sent is *foreign*;
//! - one given up by its sender before it was acknowledged reaches all interfaces or none (else *partial*);
//! - first deliveries of one service come in the order sent (else *out of order*);
//! - a second delivery is a *duplicate*. It is *excused* if the node cannot have known better: the sender sent
//!   the message again after a broken connection, or the node was killed within `crash_window` after the first delivery,
//!   before it had made the receiver's acknowledgement durable.
//!
//! Pure: time comes in as milliseconds. Content is compared elsewhere (`pool`); its faults are only counted here.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

/// How many faults are kept as text; the rest are only counted.
const EXAMPLES: usize = 8;

/// The account.
#[derive(Debug)]
pub struct Account {
    services: usize,
    interfaces: usize,
    crash_window_ms: u64,
    /// By service.
    sent: Vec<usize>,
    /// Messages the sender is done with: acknowledged or given up.
    settled: Vec<usize>,
    given_up: HashSet<(usize, usize)>,
    resent: HashSet<(usize, usize)>,
    /// By interface and service.
    cells: Vec<Vec<u32>>,
    highest: Vec<Option<usize>>,
    /// When each was ordered, and when the node had fallen silent.
    kills_ms: Vec<RangeInclusive<u64>>,
    counts: Counts,
    examples: Vec<String>,
}

/// The result of the account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    /// Messages sent at least once.
    pub sent: u64,
    /// Messages acknowledged by the node.
    pub acknowledged: u64,
    /// Messages in doubt that their senders gave up.
    pub given_up: u64,
    /// Sends beyond the first of a message, after a broken connection or a refusal.
    pub resends: u64,
    /// Negative acknowledgements received by the senders.
    pub refused: u64,
    /// Acknowledgements that name another message or cannot be read.
    pub bad_acknowledgements: u64,
    /// First deliveries, over all interfaces.
    pub delivered: u64,
    /// Deliveries beyond the first of a message at an interface.
    pub duplicated: u64,
    /// Those of `duplicated` that a kill or a resend excuses.
    pub excused: u64,
    /// Longest time from a first delivery to the kill that excuses its duplicate, resent messages aside; milliseconds.
    pub oldest_excused_ms: u64,
    /// First deliveries after one of a later message of the same service.
    pub out_of_order: u64,
    /// Deliveries whose bytes are not the expected ones.
    pub wrong: u64,
    /// Deliveries of messages that were never sent.
    pub foreign: u64,
    /// Breaches of framing by the node.
    pub framing: u64,
}

impl Account {
    /// An empty account of `services` senders and `interfaces` receivers.
    pub fn new(services: usize, interfaces: usize, crash_window: Duration) -> Self {
        Account {
            services,
            interfaces,
            crash_window_ms: crash_window.as_millis() as u64,
            sent: vec![0; services],
            settled: vec![0; services],
            given_up: HashSet::new(),
            resent: HashSet::new(),
            cells: vec![Vec::new(); services * interfaces],
            highest: vec![None; services * interfaces],
            kills_ms: Vec::new(),
            counts: Counts::default(),
            examples: Vec::new(),
        }
    }

    /// Message `sequence` of `service` goes out, perhaps again.
    pub fn send(&mut self, service: usize, sequence: usize) {
        if sequence < self.sent[service] {
            self.counts.resends += 1;
            self.resent.insert((service, sequence));
        } else {
            debug_assert_eq!(sequence, self.sent[service], "a service sends its messages in order");
            self.sent[service] = sequence + 1;
            self.counts.sent += 1;
        }
    }

    /// The node acknowledged message `sequence` of `service`.
    pub fn acknowledge(&mut self, service: usize, sequence: usize) {
        assert_eq!(sequence, self.settled[service], "one message is outstanding at a time");
        self.settled[service] = sequence + 1;
        self.counts.acknowledged += 1;
    }

    /// The sender will not send message `sequence` of `service` again, although it was not acknowledged.
    pub fn give_up(&mut self, service: usize, sequence: usize) {
        assert_eq!(sequence, self.settled[service], "one message is outstanding at a time");
        self.settled[service] = sequence + 1;
        self.given_up.insert((service, sequence));
        self.counts.given_up += 1;
    }

    /// The node refused message `sequence` of `service`.
    pub fn refuse(&mut self, service: usize, sequence: usize, reply: &[u8]) {
        self.counts.refused += 1;
        let reply = reply.escape_ascii();
        self.example(|| format!("message {sequence} of service {service} was refused: {reply}"));
    }

    /// A reply to message `sequence` of `service` that does not acknowledge it.
    pub fn bad_acknowledgement(&mut self, service: usize, sequence: usize, reply: &[u8]) {
        self.counts.bad_acknowledgements += 1;
        let reply = reply.escape_ascii();
        self.example(|| format!("message {sequence} of service {service} got a reply that is not its own: {reply}"));
    }

    /// Whether message `sequence` of `service` was acknowledged.
    pub fn is_acknowledged(&self, service: usize, sequence: usize) -> bool {
        sequence < self.settled.get(service).copied().unwrap_or(0) && !self.given_up.contains(&(service, sequence))
    }

    /// Whether a message of `service` is sent and neither acknowledged nor given up.
    pub fn in_doubt(&self, service: usize) -> bool {
        self.sent[service] > self.settled[service]
    }

    /// The node was killed: at the start of `dying` it was sent the signal, at its end nothing of it was left in the sockets.
    /// In between a process whose threads wait for a medium may still deliver what it had begun.
    pub fn kill(&mut self, dying: RangeInclusive<u64>) {
        self.kills_ms.push(dying);
    }

    /// Message `sequence` of `service` arrived at `interface`.
    pub fn deliver(&mut self, interface: usize, service: usize, sequence: usize, now_ms: u64) {
        if service >= self.services || sequence >= self.sent[service] {
            return self.foreign(interface, &format!("message {sequence} of service {service}"));
        }
        let row = interface * self.services + service;
        let cells = &mut self.cells[row];
        if cells.len() <= sequence {
            cells.resize(sequence + 1, 0);
        }
        if cells[sequence] != 0 {
            return self.duplicate(row, sequence, now_ms);
        }
        cells[sequence] = stamp(now_ms);
        self.counts.delivered += 1;
        if self.highest[row].is_some_and(|highest| sequence < highest) {
            self.counts.out_of_order += 1;
            self.example(|| {
                format!("interface {interface}: message {sequence} of service {service} came after a later one")
            });
        } else {
            self.highest[row] = Some(sequence);
        }
    }

    fn duplicate(&mut self, row: usize, sequence: usize, now_ms: u64) {
        let (interface, service) = (row / self.services, row % self.services);
        let first = u64::from(self.cells[row][sequence] - 1);
        let window = self.crash_window_ms;
        // The first kill after the delivery: a later one may have hit a node that had not come to repeat it yet.
        let excuse = self.kills_ms.iter().find(|dying| {
            (dying.start().saturating_sub(window)..=*dying.end()).contains(&first) && *dying.end() <= now_ms
        });
        self.counts.duplicated += 1;
        if self.resent.contains(&(service, sequence)) {
            self.counts.excused += 1;
        } else if let Some(dying) = excuse {
            self.counts.excused += 1;
            self.counts.oldest_excused_ms = self.counts.oldest_excused_ms.max(dying.start().saturating_sub(first));
        } else {
            self.example(|| format!("interface {interface}: message {sequence} of service {service} came again"));
        }
        self.cells[row][sequence] = stamp(now_ms);
    }

    /// A delivery at `interface` that is not one of ours.
    pub fn foreign(&mut self, interface: usize, what: &str) {
        self.counts.foreign += 1;
        self.example(|| format!("interface {interface}: {what} came, which was never sent"));
    }

    /// A delivery whose bytes are not the expected ones.
    pub fn wrong(&mut self, interface: usize, what: impl FnOnce() -> String) {
        self.counts.wrong += 1;
        self.example(|| format!("interface {interface}: {}", what()));
    }

    /// Bytes that are not MLLP.
    pub fn framing(&mut self, what: impl FnOnce() -> String) {
        self.counts.framing += 1;
        self.example(what);
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Acknowledged messages that an interface has not received, over all interfaces.
    pub fn lost(&self) -> u64 {
        self.missing().count() as u64
    }

    /// Whether every acknowledged message has reached every interface (unacknowledged ones may have, too).
    pub fn is_complete(&self) -> bool {
        self.counts.delivered >= self.counts.acknowledged * self.interfaces as u64 && self.missing().next().is_none()
    }

    /// Messages never acknowledged that some interfaces received and others did not.
    pub fn partial(&self) -> u64 {
        self.torn().count() as u64
    }

    fn torn(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let unanswered = (0..self.services).flat_map(|s| (self.settled[s]..self.sent[s]).map(move |n| (s, n)));
        unanswered.chain(self.given_up.iter().copied()).filter(|(service, sequence)| {
            let reached = (0..self.interfaces).filter(|at| self.has(*at, *service, *sequence)).count();
            reached != 0 && reached != self.interfaces
        })
    }

    /// The first faults as text, with the first missing messages.
    pub fn examples(&self) -> Vec<String> {
        let missing = self.missing().take(EXAMPLES).map(|(interface, service, sequence)| {
            format!("interface {interface}: message {sequence} of service {service} was acknowledged and never came")
        });
        let torn = self.torn().take(EXAMPLES).map(|(service, sequence)| {
            format!("message {sequence} of service {service} was not acknowledged and reached some interfaces only")
        });
        self.examples.iter().cloned().chain(missing).chain(torn).collect()
    }

    fn missing(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        (0..self.interfaces)
            .flat_map(move |interface| (0..self.services).map(move |service| (interface, service)))
            .flat_map(move |(interface, service)| {
                (0..self.settled[service]).map(move |sequence| (interface, service, sequence))
            })
            .filter(|(interface, service, sequence)| !self.has(*interface, *service, *sequence))
            .filter(|(_, service, sequence)| !self.given_up.contains(&(*service, *sequence)))
    }

    fn has(&self, interface: usize, service: usize, sequence: usize) -> bool {
        self.cells[interface * self.services + service].get(sequence).is_some_and(|cell| *cell != 0)
    }

    fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(text());
        }
    }
}

/// A time as a cell holds it: never 0. Milliseconds in 32 bits last 49 days.
fn stamp(now_ms: u64) -> u32 {
    u32::try_from(now_ms).unwrap_or(u32::MAX - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(100);

    /// Two services, two interfaces, `messages` sent and acknowledged by each service.
    fn account(messages: usize) -> Account {
        let mut account = Account::new(2, 2, WINDOW);
        for service in 0..2 {
            for sequence in 0..messages {
                account.send(service, sequence);
                account.acknowledge(service, sequence);
            }
        }
        account
    }

    fn deliver_all(account: &mut Account, messages: usize, except: &[(usize, usize, usize)]) {
        for interface in 0..2 {
            for service in 0..2 {
                for sequence in (0..messages).filter(|sequence| !except.contains(&(interface, service, *sequence))) {
                    account.deliver(interface, service, sequence, 10);
                }
            }
        }
    }

    #[test]
    fn every_delivery_once_and_in_order_is_clean() {
        let mut account = account(5);
        assert!(!account.is_complete());
        deliver_all(&mut account, 5, &[]);
        assert!(account.is_complete());
        assert_eq!((account.lost(), account.partial()), (0, 0));
        let expected = Counts { sent: 10, acknowledged: 10, delivered: 20, ..Counts::default() };
        assert_eq!(account.counts(), expected);
        assert!(account.examples().is_empty());
    }

    #[test]
    fn a_missing_delivery_is_lost() {
        let mut account = account(5);
        deliver_all(&mut account, 5, &[(1, 0, 2), (0, 1, 4)]);
        assert_eq!((account.lost(), account.is_complete()), (2, false));
        assert!(account.examples()[1].contains("message 2 of service 0"), "{:?}", account.examples());
    }

    #[test]
    fn a_late_first_delivery_is_out_of_order_and_not_lost() {
        let mut account = account(5);
        deliver_all(&mut account, 5, &[(1, 0, 2)]);
        account.deliver(1, 0, 2, 11);
        assert_eq!((account.counts().out_of_order, account.lost()), (1, 0));
    }

    #[test]
    fn a_second_delivery_without_a_kill_is_not_excused() {
        let mut account = account(1);
        deliver_all(&mut account, 1, &[]);
        account.deliver(0, 0, 0, 20);
        assert_eq!((account.counts().duplicated, account.counts().excused), (1, 0));
        assert_eq!(account.examples().len(), 1);
    }

    #[test]
    fn a_kill_excuses_only_what_was_delivered_shortly_before_it() {
        // (the kill, time of the second delivery, excused); the first delivery is at 10 ms.
        for (dying, again, excused) in [
            (10..=10, 30, 1),
            (110..=110, 300, 1),
            (111..=111, 300, 0),
            (9..=9, 300, 0),
            (50..=50, 40, 0),
            (5..=10, 300, 1),  // delivered while it died
            (5..=300, 200, 0), // delivered again before it was dead
        ] {
            let what = format!("killed {dying:?}, again at {again}");
            let mut account = account(1);
            deliver_all(&mut account, 1, &[]);
            account.kill(dying);
            account.deliver(0, 0, 0, again);
            assert_eq!(account.counts().excused, excused, "{what}");
        }
    }

    #[test]
    fn one_kill_excuses_one_duplicate_of_a_delivery() {
        let mut account = account(1);
        deliver_all(&mut account, 1, &[]);
        account.kill(20..=20);
        account.deliver(0, 0, 0, 30);
        account.deliver(0, 0, 0, 40);
        assert_eq!((account.counts().duplicated, account.counts().excused), (2, 1));
    }

    #[test]
    fn a_message_sent_again_may_arrive_twice() {
        let mut account = Account::new(1, 1, WINDOW);
        account.send(0, 0);
        account.send(0, 0);
        account.acknowledge(0, 0);
        account.deliver(0, 0, 0, 1);
        account.deliver(0, 0, 0, 2);
        assert_eq!((account.counts().resends, account.counts().duplicated, account.counts().excused), (1, 1, 1));
    }

    #[test]
    fn an_unacknowledged_message_at_some_interfaces_only_is_partial() {
        let mut account = account(1);
        account.send(0, 1);
        assert_eq!(account.partial(), 0);
        account.deliver(0, 0, 1, 1);
        assert_eq!(account.partial(), 1);
        account.deliver(1, 0, 1, 1);
        assert_eq!(account.partial(), 0);
    }

    #[test]
    fn a_message_given_up_may_be_missing_everywhere_but_not_somewhere() {
        let mut account = account(1);
        deliver_all(&mut account, 1, &[]);
        account.send(1, 1);
        account.give_up(1, 1);
        assert_eq!((account.lost(), account.partial(), account.is_complete()), (0, 0, true));
        account.deliver(1, 1, 1, 1);
        assert_eq!((account.lost(), account.partial()), (0, 1));
        assert!(account.examples()[0].contains("reached some interfaces only"));
        account.deliver(0, 1, 1, 1);
        assert_eq!((account.lost(), account.partial()), (0, 0));
    }

    #[test]
    fn a_message_never_sent_is_foreign() {
        let mut account = account(1);
        account.deliver(0, 0, 1, 1);
        account.deliver(0, 7, 0, 1);
        assert_eq!(account.counts().foreign, 2);
    }
}
