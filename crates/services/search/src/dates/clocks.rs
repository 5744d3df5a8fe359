//! Steps of the same length by the clocks of a time zone, also where these are set.
//!
//! ```text
//!   clocks      00:00   01:00   02:00 | 02:00   03:00      set back at the line: two steps show 02:00, each is one
//!   clocks      00:00   01:00 | 03:00   04:00              set forward at the line: no step for 02:00; one that contains
//!                                                          the line begins at it if its own beginning was left out
//! ```
//!
//! Invariants: `floor(x) <= x < next(floor(x))`, and `floor(next(floor(x))) == next(floor(x))`.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};

/// What the clocks of a zone show is so many milliseconds more than UTC.
fn offset(millis: i64, zone: &TimeZone) -> Option<i64> {
    Some(i64::from(zone.to_offset(Timestamp::from_millisecond(millis).ok()?).seconds()) * 1000)
}

/// The step that clocks which show `local` are in.
fn step(local: i64, length: i64) -> Option<i64> {
    local.div_euclid(length).checked_mul(length)
}

/// When the clocks were last set at or before a moment.
fn last_set(millis: i64, zone: &TimeZone) -> Option<i64> {
    let after = Timestamp::from_millisecond(millis.checked_add(1)?).ok()?;
    zone.preceding(after).next().map(|set| set.timestamp().as_millisecond())
}

/// When the clocks are next set after a moment.
fn next_set(millis: i64, zone: &TimeZone) -> Option<i64> {
    let at = Timestamp::from_millisecond(millis).ok()?;
    zone.following(at).next().map(|set| set.timestamp().as_millisecond())
}

/// The beginning of the step that a moment is in.
pub(super) fn floor(millis: i64, zone: &TimeZone, length: i64) -> Option<i64> {
    let offset = offset(millis, zone)?;
    let local = step(millis.checked_add(offset)?, length)?;
    let begins = local.checked_sub(offset)?;
    let Some(set) = last_set(millis, zone).filter(|set| *set > begins) else { return Some(begins) };
    // The clocks were set since: they showed the beginning before, or never.
    let civil: DateTime = Timestamp::from_millisecond(local).ok()?.to_zoned(TimeZone::UTC).datetime();
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { .. } => Some(set),
        _ => {
            let earlier = ambiguous.earlier().ok()?.as_millisecond();
            // One that had ended before the clocks were set back to it begins a second time.
            Some(if earlier.checked_add(length)? < set { set } else { earlier })
        }
    }
}

/// The beginning of the step after the one that begins at `begin`.
pub(super) fn next(begin: i64, zone: &TimeZone, length: i64) -> Option<i64> {
    let mut at = begin;
    loop {
        let offset = offset(at, zone)?;
        let local = step(at.checked_add(offset)?, length)?;
        let ends = local.checked_add(length)?.checked_sub(offset)?;
        let Some(set) = next_set(at, zone).filter(|set| *set <= ends) else { return Some(ends) };
        let begins = floor(set, zone, length)?;
        if begins > begin {
            return Some(begins);
        }
        at = set;
    }
}
