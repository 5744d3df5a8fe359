//! Backups of a store that is being used, and restoring them, up to a moment if requested.
//!
//! ```text
//!   checkpoints          ---- X1 ------------ X2 ------------- X3 ----->        continue, except at the end
//!   first pass      all pages in use, in order                             meanwhile the pages written in place are recorded
//!   more passes     the recorded pages                                     fewer each time
//!   the end         between two checkpoints: the remaining pages, map,          the copy is the state at X3
//!                   superblock
//!   journal         from X3 to what is durable by then, and the spill chunks of commit records in it
//!   check           the copy is read again: every page and extent, each tree
//!   manifest        last: without it there is no backup
//! ```
//!
//! A page that is copied while it is written in place may be torn in the copy. It was recorded before its first byte
//! was written, and is copied again. Between two checkpoints no page of the state is written, so the last pass copies
//! whole pages. That pass is short: it copies at most the writes of one checkpoint.
//!
//! A backup is a shelf with data devices and journal segments like those of a store. It has no write image journal,
//! because its superblock is marked as closed, so its pages are whole. So [`crate::verify`] can check it in place.
//!
//! *Restoring* copies both to empty shelves. *Going back to a moment* takes the journal, from the backup or kept
//! ([`Retention`]), up to a position: opening redoes it. It is as exact as group commits are: of the records that were
//! made persistent together all are kept or none.
//!
//! There are no incremental backups. Each backup is complete; devices are copied at full length, with unused pages as
//! zeros.

pub(crate) mod manifest;
pub(crate) mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::{AlignedBuffer, Device, DeviceError, Shelf};
use journal::{Journal, Lsn, View};

use crate::StoreError;
use crate::checkpoint::runner::BetweenCheckpoints;
use crate::page::PageId;
use crate::retention::Retention;
use crate::space::bitmap::Bitmap;
use crate::space::devices::{DataDevices, device_name};
use crate::space::geometry::Geometry;
use crate::space::map;
use crate::space::superblock::{self, Superblock};
pub use manifest::Manifest;

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// How the name of a segment begins while it is copied.
const BEING_COPIED: &str = "copying-";

/// The largest number of passes over pages written meanwhile, before the last one.
const PASSES: usize = 4;

/// With at most so many pages, another pass is not worthwhile.
const FEW: usize = 256;

/// The progress of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copying {
    /// Pages copied, including repeated copies.
    pub done: u64,
    /// Pages in use when it began, and those written since.
    pub total: u64,
}

/// Creates a device; the caller writes all its content before it is flushed. Errors: [`StoreError::Full`],
/// [`StoreError::Device`].
pub(crate) fn create(shelf: &dyn Shelf, name: &str, bytes: u64) -> Result<Arc<dyn Device>, StoreError> {
    shelf.create_unwritten(name, bytes).map_err(|error| match error {
        DeviceError::Full { .. } => StoreError::Full(error.to_string().into()),
        other => other.into(),
    })
}

/// Called with the progress of a backup; can end it.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Copying) -> ControlFlow<()>;

/// The names of the devices of a store on a shelf.
fn ours(shelf: &dyn Shelf) -> Result<Vec<String>, StoreError> {
    let mut names = shelf.list()?;
    names.retain(|name| is_ours(name));
    Ok(names)
}

fn is_ours(name: &str) -> bool {
    ["pages-", "journal-", "images-", "backup"].iter().any(|start| name.starts_with(start))
}

/// Errors: [`StoreError::Refused`] if a shelf that must be empty contains a part of a store.
pub(crate) fn check_empty(shelf: &dyn Shelf) -> Result<(), StoreError> {
    match ours(shelf)?.first() {
        None => Ok(()),
        Some(name) => Err(StoreError::Refused(format!("{name} exists already: choose an empty place").into())),
    }
}

/// Checks a copy against its future manifest.
pub(crate) type CheckCopy<'a> = &'a dyn Fn(&Arc<dyn Shelf>, &Manifest) -> Result<(), StoreError>;

/// The parts of a store that a backup needs.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The data devices.
    pub(crate) data_devices: &'a DataDevices,
    /// The journal.
    pub(crate) journal: &'a Journal,
    /// The shelf of the journal.
    pub(crate) segments: &'a Arc<dyn Shelf>,
    /// Keeps the journal while the backup runs.
    pub(crate) retention: &'a Retention,
    /// The data devices contain nothing of records from there on; called between two checkpoints.
    pub(crate) consistent_lsn: &'a dyn Fn() -> Lsn,
    /// Checks that the copy is whole, and matches the manifest; called before the manifest is written.
    pub(crate) check: CheckCopy<'a>,
}

/// Ends the recording of written pages when dropped.
struct Watch<'a>(&'a DataDevices);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.unwatch();
    }
}

