//! [`VolumeCopy`]: one copy of a volume on its shelves.
//!
//! ```text
//!   data shelf      superblock | data-0, data-1 ... | tables-0, tables-1 ...
//!   journal shelf   journal-*, spare-*            of crate journal
//! ```
//!
//! A copy exists when it has a superblock, which is made last and changed as a whole.
//!
//! Invariants: every change of the superblock first reads it from the medium, and is refused if a higher term was promised there or a
//! set that is not the owner's was recorded. A copy writes blocks in place only when told by a checkpoint, a repair or a resync.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, IoRequest, IoSink, Shelf, supervise};
use journal::{Check, Journal, JournalError, Preparation};
use parking_lot::Mutex;

use crate::error::VolumeError;
use crate::geometry::{Geometry, SECTOR, SECTORS_PER_BLOCK};
use crate::members::{Epoch, Set};
use crate::options::{Options, Place, Threads};
use crate::rules::{Rule, obeys};
use crate::space::{self, SpaceRange, ThinCopy, ThinState};
use crate::superblock::{SUPERBLOCK, SUPERBLOCK_BYTES, Superblock};
use crate::tables::{TableBlocks, Tables};

/// The most segments that are reserved: with tiny segments they would be many files.
const SEGMENTS_RESERVED_MAX: usize = 64;

/// The largest record of a journal: a piece of a write, or sectors.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// Blocks of tables that are written by one call: 256 KiB.
const TABLE_RUN_BLOCKS: usize = 64;

/// A superblock that is being made.
const UNFINISHED: &str = "superblock-unfinished";

#[derive(Debug)]
pub(crate) struct VolumeCopy {
    pub(crate) number: u8,
    pub(crate) journal: CopyJournal,
    /// The unit of its commits, bytes.
    pub(crate) journal_unit: u64,
    /// How many segments it should have in reserve, and whether it has got them.
    segments: (usize, AtomicBool),
    /// It has been brought up to date and is still attached, and may join.
    pub(crate) is_ready: AtomicBool,
    /// The block for which its resync waits, and for how many steps.
    unreadable: Mutex<(u64, u32)>,
    place: Place,
    superblock: Mutex<(Arc<dyn Device>, Superblock)>,
    data: Vec<Arc<dyn Device>>,
    tables: Vec<Arc<dyn Device>>,
    geometry: Geometry,
    journal_durability: Durability,
    /// Of a thin volume.
    thin: Option<ThinCopy>,
    /// Dropped last: as long as somebody has it, a call on the copy may be under way.
    presence: Arc<()>,
}

/// The journal of a copy. Whoever drops it last does not wait for its threads, one of which may hang in the device.
#[derive(Debug)]
pub(crate) struct CopyJournal {
    journal: Option<Journal>,
    /// Whether dropping it may wait for threads: not once it was closed.
    has_threads: AtomicBool,
    presence: Arc<()>,
}

impl Deref for CopyJournal {
    type Target = Journal;

