//! What a thread counts, and the sum of many: latencies as histograms, requests by second, what was checked.
//!
//! ```text
//!   thread 0 --\
//!   thread 1 ---+-- add: bucket by bucket, second by second --> one tally of a run
//!   thread n --/
//! ```
//!
//! Invariants: quantiles of several threads are those of all their values together; they are never averaged. Only requests that ended in
//! the measured time are counted, but every request is checked.

use hdrhistogram::Histogram;

/// The longest latency that is told apart: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// Significant decimal digits of a latency.
const DIGITS: u8 = 3;

/// Seconds at the end of a run that are to be alike.
pub const STEADY_WINDOWS: usize = 5;

/// How far they may be apart, as a share of their mean.
pub const STEADY_SHARE: f64 = 0.10;

/// Latencies in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are possible"))
    }
}

impl Latencies {
    /// Counts one; one of more than a minute counts as a minute.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Counts all of another one, too.
    pub fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// What the share `quantile` (0 to 1) of them does not exceed; 0 without any.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile).min(self.0.max())
    }

    /// The shortest; 0 without any.
    pub fn shortest(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }

    /// The longest; 0 without any.
    pub fn longest(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.max() }
    }

    /// The mean; 0 without any.
    pub fn mean(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.mean() }
    }

    /// The standard deviation; 0 without any.
    pub fn deviation(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.stdev() }
    }
}

/// Requests that ended in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

impl Window {
    /// Both.
    pub fn all(self) -> u64 {
        self.reads + self.writes
    }
}

/// The counts of a thread, or of several.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes.
    pub writes: Latencies,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests by second.
    pub windows: Vec<Window>,
    /// Requests that failed, in the whole run.
    pub errors: u64,
    /// Blocks whose ends were checked, in the whole run.
    pub checked: u64,
    /// Of these, blocks that were checked to the last byte.
    pub checked_whole: u64,
    /// Blocks that contained what they must not, in the whole run.
    pub mismatches: u64,
    /// The first thing that was wrong, in words.
    pub first_wrong: Option<String>,
}

impl Tally {
    /// One for a run of so many whole seconds; a run of less has one window.
    pub fn of_seconds(seconds: u64) -> Tally {
        Tally { windows: vec![Window::default(); seconds.max(1) as usize], ..Tally::default() }
    }

    /// Counts a request that ended in the measured time, in window `window`.
    pub fn count(&mut self, is_read: bool, bytes: u64, latency_ns: u64, window: usize) {
        let last = self.windows.len().saturating_sub(1);
        let window = self.windows.get_mut(window.min(last));
        if is_read {
            self.reads.record(latency_ns);
            self.read_bytes += bytes;
            window.into_iter().for_each(|window| window.reads += 1);
        } else {
            self.writes.record(latency_ns);
            self.written_bytes += bytes;
            window.into_iter().for_each(|window| window.writes += 1);
        }
    }

    /// Notes something wrong; the first one is kept in words.
    pub fn note_wrong(&mut self, what: impl FnOnce() -> String) {
        if self.first_wrong.is_none() {
            self.first_wrong = Some(what());
        }
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Tally) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        let length = self.windows.len().max(other.windows.len());
        self.windows.resize(length, Window::default());
        for (sum, more) in self.windows.iter_mut().zip(&other.windows) {
            sum.reads += more.reads;
            sum.writes += more.writes;
        }
        self.errors += other.errors;
        self.checked += other.checked;
        self.checked_whole += other.checked_whole;
        self.mismatches += other.mismatches;
        if self.first_wrong.is_none() {
            self.first_wrong.clone_from(&other.first_wrong);
        }
    }

    /// All requests of the measured time.
    pub fn requests(&self) -> u64 {
        self.reads.count() + self.writes.count()
    }

    /// Latencies of reads and writes together.
    pub fn all(&self) -> Latencies {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all
    }
}

/// Whether a run was steady.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steadiness {
    /// The last seconds are alike; how far apart, as a share of their mean.
    Steady(f64),
    /// They are not.
    Unsteady(f64),
    /// There were too few seconds to tell.
    TooShort,
}

