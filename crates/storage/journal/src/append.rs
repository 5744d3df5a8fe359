//! Appending: a record becomes one frame, or several where a buffer or a segment ends.
//!
//! The common case is one lock, one copy, and one checksum over 28 bytes: the payload's checksum is computed before the
//! lock is taken. Every other case (no room, no buffer, no segment, a record of many frames) takes the *append lock*.
//! One append at a time holds it, and the others wait. So LSN order is call order, and frames of two records never mix.
//! Before the first frame is pushed, prepared segments have room for the last one: a full shelf never leaves a record
//! half appended.

use crate::checksum;
use crate::error::JournalError;
use crate::format::{BLOCK_BYTES, FIRST, FRAME_ALIGN, FRAME_HEADER_BYTES, LAST};
use crate::lsn::Lsn;
use crate::options::{BUFFERS, GroupCommits, Preparation};
use crate::pipeline::Piece;
use crate::shared::{FailOnPanic, Guard, Shared, State};

/// Upper bound of the overhead of a batch: its batch frame, one frame header, and the rest that is too small for a
/// frame.
const BATCH_OVERHEAD_BYTES: u64 = 128;
/// The same in an encrypted journal: three seals more.
const OVERHEAD_BYTES_ENCRYPTED: u64 = BATCH_OVERHEAD_BYTES + 3 * encryption::SEAL_BYTES as u64;

impl Shared {
    pub(crate) fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let max = self.options.max_record_bytes;
        if bytes as u64 > max {
            return Err(JournalError::TooLarge { bytes: bytes as u64, max });
        }
        // In an encrypted journal it is computed over what is stored, when the batch is written.
        let payload_crc = if self.options.sealer.is_some() { 0 } else { checksum::of_parts(parts) };
        let piece = Piece { kind, flags: FIRST | LAST, payload_crc, payload_bytes: bytes, parts };
        // Declared before the guard, so that a panic releases the lock first.
        let panicking = FailOnPanic(self);
        let result = self.append_piece(&piece);
        std::mem::forget(panicking);
        result
    }

    fn append_piece(&self, piece: &Piece<'_>) -> Result<Lsn, JournalError> {
        let bytes = piece.payload_bytes;
        let mut state = self.lock();
        state.accepts()?;
        let lsn = if !state.append_lock && state.has_room(self, bytes) {
            state.pipeline.push(piece)
        } else {
            state.stats.appends_delayed += 1;
            let (guard, lsn) = self.append_slow(state, piece)?;
            state = guard;
            lsn
        };
        state.stats.records += 1;
        state.stats.payload_bytes += bytes as u64;
        if let Some(counted) = &mut state.group_commits {
            counted.record_bytes[GroupCommits::class(bytes as u64)] += 1;
        }
        if state.append_waiters > 0 {
            self.appended.notify_all();
        }
        Ok(lsn)
    }

    /// See [`Journal::make_room`](crate::Journal::make_room).
    pub(crate) fn make_room(&self, bytes: u64) -> Result<(), JournalError> {
        // Declared before the guard, so that a panic releases the lock first.
        let panicking = FailOnPanic(self);
        let state = self.lock();
        let made = match state.accepts() {
            Ok(()) => self.with_append_lock(state, |state| self.reserve(state, bytes)).map(drop),
            Err(error) => Err(error),
        };
        std::mem::forget(panicking);
        made
    }

    fn append_slow<'a>(&'a self, state: Guard<'a>, piece: &Piece<'_>) -> Result<(Guard<'a>, Lsn), JournalError> {
        self.with_append_lock(state, |state| self.append_frames(state, piece))
    }

    /// Runs `work` under the append lock.
    fn with_append_lock<'a, T>(
        &'a self,
        mut state: Guard<'a>,
        work: impl FnOnce(Guard<'a>) -> (Guard<'a>, Result<T, JournalError>),
    ) -> Result<(Guard<'a>, T), JournalError> {
        while state.append_lock {
            state.append_lock_waiters += 1;
            state = self.wait(&self.append_lock_freed, state);
            state.append_lock_waiters -= 1;
            state.accepts()?;
        }
        state.append_lock = true;
        let (mut state, result) = work(state);
        state.append_lock = false;
        if state.append_lock_waiters > 0 {
            self.append_lock_freed.notify_all();
        }
        result.map(|done| (state, done))
    }

    /// Reserves the space, then pushes the record frame by frame.
    fn append_frames<'a>(&'a self, state: Guard<'a>, piece: &Piece<'_>) -> (Guard<'a>, Result<Lsn, JournalError>) {
        let (mut state, reserved) = self.reserve(state, piece.payload_bytes as u64);
        if let Err(error) = reserved {
            return (state, Err(error));
        }
        let mut lsn = None;
        let mut at = 0;
        loop {
            let (guard, ready) = self.wait_for_room(state);
            state = guard;
            if let Err(error) = ready {
                return (state, Err(error));
            }
            let room = state.pipeline.room().expect("waited for");
            let bytes = room.min(piece.payload_bytes - at);
            let parts = cut(piece.parts, at, bytes);
            let first = if at == 0 { FIRST } else { 0 };
            let last = if at + bytes == piece.payload_bytes { LAST } else { 0 };
            let whole = bytes == piece.payload_bytes;
            let is_known = whole || self.options.sealer.is_some();
            let payload_crc = if is_known { piece.payload_crc } else { checksum::of_parts(&parts) };
            let flags = first | last;
            let frame = Piece { kind: piece.kind, flags, payload_crc, payload_bytes: bytes, parts: &parts };
            let pushed = state.pipeline.push(&frame);
            let lsn = *lsn.get_or_insert(pushed);
            at += bytes;
            if last != 0 {
                return (state, Ok(lsn));
            }
        }
    }

    /// Prepares segments until a record of that size certainly fits.
    fn reserve<'a>(&'a self, mut state: Guard<'a>, bytes: u64) -> (Guard<'a>, Result<(), JournalError>) {
        loop {
            if let Err(error) = state.check() {
                return (state, Err(error));
            }
            let overhead = if self.options.sealer.is_some() { OVERHEAD_BYTES_ENCRYPTED } else { BATCH_OVERHEAD_BYTES };
            if state.space() >= state.needed(bytes, self.options.buffer_bytes, overhead) {
                return (state, Ok(()));
            }
            let prepared;
            (state, prepared) = self.next_segment(state);
            if let Err(error) = prepared {
                return (state, Err(error));
            }
        }
    }

    /// Waits until one more segment is ready, or prepares it.
    fn next_segment<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, Result<(), JournalError>) {
        if self.options.preparation == Preparation::Inline {
            drop(state);
            let result = self.prepare();
            return (self.lock(), result);
        }
        let end = state.chain.end();
        // A failure from before this append is cleared: space may have been freed since.
        state.preparation_failure = None;
        while state.chain.end() == end {
            if let Err(error) = state.check() {
                return (state, Err(error));
            }
            if let Some(error) = state.preparation_failure.take() {
                return (state, Err(error));
            }
            state.wanted = true;
            self.work.notify_one();
            state = self.wait(&self.prepared, state);
        }
        (state, Ok(()))
    }

    /// Waits until a frame fits; writes batches if no other thread does.
    fn wait_for_room<'a>(&'a self, mut state: Guard<'a>) -> (Guard<'a>, Result<(), JournalError>) {
        loop {
            if let Err(error) = state.check() {
                return (state, Err(error));
            }
            if state.has_room(self, 0) {
                return (state, Ok(()));
            }
            state.pipeline.seal();
            if state.open_batch(self) {
                continue;
            }
            state = match state.pipeline.take() {
                Some(write) => self.write(state, write),
                None => {
                    assert!(state.pipeline.is_in_flight(), "segments were reserved, so it is a buffer that is missing");
                    self.wait(&self.buffer_freed, state)
                }
            };
        }
    }
}

