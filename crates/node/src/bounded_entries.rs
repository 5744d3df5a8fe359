//! Which of many like events have an entry in the audit: a bound on entries that anybody can cause, so that nobody fills the audit with
//! them, and with it stops administration.
//!
//! Pure: the time is a parameter. What is left out is counted, and the next entry says how many.

/// Entries of one window at most.
const ENTRIES_OF_WINDOW: u32 = 20;

/// A window, in milliseconds: 20 in 10 s are 173,000 entries a day, some 50 MB.
const WINDOW_MS: u64 = 10_000;

/// The events of the present window.
#[derive(Debug, Default)]
pub(crate) struct BoundedEntries {
    began_ms: u64,
    entries: u32,
    left_out: u64,
}

impl BoundedEntries {
    /// It happened. Returns, if it has an entry, how many before it had none.
    pub(crate) fn apply(&mut self, now_ms: u64) -> Option<u64> {
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

    /// Whether it could be forgotten: its window is over, and nothing was left out that the next entry has to tell.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        self.left_out == 0 && now_ms.saturating_sub(self.began_ms) >= WINDOW_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_twenty_entries_in_ten_seconds_and_the_next_one_says_how_many_had_none() {
        let mut events = BoundedEntries::default();
        let recorded = (0..1_000).filter(|_| events.apply(5).is_some()).count();
        assert_eq!(recorded, 20);
        assert_eq!((events.apply(9_999), events.is_over(20_000)), (None, false));
        assert_eq!(events.apply(10_005), Some(981));
        assert_eq!(events.apply(10_006), Some(0));
        assert!(!events.is_over(20_004) && events.is_over(20_005));
    }
}
