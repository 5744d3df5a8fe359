//! Records read without copying: where a record's rows begin.
//!
//! The checks are the same as those of [`super::decode_message`] and the other decoders: both use [`pieces`], and
//! fuzzing compares their verdicts.

use std::ops::Range;

use super::charsets::of_code;
use super::search::each_text;
use super::{FLAG_DUPLICATE, PIECE_NEW, PIECE_ORIGINAL, VERSION, decode_flags, origin};

/// A message record cut where its rows begin, checked as `decode_message` checks it. Borrows; copies nothing.
#[derive(Debug)]
pub(crate) struct Sections<'a> {
    /// Status byte, as stored.
    pub(crate) status: u8,
    /// Flags byte, as stored.
    pub(crate) flags: u8,
    /// When it came in, microseconds since 1970.
    pub(crate) received_us: i64,
    /// The message that it was made from, the idempotency key, and how, as flags; none for one received.
    pub(crate) origin: Option<(u64, &'a str, u8)>,
    /// The service that took it.
    pub(crate) service: &'a str,
    /// Identity for duplicates.
    pub(crate) identity: u64,
    /// Checksum of the message as received.
    pub(crate) content: u64,
    /// The texts it is found by, checked; [`each_text`] reads them.
    pub(crate) texts: &'a [u8],
    /// From the first byte of the record up to the end of the count of outputs.
    pub(crate) inbound: &'a [u8],
    /// The operation of each output, and all its bytes, from the length of that name on.
    pub(crate) outputs: Vec<(&'a str, &'a [u8])>,
}

/// Cuts a message record. `None` where it is not one of this version.
pub(crate) fn sections(payload: &[u8]) -> Option<Sections<'_>> {
    let mut r = Cut { payload, at: 0 };
    let [version, status, flags, charset] = r.array()?;
    if version != VERSION {
        return None;
    }
    let (_, _, derivation) = decode_flags(status, flags)?;
    of_code(charset)?;
    let received_us = r.array().map(i64::from_le_bytes)?;
    let origin = r.array().map(u64::from_le_bytes)?;
    let _generation: [u8; 4] = r.array()?;
    let origin = match derivation {
        None => None,
        Some(_) => Some((origin, r.key()?, flags & !FLAG_DUPLICATE)),
    };
    let service = r.text()?;
    let _reason = r.text()?;
    let (identity, content) = (r.array().map(u64::from_le_bytes)?, r.array().map(u64::from_le_bytes)?);
    let texts = usize::from(r.u16()?);
    let texts = r.take(texts)?;
    each_text(texts, |_, _| ())?;
    let len = r.len()?;
    let raw = r.take(len)?.len();
    let count = usize::from(r.u16()?);
    let inbound = &payload[..r.at];
    let mut outputs = Vec::with_capacity(count.min(16));
    for _ in 0..count {
        let start = r.at;
        let operation = r.text()?;
        let _transform = r.text()?;
        pieces(&mut r, raw, |_| ())?;
        outputs.push((operation, &payload[start..r.at]));
    }
    let is_whole = r.at == payload.len();
    is_whole.then_some(Sections {
        status,
        flags,
        received_us,
        origin,
        service,
        identity,
        content,
        texts,
        inbound,
        outputs,
    })
}

/// Reads borrowed bytes.
pub(super) struct Cut<'a> {
    pub(super) payload: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cut<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.payload.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(bytes)
    }
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    fn len(&mut self) -> Option<usize> {
        self.array().map(u32::from_le_bytes).and_then(|len| usize::try_from(len).ok())
    }
    fn key(&mut self) -> Option<&'a str> {
        let [len] = self.array()?;
        origin::key_text(self.take(usize::from(len))?)
    }
    pub(super) fn text(&mut self) -> Option<&'a str> {
        let len = usize::from(self.u16()?);
        std::str::from_utf8(self.take(len)?).ok()
    }
}

/// A piece of an output: a run of the message as received, or new bytes.
pub(super) enum Part<'a> {
    Original(Range<usize>),
    New(&'a [u8]),
}

/// The pieces of an output, from its length on, each given to `each`. `None` where they overlap, go back, lie outside a
/// message of `raw` bytes, or are not as long as their length fields: a forged length cannot make it read more than the pieces hold, which
/// is no more than the record has.
pub(super) fn pieces<'a>(r: &mut Cut<'a>, raw: usize, mut each: impl FnMut(Part<'a>)) -> Option<usize> {
    let total = r.len()?;
    let mut sum = 0usize;
    let mut behind = 0;
    for _ in 0..r.u16()? {
        match r.array()? {
            [PIECE_ORIGINAL] => {
                let (start, len) = (r.len()?, r.len()?);
                let end = start.checked_add(len)?;
                if start < behind || end > raw {
                    return None;
                }
                behind = end;
                sum += len;
                each(Part::Original(start..end));
            }
            [PIECE_NEW] => {
                let len = r.len()?;
                sum += len;
                each(Part::New(r.take(len)?));
            }
            _ => return None,
        }
    }
    (sum == total).then_some(total)
}
