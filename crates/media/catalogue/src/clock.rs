//! The time of modelled media: waited for, or added up.
//!
//! *Timed*: the calling thread waits until the deadline of its operation. *Accounted*: no thread waits; each queue has
//! a virtual time that jumps to the deadline, and the duration of a run is the largest of them. A queue is one sequence
//! of operations: that of an operating-system thread, or one selected with [`VirtualClock::as_queue`]. So one real
//! thread can simulate any number of threads, in an order that it decides and can repeat.
//!
//! Invariants: the virtual time of a queue never decreases; it depends only on the order of operations.
//!
//! The clock does not compute the cost of an operation.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How the time of a modelled medium passes.
#[derive(Clone, Debug)]
pub enum Timing {
    /// Operations take their time.
    Timed,
    /// Operations return at once; the clock adds up the time they would have taken.
    Accounted(Arc<VirtualClock>),
}

/// Waits longer than this do not spin from the start.
///
/// 20 us is the shortest wait for which yielding the processor is worthwhile: the published Optane SSD, the slowest
/// medium that is waited for by spinning, responds in 10 us.
pub const SPIN: Duration = Duration::from_micros(20);

/// How late Linux wakes a sleeping thread: 50 us of timer slack (prctl(2), PR_SET_TIMERSLACK) and as much for the
/// wake-up on a busy machine.
pub const WAKE: Duration = Duration::from_micros(100);

/// While more is left, spinning pauses between reads of the clock, which leaves the core to its other thread. Below
/// this it does not pause: a pause takes 40 ns and more (measured 45 ns on an EPYC, 2026-11-21), a fifth of a store to
/// persistent memory.
const PAUSES: Duration = Duration::from_micros(1);

/// What to do until a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The deadline has passed.
    Done,
    /// Read the clock again at once.
    Spin,
    /// Yield, then read the clock again: too long to spin, too short to be woken in time.
    Yield,
    /// Sleep this long, then read the clock again.
    Sleep(Duration),
}

impl Wait {
    /// Decides by the time left: spin under [`SPIN`], sleep if the wake-up would be early enough, yield in between.
    pub fn of(left: Duration) -> Wait {
        if left.is_zero() {
            Wait::Done
        } else if left < SPIN {
            Wait::Spin
        } else if left > SPIN + WAKE {
            Wait::Sleep(left - SPIN - WAKE)
        } else {
            Wait::Yield
        }
    }
}

/// The time of one read of the clock on this host: the fastest of several series. The reads at the beginning and at the
/// end of an operation are part of the operation's time, and are therefore subtracted from the wait.
pub fn look() -> Duration {
    const ROWS: u32 = 16;
    const LOOKS: u32 = 256;
    static LOOK: LazyLock<Duration> = LazyLock::new(|| {
        let row = |_| {
            let begun = Instant::now();
            for _ in 1..LOOKS {
                std::hint::black_box(Instant::now());
            }
            begun.elapsed() / LOOKS
        };
        (0..ROWS).map(row).min().unwrap_or_default()
    });
    *LOOK
}

/// Returns at `deadline` as seen by the caller, or as soon after it as this thread runs: two reads of the clock
/// earlier, for the one at the beginning of an operation and the one at the end of the wait. Returns how late it was
/// called; zero if it waited.
pub fn wait_until(deadline: Instant) -> Duration {
    let aim = deadline.checked_sub(2 * look()).unwrap_or(deadline);
    let mut now = Instant::now();
    let late = now.saturating_duration_since(aim);
    loop {
        let left = aim.saturating_duration_since(now);
        match Wait::of(left) {
            Wait::Done => return late,
            Wait::Spin if left < PAUSES => {
                // Only the read and the comparison: the duration of this loop limits the lateness.
                while Instant::now() < aim {}
                return late;
            }
            Wait::Spin => std::hint::spin_loop(),
            Wait::Yield => std::thread::yield_now(),
            Wait::Sleep(long) => std::thread::sleep(long),
        }
        now = Instant::now();
    }
}

/// Queues of threads without an assigned number are numbered from here, above the numbers of callers.
static NEXT_THREAD: AtomicU64 = AtomicU64::new(1 << 32);

thread_local! {
    static OWN: u64 = NEXT_THREAD.fetch_add(1, Ordering::Relaxed);
    static PLAYED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The queue that the calling thread's operations belong to.
pub fn queue() -> u64 {
    PLAYED.with(Cell::get).unwrap_or_else(|| OWN.with(|own| *own))
}

/// Virtual time, per queue, in nanoseconds from 0.
#[derive(Debug, Default)]
pub struct VirtualClock {
    queues: Mutex<BTreeMap<u64, f64>>,
}

impl VirtualClock {
    /// A clock at 0 for every queue.
    pub fn new() -> Arc<VirtualClock> {
        Arc::new(VirtualClock::default())
    }

    /// Runs `work` as a part of queue `number` (below 2^32), and returns its result.
    pub fn as_queue<T>(&self, number: u32, work: impl FnOnce() -> T) -> T {
        struct Back(Option<u64>);
        impl Drop for Back {
            fn drop(&mut self) {
                PLAYED.with(|played| played.set(self.0));
            }
        }
        let _back = Back(PLAYED.with(|played| played.replace(Some(number.into()))));
        work()
    }

    /// Nanoseconds that have passed for the calling thread's queue.
    pub fn now(&self) -> f64 {
        self.of(queue())
    }

    /// Nanoseconds that have passed for queue `number`.
    pub fn now_of(&self, number: u32) -> f64 {
        self.of(number.into())
    }

    /// Advances the time of the calling thread's queue to `nanoseconds`; does nothing if that is in the past.
    pub fn advance_to(&self, nanoseconds: f64) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let now = queues.entry(queue()).or_default();
        *now = now.max(nanoseconds);
    }

    /// Nanoseconds of the whole run: those of the queue with the most.
    pub fn elapsed(&self) -> f64 {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.values().copied().fold(0.0, f64::max)
    }

    fn of(&self, queue: u64) -> f64 {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner).get(&queue).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_under_20_us_spin_and_long_ones_sleep_and_leave_time_to_wake_up() {
        let us = Duration::from_micros;
        let cases = [
            (us(0), Wait::Done),
            (us(1), Wait::Spin),
            (us(19), Wait::Spin),
            (us(20), Wait::Yield),
            (us(120), Wait::Yield),
            (us(200), Wait::Sleep(us(80))),
            (us(2000), Wait::Sleep(us(1880))),
        ];
        for (left, wait) in cases {
            assert_eq!(Wait::of(left), wait, "{left:?}");
        }
    }

    #[test]
    fn a_wait_ends_after_its_deadline() {
        for us in [5, 50, 300] {
            let deadline = Instant::now() + Duration::from_micros(us);
            wait_until(deadline);
            assert!(Instant::now() + 2 * look() >= deadline);
        }
    }

    #[test]
    fn queues_have_times_of_their_own_that_never_go_back() {
        let clock = VirtualClock::new();
        clock.as_queue(1, || clock.advance_to(10.0));
        clock.as_queue(2, || {
            clock.advance_to(30.0);
            clock.advance_to(20.0);
        });
        assert_eq!((clock.now_of(1), clock.now_of(2), clock.now(), clock.elapsed()), (10.0, 30.0, 0.0, 30.0));
    }
}
