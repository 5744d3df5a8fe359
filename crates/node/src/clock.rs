//! The one place that reads the time of day, so that a test can set it.
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

/// The time of day beside a time that cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClockReading {
    /// Microseconds since 1970 (UTC), by the machine's clock.
    pub wall_us: i64,
    /// Microseconds since the machine started.
    pub boot_us: i64,
    /// Which start of the machine that was; readings of two of them have no boot time in common.
    pub boot: String,
}

/// Where Linux keeps an id of this start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl Clock {
    /// The machine's clock and time zone.
    pub fn system() -> Self {
        Self { zone: TimeZone::system(), fixed: None }
    }

    /// A clock that shows `microseconds` after 1970 (UTC) until `set` changes it.
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
    pub fn reading(&self) -> ClockReading {
        let wall_us = self.now_us();
        if let Some(fixed) = &self.fixed {
            return ClockReading { wall_us, boot_us: fixed.boot_us.load(Ordering::Relaxed), boot: "fixed".to_owned() };
        }
        // Without either every start counts as another one of the machine.
        let since = device::os::boot_time().unwrap_or_default();
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        ClockReading { wall_us, boot_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX), boot }
    }

    /// Microseconds since 1970 (UTC).
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn now_us(&self) -> i64 {
        match &self.fixed {
            Some(fixed) => fixed.wall_us.load(Ordering::Relaxed),
            // If the machine's clock shows a time before 1970, the result is 1970: times are for display, never for
            // order.
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
        }
    }

    /// The time zone in which times are shown and written.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// Microseconds since 1970 as a timestamp; 1970 where they are beyond what one holds.
    pub fn timestamp(&self, us: i64) -> Timestamp {
        Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// Time since the first call, for measuring how long something takes.
pub fn monotonic() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}

/// Processor time that the calling thread has used: it does not depend on the load of the machine.
pub fn thread_time() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(used).expect("the time of a thread only grows from zero")
}
