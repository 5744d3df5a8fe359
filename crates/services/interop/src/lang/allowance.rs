//! The time that deciding on one message may take.
//!
//! Deciding stays a pure function of the bytes, the production and the time: the meter is passed in. It can only cause
//! the decision to end with an error, or to be made again on another thread.
//!
//! The meter is read rarely. Each operation of a program is charged its maximum cost for a message of this size, and
//! the meter is read when the charges reach about [`LOOK`]: a small message ends before the first reading.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Charges between two looks at the meter. An operation on a small message takes about 50 ns
/// (`examples/lang_speed.rs`), so that 1,024 of them are well below a millisecond, and the time to read the processor
/// time (about 300 ns) is small beside them.
pub(super) const LOOK: u32 = 1024;

/// Time for one decision, as a meter counts it.
pub struct Allowance {
    limit: Duration,
    meter: fn() -> Duration,
    began: Duration,
    over: Cell<bool>,
    abandoned: Option<Arc<AtomicBool>>,
}

impl Allowance {
    /// `limit` from now on. `meter` is any time that only grows, of this thread or of the world.
    #[must_use]
    pub fn new(limit: Duration, meter: fn() -> Duration) -> Allowance {
        Allowance { limit, meter, began: meter(), over: Cell::new(false), abandoned: None }
    }

    /// It is over at once when `abandoned` is set: no task waits for the decision any more.
    #[must_use]
    pub fn until(self, abandoned: Arc<AtomicBool>) -> Allowance {
        Allowance { abandoned: Some(abandoned), ..self }
    }

    /// How much it was.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether a check found it used up; then the decision made under it must be used only to report that.
    #[must_use]
    pub fn was_exceeded(&self) -> bool {
        self.over.get()
    }

    /// Looks at the meter.
    pub(super) fn is_over(&self) -> bool {
        let abandoned = self.abandoned.as_ref().is_some_and(|abandoned| abandoned.load(Ordering::Relaxed));
        if abandoned || (self.meter)().saturating_sub(self.began) > self.limit {
            self.over.set(true);
        }
        self.over.get()
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowance").field("limit", &self.limit).field("over", &self.over).finish_non_exhaustive()
    }
}