/// Writes a backup to an empty shelf. `between_checkpoints` runs its argument while no checkpoint runs and none begins.
///
/// Errors: [`StoreError::Refused`] if the shelf is not empty, another backup runs, or `progress` ended it;
/// [`StoreError::Corrupt`] if the copied data is damaged: such a backup could not be restored; [`StoreError::Full`] on
/// the shelf, [`StoreError::Poisoned`], [`StoreError::Device`]. After an error the shelf is empty again, unless it
/// refuses the removal; there is no manifest in any case.
pub(crate) fn backup(
    source: Source<'_>,
    between_checkpoints: &dyn Fn(BetweenCheckpoints<'_>) -> Result<(), StoreError>,
    to: &Arc<dyn Shelf>,
    progress: Tell<'_>,
) -> Result<Manifest, StoreError> {
    check_empty(&**to)?;
    if !source.data_devices.watch() {
        return Err(StoreError::Refused("another backup is being made".into()));
    }
    let _watch = Watch(source.data_devices);
    let made = make(source, between_checkpoints, to, progress);
    if made.is_err() {
        // Emptied, so that the backup can be retried there. Errors of the removal are ignored: the first error is
        // returned.
        let is_made = |name: &&String| is_ours(name) || name.starts_with(BEING_COPIED);
        let _ = to.list().map(|names| names.iter().filter(is_made).for_each(|name| drop(to.remove(name))));
    }
    made
}

fn make(
    source: Source<'_>,
    between_checkpoints: &dyn Fn(BetweenCheckpoints<'_>) -> Result<(), StoreError>,
    to: &Arc<dyn Shelf>,
    progress: Tell<'_>,
) -> Result<Manifest, StoreError> {
    let mut copy = Copy::new(source.data_devices, to.clone());
    let mut hold = None;
    between_checkpoints(&mut |writer| {
        // Holds the position that this checkpoint left; later checkpoints leave later positions.
        hold = Some(source.retention.hold(source.retention.before(writer.superblock().redo_lsn)));
        copy.read_maps(writer.superblock())
    })?;
    let hold = hold.ok_or_else(no_moment)?;
    let mut told = |copying: Copying| match hold.is_given_up() {
        true => ControlFlow::Break(()),
        false => progress(copying),
    };
    let made = copy_all(&source, between_checkpoints, copy, &mut told);
    if hold.is_given_up() {
        return Err(StoreError::Refused("the backup was given up: the journal has no room for what it keeps".into()));
    }
    let manifest = made?;
    drop(hold);
    (source.check)(to, &manifest)?;
    manifest.write(&**to)?;
    Ok(manifest)
}

fn no_moment() -> StoreError {
    StoreError::Refused("there was no moment between two checkpoints".into())
}

/// Copies pages and journal, which is held.
fn copy_all(
    source: &Source<'_>,
    between_checkpoints: &dyn Fn(BetweenCheckpoints<'_>) -> Result<(), StoreError>,
    mut copy: Copy<'_>,
    progress: Tell<'_>,
) -> Result<Manifest, StoreError> {
    copy.first_pass(progress)?;
    for _ in 0..PASSES {
        let written = source.data_devices.take_watched();
        if written.len() < FEW {
            source.data_devices.note_watched(written);
            break;
        }
        copy.again(&written, progress)?;
    }
    let mut superblock = None;
    between_checkpoints(&mut |writer| {
        let redo_lsn = writer.superblock().redo_lsn;
        // The hold also keeps the spill chunks, even of transactions that commit later.
        superblock = Some((*writer.superblock(), source.retention.needed(redo_lsn), (source.consistent_lsn)()));
        copy.last_pass(writer.superblock(), &source.data_devices.take_watched(), progress)
    })?;
    let (superblock, from, consistent_lsn) = superblock.ok_or_else(no_moment)?;
    copy.flush()?;
    let view = View::open(source.segments.clone())?;
    let copied = journal::copy(&view, &*copy.to, from, source.journal.durable())?;
    let Superblock { identity, journal, redo_lsn, micros, .. } = superblock;
    Ok(Manifest { identity, journal, redo_lsn, end: copied.end, micros, from, consistent_lsn })
}

/// The state of a copy to another shelf.
struct Copy<'a> {
    data_devices: &'a DataDevices,
    geometry: Geometry,
    to: Arc<dyn Shelf>,
    targets: Vec<Arc<dyn Device>>,
    used: Vec<Bitmap>,
    copied: Vec<Bitmap>,
    told: Copying,
}

impl<'a> Copy<'a> {
    fn new(data_devices: &'a DataDevices, to: Arc<dyn Shelf>) -> Copy<'a> {
        let (targets, used, copied) = (Vec::new(), Vec::new(), Vec::new());
        Copy {
            data_devices,
            geometry: data_devices.geometry(),
            to,
            targets,
            used,
            copied,
            told: Copying { done: 0, total: 0 },
        }
    }

    /// Reads which pages the state on the data devices uses; called between checkpoints.
    fn read_maps(&mut self, superblock: &Superblock) -> Result<(), StoreError> {
        self.used.clear();
        let mut page = AlignedBuffer::zeroed(self.geometry.page_bytes as usize);
        for device in 0..superblock.devices {
            let mut bitmap = Bitmap::new(self.geometry.device_pages);
            for nth in 0..self.geometry.maps() {
                let id = self.geometry.map_page(device, nth);
                self.data_devices.read(id, &mut page)?;
                if !map::decode(self.geometry, device, nth, &page, &mut bitmap) {
                    let place = crate::cache::BackingStore::place(self.data_devices, id);
                    return Err(StoreError::Corrupt(format!("{place} is not a page of the allocation map").into()));
                }
            }
            self.used.push(bitmap);
        }
        self.told.total = self.used.iter().map(|map| u64::from(map.used())).sum();
        Ok(())
    }

    fn first_pass(&mut self, progress: Tell<'_>) -> Result<(), StoreError> {
        let all: Vec<PageId> = self.missing();
        self.copy(&all, progress)
    }

    /// The pages in use that have not been copied.
    fn missing(&self) -> Vec<PageId> {
        let mut pages = Vec::new();
        for (device, used) in (0..).zip(&self.used) {
            let copied = self.copied.get(device as usize);
            let is_missing = |place: &u32| used.is_used(*place, 1) && copied.is_none_or(|map| map.is_free(*place, 1));
            pages.extend((0..used.pages()).filter(is_missing).map(|place| self.geometry.page(device, place)));
        }
        pages
    }

    fn again(&mut self, written: &BTreeSet<PageId>, progress: Tell<'_>) -> Result<(), StoreError> {
        self.told.total += written.len() as u64;
        self.copy(&written.iter().copied().collect::<Vec<_>>(), progress)
    }

    /// Makes the copy equal to the state of a superblock; called between checkpoints.
    fn last_pass(
        &mut self,
        superblock: &Superblock,
        written: &BTreeSet<PageId>,
        progress: Tell<'_>,
    ) -> Result<(), StoreError> {
        self.read_maps(superblock)?;
        let mut pages: BTreeSet<PageId> = self.missing().into_iter().collect();
        let is_used = |page: &&PageId| {
            let (device, place) = self.geometry.place(**page);
            self.used.get(device as usize).is_some_and(|map| map.is_used(place, 1))
        };
        pages.extend(written.iter().filter(is_used));
        self.told.total = self.told.done + pages.len() as u64;
        self.copy(&pages.into_iter().collect::<Vec<_>>(), progress)?;
        // Marked as closed: the pages are whole, and there is no batch that could be half written.
        let image = Superblock { is_clean: true, ..*superblock }.encode();
        let mut page = AlignedBuffer::new();
        page.extend_from_slice(&image);
        Ok(self.target(0)?.write(self.geometry.offset(superblock::PAGE), &page)?)
    }

    fn target(&mut self, device: u32) -> Result<Arc<dyn Device>, StoreError> {
        while self.targets.len() <= device as usize {
            let name = device_name(self.targets.len() as u32);
            self.targets.push(create(&*self.to, &name, self.geometry.device_bytes())?);
            self.copied.push(Bitmap::new(self.geometry.device_pages));
        }
        Ok(self.targets[device as usize].clone())
    }

    /// Copies pages in the order of their numbers, adjacent pages together.
    fn copy(&mut self, pages: &[PageId], progress: Tell<'_>) -> Result<(), StoreError> {
        let page_bytes = self.geometry.page_bytes as usize;
        let most = CHUNK_BYTES / page_bytes;
        let is_next = |a: &PageId, b: &PageId| b.0 == a.0 + 1 && self.geometry.place(*b).1 != 0;
        let runs: Vec<&[PageId]> = pages.chunk_by(is_next).flat_map(|run| run.chunks(most)).collect();
        for run in runs {
            let mut buffer = AlignedBuffer::zeroed(run.len() * page_bytes);
            self.data_devices.read(run[0], &mut buffer).map_err(|error| error.of_reading(run[0], run.len() as u32))?;
            let (device, place) = self.geometry.place(run[0]);
            self.target(device)?.write(self.geometry.offset(run[0]), &buffer)?;
            let copied = &mut self.copied[device as usize];
            for place in place..place + run.len() as u32 {
                if copied.is_free(place, 1) {
                    copied.take(place, 1);
                }
            }
            self.told.done += run.len() as u64;
            if progress(self.told).is_break() {
                return Err(StoreError::Refused("the backup was ended before it was complete".into()));
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.targets.iter().try_for_each(|target| Ok(target.flush()?))
    }
}

/// A moment to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The end of the journal.
    End,
    /// Before the record at this position; records that were made persistent together with it are omitted as well.
    Lsn(Lsn),
    /// Before the first transaction committed later than this, microseconds since 1970.
    Micros(u64),
}
