//! A part of a device as a device: offsets are translated, everything else is passed through.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::space::Runs;
use crate::batch::{IoKind, IoRequest, IoSink};
use crate::contract::assert_range_of;
use crate::{Device, DeviceError, Durability, Extent, Operation};

/// One named part of a shelf on a device.
pub(super) struct PartDevice {
    name: String,
    device: Arc<dyn Device>,
    runs: Arc<Runs>,
    bytes: u64,
    writable: bool,
}

/// A piece of a range: where on the device, and which bytes of the caller's range.
struct Piece {
    at: u64,
    range: Range<u64>,
}

impl PartDevice {
    pub(super) fn new(name: &str, device: Arc<dyn Device>, runs: Arc<Runs>, writable: bool) -> PartDevice {
        let bytes = runs.list().iter().map(|run| run.end - run.start).sum();
        PartDevice { name: name.into(), device, runs, bytes, writable }
    }

    fn check(&self, offset: u64, bytes: u64) {
        assert_range_of(self.bytes, u64::from(self.device.block_bytes()), offset, bytes);
    }

    fn check_writable(&self, operation: Operation) -> Result<(), DeviceError> {
        if self.writable { Ok(()) } else { Err(DeviceError::ReadOnly { operation, name: self.name.clone() }) }
    }

    /// The pieces of a range that lies inside, in order; none for an empty one.
    fn pieces(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
        let mut before = 0;
        self.runs.list().iter().filter_map(move |run| {
            let first = before;
            before += run.end - run.start;
            let (from, to) = (offset.max(first), (offset + bytes).min(before));
            (from < to).then(|| Piece { at: run.start + (from - first), range: from - offset..to - offset })
        })
    }

    /// Where on the device a range lies that is in one run.
    fn place(&self, offset: u64, bytes: u64) -> Option<u64> {
        let mut pieces = self.pieces(offset, bytes);
        let first = pieces.next()?;
        (first.range == (0..bytes)).then_some(first.at)
    }

    fn each(
        &self,
        (operation, offset, bytes): (Operation, u64, u64),
        change: impl Fn(u64, Range<usize>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.check(offset, bytes);
        self.check_writable(operation)?;
        for piece in self.pieces(offset, bytes) {
            change(piece.at, piece.range.start as usize..piece.range.end as usize)
                .map_err(|error| error.named(&self.name))?;
        }
        Ok(())
    }
}

impl fmt::Debug for PartDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartDevice").field("name", &self.name).field("runs", &self.runs.list()).finish_non_exhaustive()
    }
}

impl Device for PartDevice {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn block_bytes(&self) -> u32 {
        self.device.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.device.atom_bytes()
    }

    fn is_inline(&self) -> bool {
        self.device.is_inline()
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.check_writable(Operation::Flush)?;
        self.device.deep_flush().map_err(|error| error.named(&self.name))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, buffer.len() as u64);
        for piece in self.pieces(offset, buffer.len() as u64) {
            let range = piece.range.start as usize..piece.range.end as usize;
            self.device.read(piece.at, &mut buffer[range]).map_err(|error| error.named(&self.name))?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.each((Operation::Write, offset, data.len() as u64), |at, range| self.device.write(at, &data[range]))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.check_writable(Operation::Flush)?;
        self.device.flush().map_err(|error| error.named(&self.name))
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        match self.place(offset, bytes) {
            Some(_) => {
                self.each((Operation::Write, offset, bytes), |at, range| self.device.write_flush(at, &data[range]))
            }
            None => self.write(offset, data).and_then(|()| self.flush()),
        }
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.each((Operation::Discard, offset, bytes), |at, range| {
            self.device.discard(at, (range.end - range.start) as u64)
        })
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.each((Operation::Write, offset, bytes), |at, range| {
            self.device.write_zeroes(at, (range.end - range.start) as u64, free)
        })
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.check(offset, bytes);
        let mut extents = Vec::new();
        for piece in self.pieces(offset, bytes) {
            let found = self.device.extents(piece.at, piece.range.end - piece.range.start);
            extents.append(&mut found.map_err(|error| error.named(&self.name))?);
        }
        Ok(extents)
    }

    /// Requests of one run go to the device below; one that lies in two runs is done on the calling thread.
    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let mut passed = Vec::with_capacity(batch.len());
        let mut offsets = Vec::with_capacity(batch.len());
        for mut request in batch.drain(..) {
            let is_change = request.kind != IoKind::Read;
            let place = if request.bytes == 0 { Some(0) } else { self.place(request.offset, request.bytes) };
            match place {
                Some(at) if self.writable || !is_change => {
                    self.check(request.offset, request.bytes);
                    let index = offsets.len() as u64;
                    offsets.push((request.token, request.offset));
                    (request.offset, request.token) = (at, index);
                    passed.push(request);
                }
                _ => {
                    let result = request.perform(self);
                    sink.complete(request, result);
                }
            }
        }
        if !passed.is_empty() {
            let restoring = RestoringSink { to: Arc::clone(sink), offsets, name: self.name.clone() };
            self.device.submit(&mut passed, &(Arc::new(restoring) as Arc<dyn IoSink>));
        }
    }

    fn waits_by_itself(&self) -> bool {
        // A request that lies in two runs is done on the calling thread.
        self.runs.list().len() <= 1 && self.device.waits_by_itself()
    }

    fn durability(&self) -> Durability {
        self.device.durability()
    }
}

/// Gives requests back with the offset and the token that they came with.
struct RestoringSink {
    to: Arc<dyn IoSink>,
    offsets: Vec<(u64, u64)>,
    name: String,
}

impl IoSink for RestoringSink {
    fn complete(&self, mut request: IoRequest, result: Result<(), DeviceError>) {
        (request.token, request.offset) = self.offsets[request.token as usize];
        self.to.complete(request, result.map_err(|error| error.named(&self.name)));
    }
}
