//! Segments on a shelf: their names, their headers, and the chain they form.
//!
//! ```text
//! journal-0000000000000000   journal-0000000004000000   journal-0000000008000000     spare-00000003
//! [base, base + bytes)       starts where that ends     prepared ahead, empty        truncated, free to be used
//! ```
//!
//! Invariants:
//! 1. A device named `journal-*` has a valid header: it gets that name only after its header is persistent. So a bad
//!    header under such a name is damage, never the result of a crash.
//! 2. The bases leave no gap: segments are removed (renamed) only at the front, and added only at the end.
//! 3. The content of a `spare-*` device has no meaning.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use device::{AlignedBuffer, Device, DeviceError, Shelf};
use encryption::Sealer;

use crate::error::{Corruption, Damage, JournalError};
use crate::format::{BLOCK_BYTES, HeaderFault, SegmentHeader};
use crate::lsn::Lsn;

/// The largest number of segments that are open only for reading. An open file costs descriptors, of which a process
/// commonly has 1024, and a log of 16 GiB has 256 segments; each reader follows one segment.
pub(crate) const READING_MAX: usize = 16;

/// While a segment is the last one there is space for, one byte in this many at its end is kept for the marks of later openings ...
const KEPT_PART: u64 = 1024;

/// ... one unit at least, and this many at most.
const KEPT_UNITS: u64 = 16;

/// One segment of the log. Its device is open while it may be written, and while it is being read.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    shelf: Arc<dyn Shelf>,
    held: Mutex<Held>,
    reading: Arc<Reading>,
}

#[derive(Debug)]
enum Held {
    Nothing,
    ToRead(Arc<dyn Device>),
    ToWrite(Arc<dyn Device>),
}

/// The segments of a chain that are open for reading, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Reading(Mutex<VecDeque<Weak<Segment>>>);

impl Reading {
    /// Adds one; closes the oldest if there are too many.
    fn note(&self, segment: &Arc<Segment>) {
        let mut open = self.0.lock().expect("nothing panics under this lock");
        open.push_back(Arc::downgrade(segment));
        let oldest = if open.len() > READING_MAX { open.pop_front() } else { None };
        drop(open);
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            let mut held = oldest.held();
            if matches!(*held, Held::ToRead(_)) {
                *held = Held::Nothing;
            }
        }
    }
}

