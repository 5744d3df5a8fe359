//! Checks whether the clock can be trusted, for the removal of messages by age.
//!
//! ```text
//!   anchor (wall, boot) ----- time since then, by a clock that cannot be set -----> estimate
//!                                                                                    |   wall time, in fact
//!   within SLACK of it: believed      far ahead: a jump, in doubt until confirmed ---+   behind: the smaller counts
//! ```
//!
//! The anchor is kept in the data directory. Until the machine restarts, the estimate continues from it; after a
//! restart it is not known how long the machine was off, and up to `OFF` is accepted. Without an anchor, the time of
//! the newest message is used.
//!
//! Invariants: the trusted time is never ahead of the wall time, nor ahead of the estimate by more than the accepted
//! time. Removal by age uses only the trusted time, so a wrong doubt only keeps more messages.
//!
//! Pure, except for reading and writing the anchor's file.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::clock::ClockReading;
use crate::error::NodeError;

/// File in the data directory that holds the anchor.
const FILE: &str = "clock.json";

/// How far the clock may be ahead since the anchor: a first synchronisation, and a correction by hand. 10 minutes too
/// early is little against any retention.
const SLACK_US: i64 = 600 * 1_000_000;

/// How long a machine may have been off without the clock being in doubt: a day.
const OFF_US: i64 = 86_400 * 1_000_000;

/// The anchor moves on after so long: it bounds what small steps add up to, and what a killed process forgets.
const MOVES_US: i64 = 3_600 * 1_000_000;

/// A clock that has been behind for so long was set back on purpose; shorter, it is one that waits for its first synchronisation.
const SETTLES_US: i64 = MOVES_US;

/// The time, as far as it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedTime {
    /// The time for ages, microseconds since 1970.
    pub trusted_us: i64,
    /// How far the clock is ahead of what can be believed, microseconds; none where it is believed.
    pub ahead_us: Option<i64>,
}

/// See the module's text.
#[derive(Debug)]
pub struct Timekeeping {
    anchor: ClockReading,
    /// How far it may be ahead of the estimate.
    slack_us: i64,
    /// Since when it has been behind, by the boot time.
    behind_since_us: Option<i64>,
    /// The anchor is not in its file.
    unsaved: bool,
}

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    #[serde(flatten)]
    anchor: ClockReading,
}

impl Timekeeping {
    /// Begins with the anchor that was kept, or with the time of the newest message, or with now.
    pub fn begin(kept: Option<ClockReading>, newest_us: Option<i64>, now: &ClockReading) -> Timekeeping {
        let here = |wall_us: i64| ClockReading { wall_us, ..now.clone() };
        let (anchor, slack_us) = match (kept, newest_us) {
            (Some(kept), _) if kept.boot == now.boot && kept.boot_us <= now.boot_us => (kept, SLACK_US),
            (Some(kept), _) => (here(kept.wall_us), OFF_US),
            (None, Some(newest_us)) => (here(newest_us), OFF_US),
            (None, None) => (now.clone(), SLACK_US),
        };
        Timekeeping { anchor, slack_us, behind_since_us: None, unsaved: true }
    }

    /// The time now, as far as it can be trusted.
    pub fn at(&mut self, now: &ClockReading) -> TrustedTime {
        let passed_us = (now.boot_us - self.anchor.boot_us).max(0);
        let estimate_us = self.anchor.wall_us.saturating_add(passed_us);
        let ahead_us = now.wall_us.saturating_sub(estimate_us);
        if ahead_us > self.slack_us {
            return TrustedTime { trusted_us: estimate_us, ahead_us: Some(ahead_us) };
        }
        if ahead_us < -SLACK_US {
            let since_us = *self.behind_since_us.get_or_insert(now.boot_us);
            if now.boot_us - since_us >= SETTLES_US {
                self.confirm(now);
            }
        } else {
            self.behind_since_us = None;
            if self.slack_us != SLACK_US || passed_us >= MOVES_US {
                self.confirm(now);
            }
        }
        TrustedTime { trusted_us: now.wall_us, ahead_us: None }
    }

    /// Confirms that the clock is right.
    pub fn confirm(&mut self, now: &ClockReading) {
        *self = Timekeeping { anchor: now.clone(), slack_us: SLACK_US, behind_since_us: None, unsaved: true };
    }

    /// Writes the anchor to its file, where that does not hold it.
    pub fn save(&mut self, data: &Path) -> Result<(), NodeError> {
        if !self.unsaved {
            return Ok(());
        }
        let (path, part) = (data.join(FILE), data.join(".clock.json.part"));
        let kept = Kept { version: 1, anchor: self.anchor.clone() };
        let text = serde_json::to_string_pretty(&kept).expect("plain data becomes JSON");
        // It is not flushed: if a crash loses it, the node at worst requests a confirmation.
        fs::write(&part, text).and_then(|()| fs::rename(&part, &path)).map_err(NodeError::file("write", &path))?;
        self.unsaved = false;
        Ok(())
    }

