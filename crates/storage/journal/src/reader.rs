//! [`Reader`]: returns the records of a log in order, and verifies them again.
//!
//! The reader walks frames, not batches: a frame describes itself, so reading can begin at any record. The reader uses
//! its log only through [`Source`]. So the same reader serves the journal that writes and a view of a journal that
//! another process writes.

use std::fmt;
use std::sync::Arc;

use encryption::Sealer;

use crate::encrypt::decrypt;
use crate::error::{Damage, JournalError};
use crate::format::{BATCH, END, FIRST, FRAME_HEADER_BYTES, Frame, LAST, OPEN};
use crate::lsn::Lsn;
use crate::options::Record;
use crate::scan::{FrameOrder, Unfinished};
use crate::segment::Segment;
use crate::window::{LOOK_BYTES, WALK_BYTES, Window};

/// The log that a reader reads.
pub(crate) trait Source: Send + Sync + fmt::Debug {
    /// The oldest position.
    fn first(&self) -> Lsn;
    /// The end of the records that may be read.
    fn limit(&self) -> Lsn;
    /// The segment that contains a position before the limit; `None` if it was truncated.
    fn segment(&self, lsn: Lsn) -> Option<Arc<Segment>>;
    /// Decrypts the records of an encrypted log; `None` if there is no key.
    fn sealer(&self) -> Option<&Sealer>;
    /// Whether a position that could not be read was truncated meanwhile.
    fn is_truncated(&self, lsn: Lsn) -> Result<bool, JournalError>;
}

/// An iterator over the records of a log, in order. After an error it ends.
#[derive(Debug)]
pub struct Reader {
    source: Arc<dyn Source>,
    position: Lsn,
    window: Option<Window>,
    read_ahead: u64,
    order: FrameOrder,
    /// The frames read so far of a record that continues.
    partial: Option<Record>,
    /// Where reading began; `None` once a first frame was read.
    began: Option<Lsn>,
    failed: bool,
}

impl Reader {
    pub(crate) fn new(source: Arc<dyn Source>, from: Lsn) -> Reader {
        Reader::reading(source, from, WALK_BYTES)
    }

    fn reading(source: Arc<dyn Source>, from: Lsn, read_ahead: u64) -> Reader {
        let order = FrameOrder { unfinished: Unfinished::Unknown, ends: 0, records: 0 };
        Reader {
            source,
            position: from,
            window: None,
            read_ahead,
            order,
            partial: None,
            began: Some(from),
            failed: false,
        }
    }

    /// The reader's position: reading from here returns the records that have not been returned yet.
    pub fn position(&self) -> Lsn {
        self.partial.as_ref().map_or(self.position, |record| record.lsn)
    }

    fn read(&mut self) -> Result<Option<Record>, JournalError> {
        let first = self.source.first();
        if self.position < first {
            return Err(JournalError::Truncated { lsn: self.position, first });
        }
        loop {
            let limit = self.source.limit();
            if self.position >= limit {
                return Ok(None);
            }
            self.move_window()?;
            if self.position >= limit {
                return Ok(None);
            }
            if let Some(record) = self.read_frame(limit)? {
                return Ok(Some(record));
            }
        }
    }

    /// Moves the window to the segment of the position, and the position behind the segment's header.
    fn move_window(&mut self) -> Result<(), JournalError> {
        if self.window.as_ref().is_none_or(|window| !window.segment().holds(self.position)) {
            let Some(segment) = self.source.segment(self.position) else {
                return Err(JournalError::Truncated { lsn: self.position, first: self.source.first() });
            };
            self.window = Some(Window::new(segment, self.read_ahead));
        }
        let segment = self.window.as_ref().expect("set just above").segment();
        self.position = self.position.max(segment.start());
        Ok(())
    }

    /// Reads one frame; returns the record that it completes.
    fn read_frame(&mut self, limit: Lsn) -> Result<Option<Record>, JournalError> {
        let at = self.position;
        let window = self.window.as_mut().expect("the window was moved");
        let frame = match whole_frame(window, at, limit)? {
            Ok(frame) => frame,
            Err(damage) => return Err(self.complain(at, damage)),
        };
        if let Some(from) = self.began.take() {
            self.order.unfinished = if frame.has(BATCH) { Unfinished::Unknown } else { Unfinished::No };
            if !frame.has(BATCH | FIRST) {
                return Err(JournalError::NoRecord { lsn: from });
            }
        }
        self.position = at.plus(frame.bytes() as u64);
        if frame.has(END) {
            let unit = self.window.as_ref().expect("the window was moved").segment().header.unit;
            self.position = Lsn(self.position.0.next_multiple_of(unit.into()));
        }
        if frame.has(BATCH) {
            self.decrypt(&frame, limit, &mut Vec::new())?;
            if frame.has(OPEN) {
                // The previous epoch left this record unfinished, so it was never acknowledged.
                self.order.unfinished = Unfinished::No;
                self.partial = None;
            }
            return Ok(None);
        }
        let before = self.order.unfinished;
        if let Some(what) = self.order.apply(&frame) {
            return Err(self.complain(at, Damage::Order(what)));
        }
        if before == Unfinished::Unknown && !frame.has(FIRST) {
            // The rest of a record whose beginning was truncated.
            return Ok(None);
        }
        let mut record = self.partial.take().unwrap_or(Record { lsn: at, kind: frame.kind, payload: Vec::new() });
        self.decrypt(&frame, limit, &mut record.payload)?;
        if frame.has(LAST) {
            return Ok(Some(record));
        }
        self.partial = Some(record);
        Ok(None)
    }