impl Segment {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nothing panics under this lock")
    }

    /// Returns the device; opens it for reading if it is not open.
    pub(crate) fn device(self: &Arc<Self>) -> Result<Arc<dyn Device>, DeviceError> {
        if let Held::ToRead(device) | Held::ToWrite(device) = &*self.held() {
            return Ok(device.clone());
        }
        let device = self.shelf.open_read_only(&self.name())?;
        let mut held = self.held();
        if matches!(*held, Held::Nothing) {
            *held = Held::ToRead(device.clone());
            drop(held);
            self.reading.note(self);
        }
        Ok(device)
    }

    /// Opens the device for writing; it stays open until [`Segment::finish`].
    fn open_to_write(&self) -> Result<(), JournalError> {
        let device = self.shelf.open(&self.name())?;
        let (unit, block) = (self.header.unit, device.block_bytes());
        if !unit.is_multiple_of(block) {
            return Err(JournalError::Unit { segment: self.name(), unit, block });
        }
        *self.held() = Held::ToWrite(device);
        Ok(())
    }

    /// Returns the device, for writing a batch.
    pub(crate) fn device_to_write(&self) -> Arc<dyn Device> {
        match &*self.held() {
            Held::ToWrite(device) => device.clone(),
            Held::Nothing | Held::ToRead(_) => panic!("a segment is open to write until its last batch is persistent"),
        }
    }

    /// Called when the last batch of the segment is persistent: from now on it is only read.
    pub(crate) fn finish(&self) {
        *self.held() = Held::Nothing;
    }

    pub(crate) fn name(&self) -> String {
        segment_name(self.header.base)
    }

    /// Where the first batch starts.
    pub(crate) fn start(&self) -> Lsn {
        self.header.base.plus(BLOCK_BYTES)
    }

    /// Where the next segment starts.
    pub(crate) fn end(&self) -> Lsn {
        self.header.base.plus(self.header.bytes)
    }

    /// Up to where it may be filled while there is no space for another segment.
    pub(crate) fn usable_end(&self) -> Lsn {
        let unit = u64::from(self.header.unit);
        let kept = (self.header.bytes / KEPT_PART).clamp(unit, KEPT_UNITS * unit) / unit * unit;
        self.start().max(Lsn(self.end().0 - kept))
    }

    pub(crate) fn holds(&self, lsn: Lsn) -> bool {
        self.header.base <= lsn && lsn < self.end()
    }

    /// The offset on the device of a position that lies in the segment or at its end.
    pub(crate) fn offset(&self, lsn: Lsn) -> u64 {
        assert!(lsn <= self.end());
        lsn.since(self.header.base)
    }

    /// An error about a place in this segment.
    pub(crate) fn corruption(&self, lsn: Lsn, damage: Damage) -> Corruption {
        Corruption { segment: self.name(), offset: self.offset(lsn), lsn, damage, proof: None }
    }

    /// Opens the segment named for `base`, and checks that its header matches its name and its device.
    fn look(shelf: &Arc<dyn Shelf>, base: Lsn, reading: &Arc<Reading>) -> Result<Segment, JournalError> {
        let name = segment_name(base);
        let device = shelf.open_read_only(&name)?;
        let bad = |damage| {
            JournalError::from(Corruption { segment: name.clone(), offset: 0, lsn: base, damage, proof: None })
        };
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES as usize);
        device.read(0, &mut block)?;
        let header = match SegmentHeader::decode(&block) {
            Ok(header) => header,
            Err(HeaderFault::Version(found)) => return Err(JournalError::Version { segment: name, found }),
            Err(fault) => return Err(bad(Damage::Header(fault))),
        };
        if header.base != base {
            return Err(bad(Damage::Base { expected: base, found: header.base }));
        }
        if header.bytes != device.len() {
            return Err(bad(Damage::Size { expected: header.bytes, found: device.len() }));
        }
        Ok(Segment { header, shelf: shelf.clone(), held: Mutex::new(Held::Nothing), reading: reading.clone() })
    }
}

/// How the segments are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By the one process that writes the journal: what can be read is persistent.
    Write,
    /// By a [`crate::View`].
    Read,
}

/// The segments of the log in order, without a gap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    segments: VecDeque<Arc<Segment>>,
    reading: Arc<Reading>,
}

impl Chain {
    /// Opens every segment on the shelf. Errors: damage in a header, a gap, two journals on one shelf.
    pub(crate) fn load(shelf: &Arc<dyn Shelf>, access: Access) -> Result<Chain, JournalError> {
        let mut bases: Vec<Lsn> = shelf.list()?.iter().filter_map(|name| segment_base(name)).collect();
        bases.sort_unstable();
        let mut chain = Chain::default();
        for base in bases {
            let segment = Segment::look(shelf, base, &chain.reading)?;
            if let Some(last) = chain.segments.back() {
                if last.end() != base {
                    return Err(segment.corruption(base, Damage::Gap { expected: last.end(), found: base }).into());
                }
                let (expected, found) = (last.header.nonce.identity, segment.header.nonce.identity);
                if expected != found {
                    return Err(segment.corruption(base, Damage::Identity { expected, found }).into());
                }
            }
            chain.segments.push_back(Arc::new(segment));
        }
        if access == Access::Write {
            chain.make_persistent()?;
        }
        Ok(chain)
    }

