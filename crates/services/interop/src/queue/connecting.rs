//! [`ConnectTries`]: when an operation tries to connect for others that require it. Pure.
//!
//! However many lanes of other operations wait for it, and however many lanes of its own are idle: one try at a time, and after one that
//! failed the pause of its retry policy. Orders end the pause; a message of its own does not wait for it.

use std::time::Duration;

use tokio::time::Instant;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct ConnectTries {
    is_trying: bool,
    failed: u32,
    from: Option<Instant>,
}

impl ConnectTries {
    /// Whether a try may begin.
    pub(super) fn may_begin(&self, now: Instant) -> bool {
        !self.is_trying && self.from.is_none_or(|from| now >= from)
    }

    /// Begins one, where it may.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let may = self.may_begin(now);
        self.is_trying |= may;
        may
    }

    /// It has failed; `pause` answers how long to wait after so many failures, one after the other.
    pub(super) fn failed(&mut self, now: Instant, pause: impl FnOnce(u32) -> Duration) {
        self.failed = self.failed.saturating_add(1);
        (self.is_trying, self.from) = (false, now.checked_add(pause(self.failed)));
    }

    /// It has succeeded, or a message came through.
    pub(super) fn succeeded(&mut self) {
        *self = ConnectTries::default();
    }

    /// Orders have changed: the next try may begin at once, and the next pause is the shortest.
    pub(super) fn start_over(&mut self) {
        (self.failed, self.from) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::production::settings::Retry;

    #[test]
    fn one_try_at_a_time_and_the_pauses_of_the_retry_policy_between_them_until_orders_or_a_connection_end_them() {
        let retry: Retry = toml::from_str("first = \"10s\"\nmax = \"30s\"").expect("it is right");
        let (began, mut tries) = (Instant::now(), ConnectTries::default());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        assert!(tries.begin(at(0)) && !tries.begin(at(1)), "one serves all that wait");
        tries.failed(at(2), |failures| retry.pause_after(failures));
        let begins = |tries: &mut ConnectTries, from: u64| {
            let first = (from..from + 100).find(|second| tries.begin(at(*second)));
            tries.failed(at(first.expect("one begins")), |failures| retry.pause_after(failures));
            first
        };
        assert_eq!(begins(&mut tries, 3), Some(12));
        assert_eq!(begins(&mut tries, 13), Some(32));
        assert_eq!(begins(&mut tries, 33), Some(62));
        assert_eq!(begins(&mut tries, 63), Some(92), "the longest pause");
        tries.start_over();
        assert_eq!(begins(&mut tries, 93), Some(93));
        assert_eq!(begins(&mut tries, 94), Some(103), "the shortest one again");
        tries.succeeded();
        assert_eq!(begins(&mut tries, 104), Some(104));
    }
}
