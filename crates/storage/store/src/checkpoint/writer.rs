//! [`CheckpointWriter`]: the I/O of a checkpoint, in the order of [`Machine`].
//!
//! ```text
//!   CheckpointBegin   the input of a checkpoint: redo LSN, roots, fresh runs, changed pages, map pages
//!   Checkpoint        a checkpoint in progress; its owner steps it, so that pauses and failures occur between steps
//!   CheckpointWriter  what lasts from checkpoint to checkpoint: devices, images, the superblock on the data devices
//! ```
//!
//! The batch contains the changed pages, the changed map pages, and the superblock, in the order of their numbers. So
//! pages that are adjacent on the data devices are written in one write.

use std::panic::resume_unwind;
use std::sync::Arc;

use device::AlignedBuffer;
use encryption::Sealer;
use journal::Lsn;

use crate::StoreError;
use crate::checkpoint::machine::{Machine, Step};
use crate::checkpoint::run_writer::RunWriter;
use crate::images::format::{BatchHeader, Mark};
use crate::images::{Batch, Images};
use crate::page::PageId;
use crate::space::devices::DataDevices;
use crate::space::poison::Poison;
use crate::space::superblock::{self, Superblock};
use crate::space::{CheckpointMap, Space};

/// Size of one step for each of the threads that write, in bytes of single pages.
const STEP_BYTES: usize = 1 << 20;

/// The fewest separate places for which a further thread is worthwhile.
const PLACES_MIN: usize = 8;

/// The dirty pages of the cache as they were when a checkpoint began.
pub(crate) trait DirtyPages: Send + Sync {
    /// Runs of dirty pages that were allocated since the last checkpoint began: first page, number of pages.
    fn fresh(&self) -> &[(PageId, u32)];

    /// Dirty pages that were in use at the last checkpoint.
    fn changed(&self) -> &[PageId];

    /// Copies the sealed image of a changed page or of a fresh run. Returns the same image until
    /// [`written_back`](DirtyPages::written_back). Returns `false` for a fresh run that is already on the data devices.
    fn image(&self, first: PageId, buffer: &mut [u8]) -> Result<bool, StoreError>;

    /// Notifies the cache that the image of a page or run is persistent on the data devices: the frame is clean if
    /// nothing has changed it since.
    fn written_back(&self, first: PageId);

    /// Notifies the cache whether the checkpoint waits for space on its medium.
    fn waits(&self, _: bool) {}

    /// Ends the checkpoint.
    fn finish(self: Box<Self>);
}

/// The input of a checkpoint; all of it is the state after the same record.
pub(crate) struct CheckpointBegin {
    /// Every record before this is applied.
    pub(crate) redo_lsn: Lsn,
    /// Root of the catalog; page 0 if there is none.
    pub(crate) catalog: PageId,
    /// The next tree id.
    pub(crate) next_tree: u32,
    /// The time, in microseconds since 1970.
    pub(crate) micros: u64,
    /// The dirty pages of the cache.
    pub(crate) dirty: Box<dyn DirtyPages>,
    /// The changes of the allocation map.
    pub(crate) map: CheckpointMap,
}

/// The result of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Its number.
    pub checkpoint: u64,
    /// Everything before this is in the pages.
    pub redo_lsn: Lsn,
    /// Fresh pages, written in place without an image.
    pub fresh_pages: u64,
    /// Pages that went through the write image journal, map and superblock included.
    pub changed_pages: u64,
    /// Bytes written to the write image journal, without its two marks.
    pub image_bytes: u64,
    /// Bytes written in place.
    pub data_bytes: u64,
}

/// The devices and images, and the superblock that is on the data devices.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    data_devices: Arc<DataDevices>,
    space: Arc<Space>,
    images: Images,
    superblock: Superblock,
    poison: Poison,
    /// How many threads write in place in parallel.
    threads: usize,
    /// One buffer for each thread that ever wrote, kept from checkpoint to checkpoint.
    buffers: Vec<AlignedBuffer>,
}

/// A checkpoint in progress.
pub(crate) struct Checkpoint {
    machine: Machine,
    dirty: Option<Box<dyn DirtyPages>>,
    superblock: Superblock,
    /// The batch in the order of page numbers: an image of the writer's own, or `None` for a page of the cache.
    order: Vec<(PageId, Option<Vec<u8>>)>,
    fresh: Vec<(PageId, u32)>,
    batch: Option<Batch>,
    header: Option<BatchHeader>,
    written: CheckpointSummary,
}

