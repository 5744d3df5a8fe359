//! Making the next segment ready, and taking truncated ones out of the chain.
//!
//! ```text
//!   allocate --> spare-N --(header written, flushed; renamed)--> journal-BASE --(truncate: renamed)--> spare-M
//!                   ^                                                                                    |
//!                   +------------------------------- used again ----------------------------------------+
//! ```
//!
//! Frames that a recycled segment still contains are rejected by position: every frame contains its LSN, and no LSN is
//! used twice. `upkeep` determines when and in which order segments are prepared and retired.

use device::{Device, DeviceError, Shelf};

use crate::error::JournalError;
use crate::format::{SegmentHeader, unit_of};
use crate::lsn::{Lsn, Nonce};
use crate::options::Options;
use crate::segment::{Installed, Segment, install, segment_base, spare_name, spare_number};

/// The spare segments on the shelf. A thread that adds or removes segments holds this.
#[derive(Debug)]
pub(crate) struct SegmentPool {
    spares: Vec<u32>,
    next_number: u32,
}

/// A prepared segment, and whether it was recycled.
pub(crate) struct Prepared {
    pub(crate) installed: Installed,
    pub(crate) recycled: bool,
}

/// Ends the journal of a shelf for good, and makes spares of its segments: the next one finds their space although the shelf is full.
/// The newest goes first, so that a crash leaves no gap. Frames that they still contain have the identity of the old journal.
///
/// Errors: [`JournalError::Device`]; some segments may be spares.
pub fn recycle(shelf: &dyn Shelf) -> Result<(), JournalError> {
    let mut pool = SegmentPool::load(shelf)?;
    let names = shelf.list()?;
    for name in names.iter().rev().filter(|name| segment_base(name).is_some()) {
        shelf.rename(name, &spare_name(pool.take_number()))?;
    }
    Ok(())
}

impl SegmentPool {
    /// Finds the spares left by earlier openings.
    pub(crate) fn load(shelf: &dyn Shelf) -> Result<SegmentPool, DeviceError> {
        let spares: Vec<u32> = shelf.list()?.iter().filter_map(|name| spare_number(name)).collect();
        let next_number = spares.iter().max().map_or(0, |number| number + 1);
        Ok(SegmentPool { spares, next_number })
    }

    /// Makes a segment at `base` from a spare, or from new space.
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
            encrypted: options.sealer.as_ref().map(|sealer| sealer.mark()),
        };
        while let Some(number) = self.spares.last().copied() {
            let name = spare_name(number);
            let device = match shelf.open(&name) {
                // An earlier attempt returned an error but had taken effect.
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
            // The size differs: the options have changed.
            drop(device);
            shelf.remove(&name)?;
            self.spares.pop();
        }
        let number = self.take_number();
        let name = spare_name(number);
        let device = shelf.create(&name, options.segment_bytes)?;
        // It is a spare from now on: if the next step fails, the next attempt uses it.
        self.spares.push(number);
        let header = header(&*device);
        let installed = install(shelf, &name, device, header)?;
        self.spares.pop();
        Ok(Prepared { installed, recycled: false })
    }

    /// Makes spares until there are `count` of them, so that so many segments find their space. Those of another size, from other options,
    /// are of no use and give up theirs first.
    pub(crate) fn keep(&mut self, shelf: &dyn Shelf, options: &Options, count: usize) -> Result<(), DeviceError> {
        let mut index = 0;
        while let Some(number) = self.spares.get(index).copied() {
            let name = spare_name(number);
            let bytes = match shelf.open_read_only(&name) {
                Ok(device) => Some(device.len()),
                // An earlier attempt returned an error but had taken effect.
                Err(DeviceError::NotFound { .. }) => None,
                Err(error) => return Err(error),
            };
            if bytes == Some(options.segment_bytes) {
                index += 1;
                continue;
            }
            if bytes.is_some() {
                shelf.remove(&name)?;
            }
            self.spares.remove(index);
        }
        while self.spares.len() < count {
            let number = self.take_number();
            shelf.create(&spare_name(number), options.segment_bytes)?;
            self.spares.push(number);
        }
        Ok(())
    }

    /// Removes a truncated segment from the log: keeps it as a spare while there are few, deletes it otherwise.
    pub(crate) fn retire(
        &mut self,
        shelf: &dyn Shelf,
        segment: &Segment,
        spares_max: usize,
    ) -> Result<(), DeviceError> {
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
            // An earlier attempt returned an error but had taken effect.
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
