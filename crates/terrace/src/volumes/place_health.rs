//! What is remembered of a place for another node's copy beyond one opening: whether its medium has failed, and what must be on it.
//!
//! ```text
//!   device refuses everything after a failed write        seen by: an error of the export, then a flush that fails
//!   epoch could not be kept                               seen by: EpochFile
//!        |
//!        v
//!   sessions end, place is closed --pause--> opened again from the medium, checked: its size, its epoch
//! ```
//!
//! A device that has failed refuses everything until it is opened again ([`device::DeviceError::Poisoned`]), and the owner of the copy could
//! never come back. What was durable before is on the medium: of the content the owner knows the checksums and copies what it has missed;
//! of the epochs this is known here.
//!
//! Invariant: a place whose medium has less than was acknowledged is not opened: a former owner could take it, and what else is lost
//! nobody knows.

use std::time::{Duration, Instant};

use anyhow::ensure;
use device::Device;

/// See the module's text.
#[derive(Debug, Default)]
pub struct PlaceHealth {
    /// The highest epoch that was found or kept since the start: durable, so the medium must have it.
    epoch: u64,
    /// Errors of its export when its medium was last seen to work.
    errors: u64,
    /// Why it is to be closed, until it is.
    failed: Option<String>,
    failures: u64,
    last: Option<(Instant, Duration)>,
}

/// A medium that has worked for so long after its last failure is a healthy one again.
const HEALTHY_AFTER: Duration = Duration::from_secs(300);

impl PlaceHealth {
    /// Checks a place that was opened from its medium, with what was made there.
    ///
    /// # Errors
    /// It has another size, or an older epoch than was acknowledged.
    pub fn check_opened(&mut self, found: u64, wanted: u64, epoch: u64) -> anyhow::Result<()> {
        ensure!(
            found == wanted,
            "the place has {found} bytes and was made with {wanted}: another medium is mounted, or it was changed; bring the former one \
             back, or delete the place and make it and the copy anew"
        );
        ensure!(
            epoch >= self.epoch,
            "the medium has lost what it had confirmed: it contains epoch {epoch}, and epoch {} was durable. Other writes may be lost too: \
             delete the place, make it anew, and the copy with `terrace volume replace` on its owner",
            self.epoch
        );
        (self.epoch, self.errors) = (epoch, 0);
        Ok(())
    }

    /// Whether something has happened that may be a failure of the medium: more `errors` of its export, or an epoch that was not kept.
    pub fn is_suspicious(&self, errors: u64, epoch_failed: bool) -> bool {
        self.failed.is_some() || epoch_failed || errors != self.errors
    }

    /// Finds out whether the medium has failed; returns the reason. It waits for the medium.
    pub fn examine(device: &dyn Device, epoch_failure: Option<String>) -> Option<String> {
        // One that has not failed can be flushed at any time; whether a flush fails now or failed before is the same.
        let flushed = device.flush().err().map(|error| error.to_string());
        flushed.or_else(|| epoch_failure.map(|why| format!("an epoch could not be kept: {why}")))
    }

    /// Notes what [`examine`](PlaceHealth::examine) has found, and the epoch in force.
    pub fn note(&mut self, found: Option<&str>, errors: u64, epoch: u64) {
        self.epoch = self.epoch.max(epoch);
        match found {
            None => self.errors = errors,
            Some(_) if self.failed.is_some() => {}
            Some(why) => {
                self.failures += 1;
                self.failed = Some(why.to_owned());
            }
        }
    }

    /// It was closed: returns how long to wait before it is opened again, twice as long as the last time if that is not long ago.
    pub fn closed(&mut self, now: Instant, first: Duration, most: Duration) -> Duration {
        self.failed = None;
        let pause = match self.last {
            Some((at, pause)) if now.saturating_duration_since(at) < HEALTHY_AFTER => (pause * 2).min(most),
            _ => first,
        };
        self.last = Some((now, pause));
        pause
    }

    /// How often its medium has failed since the start.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Why it is about to be closed.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::faulty::{Fault, FaultyShelf, Rule};
    use device::{AlignedBuffer, BLOCK_BYTES, MemoryShelf, Operation, Shelf};
    use nbd::EpochGate;

    use super::super::epochs::EpochFile;
    use super::*;

    const SIZE: u64 = 16 * BLOCK_BYTES as u64;

    /// A shelf with a place on it.
    fn place() -> FaultyShelf {
        let shelf = FaultyShelf::new(Arc::new(MemoryShelf::new()));
        EpochFile::create(&shelf).expect("it is made");
        shelf.create("place", SIZE).expect("it is made");
        shelf
    }

    fn open(shelf: &FaultyShelf, health: &mut PlaceHealth) -> anyhow::Result<(Arc<dyn Device>, EpochFile)> {
        let (device, epochs) = (shelf.open("place")?, EpochFile::open(shelf)?);
        health.check_opened(device.len(), SIZE, epochs.current())?;
        Ok((device, epochs))
    }

