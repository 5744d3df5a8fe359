//! Group commit as a plain state machine: which batch is being filled, which are being written, what is durable.
//!
//! ```text
//!      push                take                      finish
//!  current  --seal-->  sealed  ------>  in flight  ---------->  buffer back to `free`
//!  (0 or 1)            (queue)          (0, 1 or 2)             persisted, durable move, in log order
//!
//!  log:  ....durable..persisted |  in flight A |  in flight B | sealed | current ..... next
//! ```
//!
//! No I/O, no locks, no clock: [`crate::journal`] keeps one under its mutex and carries out the returned actions.
//!
//! Invariants:
//! 1. Batches are contiguous in log order: in flight, then sealed, then current. A unit belongs to one batch only and
//!    is written once.
//! 2. `persisted` is the start of the oldest batch that is not yet persistent. A batch that finishes before an older
//!    one waits for it.
//! 3. `durable <= persisted`, and `durable` is not after the start of a record of which a part is not persistent yet.
//! 4. The header of a batch contains the value of `persisted` at the moment when the batch is taken.
//! 5. After a failure nothing changes any more.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use device::{AlignedBuffer, DeviceError};

use crate::encrypt::seal_bytes;
use crate::format::{
    BATCH_FRAME_BYTES, BatchHeader, FIRST, FRAME_ALIGN, FRAME_HEADER_BYTES, Frame, LAST, UNIT_BYTES_MIN,
    batch_frame_bytes, frame_bytes, mark_end,
};
use crate::lsn::{Lsn, Nonce};
use crate::options::BUFFERS;

/// Most batches handed to the device at once.
pub(crate) const IN_FLIGHT_MAX: usize = 2;

/// A place in the log that is reserved for a batch of one record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) nonce: Nonce,
}

/// A batch being filled, or filled.
#[derive(Debug)]
struct Batch {
    /// Batches are numbered from 0.
    sequence: u64,
    start: Lsn,
    /// The largest length of the batch: the buffer's size, or the rest of the segment.
    limit: usize,
    /// Its segment's unit.
    unit: u32,
    buffer: AlignedBuffer,
    /// Offset of the header of the last frame; 0 while there is none.
    last_frame: usize,
    records: u32,
    /// The value of `durable` once this batch and all before it are persistent; set when the batch is sealed.
    durable_then: Lsn,
    flags: u8,
}

/// A batch that was handed to the device.
#[derive(Debug)]
struct Flight {
    sequence: u64,
    start: Lsn,
    next: Lsn,
    durable_then: Lsn,
    bytes: usize,
    done: bool,
}

/// A batch to be written and flushed; it is then passed to [`Pipeline::finish`].
#[derive(Debug)]
pub(crate) struct Write {
    /// Its position in the log.
    pub(crate) start: Lsn,
    /// Whole units.
    pub(crate) buffer: AlignedBuffer,
    /// Bytes of its frames.
    pub(crate) bytes: usize,
    /// Records that end in this batch.
    pub(crate) records: u32,
    /// Whether another batch was in flight when it was taken.
    pub(crate) overlaps: bool,
}

/// One frame to append.
pub(crate) struct Piece<'a> {
    pub(crate) kind: u8,
    /// [`FIRST`], [`LAST`], both or neither.
    pub(crate) flags: u8,
    pub(crate) payload_crc: u32,
    pub(crate) payload_bytes: usize,
    /// The payload, in parts.
    pub(crate) parts: &'a [&'a [u8]],
}

#[derive(Debug)]
pub(crate) struct Pipeline {
    nonce: Nonce,
    next: Lsn,
    sequence: u64,
    current: Option<Batch>,
    sealed: VecDeque<Batch>,
    in_flight: VecDeque<Flight>,
    free: Vec<AlignedBuffer>,
    buffer_bytes: usize,
    /// Start of the record that is not completely pushed yet.
    unfinished: Option<Lsn>,
    appended: Lsn,
    record_end: Lsn,
    persisted: Lsn,
    durable: Lsn,
    /// The end of the reserved places that other threads write and publish; `None` once all are published.
    reserved: Option<Lsn>,
    failure: Option<Arc<DeviceError>>,
    /// Frames get room for their seals.
    is_encrypted: bool,
}

