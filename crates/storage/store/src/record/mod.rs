//! The records that the store writes to the journal: transactions, spill chunks, and the commit records that refer to
//! them.
//!
//! ```text
//!   kind 16  transaction     | header | change | change | ...        applied at its position
//!   kind 17  spill chunk     | header | change | change | ...        applied only if a later kind 18 refers to it
//!   kind 18  commit record   | header | run | run | ...              applied at its position, from its spill chunks
//!
//!   header   | version 1 | 0 0 0 | count u32 | time u64: microseconds since 1970 |
//!   change   | tree u32 | key bytes u16 | operation u16 | value bytes u32 | key | value |
//!              operation: 0 put, 1 delete, 2 drop the tree (key and value are empty)
//!   run      | spill chunks u32 | lsn u64 | lsn u64 | ...
//! ```
//!
//! Numbers are little-endian. Records do not contain page numbers: a record can be applied to any layout.
//!
//! Invariants:
//! 1. Decoding is total: any bytes give a record or [`RecordDamage`], and no allocation is larger than the bytes
//!    justify.
//! 2. Keys and values of a decoded record are slices of its payload: no copies.
//! 3. The changes of a spill chunk are sorted by tree and key, each key once; later runs of a commit record override
//!    earlier ones.
//!
//! It does not verify checksums: the journal does.

use bytes::{Buf, BufMut, Bytes};
use journal::Lsn;

use crate::TreeId;

#[cfg(test)]
mod tests;

/// A transaction in one record.
pub(crate) const KIND_TRANSACTION: u8 = 16;
/// A part of a spilled transaction.
pub(crate) const KIND_SPILL_CHUNK: u8 = 17;
/// The commit record of a spilled transaction.
pub(crate) const KIND_SPILLED_COMMIT: u8 = 18;

const VERSION: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const CHANGE_BYTES: usize = 12;

/// The effect of a change on its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Sets the value.
    Put(Bytes),
    /// Removes the key.
    Delete,
    /// Removes the whole tree; the key is empty.
    DropTree,
}

impl Op {
    /// Bytes of the value.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Op::Put(value) => value.len(),
            Op::Delete | Op::DropTree => 0,
        }
    }
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) tree: TreeId,
    pub(crate) key: Bytes,
    pub(crate) op: Op,
}

/// The spill chunks of one run, in the order of their keys.
pub(crate) type SpilledRun = Vec<Lsn>;

/// Why a record cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordDamage {
    #[error("the record has version {0}; this program reads {VERSION}")]
    Version(u8),
    #[error("the record ends inside its {0}")]
    Short(&'static str),
    #[error("{0} bytes follow the last change")]
    Long(usize),
    #[error("there is no operation {0}")]
    Operation(u16),
}

/// Encodes transactions and spill chunks: the header, then change by change.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    out: Vec<u8>,
    count: u32,
}

impl RecordWriter {
    /// A record without changes.
    pub(crate) fn new(time_us: u64, capacity: usize) -> RecordWriter {
        let mut out = Vec::with_capacity(HEADER_BYTES + capacity);
        put_header(&mut out, 0, time_us);
        RecordWriter { out, count: 0 }
    }

    /// Adds a change.
    pub(crate) fn push(&mut self, tree: TreeId, key: &[u8], op: &Op) {
        let (operation, value) = match op {
            Op::Put(value) => (0, value.as_ref()),
            Op::Delete => (1, &[][..]),
            Op::DropTree => (2, &[][..]),
        };
        self.out.put_u32_le(tree.0);
        self.out.put_u16_le(u16::try_from(key.len()).expect("keys are limited when they are put"));
        self.out.put_u16_le(operation);
        self.out.put_u32_le(u32::try_from(value.len()).expect("values are limited when they are put"));
        self.out.extend_from_slice(key);
        self.out.extend_from_slice(value);
        self.count += 1;
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns the payload.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.out[4..8].copy_from_slice(&self.count.to_le_bytes());
        self.out
    }
}