    /// The same, with an error in the log alone: without the file the next start may need the confirmation of an
    /// operator.
    pub fn save_or_log(&mut self, data: &Path) {
        if let Err(error) = self.save(data) {
            tracing::debug!(%error, "the time could not be written");
        }
    }

    /// The anchor that was kept; none where there is none, or one that cannot be read: then the newest message counts.
    pub fn kept(data: &Path) -> Option<ClockReading> {
        let text = fs::read_to_string(data.join(FILE)).ok()?;
        let kept: Kept = serde_json::from_str(&text).ok()?;
        (kept.version == 1).then_some(kept.anchor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60 * 1_000_000;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;

    fn at(wall_us: i64, boot_us: i64, boot: &str) -> ClockReading {
        ClockReading { wall_us, boot_us, boot: boot.to_owned() }
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_not_believed_until_somebody_confirms_it_or_it_comes_back() {
        let mut time = Timekeeping::begin(None, None, &at(YEAR, 0, "a"));
        let good = |verdict: TrustedTime| verdict.ahead_us.is_none();
        assert!(good(time.at(&at(YEAR + HOUR, HOUR, "a"))));
        assert!(good(time.at(&at(YEAR + HOUR + 9 * MINUTE, HOUR, "a"))), "a correction");
        let jumped = time.at(&at(2 * YEAR, HOUR + MINUTE, "a"));
        assert!(!good(jumped.clone()) && jumped.trusted_us < YEAR + 2 * HOUR, "{jumped:?}");
        let later = time.at(&at(2 * YEAR + 3 * DAY, HOUR + 3 * DAY, "a"));
        assert!(!good(later.clone()) && later.trusted_us > YEAR + 3 * DAY, "time goes on meanwhile: {later:?}");
        assert!(good(time.at(&at(YEAR + 4 * DAY, HOUR + 4 * DAY, "a"))), "it came back");
        assert!(!good(time.at(&at(2 * YEAR, HOUR + 4 * DAY, "a"))));
        time.confirm(&at(2 * YEAR, HOUR + 4 * DAY, "a"));
        assert_eq!(time.at(&at(2 * YEAR, HOUR + 4 * DAY, "a")), TrustedTime { trusted_us: 2 * YEAR, ahead_us: None });
    }

    #[test]
    fn the_clock_is_compared_across_restarts_of_the_node_and_of_the_machine() {
        // The kept anchor, the newest message, now; whether the clock is trusted.
        let kept = || Some(at(YEAR, DAY, "a"));
        let table = [
            (kept(), None, at(YEAR + 3 * DAY, 4 * DAY, "a"), true),
            (kept(), None, at(YEAR + 4 * DAY, 4 * DAY, "a"), false),
            (kept(), Some(2 * YEAR), at(2 * YEAR, 2 * DAY, "a"), false),
            (kept(), None, at(YEAR + HOUR, 0, "b"), true),
            (kept(), None, at(YEAR + 2 * DAY, 0, "b"), false),
            (kept(), None, at(0, 0, "b"), true),
            (None, Some(YEAR), at(YEAR + HOUR, 0, "b"), true),
            (None, Some(YEAR), at(2 * YEAR, 0, "b"), false),
            (None, None, at(9 * YEAR, 0, "b"), true),
        ];
        for (kept, newest, now, believed) in table {
            let verdict = Timekeeping::begin(kept.clone(), newest, &now).at(&now);
            assert_eq!(verdict.ahead_us.is_none(), believed, "{kept:?} {newest:?} {now:?}");
            assert!(verdict.trusted_us <= now.wall_us);
        }
    }

    #[test]
    fn a_clock_that_starts_in_the_past_and_is_synchronised_is_believed_and_one_set_back_for_good_is_too() {
        let mut time = Timekeeping::begin(Some(at(YEAR, DAY, "a")), None, &at(0, 0, "b"));
        assert_eq!(time.at(&at(MINUTE, MINUTE, "b")).trusted_us, MINUTE, "nothing is old by that");
        assert!(time.at(&at(YEAR + HOUR, 2 * MINUTE, "b")).ahead_us.is_none(), "synchronised");
        let mut time = Timekeeping::begin(None, None, &at(2 * YEAR, 0, "a"));
        time.at(&at(YEAR, MINUTE, "a"));
        time.at(&at(YEAR + 2 * HOUR, 2 * HOUR, "a"));
        assert!(
            time.at(&at(2 * YEAR, 3 * HOUR, "a")).ahead_us.is_some(),
            "what was set back does not come back unseen"
        );
    }

    #[test]
    fn the_anchor_is_kept_in_a_file_and_one_that_cannot_be_read_is_none() {
        let data = tempfile::tempdir().expect("a folder");
        let now = at(YEAR, DAY, "a");
        let mut time = Timekeeping::begin(None, None, &now);
        time.save(data.path()).expect("there is room");
        assert_eq!(Timekeeping::kept(data.path()), Some(now));
        fs::write(data.path().join(FILE), "{").expect("a file");
        assert_eq!(Timekeeping::kept(data.path()), None);
    }
}
