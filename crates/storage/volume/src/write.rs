//! Writing: a record in the journal of every copy, durable on all in sync, then visible, then acknowledged.
//!
//! ```text
//!   gate (shared), stripes     no other write of these blocks; no copy joins meanwhile
//!   append to each copy        the journals of copies in sync and of copies that are being brought up to date
//!   wait until durable         on each; one that fails or takes too long is excluded, durably, first
//!   in_sync <= durable?        no: too few copies work; wait, and try again
//!   overlay, sums              from now on readers see it
//! ```
//!
//! A write smaller than a block reads the block first, under the same stripe. A write of many blocks is cut into records; each block
//! of 4096 bytes is whole after a crash, old or new.
//!
//! A write that fails has an unknown outcome: it is not visible now. The copies that have its record bring it forward at the next
//! opening, on all copies alike, unless a later write of the block or a checkpoint came after it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use device::BLOCK_BYTES;
use journal::Lsn;

use crate::checkpoint;
use crate::checksum::Sum;
use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::members::{COPIES_MAX, Members};
use crate::options::Threads;
use crate::overlay::{Fresh, Stored};
use crate::read::read_held;
use crate::record::{HEAD, Head, Order, WRITE, ZEROES};
use crate::rules::{Rule, obeys};
use crate::stripes::{Held, PIECE_BLOCKS};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a write does to a range.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'d> {
    /// Stores bytes.
    Bytes(&'d [u8]),
    /// Makes `bytes` bytes zeros; with `free` the space of whole blocks may be given up.
    Zeroes { bytes: u64, free: bool },
}

impl<'d> Change<'d> {
    fn bytes(&self) -> u64 {
        match self {
            Change::Bytes(data) => data.len() as u64,
            Change::Zeroes { bytes, .. } => *bytes,
        }
    }

    fn split(self, at: u64) -> (Change<'d>, Change<'d>) {
        match self {
            Change::Bytes(data) => {
                let (now, later) = data.split_at(at as usize);
                (Change::Bytes(now), Change::Bytes(later))
            }
            Change::Zeroes { bytes, free } => {
                (Change::Zeroes { bytes: at, free }, Change::Zeroes { bytes: bytes - at, free })
            }
        }
    }
}

/// Writes a range of any length; every piece of it is durable and visible when it returns `Ok`.
pub(crate) fn write(core: &Core, offset: u64, change: Change<'_>) -> Result<(), VolumeError> {
    core.check()?;
    let (mut offset, mut rest) = (offset, change);
    while rest.bytes() > 0 {
        let bytes = rest.bytes().min(piece_bytes(offset, rest.bytes()));
        let (now, later) = rest.split(bytes);
        write_piece(core, offset, now, later.bytes() == 0)?;
        offset += bytes;
        rest = later;
    }
    Ok(())
}

/// The length of the next piece: to the next block's edge first if it begins inside a block, whole blocks then.
pub(crate) fn piece_bytes(offset: u64, bytes: u64) -> u64 {
    let within = offset % BLOCK;
    if within > 0 || bytes < BLOCK {
        return (BLOCK - within).min(bytes);
    }
    (bytes / BLOCK).min(PIECE_BLOCKS) * BLOCK
}

/// Writes a piece; waits while too few copies work.
fn write_piece(core: &Core, offset: u64, change: Change<'_>, is_last: bool) -> Result<(), VolumeError> {
    let deadline = Instant::now() + core.options.write_timeout;
    loop {
        checkpoint::make_room(core, deadline)?;
        match attempt(core, offset, change, is_last) {
            Err(VolumeError::BelowMinimum { .. }) => core.wait_thawed(deadline)?,
            other => return other,
        }
    }
}