impl Checkpoint {
    /// How much is written, and of how much.
    pub(crate) fn progress(&self) -> (usize, usize) {
        self.machine.progress()
    }

    /// The next step; `None` when the checkpoint is over.
    pub(crate) fn next_step(&self) -> Option<Step> {
        self.machine.step()
    }

    fn dirty(&self) -> &dyn DirtyPages {
        &**self.dirty.as_ref().expect("it is kept until the checkpoint is over")
    }

    fn header(&self) -> &BatchHeader {
        self.header.as_ref().expect("a batch is marked once it is sealed")
    }
}

/// Copies the image of a page of the batch.
fn image(dirty: &dyn DirtyPages, page: PageId, own: Option<&[u8]>, buffer: &mut [u8]) -> Result<(), StoreError> {
    match own {
        Some(image) => buffer.copy_from_slice(image),
        None => assert!(dirty.image(page, buffer)?, "the image of page {page} is kept until it is written back"),
    }
    Ok(())
}

/// Gives each buffer's thread a part of the list, and the calling thread the first. Returns the sum of the bytes
/// written, or the first failure, once all threads have ended. Fewer threads are used if pages are adjacent, according
/// to `place` (first page, number of pages): adjacent pages are written in a few large writes, and a second thread
/// would only delay the journal.
fn side_by_side<T: Sync>(
    buffers: &mut [AlignedBuffer],
    list: &[T],
    place: impl Fn(&T) -> (PageId, u32),
    write: impl Fn(&[T], &mut AlignedBuffer) -> Result<u64, StoreError> + Sync,
) -> Result<u64, StoreError> {
    let is_apart = |pair: &&[T]| {
        let ((first, pages), (next, _)) = (place(&pair[0]), place(&pair[1]));
        first.0 + pages != next.0
    };
    let places = 1 + list.windows(2).filter(is_apart).count();
    let threads = (places / PLACES_MIN).clamp(1, buffers.len());
    let part = list.len().div_ceil(threads).max(1);
    let mut parts = list.chunks(part).zip(buffers);
    let Some((first, buffer)) = parts.next() else { return Ok(0) };
    std::thread::scope(|scope| {
        let write = &write;
        let started: Vec<_> = parts
            .map(|(part, buffer)| {
                let thread = std::thread::Builder::new().name("store-write-back".into());
                thread.spawn_scoped(scope, move || write(part, buffer)).map_err(|_| part)
            })
            .collect();
        let own = write(first, buffer);
        let ended = started.into_iter().map(|started| match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system cannot start a thread: this one does the work.
            Err(part) => write(part, buffer),
        });
        let others: Vec<Result<u64, StoreError>> = ended.collect();
        std::iter::once(own).chain(others).sum()
    })
}

impl CheckpointWriter {
    /// Of the parts that opening found or created.
    pub(crate) fn new(
        data_devices: Arc<DataDevices>,
        space: Arc<Space>,
        images: Images,
        superblock: Superblock,
        poison: Poison,
    ) -> CheckpointWriter {
        CheckpointWriter {
            data_devices,
            space,
            images,
            superblock,
            poison,
            threads: 1,
            buffers: vec![AlignedBuffer::new()],
        }
    }