    /// Checks that the sealer is the journal's. Errors: [`JournalError::Encrypted`], [`JournalError::Clear`], [`JournalError::Key`].
    pub(crate) fn check_key(&self, sealer: Option<&Sealer>) -> Result<(), JournalError> {
        self.iter().try_for_each(|segment| match (sealer, segment.header.encrypted) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(JournalError::Encrypted { segment: segment.name() }),
            (Some(_), None) => Err(JournalError::Clear { segment: segment.name() }),
            (Some(sealer), Some(mark)) => {
                sealer.check(mark).map_err(|fault| JournalError::Key { segment: segment.name(), fault })
            }
        })
    }

    /// Everything before this was persistent, according to the segment headers.
    fn durable(&self) -> Lsn {
        self.iter().map(|segment| segment.header.durable).max().unwrap_or_default()
    }

    /// The base of the last segment whose beginning is known to be persistent; of the first segment if there is none. A
    /// walk that starts there finds the same end as one from the beginning.
    pub(crate) fn tail(&self) -> Lsn {
        let durable = self.durable();
        let last = self.iter().rev().find(|segment| segment.start() < durable);
        last.map_or(self.first(), |segment| segment.header.base)
    }

    /// Opens for writing, which flushes, the segments that may contain bytes that can be read but are not persistent:
    /// all except those that a later header proves persistent. Recovery may then rely on what it reads.
    fn make_persistent(&self) -> Result<(), JournalError> {
        let durable = self.durable();
        self.iter().filter(|segment| segment.end() > durable).try_for_each(|segment| segment.open_to_write())
    }

    /// Adds a segment whose device has just been given its name and is open for writing.
    pub(crate) fn push(&mut self, shelf: &Arc<dyn Shelf>, installed: Installed) {
        let Installed { header, device } = installed;
        if let Some(last) = self.segments.back() {
            assert_eq!(last.end(), header.base, "the chain has no gap");
        }
        let held = Mutex::new(Held::ToWrite(device));
        self.segments.push_back(Arc::new(Segment {
            header,
            shelf: shelf.clone(),
            held,
            reading: self.reading.clone(),
        }));
    }

    /// Removes the first segment; at least one stays.
    pub(crate) fn pop_front(&mut self) {
        assert!(self.segments.len() > 1, "the last segment holds the end of the log and stays");
        self.segments.pop_front();
    }

    pub(crate) fn front(&self) -> Option<&Arc<Segment>> {
        self.segments.front()
    }

    pub(crate) fn back(&self) -> Option<&Arc<Segment>> {
        self.segments.back()
    }

    /// Returns the segment that contains `lsn`. Searches from the end, where writers and most readers are.
    pub(crate) fn find(&self, lsn: Lsn) -> Option<&Arc<Segment>> {
        self.segments.iter().rev().find(|segment| segment.holds(lsn))
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Segment>> {
        self.segments.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// The base of the first segment; [`Lsn::ZERO`] of an empty chain.
    pub(crate) fn first(&self) -> Lsn {
        self.front().map_or(Lsn::ZERO, |segment| segment.header.base)
    }

    /// The end of the last segment; [`Lsn::ZERO`] of an empty chain.
    pub(crate) fn end(&self) -> Lsn {
        self.back().map_or(Lsn::ZERO, |segment| segment.end())
    }
}

/// A device that has become a segment.
#[derive(Debug)]
pub(crate) struct Installed {
    header: SegmentHeader,
    device: Arc<dyn Device>,
}

/// Writes a header to a spare device, makes it persistent, and only then gives it a segment's name (invariant 1).
pub(crate) fn install(
    shelf: &dyn Shelf,
    spare: &str,
    device: Arc<dyn Device>,
    header: SegmentHeader,
) -> Result<Installed, DeviceError> {
    assert_eq!(device.len(), header.bytes);
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES as usize);
    header.encode(&mut block);
    device.write_flush(0, &block)?;
    shelf.rename(spare, &segment_name(header.base))?;
    Ok(Installed { header, device })
}

pub(crate) fn segment_name(base: Lsn) -> String {
    format!("journal-{:016x}", base.0)
}

pub(crate) fn segment_base(name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix("journal-")?;
    let base = u64::from_str_radix(digits, 16).ok().map(Lsn)?;
    (segment_name(base) == name).then_some(base)
}

pub(crate) fn spare_name(number: u32) -> String {
    format!("spare-{number:08x}")
}

pub(crate) fn spare_number(name: &str) -> Option<u32> {
    let number = u32::from_str_radix(name.strip_prefix("spare-")?, 16).ok()?;
    (spare_name(number) == name).then_some(number)
}
