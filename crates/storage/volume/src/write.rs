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
//! Blocks of an encrypted volume are sealed when the record is built: what any copy gets, and what is kept in memory, is ciphertext.
//!
//! A write smaller than a block reads the block first, under the same stripe. A write of many blocks is cut into records; each block
//! of 4096 bytes is whole after a crash, old or new.
//!
//! A write that fails has an unknown outcome: it is not visible now. The copies that have its record bring it forward at the next
//! opening, on all copies alike, unless a later write of the block or a checkpoint came after it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use device::BLOCK_BYTES;
use journal::Lsn;

use crate::checkpoint::{self, Patience};
use crate::checksum::Sum;
use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::mark::BlockMark;
use crate::members::{COPIES_MAX, Members};
use crate::options::Threads;
use crate::overlay::{Fresh, Stored};
use crate::read::read_held;
use crate::record::{HEAD, Head, Order, ZEROES, encode_marks};
use crate::rules::{Rule, obeys};
use crate::stripes::{Held, PIECE_BLOCKS};
use crate::thin;

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

/// Writes a range of any length; every piece of it is durable and visible when it returns `Ok`. It waits as `patience` says while too few
/// copies work.
pub(crate) fn write(core: &Core, offset: u64, change: Change<'_>, patience: Patience) -> Result<(), VolumeError> {
    core.check()?;
    let (mut offset, mut rest) = (offset, change);
    while rest.bytes() > 0 {
        let bytes = rest.bytes().min(piece_bytes(offset, rest.bytes()));
        let (now, later) = rest.split(bytes);
        write_piece(core, offset, now, (patience, later.bytes() == 0))?;
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
fn write_piece(
    core: &Core,
    offset: u64,
    change: Change<'_>,
    (patience, is_last): (Patience, bool),
) -> Result<(), VolumeError> {
    loop {
        checkpoint::make_room(core, patience)?;
        match attempt(core, offset, change, is_last) {
            Err(VolumeError::BelowMinimum { .. }) => core.wait_thawed(patience.until)?,
            Err(VolumeError::NoSpace) if thin::wait_reclaimed(core, patience.until) => {}
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
    record: Arc<Record>,
    _held: Held<'s>,
}

/// What the journals of all copies receive alike.
struct Record {
    head: Head,
    kind: u8,
    marks: Vec<BlockMark>,
    /// Their stored form.
    encoded: Vec<u8>,
    /// The stored blocks, each in the memory that the overlay keeps.
    blocks: Vec<Arc<[u8]>>,
}

impl Record {
    fn append(&self, copy: &VolumeCopy) -> Result<Lsn, VolumeError> {
        let head = self.head.encode();
        let marks = [&head[..], &self.encoded];
        let parts: Vec<&[u8]> = marks.into_iter().chain(self.blocks.iter().map(|block| &block[..])).collect();
        Ok(copy.journal.append(self.kind, &parts)?)
    }

    /// Bytes of its blocks.
    fn content(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    fn len(&self) -> u64 {
        (HEAD + self.encoded.len()) as u64 + self.content()
    }
}

/// What the frames of a record take at most, beside it.
const FRAMES: u64 = 512;

/// Whether a piece frees blocks that have no content. The last piece of a change is written nevertheless: what is acknowledged
/// without asking the copies may be that of an owner that was replaced.
fn changes_nothing(core: &Core, first: u64, blocks: u64, change: Change<'_>) -> bool {
    let is_empty = |block| !core.overlay.has(block) && core.tables.sum(block) == Sum::NONE;
    matches!(change, Change::Zeroes { free: true, .. }) && (first..first + blocks).all(is_empty)
}

/// Builds the record of a piece. The caller holds the stripes.
///
/// Errors: [`VolumeError::NoSpace`]; those of reading the rest of a block.
pub(crate) fn stage<'s>(
    core: &'s Core,
    held: Held<'s>,
    offset: u64,
    change: Change<'_>,
) -> Result<Staged<'s>, VolumeError> {
    let (first, within) = (offset / BLOCK, (offset % BLOCK) as usize);
    let blocks = change.bytes().div_ceil(BLOCK) as u32;
    let is_whole = within == 0 && change.bytes().is_multiple_of(BLOCK);
    let is_free = matches!(change, Change::Zeroes { free: true, .. });
    let copied = |bytes: &[u8]| -> Vec<Arc<[u8]>> { bytes.chunks_exact(BLOCK_BYTES).map(Arc::from).collect() };
    let mut stored: Vec<Arc<[u8]>> = match change {
        // Zeros whose space is to be kept are content where space goes with content.
        Change::Zeroes { free: false, .. } if is_whole && core.thin.is_some() => {
            (0..blocks).map(|_| Arc::from([0; BLOCK_BYTES])).collect()
        }
        Change::Zeroes { .. } if is_whole => Vec::new(),
        Change::Bytes(data) if is_whole => copied(data),
        _ => {
            let mut block = [0; BLOCK_BYTES];
            read_held(core, first, &mut block)?;
            let part = &mut block[within..within + change.bytes() as usize];
            match change {
                Change::Bytes(data) => part.copy_from_slice(data),
                Change::Zeroes { .. } => part.fill(0),
            }
            // A block that has nothing else needs no space for it.
            let is_empty = is_free && core.thin.is_some() && block.iter().all(|byte| *byte == 0);
            if is_empty { Vec::new() } else { copied(&block) }
        }
    };
    if !stored.is_empty() {
        thin::admit(core, first, blocks.into())?;
    }
    // The only place where blocks are sealed. From here on there is ciphertext only.
    let seal =
        |(bytes, block): (&mut Arc<[u8]>, u64)| core.seal(block, Arc::get_mut(bytes).expect("nobody has it yet"));
    let marks: Vec<BlockMark> = stored.iter_mut().zip(first..).map(seal).collect();
    let (kind, encoded) =
        if marks.is_empty() { (ZEROES, Vec::new()) } else { encode_marks(&marks, core.is_encrypted()) };
    let head = Head { order: Order::default(), first, blocks, is_free };
    let record = Record { head, kind, marks, encoded, blocks: stored };
    Ok(Staged { record: Arc::new(record), _held: held })
}

/// Records that become durable together: one append for each, one wait for all.
pub(crate) struct Batch<'s> {
    /// The copies that receive them.
    copies: Vec<Arc<VolumeCopy>>,
    failures: Vec<(Arc<VolumeCopy>, VolumeError)>,
    staged: Vec<Staged<'s>>,
    /// What a commit takes of a journal in whole multiples, and what the records take with their frames.
    unit: u64,
    framed: u64,
}

/// A copy on which the records are being appended, and then where they end.
struct Pending {
    copy: Arc<VolumeCopy>,
    appended: mpsc::Receiver<Result<Lsn, VolumeError>>,
    end: Option<Lsn>,
    began: Instant,
}

impl Pending {
    /// Whether the records are durable; `None`: not yet.
    fn look(&mut self) -> Option<Result<(), VolumeError>> {
        if self.end.is_none() {
            match self.appended.try_recv() {
                Ok(Ok(end)) => self.end = Some(end),
                Ok(Err(error)) => return Some(Err(error)),
                Err(mpsc::TryRecvError::Empty) => return None,
                Err(mpsc::TryRecvError::Disconnected) => return Some(Err(VolumeError::Stalled(self.copy.number))),
            }
        }
        if self.end.is_some_and(|end| self.copy.journal.durable() > end) {
            return Some(Ok(()));
        }
        self.copy.journal.check().err().map(|error| Err(error.into()))
    }
}

impl<'s> Batch<'s> {
    /// For the copies that take part now. The caller holds the gate.
    pub(crate) fn new(core: &Core) -> Batch<'s> {
        let members = core.attached();
        let copies: Vec<_> = members.iter().filter_map(|number| core.copy(number)).collect();
        let unit = copies.iter().map(|copy: &Arc<VolumeCopy>| copy.journal_unit).max().unwrap_or(BLOCK);
        Batch { copies, failures: Vec::new(), staged: Vec::new(), unit, framed: 0 }
    }

    /// Takes a record.
    pub(crate) fn append(&mut self, core: &Core, mut staged: Staged<'s>) -> Result<(), VolumeError> {
        core.check()?;
        let record = Arc::get_mut(&mut staged.record).expect("nobody has it yet");
        record.head.order = core.next_order();
        // What counts against the window is what a commit takes of a journal, which has only what was reserved for it.
        let before = self.framed.next_multiple_of(self.unit);
        self.framed += record.len() + FRAMES;
        core.journaled.fetch_add(self.framed.next_multiple_of(self.unit) - before, Ordering::Relaxed);
        self.staged.push(staged);
        Ok(())
    }

    /// Makes the records durable on every copy in sync, and visible.
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
        self.staged.iter().for_each(|staged| apply(core, &staged.record, durable));
        Ok(())
    }

    /// Appends the records to the journals and makes them durable; returns where they are.
    fn commit(&mut self, core: &Core) -> Members {
        let records: Arc<Vec<Arc<Record>>> = Arc::new(self.staged.iter().map(|staged| staged.record.clone()).collect());
        let mut durable = Members::NONE;
        let (may_wait, direct): (Vec<_>, Vec<_>) = std::mem::take(&mut self.copies)
            .into_iter()
            .partition(|copy| core.options.threads == Threads::Background && !copy.commits_at_once());
        let mut pending = Vec::new();
        let (size, mut began) = (self.size(), Instant::now());
        for copy in may_wait {
            // Even to append may wait for the device: with another thread.
            let (target, records) = (copy.clone(), records.clone());
            let work = move || {
                let end = append_all(&target, &records)?;
                target.journal.flush_soon();
                Ok(end)
            };
            match core.start(work) {
                Ok(appended) => pending.push(Pending { copy, appended, end: None, began }),
                Err(error) => self.failures.push((copy, error)),
            }
        }
        for copy in direct {
            let committed = append_all(&copy, &records).and_then(|end| Ok(copy.journal.commit(end)?));
            let ended = Instant::now();
            match committed {
                Ok(()) => {
                    durable = durable.with(copy.number);
                    core.metrics.copy(copy.number).wrote(size, ended - began);
                }
                Err(error) => self.failures.push((copy, error)),
            }
            began = ended;
        }
        Members(durable.0 | self.wait(core, pending).0)
    }

    /// Its records, and the bytes of blocks in them.
    fn size(&self) -> (u64, u64) {
        (self.staged.len() as u64, self.staged.iter().map(|staged| staged.record.content()).sum())
    }

    /// Waits for the copies that make the records durable by themselves, no longer than `copy_timeout`.
    fn wait(&mut self, core: &Core, mut pending: Vec<Pending>) -> Members {
        let (mut durable, deadline) = (Members::NONE, Instant::now() + core.options.copy_timeout);
        let size = self.size();
        while !pending.is_empty() {
            let seen = core.progress.ticks();
            let is_late = Instant::now() >= deadline;
            pending.retain_mut(|waiting| {
                let stalled = is_late.then(|| Err(VolumeError::Stalled(waiting.copy.number)));
                match waiting.look().or(stalled) {
                    Some(Ok(())) => {
                        durable = durable.with(waiting.copy.number);
                        core.metrics.copy(waiting.copy.number).wrote(size, waiting.began.elapsed());
                    }
                    Some(Err(error)) => self.failures.push((waiting.copy.clone(), error)),
                    None => return true,
                }
                false
            });
            if !pending.is_empty() {
                core.progress.wait(seen, deadline.saturating_duration_since(Instant::now()));
            }
        }
        durable
    }

    /// Rule 1 left out: one copy is enough.
    fn commit_one(&mut self, _core: &Core) -> Members {
        let records: Vec<_> = self.staged.iter().map(|staged| staged.record.clone()).collect();
        let Some(copy) = self.copies.first() else { return Members::NONE };
        match append_all(copy, &records).and_then(|end| Ok(copy.journal.commit(end)?)) {
            Ok(()) => Members::first(COPIES_MAX as u8),
            Err(_) => Members::NONE,
        }
    }
}

