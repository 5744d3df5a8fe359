//! [`Pace`]: how many pages are sampled, so that recording stays cheap whatever the load is. Pure.
//!
//! ```text
//!   sampled accesses of a second > SAMPLED_A_SECOND ?
//!      a page that alone has an eighth of that     -> is left out: its accesses are hits in any cache that is worth planning
//!      still too many                              -> the threshold falls in proportion; it never rises
//! ```

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Sampled accesses a second from which on fewer pages are sampled. Recording one takes about a microsecond: half a percent of a processor.
pub const SAMPLED_A_SECOND: u64 = 5_000;

/// Length of a window, microseconds.
const WINDOW_US: u64 = 1_000_000;

/// A page with so large a part of them is left out.
const ALONE: u64 = 8;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Pace {
    /// Sampled accesses a second at most.
    most: u64,
    began_us: u64,
    accesses: u64,
    by_page: HashMap<u64, u32, FixedState>,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Slower {
    /// Pages to leave out.
    pub(super) leave_out: Vec<u64>,
    /// The new threshold.
    pub(super) threshold: Option<u64>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::of(SAMPLED_A_SECOND)
    }
}

impl Pace {
    /// Of so many sampled accesses a second.
    pub(super) fn of(most: u64) -> Pace {
        Pace { most, began_us: 0, accesses: 0, by_page: HashMap::default() }
    }

    /// Counts a sampled access.
    pub(super) fn count(&mut self, hash: u64) {
        self.accesses += 1;
        *self.by_page.entry(hash).or_default() += 1;
    }

    /// What is to be done at this time, with that threshold, if `dropped` accesses were lost since the last call.
    pub(super) fn at(&mut self, now_us: u64, threshold: u64, dropped: u64) -> Slower {
        self.accesses += dropped;
        let us = now_us.saturating_sub(self.began_us).max(1);
        // A burst is not waited for.
        if us < WINDOW_US && self.accesses < self.most {
            return Slower::default();
        }
        let allowed = self.most.saturating_mul(us.max(WINDOW_US)) / WINDOW_US;
        let mut slower = Slower::default();
        if self.accesses > allowed {
            let alone = |(hash, times): (&u64, &u32)| (u64::from(*times) > allowed / ALONE).then_some((*hash, *times));
            let mut alone: Vec<(u64, u32)> = self.by_page.iter().filter_map(alone).collect();
            alone.sort_unstable();
            let of_alone: u64 = alone.iter().map(|(_, times)| u64::from(*times)).sum();
            slower.leave_out = alone.into_iter().map(|(hash, _)| hash).collect();
            let rest = self.accesses - of_alone;
            if rest > allowed {
                let lower = (u128::from(threshold) * u128::from(allowed) / u128::from(rest)) as u64;
                slower.threshold = Some(lower.max(1));
            }
        }
        *self = Pace { began_us: now_us, ..Pace::of(self.most) };
        slower
    }

    /// Memory that it takes, bytes: about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.by_page.capacity() * 8 / 7 * 17
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(pages: u64, each: u64) -> Pace {
        let mut pace = Pace::default();
        (0..pages).for_each(|page| (0..each).for_each(|_| pace.count(page)));
        pace
    }

    #[test]
    fn few_accesses_change_nothing_and_many_lower_the_threshold_in_proportion() {
        let mut few = counted(1000, 4);
        assert_eq!(few.at(1_000_000, u64::MAX, 0), Slower::default());
        let mut many = counted(1000, 20);
        assert_eq!(many.at(1_000_000, 1 << 40, 0), Slower { leave_out: vec![], threshold: Some(1 << 38) });
        assert_eq!(many.at(2_000_000, 1 << 38, 0), Slower::default(), "it counts anew");
        let mut lost = counted(10, 10);
        assert!(lost.at(1_000_000, 1 << 40, 100_000).threshold.is_some(), "those that were lost count");
        let mut burst = counted(1000, 20);
        assert!(burst.at(50_000, 1 << 40, 0).threshold.is_some(), "a burst is not waited for");
    }

    #[test]
    fn a_page_that_has_most_of_the_accesses_is_left_out_and_the_sample_stays() {
        let mut pace = counted(1000, 4);
        (0..100_000).for_each(|_| pace.count(77_777));
        assert_eq!(pace.at(1_000_000, u64::MAX, 0), Slower { leave_out: vec![77_777], threshold: None });
    }
}
