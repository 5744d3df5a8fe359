//! Counts refused and ended connections by reason, and limits how often that is logged.

use std::collections::BTreeMap;
use std::time::Duration;

/// At most one line of a reason of a service in this time; the counts have the rest.
const QUIET: Duration = Duration::from_secs(10);

/// Why a connection was refused, or ended by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Refused: the service has as many connections as it may have.
    Full,
    /// Refused: so many come from its address already.
    Address,
    /// Refused: the descriptors that are left are storage's.
    Descriptors,
    /// Refused: its address is not among those that may connect.
    Peer,
    /// Refused: the access rules refuse its address.
    Access,
    /// Refused: the service is outside its schedule.
    Schedule,
    /// Refused: its certificate has none of the names that may connect.
    Certificate,
    /// Refused: the system could not accept it.
    System,
    /// Ended: TLS handshake or login failed, or took too long.
    Handshake,
    /// Ended: it was silent and had proven nothing, and another needed its place.
    Newcomer,
    /// Ended: a frame did not become whole in time.
    Frame,
    /// Ended: its unfinished frame did not grow, and another needed the memory.
    Memory,
    /// Ended: it was silent longer than the service allows.
    Idle,
    /// Ended: somebody closed it.
    Closed,
}

impl Reason {
    /// Its name in status.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Full => "full",
            Reason::Address => "address_full",
            Reason::Descriptors => "descriptors",
            Reason::Peer => "peer",
            Reason::Access => "access",
            Reason::Schedule => "schedule",
            Reason::Certificate => "certificate",
            Reason::System => "system",
            Reason::Handshake => "handshake",
            Reason::Newcomer => "newcomer",
            Reason::Frame => "frame_timeout",
            Reason::Memory => "memory",
            Reason::Idle => "idle_timeout",
            Reason::Closed => "closed",
        }
    }

    /// The event, for the log.
    pub fn text(self) -> &'static str {
        match self {
            Reason::Full => "connection refused: the service's bound is reached",
            Reason::Address => "connection refused: the bound of connections from one address is reached",
            Reason::Descriptors => "connection refused: the descriptors that are left are kept for storage",
            Reason::Peer => "connection refused: the address is not one of `peers`",
            Reason::Access => "connection refused: the access rules refuse its address",
            Reason::Schedule => "connection refused: the service is outside its schedule",
            Reason::Certificate => "connection refused: the certificate has none of the names in `client_names`",
            Reason::System => "a connection could not be accepted",
            Reason::Handshake => "connection ended: handshake or login failed or took too long",
            Reason::Newcomer => "connection ended: silent since it came, and another needed its place",
            Reason::Frame => "connection ended: a frame did not become whole within frame_timeout",
            Reason::Memory => "connection ended: an unfinished frame did not grow, and another needed its memory",
            Reason::Idle => "connection closed: silent longer than idle_timeout",
            Reason::Closed => "connection closed on request; the audit says whose",
        }
    }

    /// Whether it never came in.
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Reason::Full
                | Reason::Address
                | Reason::Descriptors
                | Reason::Peer
                | Reason::Access
                | Reason::Schedule
                | Reason::Certificate
                | Reason::System
        )
    }
}

#[derive(Debug, Default)]
struct Count {
    all: u64,
    /// Not in a line yet.
    unlogged: u64,
    logged_at: Option<Duration>,
}

/// Lines that all connections of a service together get in [`QUIET`] about what is wrong with their bytes. A peer decides how much
/// of that there is.
const LINES: u32 = 20;

/// The counts of one service.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    reasons: BTreeMap<Reason, Count>,
    lines: Lines,
}

#[derive(Debug, Default)]
struct Lines {
    since: Option<Duration>,
    written: u32,
    left_out: u64,
}

impl RefusalLog {
    /// Counts one more; how many a line of the log should report now, if it is time for one.
    pub(super) fn count(&mut self, reason: Reason, now: Duration) -> Option<u64> {
        let count = self.reasons.entry(reason).or_default();
        count.all += 1;
        count.unlogged += 1;
        if count.logged_at.is_some_and(|at| now.saturating_sub(at) < QUIET) {
            return None;
        }
        count.logged_at = Some(now);
        Some(std::mem::take(&mut count.unlogged))
    }

    /// Whether a line may be written about what a peer sends, and how many were left out since the last one.
    pub(super) fn line(&mut self, now: Duration) -> Option<u64> {
        let lines = &mut self.lines;
        if lines.since.is_none_or(|since| now.saturating_sub(since) >= QUIET) {
            (lines.since, lines.written) = (Some(now), 0);
        }
        if lines.written == LINES {
            lines.left_out += 1;
            return None;
        }
        lines.written += 1;
        Some(std::mem::take(&mut lines.left_out))
    }

    /// All refusals, or all that were ended, by name of the reason.
    pub(super) fn counts(&self, refusals: bool) -> BTreeMap<String, u64> {
        let of = self.reasons.iter().filter(|(reason, _)| reason.is_refusal() == refusals);
        of.map(|(reason, count)| (reason.name().to_owned(), count.all)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_refusals_are_a_few_lines_that_account_for_all_but_the_last_ones() {
        let mut log = RefusalLog::default();
        let at = |second| Duration::from_secs(second);
        let lines: Vec<u64> = (0..1000).filter_map(|n| log.count(Reason::Full, at(n / 40))).collect();
        assert_eq!(lines, [1, 400, 400]);
        assert_eq!(log.count(Reason::Frame, at(24)), Some(1), "another reason has lines of its own");
        assert_eq!(log.counts(true), [("full".to_owned(), 1000)].into());
        assert_eq!(log.counts(false), [("frame_timeout".to_owned(), 1)].into());
    }

    #[test]
    fn what_peers_send_is_told_in_a_few_lines_that_account_for_all_but_the_last_ones() {
        let mut log = RefusalLog::default();
        let at = |second| Duration::from_secs(second);
        let lines: Vec<u64> = (0..1000).filter_map(|n| log.line(at(n / 40))).collect();
        let window = |left_out| std::iter::once(left_out).chain([0; 19]);
        assert_eq!(lines, [0, 380, 380].into_iter().flat_map(window).collect::<Vec<u64>>());
    }
}