/// Appends the records to one journal; returns where the last one is.
fn append_all(copy: &VolumeCopy, records: &[Arc<Record>]) -> Result<Lsn, VolumeError> {
    let mut end = copy.journal.first();
    for record in records {
        end = record.append(copy)?;
    }
    Ok(end)
}

/// Makes a durable record visible. Copies that do not have it will have to copy its blocks.
fn apply(core: &Core, record: &Record, durable: Members) {
    let Head { order, first, blocks, is_free } = record.head;
    for index in 0..u64::from(blocks) {
        let block = first + index;
        let (stored, mark) = match record.blocks.get(index as usize) {
            Some(bytes) => {
                let mark = record.marks[index as usize];
                (Stored::Bytes(bytes.clone(), mark.seal), mark)
            }
            None => (Stored::Zeroes { free: is_free }, BlockMark::NONE),
        };
        // First the bytes, then the sum: who finds the new sum and not the bytes decides under the stripe.
        core.overlay.put(block, Fresh { order, stored });
        core.tables.set_mark(block, &mark);
        // Looked at only now: a copy that was being brought up to date and has failed meanwhile either has found the block in the
        // overlay, or is seen here. What its journal has does not count any more.
        let attached = core.attached();
        let lacking = Members::first(core.copies).minus(durable.and(attached));
        lacking.iter().for_each(|number| core.tables.mark_dirty(number, block));
    }
    if let Some(thin) = core.thin.as_ref().filter(|_| record.blocks.is_empty()) {
        thin.discard();
    }
}