impl Pipeline {
    /// A pipeline whose first batch starts at `next`; everything before `next` is persistent.
    pub(crate) fn new(nonce: Nonce, next: Lsn, buffer_bytes: usize) -> Pipeline {
        assert!(is_aligned(next));
        Pipeline {
            nonce,
            next,
            sequence: 0,
            current: None,
            sealed: VecDeque::with_capacity(BUFFERS),
            in_flight: VecDeque::with_capacity(IN_FLIGHT_MAX),
            free: (0..BUFFERS).map(|_| AlignedBuffer::with_capacity(buffer_bytes)).collect(),
            buffer_bytes,
            unfinished: None,
            appended: next,
            record_end: next,
            persisted: next,
            durable: next,
            reserved: None,
            failure: None,
            is_encrypted: false,
        }
    }

    /// The same with room for a seal in every frame.
    pub(crate) fn encrypted(self, is_encrypted: bool) -> Pipeline {
        Pipeline { is_encrypted, ..self }
    }

    /// Where the batch after all existing ones starts.
    pub(crate) fn next(&self) -> Lsn {
        self.next
    }

    /// End of the last complete record, or the position where the next batch starts.
    pub(crate) fn appended(&self) -> Lsn {
        self.appended
    }

    /// End of the last complete record.
    pub(crate) fn record_end(&self) -> Lsn {
        self.record_end
    }

    /// Everything before this is on the medium.
    pub(crate) fn persisted(&self) -> Lsn {
        self.persisted
    }

    /// Every record that starts before this is complete on the medium.
    pub(crate) fn durable(&self) -> Lsn {
        self.durable
    }

    pub(crate) fn failure(&self) -> Option<&Arc<DeviceError>> {
        self.failure.as_ref()
    }

    /// The journal's nonce.
    pub(crate) fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Makes the segment after `next` the current one: its first batch starts at `start`.
    pub(crate) fn enter(&mut self, start: Lsn) {
        assert!(self.current.is_none() && start > self.next && is_aligned(start));
        self.next = start;
    }

    /// Payload bytes that one more frame can have in the batch being filled; `None` if there is no batch, or if not
    /// even a frame of [`FRAME_ALIGN`] bytes fits.
    pub(crate) fn room(&self) -> Option<usize> {
        let batch = self.current.as_ref()?;
        let room = batch.limit - batch.buffer.len();
        let overhead = FRAME_HEADER_BYTES + seal_bytes(self.is_encrypted);
        (room >= overhead + FRAME_ALIGN).then(|| room - overhead)
    }

    /// Whether no batch is being filled.
    pub(crate) fn is_between_batches(&self) -> bool {
        self.current.is_none()
    }

    /// Where the next frame goes, or the next batch.
    pub(crate) fn position(&self) -> Lsn {
        self.current.as_ref().map_or(self.next, |batch| batch.start.plus(batch.buffer.len() as u64))
    }

    /// Begins a batch that may extend to `segment_end`, in a segment of that unit. Returns `false` if no buffer is
    /// free.
    pub(crate) fn open_batch(&mut self, segment_end: Lsn, unit: u32) -> bool {
        assert!(self.current.is_none() && self.next < segment_end);
        let Some(mut buffer) = self.free.pop() else { return false };
        assert!(buffer.is_empty());
        buffer.resize(batch_frame_bytes(self.is_encrypted), 0);
        let limit =
            usize::try_from(segment_end.since(self.next)).map_or(self.buffer_bytes, |n| n.min(self.buffer_bytes));
        let (sequence, start, durable_then) = (self.sequence, self.next, self.next);
        self.current =
            Some(Batch { sequence, start, limit, unit, buffer, last_frame: 0, records: 0, durable_then, flags: 0 });
        self.sequence += 1;
        true
    }

    /// Makes the batch being filled, which has no frames, the opening or closing batch of an epoch.
    pub(crate) fn mark(&mut self, flag: u8) {
        let batch = self.current.as_mut().expect("a batch was opened");
        assert!(batch.last_frame == 0 && batch.flags == 0, "the marks of an epoch stand alone");
        batch.flags = flag;
    }

