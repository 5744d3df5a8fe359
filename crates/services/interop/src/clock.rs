//! The one place that asks for the time of day, so that tests can say what time it is.
//!
//! Invariant: nothing else in this crate calls `SystemTime::now` (clippy.toml forbids it). Waiting (timeouts, pauses)
//! goes through tokio's timer, which tests can pause.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Where the time of day comes from.
#[derive(Debug, Clone)]
pub struct Clock {
    zone: TimeZone,
    fixed: Option<Arc<Fixed>>,
}

/// A clock that a test moves.
#[derive(Debug)]
struct Fixed {
    wall_us: AtomicI64,
    boot_us: AtomicI64,
}

/// The time of day beside one that nobody can set.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Reading {
    /// Microseconds since 1970 (UTC), as the machine's clock says.
    pub wall_us: i64,
    /// Microseconds since the machine started.
    pub boot_us: i64,
    /// Which start of the machine that was; readings of two of them have no boot time in common.
    pub boot: String,
}

/// Where Linux says which start of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl Clock {
    /// The machine's clock and time zone.
    pub fn system() -> Self {
        Self { zone: TimeZone::system(), fixed: None }
    }

    /// A clock that stands at `microseconds` after 1970 (UTC) until `set` moves it.
    pub fn fixed(microseconds: i64) -> Self {
        let fixed = Fixed { wall_us: AtomicI64::new(microseconds), boot_us: AtomicI64::new(0) };
        Self { zone: TimeZone::UTC, fixed: Some(Arc::new(fixed)) }
    }

    /// Lets time pass on a fixed clock, up to `microseconds` after 1970.
    ///
    /// # Panics
    /// On the machine's clock: only a test moves time.
    pub fn set(&self, microseconds: i64) {
        let passed = microseconds - self.now_us();
        self.moved().boot_us.fetch_add(passed, Ordering::Relaxed);
        self.jump(microseconds);
    }

    /// Sets a fixed clock, without time passing.
    ///
    /// # Panics
    /// As [`set`](Clock::set).
    pub fn jump(&self, microseconds: i64) {
        self.moved().wall_us.store(microseconds, Ordering::Relaxed);
    }

    fn moved(&self) -> &Fixed {
        self.fixed.as_ref().expect("only a fixed clock is set")
    }

    /// The time of day beside the time since the machine started.
    pub fn reading(&self) -> Reading {
        let wall_us = self.now_us();
        if let Some(fixed) = &self.fixed {
            return Reading { wall_us, boot_us: fixed.boot_us.load(Ordering::Relaxed), boot: "fixed".to_owned() };
        }
        // Without either every start counts as another one of the machine.
        let since = device::os::boot_time().unwrap_or_default();
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        Reading { wall_us, boot_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX), boot }
    }

    /// Microseconds since 1970 (UTC).
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn now_us(&self) -> i64 {
        match &self.fixed {
            Some(fixed) => fixed.wall_us.load(Ordering::Relaxed),
            // A machine whose clock stands before 1970 gets 1970: times are for readers, never for order.
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
        }
    }

    /// The time zone in which HL7 timestamps are written.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Microseconds since 1970 as a timestamp; 1970 where they are beyond what one holds.
    pub fn timestamp(&self, us: i64) -> Timestamp {
        Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// `us` as an HL7 timestamp with offset, `YYYYMMDDHHMMSS+ZZZZ` (HL7 2.A, data type TS/DTM).
    pub fn hl7(&self, us: i64) -> String {
        self.timestamp(us).to_zoned(self.zone.clone()).strftime("%Y%m%d%H%M%S%z").to_string()
    }
}

/// Time since the first call, for measuring how long something takes.
pub fn monotonic() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

/// Processor time that the calling thread has used: what a thread did, however busy the machine is.
pub fn thread_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).expect("the time of a thread only grows from zero")
}

/// Formats the HL7 time of now, writing it anew only when the second has changed: an acknowledgement a message makes
/// this the most frequent formatting of the node.
#[derive(Debug, Default)]
pub struct Stamp {
    second: i64,
    text: String,
}

impl Stamp {
    /// The HL7 timestamp of `us`.
    pub fn at(&mut self, clock: &Clock, us: i64) -> &str {
        let second = us.div_euclid(1_000_000);
        if self.text.is_empty() || self.second != second {
            self.second = second;
            self.text = clock.hl7(us);
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hl7_time_carries_seconds_and_offset() {
        let clock = Clock::fixed(1_700_000_000_000_000);
        assert_eq!(clock.hl7(clock.now_us()), "20231114221320+0000");
        let mut stamp = Stamp::default();
        assert_eq!(stamp.at(&clock, 999_999), "19700101000000+0000");
        assert_eq!(stamp.at(&clock, 1_000_000), "19700101000001+0000");
    }
}