    #[test]
    fn a_failed_write_or_flush_of_the_content_is_found_once_and_opening_again_mends_it() {
        let block = AlignedBuffer::zeroed(BLOCK_BYTES);
        for operation in [Operation::Write, Operation::Flush] {
            let (shelf, mut health) = (place(), PlaceHealth::default());
            let (device, epochs) = open(&shelf, &mut health).expect("it opens");
            assert!(!health.is_suspicious(0, epochs.failure().is_some()));
            shelf.inject(Rule::nth(operation, 1, Fault::Eio).on("place"));
            assert!(device.write_flush(0, &block).is_err());
            assert!(health.is_suspicious(1, false));
            let why = PlaceHealth::examine(&*device, epochs.failure()).expect("it has failed");
            assert!(why.contains("refuses changes after a failed write or flush"), "{why}");
            health.note(Some(&why), 1, epochs.current());
            health.note(Some(&why), 1, epochs.current());
            assert_eq!((health.failures(), health.failed()), (1, Some(&*why)));
            drop((device, epochs));
            health.closed(Instant::now(), Duration::ZERO, Duration::ZERO);
            let (device, epochs) = open(&shelf, &mut health).expect("it opens again");
            device.write_flush(0, &block).expect("it works again");
            assert!(!health.is_suspicious(0, epochs.failure().is_some()));
        }
    }

    #[test]
    fn an_error_that_leaves_the_medium_working_is_no_failure() {
        let (shelf, mut health) = (place(), PlaceHealth::default());
        let (device, epochs) = open(&shelf, &mut health).expect("it opens");
        shelf.inject(Rule::nth(Operation::Read, 1, Fault::Eio).on("place"));
        assert!(device.read(0, &mut AlignedBuffer::zeroed(BLOCK_BYTES)).is_err());
        assert!(health.is_suspicious(1, false));
        assert_eq!(PlaceHealth::examine(&*device, epochs.failure()), None);
        health.note(None, 1, 0);
        assert!(!health.is_suspicious(1, false) && health.is_suspicious(2, false));
        assert_eq!(health.failures(), 0);
    }

    #[test]
    fn an_epoch_that_could_not_be_kept_is_a_failure_and_no_acknowledged_one_is_lost_by_opening_again() {
        for operation in [Operation::Write, Operation::Flush] {
            for nth in [1, 2] {
                let (shelf, mut health) = (place(), PlaceHealth::default());
                let (device, epochs) = open(&shelf, &mut health).expect("it opens");
                epochs.raise(7).expect("it is kept");
                shelf.inject(Rule::nth(operation, nth, Fault::Eio).on("epoch"));
                assert!(epochs.raise(8).is_err());
                assert!(health.is_suspicious(0, epochs.failure().is_some()));
                let why = PlaceHealth::examine(&*device, epochs.failure()).expect("it has failed");
                assert!(why.contains("an epoch could not be kept"), "{why}");
                health.note(Some(&why), 0, epochs.current());
                drop((device, epochs));
                health.closed(Instant::now(), Duration::ZERO, Duration::ZERO);
                let (_, epochs) = open(&shelf, &mut health).expect("it opens again");
                assert!([7, 8].contains(&epochs.current()), "{}", epochs.current());
                epochs.raise(9).expect("it works again");
            }
        }
    }

    #[test]
    fn a_medium_that_has_lost_an_acknowledged_epoch_or_has_another_size_stays_refused_with_the_reason() {
        let (shelf, mut health) = (place(), PlaceHealth::default());
        let (device, epochs) = open(&shelf, &mut health).expect("it opens");
        epochs.raise(7).expect("it is kept");
        // The medium confirms, and does nothing.
        shelf.inject(Rule::from(Operation::Write, 1, Fault::Lost).on("epoch"));
        epochs.raise(8).expect("it is confirmed");
        health.note(Some("it failed"), 1, epochs.current());
        drop((device, epochs));
        health.closed(Instant::now(), Duration::ZERO, Duration::ZERO);
        for _ in 0..2 {
            let why = open(&shelf, &mut health).expect_err("it is refused").to_string();
            assert!(why.contains("contains epoch 7, and epoch 8 was durable"), "{why}");
        }
        let why = PlaceHealth::default().check_opened(4096, SIZE, 0).expect_err("it is refused").to_string();
        assert!(why.contains("4096 bytes and was made with 65536"), "{why}");
    }

    #[test]
    fn the_pause_grows_while_a_medium_fails_again_and_begins_anew_after_it_has_worked() {
        let (mut health, start) = (PlaceHealth::default(), Instant::now());
        let (first, most) = (Duration::from_secs(2), Duration::from_secs(60));
        let mut closed = |seconds| health.closed(start + Duration::from_secs(seconds), first, most).as_secs();
        assert_eq!([closed(0), closed(10), closed(20), closed(30), closed(40), closed(50)], [2, 4, 8, 16, 32, 60]);
        assert_eq!([closed(1_000), closed(1_010)], [2, 4]);
    }
}
