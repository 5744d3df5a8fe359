//! [`ServerOrder`]: which server of a directory is asked first; a pure state machine.
//!
//! ```text
//!   asked --answered--> in its place again
//!     |
//!     +---failed---> behind the others for AGAIN_MS; of those that failed, the one that failed longest ago first
//! ```
//!
//! No server is left out for good: when all have failed, all are tried.

/// How long a server that failed is tried after the others.
const AGAIN_MS: u64 = 30_000;

/// The servers by their numbers.
#[derive(Debug)]
pub(super) struct ServerOrder {
    failed_ms: Vec<Option<u64>>,
}

impl ServerOrder {
    /// So many servers, none of which has failed.
    pub(super) fn new(count: usize) -> ServerOrder {
        ServerOrder { failed_ms: vec![None; count] }
    }

    /// The order in which they are asked at a time, in milliseconds.
    pub(super) fn at(&self, now_ms: u64) -> Vec<usize> {
        let rank = |at: &usize| match self.failed_ms[*at] {
            Some(failed) if now_ms.saturating_sub(failed) < AGAIN_MS => (1, failed, *at),
            _ => (0, 0, *at),
        };
        let mut order: Vec<usize> = (0..self.failed_ms.len()).collect();
        order.sort_by_key(rank);
        order
    }

    /// A server answered, or failed.
    pub(super) fn apply(&mut self, server: usize, has_answered: bool, now_ms: u64) {
        if let Some(failed) = self.failed_ms.get_mut(server) {
            *failed = (!has_answered).then_some(now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_failed_comes_last_for_a_while() {
        let mut order = ServerOrder::new(3);
        assert_eq!(order.at(0), [0, 1, 2]);
        order.apply(0, false, 100);
        assert_eq!(order.at(200), [1, 2, 0]);
        order.apply(1, false, 300);
        order.apply(2, false, 400);
        assert_eq!(order.at(500), [0, 1, 2], "all failed: the one that failed longest ago first");
        order.apply(2, true, 600);
        assert_eq!(order.at(700), [2, 0, 1]);
        assert_eq!(order.at(100 + AGAIN_MS), [0, 2, 1]);
        assert_eq!(order.at(u64::MAX), [0, 1, 2]);
    }
}