    /// Appends the content of a frame that verified to `out`; a batch frame has none.
    fn decrypt(&mut self, frame: &Frame, limit: Lsn, out: &mut Vec<u8>) -> Result<(), JournalError> {
        let window = self.window.as_mut().expect("the window was moved");
        let is_encrypted = window.segment().header.encrypted.is_some();
        if frame.has(BATCH) && !is_encrypted {
            return Ok(());
        }
        let payload = window.bytes(frame.lsn.plus(FRAME_HEADER_BYTES as u64), frame.payload_bytes as usize, limit)?;
        let from = out.len();
        out.extend_from_slice(payload);
        if !is_encrypted {
            return Ok(());
        }
        let Some(sealer) = self.source.sealer() else {
            return Err(JournalError::Encrypted { segment: window.segment().name() });
        };
        match decrypt(sealer, frame, &mut out[from..]) {
            Ok(bytes) => out.truncate(from + bytes),
            Err(fault) => return Err(self.complain(frame.lsn, Damage::Seal(fault))),
        }
        Ok(())
    }

    /// Returns the meaning of a bad frame: it was truncated while it was read, no frame begins there, or it is damaged.
    fn complain(&mut self, at: Lsn, damage: Damage) -> JournalError {
        match self.source.is_truncated(at) {
            Ok(true) => return JournalError::Truncated { lsn: at, first: self.source.first() },
            Ok(false) => {}
            Err(error) => return error,
        }
        let segment = self.window.as_ref().expect("a frame was read").segment().clone();
        let corrupt = segment.corruption(at, damage).into();
        match self.began.take() {
            None => corrupt,
            // The caller's position may be wrong and the bytes right: walk there from the start of the segment.
            Some(from) => match is_passed_over(self.source.clone(), &segment, at) {
                true => JournalError::NoRecord { lsn: from },
                false => corrupt,
            },
        }
    }
}

impl Iterator for Reader {
    type Item = Result<Record, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let item = self.read().transpose();
        self.failed = matches!(item, Some(Err(_)));
        item
    }
}

/// The record that starts at `lsn`.
pub(crate) fn read_one(source: Arc<dyn Source>, lsn: Lsn) -> Result<Record, JournalError> {
    let durable = source.limit();
    if lsn >= durable {
        return Err(JournalError::BeyondEnd { lsn, durable });
    }
    match Reader::reading(source, lsn, LOOK_BYTES).next() {
        Some(Ok(record)) if record.lsn == lsn => Ok(record),
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Err(JournalError::NoRecord { lsn }),
    }
}

/// Returns the frame at a position, if its header and payload are valid and it lies within its segment.
fn whole_frame(window: &mut Window, at: Lsn, limit: Lsn) -> Result<Result<Frame, Damage>, JournalError> {
    let segment = window.segment().clone();
    let left = segment.end().since(at);
    if left < FRAME_HEADER_BYTES as u64 {
        return Ok(Err(Damage::Order("the segment ends inside a frame header")));
    }
    let frame = match Frame::decode(window.bytes(at, FRAME_HEADER_BYTES, limit)?, at, segment.header.nonce.identity) {
        Ok(frame) => frame,
        Err(fault) => return Ok(Err(Damage::Frame(fault))),
    };
    if frame.bytes() as u64 > left {
        return Ok(Err(Damage::Order("the frame leaves its segment")));
    }
    let payload = window.bytes(at.plus(FRAME_HEADER_BYTES as u64), frame.payload_bytes as usize, limit)?;
    Ok(frame.check(payload).map(|()| frame).map_err(Damage::Frame))
}

/// Whether the valid frames of the segment pass `lsn` without one that starts there.
fn is_passed_over(source: Arc<dyn Source>, segment: &Segment, lsn: Lsn) -> bool {
    let mut walker = Reader::new(source, segment.header.base);
    loop {
        if walker.position > lsn {
            return true;
        }
        let limit = walker.source.limit();
        if walker.position == lsn || walker.position >= limit || walker.move_window().is_err() {
            return false;
        }
        if walker.position < lsn && walker.read_frame(limit).is_err() {
            return false;
        }
    }
}