    /// Appends a frame, for which there must be room; returns its position.
    pub(crate) fn push(&mut self, piece: &Piece<'_>) -> Lsn {
        assert!(self.room().is_some_and(|room| piece.payload_bytes <= room), "a frame is only pushed into room");
        let starts = piece.flags & FIRST != 0;
        assert_eq!(starts, self.unfinished.is_none(), "frames of two records do not mix");
        let batch = self.current.as_mut().expect("room() answered");
        let at = batch.buffer.len();
        let lsn = batch.start.plus(at as u64);
        let frame = Frame {
            payload_crc: piece.payload_crc,
            lsn,
            nonce: self.nonce,
            payload_bytes: u32::try_from(piece.payload_bytes + seal_bytes(self.is_encrypted))
                .expect("a buffer is smaller than 4 GiB"),
            flags: piece.flags,
            kind: piece.kind,
        };
        batch.buffer.resize(at + FRAME_HEADER_BYTES, 0);
        frame.encode(&mut batch.buffer[at..]);
        for part in piece.parts {
            batch.buffer.extend_from_slice(part);
        }
        let end = at + frame.bytes();
        assert!(batch.buffer.len() <= end && end <= batch.limit.next_multiple_of(FRAME_ALIGN));
        batch.buffer.resize(end, 0);
        batch.last_frame = at;
        if starts {
            self.unfinished = Some(lsn);
        }
        if piece.flags & LAST != 0 {
            batch.records += 1;
            self.unfinished = None;
            self.record_end = batch.start.plus(end as u64);
            self.appended = self.record_end;
        }
        lsn
    }

    /// Reserves the next place for a batch of one record whose thread publishes it itself ([`crate::inline`]). Returns
    /// `None` unless everything before it is durable or reserved in the same way, and some of the segment remains after
    /// it.
    pub(crate) fn reserve(&mut self, segment_end: Lsn, unit: u32, payload_bytes: usize) -> Option<Place> {
        let busy = self.current.as_ref().is_some_and(|batch| batch.last_frame > 0 || batch.flags != 0);
        let behind_others = self.reserved.unwrap_or(self.durable) == self.next;
        if busy || !behind_others || self.unfinished.is_some() {
            return None;
        }
        let bytes = (BATCH_FRAME_BYTES + frame_bytes(payload_bytes)) as u64;
        // The unit is a power of two. The compiler does not know that and would divide.
        let mask = u64::from(unit) - 1;
        let (start, end) = (self.next, self.next.plus((bytes + mask) & !mask));
        if end >= segment_end {
            return None;
        }
        if let Some(Batch { mut buffer, .. }) = self.current.take() {
            // It was opened but not used; the next batch starts elsewhere.
            buffer.clear();
            self.free.push(buffer);
        }
        (self.next, self.appended, self.record_end) = (end, end, start.plus(bytes));
        self.reserved = Some(end);
        Some(Place { start, end, nonce: self.nonce })
    }

    /// The end of the places that are reserved but not published.
    pub(crate) fn reserved(&self) -> Option<Lsn> {
        self.reserved
    }

    /// Records that all reserved places are durable.
    pub(crate) fn all_published(&mut self) {
        if let Some(end) = self.reserved.take() {
            (self.persisted, self.durable) = (end, end);
        }
    }

    /// Seals the batch being filled, if there is one; the next one starts at the following unit.
    pub(crate) fn seal(&mut self) {
        let Some(mut batch) = self.current.take() else { return };
        let bytes = batch.buffer.len();
        self.next = batch.start.plus((bytes as u64).next_multiple_of(batch.unit.into()));
        batch.durable_then = self.unfinished.unwrap_or(self.next);
        if self.unfinished.is_none() {
            self.appended = self.next;
        }
        if batch.last_frame > 0 {
            mark_end(&mut batch.buffer[batch.last_frame..]);
        }
        self.sealed.push_back(batch);
    }

    /// Whether a batch waits to be written and the device may be given one more.
    pub(crate) fn may_take(&self) -> bool {
        if self.failure.is_some() || self.in_flight.len() >= IN_FLIGHT_MAX {
            return false;
        }
        match (&self.sealed.front(), &self.current) {
            (Some(_), _) => true,
            (None, Some(batch)) => batch.last_frame > 0 && self.worth_a_flight(batch),
            (None, None) => false,
        }
    }

