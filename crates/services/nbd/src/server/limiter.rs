//! Limits of an export: requests a second and bytes a second, of all its sessions together. Pure: time is passed in.
//!
//! ```text
//!   balance   grows with time up to a tenth of a second's worth, falls with each request; below zero a session waits
//! ```
//!
//! A session is charged for what it has begun, then waits until the debt is over: a request larger than a second's worth
//! passes too, and delays what comes after it. Limits change while sessions wait: these look again, and the debt is forgotten.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Limits of an export. `None`: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests a second: reads, writes, trims, zeros, flushes.
    pub requests: Option<u64>,
    /// Bytes a second that are read and written.
    pub bytes: Option<u64>,
}

impl Limits {
    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.requests.is_some() || self.bytes.is_some()
    }
}

/// How much may be saved up, as a part of a second.
const SAVED: f64 = 0.1;

/// The longest wait: a limit so low that one request costs more is no use to anybody.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// The balances of one export.
#[derive(Debug)]
pub(super) struct Limiter {
    limits: Limits,
    at: Duration,
    requests: f64,
    bytes: f64,
}

impl Limiter {
    pub(super) fn new(limits: Limits) -> Limiter {
        let saved = |limit: Option<u64>| limit.map_or(0.0, |limit| limit as f64 * SAVED);
        Limiter { limits, at: Duration::ZERO, requests: saved(limits.requests), bytes: saved(limits.bytes) }
    }

    /// Charges what was begun at `now`; returns how long to wait before more begins.
    pub(super) fn charge(&mut self, now: Duration, requests: u64, bytes: u64) -> Duration {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        let mut wait = 0.0f64;
        for (limit, balance, cost) in
            [(self.limits.requests, &mut self.requests, requests), (self.limits.bytes, &mut self.bytes, bytes)]
        {
            let Some(limit) = limit else { continue };
            let rate = limit.max(1) as f64;
            *balance = (*balance + passed * rate).min(rate * SAVED) - cost as f64;
            wait = wait.max(-*balance / rate);
        }
        Duration::from_secs_f64(wait.clamp(0.0, WAIT_MAX.as_secs_f64()))
    }
}

/// The limits of an export that is served, which may change.
#[derive(Debug)]
pub(super) struct LiveLimits {
    limiter: Mutex<Limiter>,
    /// Without any, sessions take no lock.
    are_any: AtomicBool,
    changes: AtomicU64,
    started: Instant,
}

/// How long a session waits, and which limits it waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Charged {
    pub(super) wait: Duration,
    change: u64,
}

impl LiveLimits {
    pub(super) fn new(limits: Limits) -> LiveLimits {
        LiveLimits {
            limiter: Mutex::new(Limiter::new(limits)),
            are_any: AtomicBool::new(limits.any()),
            changes: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// Other limits are in force when it returns. Who waits has to be woken.
    pub(super) fn change(&self, limits: Limits) {
        let mut limiter = self.limiter.lock();
        *limiter = Limiter::new(limits);
        limiter.at = self.started.elapsed();
        self.are_any.store(limits.any(), Ordering::Release);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Charges what was begun; returns the wait, if there is one.
    #[inline]
    pub(super) fn charge(&self, requests: u64, bytes: u64) -> Option<Charged> {
        if !self.are_any.load(Ordering::Acquire) {
            return None;
        }
        let now = self.started.elapsed();
        let mut limiter = self.limiter.lock();
        let wait = limiter.charge(now, requests, bytes);
        // Under the lock: the limits that were charged.
        let change = self.changes.load(Ordering::Acquire);
        (!wait.is_zero()).then_some(Charged { wait, change })
    }

    /// Whether these are still the limits that a session waits for.
    #[inline]
    pub(super) fn is_in_force(&self, charged: Charged) -> bool {
        self.changes.load(Ordering::Acquire) == charged.change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs sessions that charge as soon as they may, for ten seconds; returns requests and bytes a second.
    fn rate(limits: Limits, bytes: u64) -> (f64, f64) {
        let mut limiter = Limiter::new(limits);
        let (mut now, mut requests) = (Duration::ZERO, 0);
        while now < Duration::from_secs(10) {
            now += limiter.charge(now, 1, bytes) + Duration::from_micros(1);
            requests += 1;
        }
        (requests as f64 / 10.0, (requests * bytes) as f64 / 10.0)
    }

    #[test]
    fn the_rate_is_the_limit_and_the_lower_of_two_counts() {
        let (requests, _) = rate(Limits { requests: Some(1000), bytes: None }, 4096);
        assert!((1000.0..=1020.0).contains(&requests), "{requests}");
        let (_, bytes) = rate(Limits { requests: Some(1000), bytes: Some(1 << 20) }, 4096);
        assert!((1_048_576.0..=1_070_000.0).contains(&bytes), "{bytes}");
        let (_, large) = rate(Limits { requests: None, bytes: Some(1 << 20) }, 32 << 20);
        assert!(large < 8.0 * 1_048_576.0, "a request that is larger than a second's worth: {large}");
    }

    #[test]
    fn without_limits_nobody_waits() {
        assert_eq!(Limiter::new(Limits::default()).charge(Duration::ZERO, 1 << 40, 1 << 60), Duration::ZERO);
    }

    #[test]
    fn changed_limits_are_charged_at_once_and_whoever_waits_for_the_former_ones_looks_again() {
        let limits = LiveLimits::new(Limits::default());
        assert!(limits.charge(1 << 40, 1 << 60).is_none(), "there are none");
        limits.change(Limits { requests: None, bytes: Some(1000) });
        let charged = limits.charge(1, 1_000_000).expect("it waits");
        assert!(charged.wait > Duration::from_secs(990), "{charged:?}");
        assert!(limits.is_in_force(charged));
        limits.change(Limits { requests: None, bytes: Some(1 << 40) });
        assert!(!limits.is_in_force(charged));
        assert!(limits.charge(1, 1000).is_none(), "the debt is forgotten");
        limits.change(Limits::default());
        assert!(limits.charge(1 << 40, 1 << 60).is_none());
    }
}