fn attempt(core: &Core, offset: u64, change: Change<'_>, is_last: bool) -> Result<(), VolumeError> {
    let _gate = core.gate.read();
    if core.is_frozen() {
        return Err(core.below_minimum());
    }
    core.check()?;
    let first = offset / BLOCK;
    let blocks = change.bytes().div_ceil(BLOCK);
    let held = core.stripes.lock(first, blocks);
    if !is_last && changes_nothing(core, first, blocks, change) {
        return Ok(());
    }
    let staged = stage(core, held, offset, change)?;
    let mut batch = Batch::new(core);
    let written = batch.append(core, staged);
    let durable = batch.finish(core);
    written.and(durable)
}

/// A record that is ready to be appended, and the stripes of its blocks.
pub(crate) struct Staged<'s> {
    head: Head,
    sums: Vec<Sum>,
    bytes: Vec<u8>,
    _held: Held<'s>,
}

/// Whether a piece frees blocks that have no content. The last piece of a change is written nevertheless: what is acknowledged
/// without asking the copies may be that of an owner that was replaced.
fn changes_nothing(core: &Core, first: u64, blocks: u64, change: Change<'_>) -> bool {
    let is_empty = |block| !core.overlay.has(block) && core.tables.sum(block) == Sum::NONE;
    matches!(change, Change::Zeroes { free: true, .. }) && (first..first + blocks).all(is_empty)
}

/// Builds the record of a piece. The caller holds the stripes.
pub(crate) fn stage<'s>(
    core: &'s Core,
    held: Held<'s>,
    offset: u64,
    change: Change<'_>,
) -> Result<Staged<'s>, VolumeError> {
    let (first, within) = (offset / BLOCK, (offset % BLOCK) as usize);
    let blocks = change.bytes().div_ceil(BLOCK) as u32;
    let is_whole = within == 0 && change.bytes().is_multiple_of(BLOCK);
    let bytes = match change {
        Change::Zeroes { .. } if is_whole => Vec::new(),
        Change::Bytes(data) if is_whole => data.to_vec(),
        _ => {
            let mut block = vec![0; BLOCK_BYTES];
            read_held(core, first, &mut block)?;
            let part = &mut block[within..within + change.bytes() as usize];
            match change {
                Change::Bytes(data) => part.copy_from_slice(data),
                Change::Zeroes { .. } => part.fill(0),
            }
            block
        }
    };
    let is_free = matches!(change, Change::Zeroes { free: true, .. });
    let sums = bytes.chunks_exact(BLOCK_BYTES).map(Sum::of).collect();
    let head = Head { order: Order::default(), first, blocks, is_free };
    Ok(Staged { head, sums, bytes, _held: held })
}

/// Records that become durable together: one append for each, one wait for all.
pub(crate) struct Batch<'s> {
    /// The copies that receive them, and the end of what was appended there.
    copies: Vec<(Arc<VolumeCopy>, Option<Lsn>)>,
    failures: Vec<(Arc<VolumeCopy>, VolumeError)>,
    staged: Vec<Staged<'s>>,
}