    /// A second write starts only with a batch at least as large as the one in flight. Otherwise the first thread that
    /// returns would send only its own record, and all others would wait for two flushes. The head comment of the crate
    /// has the figures.
    fn worth_a_flight(&self, batch: &Batch) -> bool {
        self.in_flight.iter().all(|flight| flight.done || batch.buffer.len() >= flight.bytes)
    }

    /// Whether the device has a batch. Only then does waiting end without another call.
    pub(crate) fn is_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the oldest batch that waits, ready to be written.
    pub(crate) fn take(&mut self) -> Option<Write> {
        if !self.may_take() {
            return None;
        }
        if self.sealed.is_empty() {
            self.seal();
        }
        let mut batch = self.sealed.pop_front()?;
        let bytes = batch.buffer.len();
        let header = BatchHeader {
            lsn: batch.start,
            nonce: self.nonce,
            durable: self.persisted,
            bytes: u32::try_from(bytes).expect("a buffer is smaller than 4 GiB"),
            records: batch.records,
            flags: batch.flags,
        };
        header.encode(&mut batch.buffer[..batch_frame_bytes(self.is_encrypted)]);
        batch.buffer.resize(bytes.next_multiple_of(batch.unit as usize), 0);
        let overlaps = !self.in_flight.is_empty();
        self.in_flight.push_back(Flight {
            sequence: batch.sequence,
            start: batch.start,
            next: header.next(batch.unit),
            durable_then: batch.durable_then,
            bytes,
            done: false,
        });
        Some(Write { start: batch.start, buffer: batch.buffer, bytes, records: batch.records, overlaps })
    }

    /// Handles the result of a write: moves `durable`, oldest batch first. Returns the numbers of the batches that
    /// became persistent; none if an older one is still in flight.
    pub(crate) fn finish(&mut self, write: Write, result: Result<(), DeviceError>) -> Range<u64> {
        let Write { start, mut buffer, .. } = write;
        buffer.clear();
        self.free.push(buffer);
        let first = self.in_flight.front().expect("every write was taken from here").sequence;
        if let Err(error) = result {
            self.fail(Arc::new(error));
        }
        if self.failure.is_some() {
            return first..first;
        }
        let flight = self.in_flight.iter_mut().find(|flight| flight.start == start);
        flight.expect("every write was taken from here").done = true;
        let mut finished = first..first;
        while let Some(flight) = self.in_flight.pop_front_if(|flight| flight.done) {
            assert!(self.persisted <= flight.start && self.durable <= flight.durable_then);
            self.persisted = flight.next;
            self.durable = flight.durable_then;
            finished.end = flight.sequence + 1;
        }
        finished
    }

    /// Records a failure: nothing becomes persistent from now on.
    pub(crate) fn fail(&mut self, error: Arc<DeviceError>) {
        self.failure.get_or_insert(error);
    }

    /// The number of the batch to wait for until everything before `target` is durable. A record may continue in later
    /// batches: a thread that has waited checks again. Numbers increase by one from batch to batch.
    pub(crate) fn batch_of(&self, target: Lsn) -> u64 {
        let mut oldest = self.sequence;
        let filling = self.current.iter().chain(self.sealed.iter().rev()).map(|batch| (batch.sequence, batch.start));
        let flying = self.in_flight.iter().rev().map(|flight| (flight.sequence, flight.start));
        for (sequence, start) in filling.chain(flying) {
            if start < target {
                return sequence;
            }
            oldest = sequence;
        }
        oldest
    }

    /// The numbers of the batches that wait to be written.
    pub(crate) fn waiting_batches(&self) -> Range<u64> {
        let waiting = self.sealed.len() + usize::from(self.current.is_some());
        self.sequence - waiting as u64..self.sequence
    }
}