    /// Sets how many threads write in place in parallel. Each page that is not adjacent to others takes the drive's
    /// latency, and one thread alone leaves the drive mostly idle. Default 1.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
        if self.buffers.len() < self.threads {
            self.buffers.resize_with(self.threads, AlignedBuffer::new);
        }
    }

    /// The data devices.
    pub(crate) fn data_devices(&self) -> &Arc<DataDevices> {
        &self.data_devices
    }

    /// The superblock that is on the data devices.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Reserves space for batches of so many dirty bytes, ahead of need.
    ///
    /// Errors: [`StoreError::Full`], [`StoreError::Device`]; the caller may ignore them.
    pub(crate) fn reserve(&mut self, dirty_bytes: u64) -> Result<(), StoreError> {
        let geometry = self.superblock.geometry;
        self.images.reserve(geometry, (dirty_bytes / u64::from(geometry.page_bytes)) as u32)
    }

    /// Begins a checkpoint. `is_clean` marks the store as closed.
    pub(crate) fn begin(&self, begin: CheckpointBegin, is_clean: bool) -> Checkpoint {
        let CheckpointBegin { redo_lsn, catalog, next_tree, micros, dirty, map } = begin;
        let CheckpointMap { checkpoint, devices, pages: map } = map;
        // The newest data key: so one that nothing needs any more is named nowhere after a while.
        let encrypted = self.data_devices.sealer().map(Sealer::mark);
        let changed = Superblock { devices, catalog, next_tree, is_clean, redo_lsn, ..self.superblock };
        let superblock = Superblock { checkpoint, micros, encrypted, ..changed };
        let mut order: Vec<(PageId, Option<Vec<u8>>)> = dirty.changed().iter().map(|page| (*page, None)).collect();
        order.extend(map.into_iter().map(|(page, image)| (page, Some(image))));
        order.push((superblock::PAGE, Some(superblock.encode())));
        order.sort_by_key(|(page, _)| *page);
        assert!(order.is_sorted_by(|(a, _), (b, _)| a < b), "each page is in a batch once");
        let mut fresh = dirty.fresh().to_vec();
        fresh.sort_unstable();
        let machine = Machine::new(fresh.len(), order.len());
        let written = CheckpointSummary {
            checkpoint,
            redo_lsn,
            fresh_pages: fresh.iter().map(|(_, pages)| u64::from(*pages)).sum(),
            changed_pages: order.len() as u64,
            ..CheckpointSummary::default()
        };
        Checkpoint { machine, dirty: Some(dirty), superblock, order, fresh, batch: None, header: None, written }
    }

    /// Performs the next step; returns the summary once all are done.
    ///
    /// Errors: [`StoreError::Full`]: nothing was written, step again when there is space. [`StoreError::Poisoned`]: the
    /// store is poisoned; the next opening determines what is persistent.
    pub(crate) fn step(&mut self, checkpoint: &mut Checkpoint) -> Result<Option<CheckpointSummary>, StoreError> {
        self.poison.check()?;
        let step = checkpoint.next_step().expect("a checkpoint that is over is not stepped");
        match self.perform(checkpoint, step) {
            Ok(()) => checkpoint.machine.done(self.chunk()),
            Err(error @ (StoreError::Full(_) | StoreError::Poisoned { .. })) => return Err(error),
            Err(error) => return Err(self.poison.set(&error)),
        }
        Ok(checkpoint.next_step().is_none().then_some(checkpoint.written))
    }

    /// Pages or runs of the next step.
    fn chunk(&self) -> usize {
        self.threads * STEP_BYTES / self.superblock.geometry.page_bytes as usize
    }

    fn perform(&mut self, checkpoint: &mut Checkpoint, step: Step) -> Result<(), StoreError> {
        match step {
            Step::Reserve => {
                let count = checkpoint.order.len() as u32;
                let Superblock { identity, geometry, checkpoint: number, redo_lsn, .. } = checkpoint.superblock;
                let reserved = self.images.reserve(geometry, count);
                checkpoint.dirty().waits(reserved.is_err());
                reserved?;
                checkpoint.batch = Some(self.images.begin(identity, geometry, number, redo_lsn, count));
            }
            Step::Fresh(from, to) => checkpoint.written.data_bytes += self.write_fresh(checkpoint, from, to)?,
            Step::Images(from, to) => self.write_images(checkpoint, from, to)?,
            Step::FlushFresh => {
                self.data_devices.flush()?;
                checkpoint.fresh.iter().for_each(|(first, _)| checkpoint.dirty().written_back(*first));
            }
            Step::Seal => {
                let batch = checkpoint.batch.take().expect("the batch was begun");
                let header = self.images.seal(batch)?;
                checkpoint.written.image_bytes += header.bytes();
                checkpoint.header = Some(header);
            }
            Step::Commit => self.images.mark(checkpoint.header(), Mark::Committed)?,
            Step::InPlace(from, to) => checkpoint.written.data_bytes += self.write_in_place(checkpoint, from, to)?,
            Step::FlushInPlace => {
                self.data_devices.flush()?;
                checkpoint.dirty().changed().iter().for_each(|page| checkpoint.dirty().written_back(*page));
            }
            Step::Invalidate => self.images.mark(checkpoint.header(), Mark::Invalid)?,
            Step::Over => {
                self.superblock = checkpoint.superblock;
                if let Some(dirty) = checkpoint.dirty.take() {
                    dirty.finish();
                }
                self.space.checkpoint_over(checkpoint.superblock.checkpoint);
            }
        }
        Ok(())
    }

    fn write_fresh(&mut self, checkpoint: &Checkpoint, from: usize, to: usize) -> Result<u64, StoreError> {
        let page_bytes = self.superblock.geometry.page_bytes as usize;
        let (data_devices, dirty) = (&self.data_devices, checkpoint.dirty());
        let place = |run: &(PageId, u32)| *run;
        side_by_side(&mut self.buffers[..self.threads], &checkpoint.fresh[from..to], place, |runs, buffer| {
            let mut run = RunWriter::new(data_devices, buffer);
            for (first, pages) in runs {
                let bytes = *pages as usize * page_bytes;
                if !dirty.image(*first, run.room(*first, bytes)?)? {
                    run.take_back(bytes);
                }
            }
            run.finish()
        })
    }

    fn write_images(&self, checkpoint: &mut Checkpoint, from: usize, to: usize) -> Result<(), StoreError> {
        let mut batch = checkpoint.batch.take().expect("the batch was begun");
        let mut buffer = AlignedBuffer::zeroed(self.superblock.geometry.page_bytes as usize);
        for (page, own) in &checkpoint.order[from..to] {
            image(checkpoint.dirty(), *page, own.as_deref(), &mut buffer)?;
            self.images.push(&mut batch, *page, &buffer)?;
        }
        checkpoint.batch = Some(batch);
        Ok(())
    }

    fn write_in_place(&mut self, checkpoint: &Checkpoint, from: usize, to: usize) -> Result<u64, StoreError> {
        let page_bytes = self.superblock.geometry.page_bytes as usize;
        let (data_devices, dirty) = (&self.data_devices, checkpoint.dirty());
        let place = |(page, _): &(PageId, Option<Vec<u8>>)| (*page, 1);
        side_by_side(&mut self.buffers[..self.threads], &checkpoint.order[from..to], place, |pages, buffer| {
            let mut run = RunWriter::new(data_devices, buffer);
            for (page, own) in pages {
                image(dirty, *page, own.as_deref(), run.room(*page, page_bytes)?)?;
            }
            run.finish()
        })
    }

    /// Runs a whole checkpoint without a pause.
    ///
    /// Errors: as for [`step`](CheckpointWriter::step); after [`StoreError::Full`] the checkpoint can be continued.
    #[cfg(test)]
    pub(crate) fn run(&mut self, checkpoint: &mut Checkpoint) -> Result<CheckpointSummary, StoreError> {
        loop {
            if let Some(written) = self.step(checkpoint)? {
                return Ok(written);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn everything_is_written_once_by_no_more_threads_than_there_are_places() {
        let apart: Vec<(PageId, u32)> = (0..100).map(|at| (PageId(at * 3), 2)).collect();
        let beside: Vec<(PageId, u32)> = (0..100).map(|at| (PageId(at * 2), 2)).collect();
        let cases = [
            (&apart[..], 1, 1),
            (&apart, 2, 2),
            (&apart, 8, 8),
            (&apart, 50, 12),
            (&apart[..9], 8, 1),
            (&apart[..1], 8, 1),
            (&apart[..0], 8, 0),
            (&beside, 8, 1),
        ];
        for (list, threads, expected) in cases {
            let mut buffers = vec![AlignedBuffer::new(); threads];
            let (parts, by) = (Mutex::new(Vec::new()), Mutex::new(HashSet::new()));
            let written = side_by_side(
                &mut buffers,
                list,
                |run| *run,
                |part, _| {
                    parts.lock().unwrap().extend_from_slice(part);
                    by.lock().unwrap().insert(std::thread::current().id());
                    Ok(part.len() as u64)
                },
            );
            let mut parts = parts.into_inner().unwrap();
            parts.sort_unstable();
            assert_eq!((written.unwrap(), &parts[..]), (list.len() as u64, list), "{threads} threads");
            assert_eq!(by.into_inner().unwrap().len(), expected, "{} runs, {threads} threads", list.len());
        }
    }

    #[test]
    fn a_failure_of_any_part_is_told_once_all_have_ended() {
        let list: Vec<PageId> = (0..80).map(|at| PageId(at * 2)).collect();
        for failing in [0, 10, 79] {
            let mut buffers = vec![AlignedBuffer::new(); 8];
            let ended = Mutex::new(0);
            let write = |part: &[PageId], _: &mut AlignedBuffer| {
                *ended.lock().unwrap() += 1;
                if part.contains(&list[failing]) {
                    return Err(StoreError::Refused(failing.to_string().into()));
                }
                Ok(part.len() as u64)
            };
            let error = side_by_side(&mut buffers, &list, |page| (*page, 1), write).unwrap_err();
            assert!(matches!(error, StoreError::Refused(why) if *why == *failing.to_string()));
            assert_eq!(*ended.lock().unwrap(), 8);
        }
    }
}
