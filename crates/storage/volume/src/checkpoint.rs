//! Checkpoints: blocks and tables go to their places, and the journals become short again.
//!
//! ```text
//!   gate, exclusively    the end of each journal, the blocks of the overlay, the sectors of tables that changed    (a moment)
//!   each copy            images of the sectors into the journal, durable
//!                        blocks, sectors in place; flush
//!                        truncate the journal to the end that was noted
//!   overlay              the blocks leave it, except those written again meanwhile
//! ```
//!
//! On a thin copy blocks that were discarded give their space back first: see `thin`.
//!
//! Copies that are being brought up to date come first: a cleared bit of a dirty map becomes persistent on the copies in sync only
//! after the copied blocks are persistent.
//!
//! Invariants: a journal is truncated only when everything before the cut is persistent in place on the same copy. Blocks leave the
//! overlay when every copy that works has them in place; a copy that is in sync and does not work has them in its journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use device::{AlignedBuffer, BLOCK_BYTES, DeviceError};
use journal::Lsn;

use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::geometry::Geometry;
use crate::members::Members;
use crate::options::Threads;
use crate::overlay::{Fresh, Stored};
use crate::record::{SECTORS, encode_sectors};
use crate::tables::TableBlocks;
use crate::thin;

/// How long a change waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until when for copies, while too few work.
    pub(crate) until: Instant,
    /// Whether a checkpoint that lasts is waited for, however long. Otherwise the change is tried again by who may wait.
    pub(crate) is_for_room: bool,
}

/// How often a change that waits for room looks by itself.
const ROOM_LOOK: Duration = Duration::from_millis(100);

/// Sectors in one record: 64 KiB.
const SECTORS_PER_RECORD: usize = 128;

/// Blocks that are written in place by one call.
const RUN_BLOCKS: usize = 256;

/// What a checkpoint writes.
#[derive(Debug)]
struct Plan {
    epoch: u64,
    geometry: Geometry,
    blocks: Vec<(u64, Fresh)>,
    changed: Vec<u64>,
    /// What its records take of the journals until these are truncated.
    journaled: u64,
    /// Of a thin volume: how many discards it has.
    discarded: u64,
    /// The blocks of tables that have the sectors that changed.
    tables: TableBlocks,
}

/// Whether the journals have grown so far that a checkpoint should begin, by half of the window; or a thin volume needs what was
/// discarded.
pub(crate) fn is_due(core: &Core) -> bool {
    used(core) * 2 >= core.options.window_bytes || thin::is_reclaiming(core)
}

fn used(core: &Core) -> u64 {
    core.journaled.load(Ordering::Relaxed).max(core.overlay.len() * BLOCK_BYTES as u64)
}

/// Whether the journals and the overlay have no room for a piece more.
pub(crate) fn is_window_full(core: &Core) -> bool {
    used(core) >= core.options.window_bytes
}

/// Waits until the journals and the overlay have room for a piece; without threads, makes it.
///
/// A checkpoint ends in its own time, or excludes the copies that do not: a medium that is slow, or much that waits before, makes a change
/// late and is no reason to fail it. What has no end of its own are too few copies, and checkpoints that cannot begin.
///
/// Errors: those of a checkpoint; [`VolumeError::BelowMinimum`] after the time that `patience` has for these.
pub(crate) fn make_room(core: &Core, patience: Patience) -> Result<(), VolumeError> {
    if core.options.threads == Threads::Callers {
        thin::look_if_short(core);
        if is_due(core) {
            checkpoint(core)?;
        }
        return Ok(());
    }
    while is_window_full(core) {
        core.check()?;
        let seen = core.progress.ticks();
        let left = patience.until.saturating_duration_since(Instant::now());
        if !is_window_full(core) {
            break;
        }
        let is_over = left.is_zero();
        if is_over && (!patience.is_for_room || core.is_frozen() || is_stuck(core)) {
            return Err(core.below_minimum());
        }
        core.progress.wait(seen, if is_over { ROOM_LOOK } else { left.min(ROOM_LOOK) });
    }
    Ok(())
}

/// Whether checkpoints have been tried for longer than one takes, for syncing copies and then for the others, and none has ended well.
fn is_stuck(core: &Core) -> bool {
    let longest = core.options.checkpoint_timeout.saturating_mul(2);
    core.unsaved_since.lock().is_some_and(|since| since.elapsed() > longest)
}