fn is_aligned(lsn: Lsn) -> bool {
    lsn.0.is_multiple_of(UNIT_BYTES_MIN.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT_END: Lsn = Lsn(1 << 20);

    fn pipeline() -> Pipeline {
        Pipeline::new(Nonce { identity: 1, epoch: 1 }, Lsn(4096), 8192)
    }

    fn push(pipeline: &mut Pipeline, flags: u8, bytes: usize) -> Lsn {
        if pipeline.is_between_batches() {
            assert!(pipeline.open_batch(SEGMENT_END, 4096));
        }
        let payload = vec![7; bytes];
        let payload_crc = crate::checksum::of(&payload);
        pipeline.push(&Piece { kind: 1, flags, payload_crc, payload_bytes: bytes, parts: &[&payload] })
    }

    fn broken() -> Result<(), DeviceError> {
        Err(DeviceError::Poisoned { name: "a test".into() })
    }

    #[test]
    fn a_batch_that_finishes_first_is_durable_only_behind_its_predecessor() {
        let mut pipeline = pipeline();
        push(&mut pipeline, FIRST | LAST, 100);
        let a = pipeline.take().expect("something waits");
        let second = push(&mut pipeline, FIRST | LAST, 200);
        let b = pipeline.take().expect("B is larger than A");
        assert!(b.overlaps);
        push(&mut pipeline, FIRST | LAST, 5000);
        assert!(pipeline.take().is_none(), "two are in flight");
        assert_eq!(pipeline.finish(b, Ok(())), 0..0);
        assert_eq!((pipeline.durable(), pipeline.persisted()), (Lsn(4096), Lsn(4096)));
        assert!(pipeline.take().is_none(), "B still counts: the proof of damage relies on at most two behind");
        assert_eq!(pipeline.finish(a, Ok(())), 0..2);
        assert!(pipeline.durable() > second);
        let c = pipeline.take().expect("the third waits");
        let header =
            BatchHeader::decode(&c.buffer[..BATCH_FRAME_BYTES], c.start, 1).expect("is valid").expect("is a batch");
        assert_eq!(header.durable, pipeline.persisted(), "the header has what was durable when the batch was taken");
    }

    #[test]
    fn a_second_write_is_started_only_for_a_batch_as_large_as_the_one_in_flight() {
        let mut pipeline = pipeline();
        push(&mut pipeline, FIRST | LAST, 1000);
        let a = pipeline.take().expect("something waits");
        push(&mut pipeline, FIRST | LAST, 900);
        assert!(!pipeline.may_take());
        push(&mut pipeline, FIRST | LAST, 50);
        assert!(!pipeline.may_take());
        push(&mut pipeline, FIRST | LAST, 8);
        assert!(pipeline.may_take());
        pipeline.finish(a, Ok(()));
        assert!(pipeline.may_take());
    }

    #[test]
    fn a_record_is_durable_only_with_its_last_frame() {
        let mut pipeline = pipeline();
        push(&mut pipeline, FIRST | LAST, 100);
        let start = push(&mut pipeline, FIRST, 5000);
        let before = pipeline.appended();
        assert!(before <= start);
        pipeline.seal();
        let a = pipeline.take().expect("something waits");
        pipeline.finish(a, Ok(()));
        assert_eq!(pipeline.durable(), start, "records before it are, it is not");
        assert_eq!(pipeline.appended(), before);
        push(&mut pipeline, LAST, 10);
        let b = pipeline.take().expect("something waits");
        pipeline.finish(b, Ok(()));
        assert_eq!(pipeline.durable(), pipeline.appended());
        assert!(pipeline.durable() > start);
    }

    #[test]
    fn after_a_failure_nothing_becomes_durable_and_nothing_is_taken() {
        let mut pipeline = pipeline();
        push(&mut pipeline, FIRST | LAST, 100);
        let a = pipeline.take().expect("something waits");
        push(&mut pipeline, FIRST | LAST, 200);
        let b = pipeline.take().expect("B is larger than A");
        pipeline.finish(a, broken());
        assert!(pipeline.failure().is_some());
        pipeline.finish(b, Ok(()));
        assert_eq!(pipeline.durable(), Lsn(4096));
        push(&mut pipeline, FIRST | LAST, 100);
        assert!(pipeline.take().is_none());
    }

    #[test]
    fn a_committer_waits_for_the_batch_of_its_record() {
        let mut pipeline = pipeline();
        let first = push(&mut pipeline, FIRST | LAST, 100);
        assert_eq!(pipeline.batch_of(first.plus(1)), 0);
        let _a = pipeline.take().expect("something waits");
        let second = push(&mut pipeline, FIRST | LAST, 50);
        pipeline.seal();
        let third = push(&mut pipeline, FIRST | LAST, 50);
        let batches = [first, second, third].map(|lsn| pipeline.batch_of(lsn.plus(1)));
        assert_eq!(batches, [0, 1, 2]);
        assert_eq!(pipeline.waiting_batches(), 1..3);
    }
}