impl<'s> Batch<'s> {
    /// For the copies that take part now. The caller holds the gate.
    pub(crate) fn new(core: &Core) -> Batch<'s> {
        let members = Members(core.working().0 | core.syncing().0);
        let copies = members.iter().filter_map(|number| core.copy(number)).map(|copy| (copy, None)).collect();
        Batch { copies, failures: Vec::new(), staged: Vec::new() }
    }

    /// Appends a record to the journal of every copy that has not failed.
    pub(crate) fn append(&mut self, core: &Core, mut staged: Staged<'s>) -> Result<(), VolumeError> {
        core.check()?;
        staged.head.order = core.next_order();
        let head = staged.head.encode();
        let kind = if staged.bytes.is_empty() { ZEROES } else { WRITE };
        let sums: Vec<u8> = staged.sums.iter().flat_map(|sum| sum.0.to_le_bytes()).collect();
        let parts: [&[u8]; 3] = [&head, &sums, &staged.bytes];
        let bytes = (HEAD + sums.len() + staged.bytes.len()) as u64;
        let failures = &mut self.failures;
        self.copies.retain_mut(|(copy, end)| match copy.journal.append(kind, &parts) {
            Ok(lsn) => {
                *end = Some(lsn);
                true
            }
            Err(error) => {
                failures.push((copy.clone(), error.into()));
                false
            }
        });
        core.journaled.fetch_add(bytes, Ordering::Relaxed);
        self.staged.push(staged);
        Ok(())
    }

    /// Waits until the records are durable on every copy in sync, and makes them visible.
    ///
    /// Errors: none of them is visible then, and their outcome is unknown.
    pub(crate) fn finish(mut self, core: &Core) -> Result<(), VolumeError> {
        let durable = if obeys(Rule::AllInSync) { self.commit(core) } else { self.commit_one(core) };
        for (copy, why) in &self.failures {
            // What counts is the set that is in force in the end.
            match core.fail(copy, why) {
                Ok(()) | Err(VolumeError::BelowMinimum { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        core.check()?;
        if !core.in_sync().minus(durable).is_empty() && obeys(Rule::AllInSync) {
            return Err(core.below_minimum());
        }
        self.staged.iter().for_each(|staged| apply(core, staged, durable));
        Ok(())
    }

    /// Makes what was appended durable; returns where it is.
    fn commit(&mut self, core: &Core) -> Members {
        let waits = core.options.threads == Threads::Background;
        let mut durable = Members::NONE;
        let mut waiting = Vec::new();
        for (copy, end) in &self.copies {
            let Some(lsn) = *end else { continue };
            if waits && !copy.journal.is_inline() {
                copy.journal.flush_soon();
                waiting.push((copy.clone(), lsn));
                continue;
            }
            match copy.journal.commit(lsn) {
                Ok(()) => durable = durable.with(copy.number),
                Err(error) => self.failures.push((copy.clone(), error.into())),
            }
        }
        let deadline = Instant::now() + core.options.copy_timeout;
        while !waiting.is_empty() {
            let seen = core.progress.ticks();
            waiting.retain(|(copy, lsn)| {
                if copy.journal.durable() > *lsn {
                    durable = durable.with(copy.number);
                } else if let Err(error) = copy.journal.check() {
                    self.failures.push((copy.clone(), error.into()));
                } else {
                    return true;
                }
                false
            });
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let stalled = |(copy, _): &(Arc<VolumeCopy>, Lsn)| (copy.clone(), VolumeError::Stalled(copy.number));
                self.failures.extend(waiting.iter().map(stalled));
                break;
            }
            if !waiting.is_empty() {
                core.progress.wait(seen, left);
            }
        }
        durable
    }

    /// Rule 1 left out: one copy is enough.
    fn commit_one(&mut self, _core: &Core) -> Members {
        let Some((copy, Some(lsn))) = self.copies.first() else { return Members::NONE };
        match copy.journal.commit(*lsn) {
            Ok(()) => Members::first(COPIES_MAX as u8),
            Err(_) => Members::NONE,
        }
    }
}

/// Makes a durable record visible. Copies that do not have it will have to copy its blocks.
fn apply(core: &Core, staged: &Staged<'_>, durable: Members) {
    let Head { order, first, blocks, is_free } = staged.head;
    let lacking = Members::first(core.copies).minus(durable);
    for index in 0..u64::from(blocks) {
        let block = first + index;
        let (stored, sum) = match staged.bytes.chunks_exact(BLOCK_BYTES).nth(index as usize) {
            Some(bytes) => (Stored::Bytes(Arc::from(bytes)), staged.sums[index as usize]),
            None => (Stored::Zeroes { free: is_free }, Sum::NONE),
        };
        // First the bytes, then the sum: who finds the new sum and not the bytes decides under the stripe.
        core.overlay.put(block, Fresh { order, stored });
        core.tables.set_sum(block, sum);
        lacking.iter().for_each(|number| core.tables.mark_dirty(number, block));
    }
}