/// Makes a checkpoint.
///
/// Errors: [`VolumeError::BelowMinimum`], [`VolumeError::Fenced`]; what could not be written stays in the journals.
pub(crate) fn checkpoint(core: &Core) -> Result<(), VolumeError> {
    let _one = core.checkpointing.lock();
    run(core, Members::NONE)
}

/// As [`checkpoint`]; the copies of `complete` receive all of the tables. The caller holds the checkpoint's lock.
pub(crate) fn run(core: &Core, complete: Members) -> Result<(), VolumeError> {
    core.check()?;
    if core.is_unequal() {
        return Err(core.below_minimum());
    }
    core.unsaved_since.lock().get_or_insert_with(Instant::now);
    let (plan, copies) = cut(core);
    let plan = Arc::new(plan);
    let (syncing, working): (Vec<_>, Vec<_>) =
        copies.into_iter().partition(|(copy, _)| core.syncing().has(copy.number));
    let mut saved = Members::NONE;
    let mut failures = Vec::new();
    // Without a thread nothing has failed; the saves that have begun are waited for, so that none is beside those of the next checkpoint.
    let mut refused = None;
    for copies in [syncing, working] {
        let mut started = Vec::new();
        for (copy, end) in copies {
            if refused.is_some() {
                break;
            }
            let (number, plan) = (copy.number, plan.clone());
            if complete.has(number)
                && let Err(why) = write_all_tables(core, &copy)
            {
                failures.push((copy, why));
                continue;
            }
            let work = copy.clone();
            match core.start(move || save(&work, &plan, end)) {
                Ok(reported) => started.push((copy, reported)),
                Err(why) => refused = Some(why),
            }
        }
        // One for all: they work at the same time.
        let deadline = Instant::now() + core.options.checkpoint_timeout;
        for (copy, reported) in started {
            let number = copy.number;
            match wait_saved(core, (number, deadline), &reported) {
                Ok(()) => saved = saved.with(number),
                Err(why) => failures.push((copy, why)),
            }
        }
    }
    let failed = failures.iter().map(|(copy, why)| core.fail(copy, why)).fold(Ok(()), Result::and);
    let needed = core.working();
    if refused.is_some() || needed.is_empty() || !needed.minus(saved).is_empty() {
        core.tables.restore_changed(&plan.changed);
        core.journaled.fetch_max(core.options.window_bytes / 2, Ordering::Relaxed);
        if core.is_frozen() {
            // None is tried until there are enough copies again.
            *core.unsaved_since.lock() = None;
        }
        return failed.and(Err(refused.unwrap_or_else(|| core.below_minimum())));
    }
    // Before the blocks leave the overlay: see there.
    thin::look(core);
    core.overlay.remove(&plan.blocks);
    core.journaled.fetch_sub(plan.journaled, Ordering::Relaxed);
    if let Some(thin) = &core.thin {
        thin.reclaim(plan.discarded);
    }
    core.metrics.checkpoints.fetch_add(1, Ordering::Relaxed);
    *core.unsaved_since.lock() = None;
    core.progress.tick();
    failed
}

/// Waits for the save of a copy. On media of a thin volume that fill up meanwhile new data ends at once, not when the save does.
fn wait_saved(
    core: &Core,
    (number, deadline): (u8, Instant),
    reported: &mpsc::Receiver<Result<(), VolumeError>>,
) -> Result<(), VolumeError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match reported.recv_timeout(left.min(if core.thin.is_some() { thin::LOOK } else { left })) {
            Ok(saved) => return saved,
            Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => thin::look(core),
            Err(_) => return Err(VolumeError::Stalled(number)),
        }
    }
}

/// Writes all tables of a copy in place, some blocks at a time: each in the time that a checkpoint may take.
fn write_all_tables(core: &Core, copy: &Arc<VolumeCopy>) -> Result<(), VolumeError> {
    let mut firsts = copy.table_blocks().peekable();
    while firsts.peek().is_some() {
        let (target, blocks) = (copy.clone(), core.tables.encode_blocks(firsts.by_ref().take(RUN_BLOCKS)));
        let work = move || Ok(target.write_tables(&blocks)?);
        core.in_time(copy.number, core.options.checkpoint_timeout, work)?;
    }
    Ok(())
}

