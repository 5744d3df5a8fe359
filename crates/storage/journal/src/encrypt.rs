//! Encrypting a batch before it is written, and decrypting frames as they are read.
//!
//! ```text
//!   clear       | batch frame: durable, bytes, records |        | frame header | payload |
//!   encrypted   | batch frame: durable, bytes, records | seal   | frame header | ciphertext | seal |
//!                 `---- authenticated, not secret ---'            `- authenticated, not secret
//! ```
//!
//! A batch is encrypted when it is taken to be written, by the thread that writes it and without the journal's lock: so records that are
//! appended meanwhile do not wait, and a frame's place and flags do not change any more. Appending only leaves room for the seals.
//!
//! **The rules of recovery do not change.** Checksums are computed over what is stored, after encrypting. Recovery finds the end of the
//! log, tells a torn tail from damage, and counts records by checksums alone; a torn batch fails them as before. Tags are checked when
//! records are read, which redo does before anything depends on them. A tag that does not match in a frame whose checksum does is never a
//! torn tail: no crash makes a checksum match. It is damage, and reported as such.
//!
//! What the seal binds: the structure, the position, the journal, the epoch, the length and the flags; of a batch also its counts. So a
//! frame that is moved, or put into another journal, does not verify, and a batch cannot be replaced by an empty one. Not noticed: a log
//! whose end was cut off at a batch, or an older state of the whole medium.

use encryption::{SEAL_BYTES, SealFault, Sealer};

use crate::checksum;
use crate::format::{BATCH, BATCH_FRAME_BYTES, FRAME_HEADER_BYTES, Frame};
use crate::lsn::{Lsn, Nonce};

/// Names the structure in the seal of a frame.
const FRAME: &[u8] = b"frame";
/// Names the structure in the seal of a batch frame.
const BATCH_FRAME: &[u8] = b"batch";

/// Bytes that frames of the journal have beyond their content.
pub(crate) const fn seal_bytes(is_encrypted: bool) -> usize {
    if is_encrypted { SEAL_BYTES } else { 0 }
}

/// Encrypts the frames of a batch of `bytes`, which are complete but for that: each has room for its seal at its end.
pub(crate) fn encrypt(sealer: &Sealer, batch: &mut [u8], start: Lsn, nonce: Nonce, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        let (header, rest) = batch[at..bytes].split_at_mut(FRAME_HEADER_BYTES);
        let frame = Frame::decode(header, start.plus(at as u64), nonce.identity);
        let frame = frame.expect("the pipeline built it");
        let payload = &mut rest[..frame.payload_bytes as usize];
        if frame.has(BATCH) {
            let (counts, seal) = payload.split_at_mut(payload.len() - SEAL_BYTES);
            sealer.seal(&batch_place(&frame, counts), seal);
        } else {
            sealer.seal(&frame_place(&frame), payload);
        }
        Frame { payload_crc: checksum::of(payload), ..frame }.encode(header);
        at += frame.bytes();
    }
}

/// Decrypts the payload of a frame that verified, in place; returns the length of its content. A batch frame has none to return.
pub(crate) fn decrypt(sealer: &Sealer, frame: &Frame, payload: &mut [u8]) -> Result<usize, SealFault> {
    if frame.has(BATCH) {
        let counts = payload.len().checked_sub(SEAL_BYTES).ok_or(SealFault::Short)?;
        if counts != BATCH_FRAME_BYTES - FRAME_HEADER_BYTES {
            return Err(SealFault::Short);
        }
        let (counts, seal) = payload.split_at_mut(counts);
        sealer.open(&batch_place(frame, counts), seal)?;
        return Ok(0);
    }
    Ok(sealer.open(&frame_place(frame), payload)?.len())
}

fn frame_place(frame: &Frame) -> [u8; FRAME.len() + FRAME_HEADER_BYTES - 8] {
    let mut place = [0; FRAME.len() + FRAME_HEADER_BYTES - 8];
    place[..FRAME.len()].copy_from_slice(FRAME);
    place[FRAME.len()..].copy_from_slice(&frame.place());
    place
}

fn batch_place(frame: &Frame, counts: &[u8]) -> [u8; BATCH_FRAME.len() + BATCH_FRAME_BYTES - 8] {
    let mut place = [0; BATCH_FRAME.len() + BATCH_FRAME_BYTES - 8];
    let (name, rest) = place.split_at_mut(BATCH_FRAME.len());
    let (header, rest) = rest.split_at_mut(FRAME_HEADER_BYTES - 8);
    name.copy_from_slice(BATCH_FRAME);
    header.copy_from_slice(&frame.place());
    rest.copy_from_slice(counts);
    place
}