impl Steadiness {
    /// Of requests by second.
    pub fn of(windows: &[Window]) -> Steadiness {
        let Some(last) = windows.len().checked_sub(STEADY_WINDOWS).map(|from| &windows[from..]) else {
            return Steadiness::TooShort;
        };
        let counts = || last.iter().map(|window| window.all());
        let mean = counts().sum::<u64>() as f64 / last.len() as f64;
        let apart = counts().max().unwrap_or(0) - counts().min().unwrap_or(0);
        let share = if mean > 0.0 { apart as f64 / mean } else { f64::INFINITY };
        if share <= STEADY_SHARE { Steadiness::Steady(share) } else { Steadiness::Unsteady(share) }
    }

    /// For reports: `yes`, `no` with how far apart, or `-`.
    pub fn in_words(self) -> String {
        match self {
            Steadiness::Steady(share) => format!("yes, {:.0} %", share * 100.0),
            Steadiness::Unsteady(share) if share.is_finite() => format!("no, {:.0} %", share * 100.0),
            Steadiness::Unsteady(_) => "no".to_owned(),
            Steadiness::TooShort => "-".to_owned(),
        }
    }

    /// For JSON: true, false, or nothing.
    pub fn is_steady(self) -> Option<bool> {
        match self {
            Steadiness::Steady(_) => Some(true),
            Steadiness::Unsteady(_) => Some(false),
            Steadiness::TooShort => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merged_quantiles_are_those_of_all_values_and_not_a_mean_of_quantiles() {
        let seed = 31;
        println!("seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut parts = vec![Latencies::default(); 4];
        let mut values = Vec::new();
        for (number, part) in parts.iter_mut().enumerate() {
            // The threads differ by orders of magnitude, so that a mean of their quantiles is far off.
            for _ in 0..5_000 {
                let value = rng.u64(1..1_000) * 10u64.pow(number as u32);
                part.record(value);
                values.push(value);
            }
        }
        let mut merged = Latencies::default();
        parts.iter().for_each(|part| merged.add(part));
        values.sort_unstable();
        assert_eq!(merged.count(), 20_000);
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            let exact = values[(quantile * 20_000.0) as usize - 1];
            let found = merged.quantile(quantile);
            assert!(found.abs_diff(exact) <= exact / 500 + 1, "{quantile}: {found} against {exact}");
        }
        assert!(merged.longest().abs_diff(values[19_999]) <= values[19_999] / 500);
        let mean = parts.iter().map(|part| part.quantile(0.5)).sum::<u64>() / 4;
        assert!(merged.quantile(0.5) < mean / 4, "{} against a mean of {mean}", merged.quantile(0.5));
    }

    #[test]
    fn an_empty_histogram_is_zeros_and_a_minute_is_the_most() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.quantile(0.99), latencies.longest(), latencies.shortest()), (0, 0, 0));
        assert_eq!((latencies.mean(), latencies.deviation()), (0.0, 0.0));
        latencies.record(u64::MAX);
        assert!(latencies.longest() >= LONGEST_NS);
    }

    #[test]
    fn tallies_add_up_window_by_window_and_keep_the_first_wrong_thing() {
        let (mut first, mut second) = (Tally::of_seconds(2), Tally::of_seconds(2));
        first.count(true, 4096, 10, 0);
        first.count(false, 4096, 20, 1);
        second.count(true, 4096, 30, 1);
        second.count(true, 4096, 40, 9);
        second.mismatches = 1;
        second.note_wrong(|| "one".to_owned());
        second.note_wrong(|| "two".to_owned());
        first.add(&second);
        assert_eq!((first.requests(), first.read_bytes, first.written_bytes), (4, 3 * 4096, 4096));
        assert_eq!(first.windows, [Window { reads: 1, writes: 0 }, Window { reads: 2, writes: 1 }]);
        assert_eq!(first.windows.iter().map(|window| window.all()).sum::<u64>(), first.requests());
        assert_eq!((first.mismatches, first.first_wrong.as_deref()), (1, Some("one")));
        assert_eq!(first.all().count(), 4);
    }

    #[test]
    fn a_run_is_steady_if_its_last_five_seconds_are_within_a_tenth() {
        let windows = |counts: &[u64]| -> Vec<Window> {
            counts.iter().map(|reads| Window { reads: *reads, writes: 0 }).collect()
        };
        for (counts, steady) in [
            (&[1, 1000, 1010, 1020, 1040, 1050][..], Some(true)),
            (&[1000, 1000, 1000, 1000, 1200][..], Some(false)),
            (&[1000, 1000, 1000, 1000][..], None),
            (&[0, 0, 0, 0, 0][..], Some(false)),
        ] {
            assert_eq!(Steadiness::of(&windows(counts)).is_steady(), steady, "{counts:?}");
        }
    }
}