fn put_header(out: &mut Vec<u8>, count: u32, time_us: u64) {
    out.put_slice(&[VERSION, 0, 0, 0]);
    out.put_u32_le(count);
    out.put_u64_le(time_us);
}

/// The payload of a commit record.
pub(crate) fn encode_spilled_commit(runs: &[SpilledRun], time_us: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + runs.iter().map(|run| 4 + 8 * run.len()).sum::<usize>());
    put_header(&mut out, u32::try_from(runs.len()).expect("runs are few"), time_us);
    for run in runs {
        out.put_u32_le(u32::try_from(run.len()).expect("spill chunks are large"));
        run.iter().for_each(|lsn| out.put_u64_le(lsn.0));
    }
    out
}

/// Reads from the front, or returns what is missing.
struct Input {
    left: Bytes,
}

impl Input {
    fn take(&mut self, bytes: usize, what: &'static str) -> Result<Bytes, RecordDamage> {
        if bytes > self.left.len() {
            return Err(RecordDamage::Short(what));
        }
        Ok(self.left.split_to(bytes))
    }

    fn number<const N: usize>(&mut self, what: &'static str) -> Result<u64, RecordDamage> {
        let mut number = [0; 8];
        let Some((head, _)) = self.left.split_at_checked(N) else { return Err(RecordDamage::Short(what)) };
        number[..N].copy_from_slice(head);
        self.left.advance(N);
        Ok(u64::from_le_bytes(number))
    }

    /// Reads count and time.
    fn header(&mut self) -> Result<(u32, u64), RecordDamage> {
        let version = self.number::<4>("header")? as u8;
        if version != VERSION {
            return Err(RecordDamage::Version(version));
        }
        Ok((self.number::<4>("header")? as u32, self.number::<8>("header")?))
    }

    fn end(self) -> Result<(), RecordDamage> {
        match self.left.len() {
            0 => Ok(()),
            bytes => Err(RecordDamage::Long(bytes)),
        }
    }
}

/// The time of a record of any of the store's kinds, in microseconds since 1970. Errors: [`RecordDamage`].
pub(crate) fn time_us(payload: &[u8]) -> Result<u64, RecordDamage> {
    let mut input = Input { left: Bytes::copy_from_slice(&payload[..payload.len().min(HEADER_BYTES)]) };
    Ok(input.header()?.1)
}

/// Decodes the changes of a transaction or a spill chunk.
pub(crate) fn decode(payload: Bytes) -> Result<Vec<Change>, RecordDamage> {
    let mut input = Input { left: payload };
    let (count, _) = input.header()?;
    // No more than the bytes can contain: the count may be damaged.
    let mut changes = Vec::with_capacity((count as usize).min(input.left.len() / CHANGE_BYTES));
    for _ in 0..count {
        let tree = TreeId(input.number::<4>("change")? as u32);
        let (key, operation) = (input.number::<2>("change")?, input.number::<2>("change")? as u16);
        let value = input.number::<4>("change")?;
        let key = input.take(key as usize, "key")?;
        let value = input.take(value as usize, "value")?;
        let op = match operation {
            0 => Op::Put(value),
            1 => Op::Delete,
            2 => Op::DropTree,
            other => return Err(RecordDamage::Operation(other)),
        };
        changes.push(Change { tree, key, op });
    }
    input.end()?;
    Ok(changes)
}

/// Decodes the runs of a commit record.
pub(crate) fn decode_spilled_commit(payload: Bytes) -> Result<Vec<SpilledRun>, RecordDamage> {
    let mut input = Input { left: payload };
    let (count, _) = input.header()?;
    let mut runs = Vec::with_capacity((count as usize).min(input.left.len() / 4));
    for _ in 0..count {
        let chunks = input.number::<4>("run")? as usize;
        let mut run = Vec::with_capacity(chunks.min(input.left.len() / 8));
        for _ in 0..chunks {
            run.push(Lsn(input.number::<8>("run")?));
        }
        runs.push(run);
    }
    input.end()?;
    Ok(runs)
}