    fn deref(&self) -> &Journal {
        self.journal.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for CopyJournal {
    fn drop(&mut self) {
        let Some(journal) = self.journal.take().filter(|_| self.has_threads.load(Ordering::Acquire)) else { return };
        let presence = self.presence.clone();
        let work = move || {
            drop(journal);
            drop(presence);
        };
        if let Err(error) = supervise::thread("volume-detach", work, |why| tracing::error!(why, "detaching")) {
            tracing::error!(%error, "a journal was dropped without a thread");
        }
    }
}

fn data_name(part: usize) -> String {
    format!("data-{part}")
}

fn tables_name(part: usize) -> String {
    format!("tables-{part}")
}

/// Segments that a journal can need at a time beyond the one that it begins with: its window, one that is written meanwhile, and one that
/// is prepared. They are reserved, so that a volume works on a full medium: a quarter more than the window, for images of sectors and for
/// what threads that pass its bound together write.
fn segments_reserved(options: &Options) -> usize {
    // Records and tables of an encrypted volume have 40 bytes more for each block.
    let seals = if options.keys.is_some() { options.window_bytes / 16 } else { 0 };
    let bytes = options.window_bytes + options.window_bytes / 4 + seals;
    let window = bytes.div_ceil(options.segment_bytes.max(1));
    usize::try_from(window).unwrap_or(usize::MAX).saturating_add(2).min(SEGMENTS_RESERVED_MAX)
}

/// The options of a copy's journal.
fn journal_options(options: &Options, identity: u32) -> journal::Options {
    let preparation = match options.threads {
        Threads::Background => Preparation::Background,
        Threads::Callers => Preparation::Inline,
    };
    let segment_bytes = options.segment_bytes;
    let buffer_bytes = (256 << 10_u64).min(segment_bytes / 2).max(8 << 10);
    journal::Options {
        segment_bytes,
        max_record_bytes: RECORD_BYTES_MAX,
        buffer_bytes,
        preparation,
        check: Check::Everything,
        sealer: None,
        identity,
        spare_segments: segments_reserved(options),
    }
}

/// Removes a copy's devices from its shelves, the superblock first.
pub(crate) fn clear(place: &Place) -> Result<(), VolumeError> {
    let remove = |shelf: &dyn Shelf, name: &str| match shelf.remove(name) {
        Err(DeviceError::NotFound { .. }) => Ok(()),
        other => other,
    };
    remove(&*place.data, SUPERBLOCK)?;
    clear_content(place)
}

/// Removes everything but the superblock.
fn clear_content(place: &Place) -> Result<(), VolumeError> {
    for name in place.data.list()? {
        if name.starts_with("data-") || name.starts_with("tables-") || name == UNFINISHED || space::is_headroom(&name) {
            place.data.remove(&name)?;
        }
    }
    clear_journal(place)
}

fn clear_journal(place: &Place) -> Result<(), VolumeError> {
    // The last segment first: what is left after a crash has no gap, and is discarded by its identity.
    for name in place.journal.list()?.iter().rev() {
        if name.starts_with("journal-") || name.starts_with("spare-") {
            place.journal.remove(name)?;
        }
    }
    Ok(())
}

/// Whether the place contains a copy.
pub(crate) fn exists(place: &Place) -> Result<bool, VolumeError> {
    Ok(place.data.list()?.iter().any(|name| name == SUPERBLOCK))
}

/// Reads the superblock of a place.
pub(crate) fn peek(place: &Place) -> Result<Superblock, VolumeError> {
    Superblock::read(&*place.data.open(SUPERBLOCK)?)
}

/// Makes the devices of a part, with tables that say that no block has content.
pub(crate) fn make_part(place: &Place, geometry: &Geometry, part: usize, is_thin: bool) -> Result<(), VolumeError> {
    for name in [data_name(part), tables_name(part)] {
        match place.data.remove(&name) {
            Ok(()) | Err(DeviceError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let this = &geometry.parts[part];
    if is_thin {
        space::make_data(&*place.data, &data_name(part), this.data_bytes())?;
    } else {
        place.data.create_unwritten(&data_name(part), this.data_bytes())?;
    }
    let device = place.data.create_unwritten(&tables_name(part), this.tables_bytes())?;
    let empty = Tables::new(geometry.clone());
    write_tables(&device, &empty, geometry, part)?;
    device.flush()?;
    Ok(())
}

/// Writes all tables of a part in place.
fn write_tables(
    device: &Arc<dyn Device>,
    tables: &Tables,
    geometry: &Geometry,
    part: usize,
) -> Result<(), VolumeError> {
    let this = &geometry.parts[part];
    let firsts: Vec<u64> = (0..this.sectors()).step_by(SECTORS_PER_BLOCK as usize).collect();
    for some in firsts.chunks(TABLE_RUN_BLOCKS) {
        let blocks = tables.encode_blocks(some.iter().map(|at| this.first_sector + at));
        for (first, bytes) in blocks.runs(TABLE_RUN_BLOCKS) {
            device.write((first - this.first_sector) * SECTOR as u64, bytes)?;
        }
    }
    Ok(())
}

/// Makes a new copy with nothing in it. `superblock.journal` is drawn here.
pub(crate) fn format(place: &Place, mut superblock: Superblock, options: &Options) -> Result<(), VolumeError> {
    let geometry = Geometry::new(&superblock.parts, superblock.is_encrypted);
    clear(place)?;
    make_content(place, &geometry, &mut superblock, options)?;
    // Under its name only when it has its content: a crash leaves a copy or none.
    let device = place.data.create(UNFINISHED, SUPERBLOCK_BYTES)?;
    superblock.write(&device)?;
    drop(device);
    Ok(place.data.rename(UNFINISHED, SUPERBLOCK)?)
}

/// As [`format()`], also where a copy lies that is to be replaced: its superblock stays, so that the place counts when the volume is
/// opened after a crash in between.
pub(crate) fn format_again(place: &Place, mut superblock: Superblock, options: &Options) -> Result<(), VolumeError> {
    if !exists(place)? {
        return format(place, superblock, options);
    }
    let geometry = Geometry::new(&superblock.parts, superblock.is_encrypted);
    let device = place.data.open(SUPERBLOCK)?;
    superblock.sequence = Superblock::read(&*device)?.sequence + 1;
    let mut incomplete = superblock.clone();
    incomplete.set.epoch = superblock.set.epoch.unrecognised();
    incomplete.write(&device)?;
    clear_content(place)?;
    make_content(place, &geometry, &mut superblock, options)?;
    superblock.sequence += 1;
    superblock.write(&device)
}

/// Makes everything but the superblock.
fn make_content(
    place: &Place,
    geometry: &Geometry,
    superblock: &mut Superblock,
    options: &Options,
) -> Result<(), VolumeError> {
    let is_thin = superblock.is_thin;
    (0..geometry.parts.len()).try_for_each(|part| make_part(place, geometry, part, is_thin))?;
    if is_thin {
        space::make_headroom(&*place.data, options)?;
    }
    let (journal, _) = Journal::open(place.journal.clone(), journal_options(options, 0))?;
    journal.reserve_segments(segments_reserved(options))?;
    superblock.journal = journal.identity();
    Ok(journal.close()?)
}

/// Promises a term to a new owner; returns the superblock as it is then.
///
/// Errors: [`VolumeError::Fenced`] if a term as high was promised to another.
pub(crate) fn promise(place: &Place, promised: Epoch) -> Result<Superblock, VolumeError> {
    if obeys(Rule::Fencing)
        && let Some(fence) = &place.fence
    {
        fence.raise(promised.fence())?;
    }
    let device = place.data.open(SUPERBLOCK)?;
    let mut superblock = Superblock::read(&*device)?;
    if superblock.promised == promised {
        return Ok(superblock);
    }
    if superblock.promised.number >= promised.number && obeys(Rule::Fencing) {
        return Err(VolumeError::Fenced { found: superblock.promised.number, ours: promised.number });
    }
    superblock.promised = promised;
    superblock.sequence += 1;
    superblock.write(&device)?;
    Ok(superblock)
}

/// The durability of the medium of a journal that is open: that of its first segment.
fn durability_of_journal(shelf: &dyn Shelf) -> Result<Durability, VolumeError> {
    let names = shelf.list()?;
    let segment = names.iter().find(|name| name.starts_with("journal-"));
    segment.map_or(Ok(Durability::None), |name| Ok(shelf.open_read_only(name)?.durability()))
}

impl VolumeCopy {
    /// Opens a copy whose superblock was read before.
    pub(crate) fn open(place: Place, found: &Superblock, options: &Options) -> Result<VolumeCopy, VolumeError> {
        let (journal, _) = Journal::open(place.journal.clone(), journal_options(options, found.journal))?;
        if journal.identity() != found.journal {
            let why = "the journal is not that of the copy: replace the copy";
            return Err(VolumeError::Format { name: "journal".to_owned(), why });
        }
        VolumeCopy::with_journal(place, found, journal, options)
    }

    /// Opens a copy that is to be brought up to date: with a new journal, marked as syncing.
    pub(crate) fn open_syncing(place: Place, found: &Superblock, options: &Options) -> Result<VolumeCopy, VolumeError> {
        let device = place.data.open(SUPERBLOCK)?;
        let mut superblock = found.clone();
        superblock.is_syncing = true;
        // Its blocks are in the dirty map by now, and it receives none before it has another one.
        superblock.journal = 0;
        superblock.sequence += 1;
        superblock.write(&device)?;
        // Nothing is given up: on a full medium others would take it.
        journal::recycle(&*place.journal)?;
        let (journal, _) = Journal::open(place.journal.clone(), journal_options(options, 0))?;
        superblock.journal = journal.identity();
        superblock.sequence += 1;
        superblock.write(&device)?;
        VolumeCopy::with_journal(place, &superblock, journal, options)
    }

    fn with_journal(
        place: Place,
        found: &Superblock,
        journal: Journal,
        options: &Options,
    ) -> Result<VolumeCopy, VolumeError> {
        let has_threads = AtomicBool::new(options.threads == Threads::Background);
        let geometry = Geometry::new(&found.parts, found.is_encrypted);
        let (mut data, mut tables) = (Vec::new(), Vec::new());
        for (part, this) in geometry.parts.iter().enumerate() {
            data.push(sized(&*place.data, &data_name(part), this.data_bytes())?);
            tables.push(sized(&*place.data, &tables_name(part), this.tables_bytes())?);
        }
        let thin = found.is_thin.then(|| ThinCopy::open(&place.data, geometry.blocks(), options)).transpose()?;
        let superblock = Mutex::new((place.data.open(SUPERBLOCK)?, found.clone()));
        let is_ready = AtomicBool::new(false);
        let (presence, journal_unit) = (Arc::new(()), journal.unit_bytes().into());
        let journal = CopyJournal { journal: Some(journal), has_threads, presence: presence.clone() };
        let journal_durability = durability_of_journal(&*place.journal)?;
        let copy = VolumeCopy {
            number: found.copy,
            segments: (segments_reserved(options), AtomicBool::new(false)),
            journal,
            journal_unit,
            is_ready,
            unreadable: Mutex::new((0, 0)),
            place,
            superblock,
            data,
            tables,
            geometry,
            journal_durability,
            thin,
            presence,
        };
        // A larger window than before needs more.
        if let Err(error) = copy.reserve_segments() {
            tracing::warn!(copy = found.copy, %error, "no space can be reserved for the journal of a copy");
        }
        Ok(copy)
    }

    /// Reserves the segments of its journal, unless it has them. It is tried again after each checkpoint, and where a thin copy is looked
    /// at.
    pub(crate) fn reserve_segments(&self) -> Result<(), JournalError> {
        let (count, is_reserved) = &self.segments;
        if !is_reserved.load(Ordering::Relaxed) {
            self.journal.reserve_segments(*count)?;
            is_reserved.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The same, where it can be done later too.
    pub(crate) fn keep_segments(&self) {
        match self.reserve_segments() {
            // Opening has reported that they are missing; what there is serves.
            Ok(()) | Err(JournalError::Full { .. }) => {}
            Err(error) => {
                tracing::warn!(copy = self.number, %error, "a segment of the journal of a copy cannot be reserved")
            }
        }
    }

    /// What is alive as long as the copy is.
    pub(crate) fn presence(&self) -> &Arc<()> {
        &self.presence
    }

    /// Whether nothing keeps an older owner from writing to it.
    pub(crate) fn is_unfenced(&self) -> bool {
        self.place.is_unfenced
    }

    /// Records a set, durably; the copy counts as up to date then.
    ///
    /// Errors: [`VolumeError::Fenced`] if the copy belongs to a later owner.
    pub(crate) fn record(&self, set: &Set) -> Result<(), VolumeError> {
        let mut guard = self.superblock.lock();
        let (device, known) = &mut *guard;
        let mut current = Superblock::read(&**device)?;
        let is_ours = current.promised == known.promised && current.set.epoch.number < set.epoch.number;
        if !is_ours && obeys(Rule::Fencing) {
            let found = current.promised.number.max(current.set.epoch.number);
            return Err(VolumeError::Fenced { found, ours: set.epoch.number });
        }
        current.set = *set;
        current.is_syncing = false;
        current.sequence += 1;
        current.write(device)?;
        *known = current;
        Ok(())
    }

    /// Writes damaged slots of its superblock anew, unless it belongs to another owner; returns how many there were.
    pub(crate) fn mend_superblock(&self) -> Result<u64, VolumeError> {
        let guard = self.superblock.lock();
        Superblock::mend(&guard.0, guard.1.promised)
    }

    /// Reads stored blocks, as they are in place.
    pub(crate) fn read(&self, block: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let part = self.geometry.part_of(block);
        self.data[part].read((block - self.geometry.parts[part].first_block) * BLOCK_BYTES as u64, buffer)
    }

    /// Whether the device of a part completes requests by itself.
    pub(crate) fn waits_by_itself(&self, part: usize) -> bool {
        self.data[part].waits_by_itself()
    }

    /// Hands reads of stored blocks of one part to its device. Their offsets are those of the volume; in the completion they are those of
    /// the device.
    pub(crate) fn submit_reads(&self, part: usize, reads: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let begin = self.geometry.parts[part].first_block * BLOCK_BYTES as u64;
        reads.iter_mut().for_each(|read| read.offset -= begin);
        self.data[part].submit(reads, sink);
    }

    /// Counts a step of its resync in which no source could read a block; returns how many there were for this block in a row.
    pub(crate) fn unreadable_again(&self, block: u64) -> u32 {
        let mut last = self.unreadable.lock();
        *last = (block, if last.0 == block { last.1 + 1 } else { 1 });
        last.1
    }

    /// Writes stored blocks in place; they are of one part.
    pub(crate) fn write(&self, block: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        let (data, at) = self.place_of(block);
        match &self.thin {
            Some(thin) => thin.write(&**data, (block, at), bytes),
            None => data.write(at, bytes),
        }
    }

    /// The device that has a block, and where.
    fn place_of(&self, block: u64) -> (&Arc<dyn Device>, u64) {
        let part = self.geometry.part_of(block);
        (&self.data[part], (block - self.geometry.parts[part].first_block) * BLOCK_BYTES as u64)
    }

    /// Whether its blocks have space only where they have content.
    pub(crate) fn is_thin(&self) -> bool {
        self.thin.is_some()
    }

    /// Of a thin copy, takes space for blocks of one part that have none; the medium keeps what is left to others. Returns whether there
    /// was enough.
    pub(crate) fn reserve(&self, block: u64, blocks: u64) -> Result<bool, DeviceError> {
        let (data, range) = self.range_of(block, blocks);
        let Some(thin) = &self.thin else { return Ok(true) };
        if !thin.has_space(&**data, range)? && !thin.has_free(range.2)? {
            return Ok(false);
        }
        thin.reserve(&**data, range, false).map(|()| true)
    }

    /// Of a thin copy, takes space for blocks of one part that a checkpoint is about to write, if need be that of its headroom.
    pub(crate) fn reserve_acknowledged(&self, block: u64, blocks: u64) -> Result<(), DeviceError> {
        let (data, range) = self.range_of(block, blocks);
        self.thin.as_ref().map_or(Ok(()), |thin| thin.reserve(&**data, range, true))
    }

    fn range_of(&self, block: u64, blocks: u64) -> (&Arc<dyn Device>, SpaceRange) {
        let (data, at) = self.place_of(block);
        (data, (block, at, blocks * BLOCK_BYTES as u64))
    }

    /// Of a thin copy, gives the space of blocks of one part back.
    pub(crate) fn discard(&self, block: u64, blocks: u64) -> Result<(), DeviceError> {
        let (data, range) = self.range_of(block, blocks);
        self.thin.as_ref().map_or(Ok(()), |thin| thin.discard(&**data, range))
    }

    /// Of a thin copy, notes in the state of its volume whether new data finds space on its medium.
    pub(crate) fn look(&self) -> Result<(), DeviceError> {
        let Some(thin) = &self.thin else { return Ok(()) };
        // What a checkpoint gives up is not for the journal.
        if thin.has_headroom() {
            self.keep_segments();
        }
        thin.look(&self.data)
    }

    /// Of a thin copy, where it notes that it is short.
    pub(crate) fn attached(&self, state: &Arc<ThinState>) {
        if let Some(thin) = &self.thin {
            thin.attached(state, self.number);
        }
    }

    /// Whether it lacks the headroom that a member of a thin volume has.
    pub(crate) fn lacks_headroom(&self) -> bool {
        self.thin.as_ref().is_some_and(|thin| !thin.has_headroom())
    }

    /// Of a thin copy, the bytes that its blocks take, and free bytes of its medium, as found last.
    pub(crate) fn space(&self) -> Option<(u64, Option<u64>)> {
        self.thin.as_ref().map(ThinCopy::found)
    }

    /// Writes blocks of tables in place.
    pub(crate) fn write_tables(&self, blocks: &TableBlocks) -> Result<(), DeviceError> {
        for (mut first, mut bytes) in blocks.runs(TABLE_RUN_BLOCKS) {
            while !bytes.is_empty() {
                let part = self.geometry.part_of_sector(first);
                let at = first - self.geometry.parts[part].first_sector;
                // The tables of the next part are another device.
                let left = (self.geometry.parts[part].sectors() - at) * SECTOR as u64;
                let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                self.tables[part].write(at * SECTOR as u64, now)?;
                first += (now.len() / SECTOR) as u64;
                bytes = later;
            }
        }
        Ok(())
    }

    /// The first sectors of the blocks of all tables.
    pub(crate) fn table_blocks(&self) -> impl Iterator<Item = u64> {
        (0..self.geometry.sectors()).step_by(SECTORS_PER_BLOCK as usize)
    }

    /// Reads the block of tables that begins with a sector.
    pub(crate) fn read_table_block(&self, first: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let part = self.geometry.part_of_sector(first);
        self.tables[part].read((first - self.geometry.parts[part].first_sector) * SECTOR as u64, buffer)
    }

    /// Calls `visit` with each stored sector and its number. A block that cannot be read is passed over: its sectors stay unknown.
    pub(crate) fn read_tables(&self, visit: &mut dyn FnMut(u64, &[u8])) {
        let mut buffer = AlignedBuffer::zeroed(BLOCK_BYTES);
        for first in self.table_blocks() {
            if self.read_table_block(first, &mut buffer).is_ok() {
                (first..).zip(buffer.chunks_exact(SECTOR)).for_each(|(number, sector)| visit(number, sector));
            }
        }
    }

    /// Makes everything written in place persistent.
    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        self.data.iter().chain(&self.tables).try_for_each(|device| device.flush())
    }

    /// Whether the blocks can be read without a system call that waits.
    pub(crate) fn is_inline(&self) -> bool {
        self.data.iter().all(|device| device.is_inline() || device.durability() == Durability::None)
    }

    /// Whether its journal is written without a wait that could last: a caller commits by itself, and nobody else flushes it.
    pub(crate) fn commits_at_once(&self) -> bool {
        self.journal.is_inline() || (self.is_inline() && self.journal_durability == Durability::None)
    }

    /// The durability of a write on this copy: it is first in the journal, then in place, so the weaker of both media counts.
    pub(crate) fn durability(&self) -> Durability {
        self.data[0].durability().max(self.journal_durability)
    }

    /// Ends the use of the shelves.
    pub(crate) fn close(&self) -> Result<(), JournalError> {
        let closed = self.journal.close();
        self.journal.has_threads.store(false, Ordering::Release);
        closed
    }
}

/// Opens a device that must have a size.
fn sized(shelf: &dyn Shelf, name: &str, bytes: u64) -> Result<Arc<dyn Device>, VolumeError> {
    let device = shelf.open(name)?;
    if device.len() != bytes {
        return Err(VolumeError::Format { name: name.to_owned(), why: "it has another size than the superblock says" });
    }
    Ok(device)
}
