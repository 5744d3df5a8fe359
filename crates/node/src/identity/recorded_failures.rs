//! Which failed logins have an entry in the audit: a bound over all ports, so that who guesses passwords cannot fill the audit, and
//! with it stop administration.
//!
//! Pure: the time is a parameter. What is left out is counted, and the next entry says how many.

/// Entries of one window at most.
const ENTRIES_OF_WINDOW: u32 = 20;

/// A window, in milliseconds: 20 in 10 s are 173,000 entries a day, some 50 MB.
const WINDOW_MS: u64 = 10_000;

/// The failures of the present window.
#[derive(Debug, Default)]
pub(super) struct RecordedFailures {
    began_ms: u64,
    entries: u32,
    left_out: u64,
}

impl RecordedFailures {
    /// A login failed. Returns, if it has an entry, how many before it had none.
    pub(super) fn apply(&mut self, now_ms: u64) -> Option<u64> {
        if now_ms.saturating_sub(self.began_ms) >= WINDOW_MS {
            (self.began_ms, self.entries) = (now_ms, 0);
        }
        if self.entries == ENTRIES_OF_WINDOW {
            self.left_out += 1;
            return None;
        }
        self.entries += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_twenty_entries_in_ten_seconds_and_the_next_one_says_how_many_had_none() {
        let mut failures = RecordedFailures::default();
        let recorded = (0..1_000).filter(|_| failures.apply(5).is_some()).count();
        assert_eq!(recorded, 20);
        assert_eq!(failures.apply(9_999), None);
        assert_eq!(failures.apply(10_005), Some(981));
        assert_eq!(failures.apply(10_006), Some(0));
    }
}
