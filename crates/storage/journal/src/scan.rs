//! Examines one batch: is it whole, and does it continue the log?
//!
//! ```text
//!   position P:  | batch frame | frame | frame | 0 0 |
//!                     |            +-- same nonce, end to end, checksums, FIRST .. LAST in turn, END on the last
//!                     +-- contains P, an epoch not lower than the log's, no `durable` after P
//! ```
//!
//! A batch counts whole or not at all. [`crate::recovery`] decides what a batch that is not whole means.

use crate::error::Damage;
use crate::format::{
    BATCH, BatchHeader, CLOSE, END, FIRST, FRAME_HEADER_BYTES, Frame, FrameFault, LAST, OPEN, batch_frame_bytes,
};
use crate::lsn::{Lsn, Nonce};
use crate::window::Window;
use device::DeviceError;

/// The position of a walk over the log from its first segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Where the next batch is expected.
    pub(crate) position: Lsn,
    /// Identity of the log, and the epoch of the last batch; 0 before the first.
    pub(crate) nonce: Nonce,
    /// The largest `durable` in the batch headers so far.
    pub(crate) durable: Lsn,
    /// The record that the last frame left unfinished.
    pub(crate) unfinished: Unfinished,
    /// Whether the last batch closed its epoch.
    pub(crate) closed: bool,
    /// Complete records.
    pub(crate) records: u64,
    /// Whole batches.
    pub(crate) batches: u64,
}

/// Whether a record continues in the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// The log starts here: frames of a record whose beginning was truncated may come first.
    Unknown,
    /// No.
    No,
    /// The one that starts there.
    Record(Lsn),
}

impl Progress {
    pub(crate) fn new(position: Lsn, identity: u32) -> Progress {
        Progress {
            position,
            nonce: Nonce { identity, epoch: 0 },
            durable: Lsn::ZERO,
            unfinished: Unfinished::Unknown,
            closed: false,
            records: 0,
            batches: 0,
        }
    }
}

/// What was found at the expected place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    /// A whole batch that continues the log, and the progress after it.
    Whole(BatchHeader, Progress),
    /// A header of this place and epoch, but without the frames that it describes.
    Body(BatchHeader, Bad),
    /// A header with this place and this journal whose checksum does not match.
    Header(Bad),
    /// A valid frame of this place from an epoch that is over: a crash cut it off.
    Stale(Nonce),
    /// Nothing that was written for this place.
    Blank(Bad),
    /// Valid frames that contradict the log before them.
    Impossible(Bad),
}

/// A place and what is wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) at: Lsn,
    pub(crate) damage: Damage,
}

/// Examines `progress.position`, which must lie inside the window's segment.
pub(crate) fn judge(window: &mut Window, progress: &Progress) -> Result<Found, DeviceError> {
    let at = progress.position;
    let (end, unit) = (window.segment().end(), window.segment().header.unit);
    assert!(window.segment().start() <= at && at < end && at.0.is_multiple_of(unit.into()));
    let bad = |damage| Bad { at, damage };
    let head = batch_frame_bytes(window.segment().header.encrypted.is_some());
    let bytes = window.bytes(at, head, end)?;
    let header = match BatchHeader::decode(bytes, at, progress.nonce.identity) {
        Ok(Some(header)) => header,
        Ok(None) => {
            let frame = Frame::decode(&bytes[..FRAME_HEADER_BYTES], at, progress.nonce.identity);
            let nonce = frame.expect("the batch frame's header was decoded").nonce;
            return Ok(if nonce.epoch < progress.nonce.epoch {
                Found::Stale(nonce)
            } else {
                Found::Impossible(bad(Damage::Order("a frame that begins no batch lies where a batch must begin")))
            });
        }
        Err(fault @ (FrameFault::Elsewhere { .. } | FrameFault::Foreign { .. })) => {
            return Ok(Found::Blank(bad(Damage::Frame(fault))));
        }
        Err(fault) => return Ok(Found::Header(bad(Damage::Frame(fault)))),
    };
    if header.nonce.epoch < progress.nonce.epoch {
        return Ok(Found::Stale(header.nonce));
    }
    if let Some(what) = contradiction(&header, progress, (end, unit), head) {
        return Ok(Found::Impossible(bad(Damage::Order(what))));
    }
    frames(window, header, progress, head)
}