impl State {
    /// Whether a frame with that payload fits the batch being filled; opens a batch if there is none.
    fn has_room(&mut self, shared: &Shared, payload_bytes: usize) -> bool {
        if self.pipeline.is_between_batches() && !self.open_batch(shared) {
            return false;
        }
        self.pipeline.room().is_some_and(|room| payload_bytes <= room)
    }

    /// Bytes from the end of the log to where the last prepared segment may be filled, without segment headers.
    fn space(&self) -> u64 {
        let position = self.pipeline.position();
        let in_tail = self.tail.end().since(position);
        let behind = self.chain.iter().rev().take_while(|segment| segment.header.base >= self.tail.end());
        let all = in_tail + behind.map(|segment| segment.header.bytes - BLOCK_BYTES).sum::<u64>();
        all.saturating_sub(self.kept())
    }

    /// The most space that a record can take: an overhead for each batch that it fills and each segment that it
    /// crosses, one for a batch that ended where the tail segment could be filled until another one was ready, and the
    /// first and last block, which may be partly used.
    fn needed(&self, bytes: u64, buffer_bytes: u64, overhead: u64) -> u64 {
        let batches =
            bytes / (buffer_bytes - overhead) + self.chain.len() as u64 + BUFFERS as u64 + u64::from(self.kept() > 0);
        bytes + batches * overhead + 2 * BLOCK_BYTES
    }
}

const _: () =
    assert!(BATCH_OVERHEAD_BYTES as usize >= crate::format::BATCH_FRAME_BYTES + 2 * FRAME_HEADER_BYTES + FRAME_ALIGN);

/// The parts of `parts` that make up `bytes` bytes from `from` on.
fn cut<'a>(parts: &[&'a [u8]], from: usize, bytes: usize) -> Vec<&'a [u8]> {
    let mut skip = from;
    let mut left = bytes;
    let mut out = Vec::new();
    for part in parts {
        let start = skip.min(part.len());
        let end = part.len().min(start + left);
        skip -= start;
        if start < end {
            out.push(&part[start..end]);
            left -= end - start;
        }
    }
    assert_eq!(left, 0, "the parts contain the requested bytes");
    out
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn a_cut_of_the_parts_is_a_cut_of_the_whole() {
        let parts: [&[u8]; 5] = [b"abc", b"", b"defg", b"h", b"ij"];
        let whole = parts.concat();
        for from in 0..=whole.len() {
            for bytes in 0..=whole.len() - from {
                assert_eq!(cut(&parts, from, bytes).concat(), &whole[from..from + bytes]);
            }
        }
    }
}
