//! Making the next segment ready, and taking truncated ones out of the chain.
//!
//! ```text
//!   allocate --> spare-N --(header written, flushed; renamed)--> journal-BASE --(truncate: renamed)--> spare-M
//!                   ^                                                                                    |
//!                   +------------------------------- used again ----------------------------------------+
//! ```
//!
//! What a recycled segment still holds is rejected by position: every frame says its LSN, and no LSN is used twice.
//! Order of a truncation: the segment leaves the shelf's chain (a rename, persistent when it returns), from the front
//! only; then it leaves the chain in memory; only then may its blocks be written again, because all of this happens
//! under the `pool` lock. A reader that meets foreign bytes asks whether its place was truncated before it cries.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use device::{Device, DeviceError, Shelf, supervise};

use crate::error::JournalError;
use crate::format::{SegmentHeader, unit_of};
use crate::lsn::{Lsn, Nonce};
use crate::options::Options;
use crate::segment::{Installed, Segment, install, spare_name, spare_number};
use crate::shared::{FailOnPanic, Shared};

/// How long the preparing thread waits before it asks again for a descriptor: short against what half a segment takes to fill
/// (64 MiB at 200 MB/s: 160 ms), and nothing of a core.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

/// The spares on the shelf. Whoever changes which segments there are holds this.
#[derive(Debug)]
pub(crate) struct SegmentPool {
    spares: Vec<u32>,
    next_number: u32,
}

/// A segment made ready, and whether it had been one before.
pub(crate) struct Prepared {
    pub(crate) installed: Installed,
    pub(crate) recycled: bool,
}

impl SegmentPool {
    /// Finds the spares left by earlier openings.
    pub(crate) fn load(shelf: &dyn Shelf) -> Result<SegmentPool, DeviceError> {
        let spares: Vec<u32> = shelf.list()?.iter().filter_map(|name| spare_number(name)).collect();
        let next_number = spares.iter().max().map_or(0, |number| number + 1);
        Ok(SegmentPool { spares, next_number })
    }

    /// Makes a segment at `base` out of a spare, or of new space.
    pub(crate) fn prepare(
        &mut self,
        shelf: &dyn Shelf,
        options: &Options,
        base: Lsn,
        nonce: Nonce,
        durable: Lsn,
    ) -> Result<Prepared, JournalError> {
        let header = |device: &dyn Device| SegmentHeader {
            base,
            bytes: device.len(),
            nonce,
            durable,
            unit: unit_of(device.block_bytes()),
        };
        while let Some(number) = self.spares.last().copied() {
            let name = spare_name(number);
            let device = match shelf.open(&name) {
                // An earlier attempt failed after it had taken effect.
                Err(DeviceError::NotFound { .. }) => {
                    self.spares.pop();
                    continue;
                }
                other => other?,
            };
            if device.len() == options.segment_bytes {
                let header = header(&*device);
                let installed = install(shelf, &name, device, header)?;
                self.spares.pop();
                return Ok(Prepared { installed, recycled: true });
            }
            // Of another size: the options have changed.
            drop(device);
            shelf.remove(&name)?;
            self.spares.pop();
        }
        let number = self.take_number();
        let name = spare_name(number);
        let device = shelf.create(&name, options.segment_bytes)?;
        // It is a spare from here on: if the next step fails it is used by the next attempt.
        self.spares.push(number);
        let header = header(&*device);
        let installed = install(shelf, &name, device, header)?;
        self.spares.pop();
        Ok(Prepared { installed, recycled: false })
    }

    /// Takes the name of a truncated segment off the shelf: kept as a spare while there are few, else removed.
    fn retire(&mut self, shelf: &dyn Shelf, segment: &Segment, spares_max: usize) -> Result<(), DeviceError> {
        let done = if self.spares.len() < spares_max {
            let number = self.take_number();
            let renamed = shelf.rename(&segment.name(), &spare_name(number));
            if renamed.is_ok() {
                self.spares.push(number);
            }
            renamed
        } else {
            shelf.remove(&segment.name())
        };
        match done {
            // An earlier attempt failed after it had taken effect.
            Err(DeviceError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    fn take_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = self.next_number.checked_add(1).expect("2^32 segments are not reached");
        number
    }
}

impl Shared {
    /// Adds one segment to the end of the chain; says in the log when it begins and ends to lack a descriptor for that.
    pub(crate) fn prepare(&self) -> Result<(), JournalError> {
        let result = self.prepare_one();
        let lacks = matches!(result, Err(JournalError::NoDescriptors));
        if std::mem::replace(&mut self.lock().lacks_descriptor, lacks) != lacks {
            let waits = if lacks { "waits for a file descriptor" } else { "waits for a file descriptor no more" };
            tracing::error!("the next journal segment {waits}");
        }
        result
    }

    fn prepare_one(&self) -> Result<(), JournalError> {
        let mut pool = self.pool.lock().expect("no thread panicked inside the journal");
        let (base, nonce, durable) = {
            let state = self.lock();
            (state.chain.end(), state.pipeline.nonce(), state.pipeline.persisted())
        };
        let prepared = pool.prepare(&*self.shelf, &self.options, base, nonce, durable)?;
        let mut state = self.lock();
        state.chain.push(&self.shelf, prepared.installed);
        if prepared.recycled {
            state.stats.segments_recycled += 1;
        } else {
            state.stats.segments_created += 1;
        }
        Ok(())
    }

    /// The preparing thread: works when asked, until the journal is closed. For a descriptor it waits: others give theirs back,
    /// and until the segment that is written is full nobody need know.
    pub(crate) fn prepare_when_asked(&self) {
        let panicking = FailOnPanic(self);
        let mut state = self.lock();
        while !state.stop {
            if !state.wanted && !state.lacks_descriptor {
                state = self.wait(&self.work, state);
                continue;
            }
            drop(state);
            supervise::rehearse("journal-prepare");
            let result = self.prepare();
            state = self.lock();
            state.wanted = false;
            state.preparation_failure = result.err();
            self.prepared.notify_all();
            if state.lacks_descriptor && !state.stop {
                state = self.wait_for(&self.work, state, DESCRIPTOR_PAUSE);
            }
        }
        std::mem::forget(panicking);
    }

    /// Waits until nobody changes which segments there are. Who comes afterwards finds the journal closed.
    pub(crate) fn finish_upkeep(&self) {
        drop(self.pool.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Frees the segments that end at or before `before`, all but those that are being written.
    pub(crate) fn truncate(&self, before: Lsn) -> Result<(), JournalError> {
        let mut pool = self.pool.lock().expect("no thread panicked inside the journal");
        loop {
            let segment = {
                let state = self.lock();
                if state.closed {
                    return Err(JournalError::Closed);
                }
                let front = state.chain.front().expect("the tail segment stays").clone();
                let in_use = Arc::ptr_eq(&front, &state.tail) || front.end() > state.pipeline.durable();
                if in_use || front.end() > before {
                    return Ok(());
                }
                front
            };
            pool.retire(&*self.shelf, &segment, self.options.spare_segments)?;
            self.lock().chain.pop_front();
        }
    }
}