/// What is to be written, and how far each journal will be truncated.
fn cut(core: &Core) -> (Plan, Vec<(Arc<VolumeCopy>, Lsn)>) {
    let _gate = core.gate.write();
    let members = core.attached();
    let copies = members.iter().filter_map(|number| core.copy(number));
    let copies = copies.map(|copy| (copy.clone(), copy.journal.appended())).collect();
    let changed = core.tables.take_changed();
    let tables = core.tables.encode_blocks(changed.iter().copied());
    let blocks = core.overlay.snapshot();
    // It counts until the journals are truncated: they have no more than what was reserved.
    let journaled = core.journaled.load(Ordering::Relaxed);
    let geometry = core.tables.geometry.clone();
    let discarded = core.thin.as_ref().map_or(0, |thin| thin.discarded());
    (Plan { epoch: core.promised.number, geometry, blocks, changed, journaled, discarded, tables }, copies)
}

/// Writes the plan to one copy.
fn save(copy: &VolumeCopy, plan: &Plan, end: Lsn) -> Result<(), VolumeError> {
    for sectors in plan.changed.chunks(SECTORS_PER_RECORD) {
        let head = encode_sectors(plan.epoch, sectors.len() as u32);
        let images = sectors.iter().map(|sector| plan.tables.sector(*sector));
        copy.journal.append(SECTORS, &std::iter::once(&head[..]).chain(images).collect::<Vec<_>>())?;
    }
    // Also what was appended since the cut; its blocks are written in place by a later checkpoint, or by this one.
    copy.journal.commit(copy.journal.appended())?;
    if copy.is_thin() {
        // First, so that others find the space. The discards are in this journal, which is truncated after the flush.
        each_run(plan, |run| match &run[0].1.stored {
            Stored::Zeroes { .. } => copy.discard(run[0].0, run.len() as u64),
            Stored::Bytes(..) => Ok(()),
        })?;
        // All of it before the first byte: a medium that has not enough is found before others write to it for as long as that takes.
        each_run(plan, |run| match &run[0].1.stored {
            Stored::Zeroes { .. } => Ok(()),
            Stored::Bytes(..) => copy.reserve_acknowledged(run[0].0, run.len() as u64),
        })?;
    }
    let mut bytes = AlignedBuffer::new();
    each_run(plan, |run| {
        bytes.clear();
        for (_, fresh) in run {
            match &fresh.stored {
                Stored::Bytes(block, _) => bytes.extend_from_slice(block),
                // The sum says that they are zeros. Unless the copy is thin their space stays theirs, also where a client has given it
                // up: on a full medium a later checkpoint could not write them, on any copy.
                Stored::Zeroes { .. } => return Ok(()),
            }
        }
        copy.write(run[0].0, &bytes)
    })?;
    copy.write_tables(&plan.tables)?;
    copy.flush()?;
    copy.journal.truncate(end)?;
    copy.keep_segments();
    Ok(())
}

/// Calls `visit` with the blocks, neighbours together.
fn each_run<V>(plan: &Plan, mut visit: V) -> Result<(), DeviceError>
where
    V: FnMut(&[(u64, Fresh)]) -> Result<(), DeviceError>,
{
    let mut rest = &plan.blocks[..];
    while !rest.is_empty() {
        let (run, later) = rest.split_at(run_of(plan, rest));
        visit(run)?;
        rest = later;
    }
    Ok(())
}

/// How many of the first blocks are neighbours in one part, with the same kind of content.
fn run_of(plan: &Plan, blocks: &[(u64, Fresh)]) -> usize {
    let kind = |fresh: &Fresh| match fresh.stored {
        Stored::Bytes(..) => 0,
        Stored::Zeroes { .. } => 1,
    };
    let (first, fresh) = &blocks[0];
    let part = plan.geometry.part_of(*first);
    let continues = |(index, (block, other)): &(usize, &(u64, Fresh))| {
        *block == first + *index as u64 && kind(other) == kind(fresh) && plan.geometry.part_of(*block) == part
    };
    blocks.iter().enumerate().take(RUN_BLOCKS).take_while(continues).count()
}