/// Returns the contradiction between a valid header and `progress`, if there is one.
fn contradiction(
    header: &BatchHeader,
    progress: &Progress,
    (segment_end, unit): (Lsn, u32),
    head: usize,
) -> Option<&'static str> {
    let opens = header.flags & OPEN != 0;
    let at_start = progress.batches == 0;
    if (header.bytes as usize) < head || header.next(unit) > segment_end {
        Some("the batch leaves its segment")
    } else if header.durable > header.lsn {
        Some("the batch's durable position lies beyond the batch itself")
    } else if header.durable < progress.durable {
        Some("the batch's durable position is lower than that of an earlier batch")
    } else if opens && header.nonce.epoch == progress.nonce.epoch {
        Some("the epoch is opened twice")
    } else if !opens && !at_start && header.nonce.epoch != progress.nonce.epoch {
        Some("an epoch begins without being opened")
    } else if !opens && progress.closed {
        Some("the epoch goes on after it was closed")
    } else {
        None
    }
}

/// Walks the frames of a batch whose header is valid.
fn frames(window: &mut Window, header: BatchHeader, progress: &Progress, head: usize) -> Result<Found, DeviceError> {
    let bytes = window.bytes(header.lsn, header.bytes as usize, window.segment().end())?;
    // A new epoch drops the record that the previous one left unfinished.
    let unfinished = if header.flags & OPEN != 0 { Unfinished::No } else { progress.unfinished };
    let mut order = FrameOrder { unfinished, ends: 0, records: 0 };
    let first = Frame::decode(&bytes[..FRAME_HEADER_BYTES], header.lsn, header.nonce.identity);
    let mut ended = first.is_ok_and(|frame| frame.has(END));
    let mut at = head;
    while at < bytes.len() {
        let lsn = header.lsn.plus(at as u64);
        let frame = match whole_frame(&bytes[at..], lsn, header.nonce) {
            Ok(frame) => frame,
            Err(damage) => return Ok(Found::Body(header, Bad { at: lsn, damage })),
        };
        if let Some(what) = order.apply(&frame).or(ended.then_some("frames follow the end of the batch")) {
            return Ok(Found::Impossible(Bad { at: lsn, damage: Damage::Order(what) }));
        }
        ended = frame.has(END);
        at += frame.bytes();
    }
    if !ended || order.ends != header.records {
        let damage = Damage::Order("the frames of the batch do not match its header");
        return Ok(Found::Impossible(Bad { at: header.lsn, damage }));
    }
    let after = Progress {
        position: header.next(window.segment().header.unit),
        nonce: header.nonce,
        durable: header.durable,
        unfinished: order.unfinished,
        closed: header.flags & CLOSE != 0,
        records: progress.records + u64::from(order.records),
        batches: progress.batches + 1,
    };
    Ok(Found::Whole(header, after))
}

/// Returns the frame at the start of `bytes`, which end with the batch, if all of it is valid.
fn whole_frame(bytes: &[u8], lsn: Lsn, nonce: Nonce) -> Result<Frame, Damage> {
    if bytes.len() < FRAME_HEADER_BYTES {
        return Err(Damage::Order("the batch ends inside a frame header"));
    }
    let frame = Frame::decode(&bytes[..FRAME_HEADER_BYTES], lsn, nonce.identity).map_err(Damage::Frame)?;
    if frame.nonce != nonce {
        return Err(Damage::Stale { expected: nonce.epoch, found: frame.nonce });
    }
    let payload = FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + frame.payload_bytes as usize;
    if frame.bytes() > bytes.len() {
        return Err(Damage::Order("the frame leaves its batch"));
    }
    frame.check(&bytes[payload]).map_err(Damage::Frame)?;
    Ok(frame)
}

/// Checks that records follow each other frame by frame, without mixing.
#[derive(Debug)]
pub(crate) struct FrameOrder {
    pub(crate) unfinished: Unfinished,
    /// Number of records that ended.
    pub(crate) ends: u32,
    /// Number of records that ended and whose beginning was read.
    pub(crate) records: u32,
}

impl FrameOrder {
    /// Processes the next frame; returns what is wrong with it.
    pub(crate) fn apply(&mut self, frame: &Frame) -> Option<&'static str> {
        if frame.has(BATCH) {
            return Some("a batch begins inside a batch");
        }
        let starts = frame.has(FIRST);
        match self.unfinished {
            Unfinished::Record(_) if starts => return Some("a record begins inside a record"),
            Unfinished::No if !starts => return Some("a record continues that never began"),
            _ => {}
        }
        if frame.has(LAST) {
            self.ends += 1;
            self.records += u32::from(starts || self.unfinished != Unfinished::Unknown);
            self.unfinished = Unfinished::No;
        } else if starts {
            self.unfinished = Unfinished::Record(frame.lsn);
        }
        None
    }
}
