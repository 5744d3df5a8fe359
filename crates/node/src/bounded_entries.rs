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

/// Entries of one day that strangers have at most before they become rarer.
const STRANGERS_OF_DAY: u32 = 2_000;

/// A day, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// Beyond that they have one in this time: 1,440 a day. All in all some 1.5 MB a day: 1 GiB lasts for years.
const RARELY_MS: u64 = 60_000;

/// The same for what needs no proof at all: who fails to log in, at whatever port.
#[derive(Debug, Default)]
pub(crate) struct StrangerEntries {
    lately: BoundedEntries,
    day_began_ms: u64,
    of_day: u32,
    last_ms: u64,
    left_out: u64,
}

impl StrangerEntries {
    /// As [`BoundedEntries::apply`].
    pub(crate) fn apply(&mut self, now_ms: u64) -> Option<u64> {
        if now_ms.saturating_sub(self.day_began_ms) >= DAY_MS {
            (self.day_began_ms, self.of_day) = (now_ms, 0);
        }
        if self.of_day >= STRANGERS_OF_DAY && now_ms.saturating_sub(self.last_ms) < RARELY_MS {
            self.left_out += 1;
            return None;
        }
        let left_out = self.lately.apply(now_ms)?;
        (self.of_day, self.last_ms) = (self.of_day.saturating_add(1), now_ms);
        Some(left_out + std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_who_knock_for_days_have_some_thousand_entries_a_day_and_all_are_counted() {
        let (mut strangers, mut entries, mut counted, mut tries) = (StrangerEntries::default(), 0_u64, 0, 0);
        // Fifty a second, for three days.
        for now_ms in (0..3 * DAY_MS).step_by(20) {
            tries += 1;
            if let Some(left_out) = strangers.apply(now_ms) {
                entries += 1;
                counted += left_out + 1;
            }
        }
        let of_day = u64::from(STRANGERS_OF_DAY) + DAY_MS / RARELY_MS;
        assert!(entries <= 3 * of_day && entries > 2 * of_day, "{entries}");
        assert!(tries - counted <= 50 * RARELY_MS / 1_000, "{counted} of {tries}");
        // A hospital on a Monday morning.
        let (mut strangers, hour) = (StrangerEntries::default(), 3_600_000);
        assert!((0..hour).step_by(2_000).all(|now_ms| strangers.apply(now_ms) == Some(0)));
    }

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
