//! [`Writer`]: the I/O of a write cycle, step by step as [`Machine`] says.
//!
//! ```text
//!   Moment      what a cut froze: X, roots, fresh runs, changed pages, map pages
//!   Cycle       a moment on its way home; stepped by whoever has it, so that pauses and failures lie between steps
//!   Writer      what lasts from cycle to cycle: devices, images, the superblock at home
//! ```
//!
//! The batch holds the changed pages, the map pages that changed, and the superblock, in the order of their numbers, so that
//! what lies side by side at home goes home in one write.

use std::panic::resume_unwind;
use std::sync::Arc;

use device::AlignedBuffer;
use journal::Lsn;

use crate::StoreError;
use crate::cycle::machine::{Machine, Step};
use crate::cycle::run::Run;
use crate::images::format::{Header, Mark};
use crate::images::{Batch, Images};
use crate::page::PageId;
use crate::space::freeze::Freeze;
use crate::space::home::Devices;
use crate::space::superblock::{self, Superblock};
use crate::space::{MapCut, Space};

/// Pages and runs of one step for each of the threads that write, in bytes of single pages.
const STEP_BYTES: usize = 1 << 20;

/// Fewer places that lie apart are not worth a thread.
const PLACES_MIN: usize = 8;

/// What the cache froze at a cut.
pub(crate) trait Frozen: Send + Sync {
    /// Runs of pages, dirty and allocated since the last cut: first page, number of pages.
    fn fresh(&self) -> &[(PageId, u32)];

    /// Dirty pages that the last cut had.
    fn changed(&self) -> &[PageId];

    /// Copies the frozen image of a changed page, or of a fresh run, sealed. Twice the same until it is
    /// [homed](Frozen::homed). False for a fresh run that is at home already.
    fn image(&self, first: PageId, buffer: &mut [u8]) -> Result<bool, StoreError>;

    /// Says that the image of a page or run is at home, persistently: the frame is clean if nothing changed it since.
    fn homed(&self, first: PageId);

    /// Says whether the cycle waits for room on its medium.
    fn waits(&self, _: bool) {}

    /// The cycle is over.
    fn finish(self: Box<Self>);
}

/// What a cut froze, all of it behind the same record.
pub(crate) struct Moment {
    /// Every record before this is applied.
    pub(crate) applied: Lsn,
    /// Root of the catalog; page 0 for none.
    pub(crate) catalog: PageId,
    /// Next number of a tree.
    pub(crate) next_tree: u32,
    /// When, in microseconds since 1970.
    pub(crate) micros: u64,
    /// The cache's part.
    pub(crate) frozen: Box<dyn Frozen>,
    /// The allocation map's part.
    pub(crate) map: MapCut,
}

/// What a cycle wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its number.
    pub cycle: u64,
    /// Everything before this is in the pages.
    pub applied: Lsn,
    /// Pages that went straight home.
    pub fresh_pages: u64,
    /// Pages that went through the write image journal, map and superblock included.
    pub changed_pages: u64,
    /// Bytes written to the write image journal, without its two marks.
    pub image_bytes: u64,
    /// Bytes written home.
    pub home_bytes: u64,
}

/// Devices and images, and what is at home.
#[derive(Debug)]
pub(crate) struct Writer {
    home: Arc<Devices>,
    space: Arc<Space>,
    images: Images,
    superblock: Superblock,
    freeze: Freeze,
    /// How many threads write home side by side.
    threads: usize,
    /// One for each thread there ever was, kept from cycle to cycle.
    buffers: Vec<AlignedBuffer>,
}

/// A cycle on its way.
pub(crate) struct Cycle {
    machine: Machine,
    frozen: Option<Box<dyn Frozen>>,
    superblock: Superblock,
    /// The batch in the order of page numbers: an image of our own, or none for one of the cache's.
    order: Vec<(PageId, Option<Vec<u8>>)>,
    fresh: Vec<(PageId, u32)>,
    batch: Option<Batch>,
    header: Option<Header>,
    written: Written,
}

impl Cycle {
    /// How much of the writing is done, of how much.
    pub(crate) fn progress(&self) -> (usize, usize) {
        self.machine.progress()
    }

    /// What is done next; none when the cycle is over.
    pub(crate) fn next_step(&self) -> Option<Step> {
        self.machine.step()
    }

    fn frozen(&self) -> &dyn Frozen {
        &**self.frozen.as_ref().expect("it is kept until the cycle is over")
    }

    fn header(&self) -> &Header {
        self.header.as_ref().expect("a batch is marked once it is sealed")
    }
}

/// The image of a page of the batch.
fn image(frozen: &dyn Frozen, page: PageId, own: Option<&[u8]>, buffer: &mut [u8]) -> Result<(), StoreError> {
    match own {
        Some(image) => buffer.copy_from_slice(image),
        None => assert!(frozen.image(page, buffer)?, "the image of page {page} is kept until it is home"),
    }
    Ok(())
}

/// Gives each buffer's thread a part of the list, this one the first; the sum of what they wrote, or the first failure once all
/// have ended. Fewer threads where pages lie side by side, as `place` (first page, number of pages) says: they go home in a few
/// large writes, and a second thread would only take the device from the journal.
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
                let thread = std::thread::Builder::new().name("store-home".into());
                thread.spawn_scoped(scope, move || write(part, buffer)).map_err(|_| part)
            })
            .collect();
        let own = write(first, buffer);
        let ended = started.into_iter().map(|started| match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system gives no thread: this one does it.
            Err(part) => write(part, buffer),
        });
        let others: Vec<Result<u64, StoreError>> = ended.collect();
        std::iter::once(own).chain(others).sum()
    })
}

impl Writer {
    /// Of what opening found or made.
    pub(crate) fn new(
        home: Arc<Devices>,
        space: Arc<Space>,
        images: Images,
        superblock: Superblock,
        freeze: Freeze,
    ) -> Writer {
        Writer { home, space, images, superblock, freeze, threads: 1, buffers: vec![AlignedBuffer::new()] }
    }

    /// From now on so many threads write home side by side: pages that lie apart cost a drive's latency each, and one after the
    /// other leave it idle. One to begin with.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.threads = threads.max(1);
        if self.buffers.len() < self.threads {
            self.buffers.resize_with(self.threads, AlignedBuffer::new);
        }
    }

    /// The data devices.
    pub(crate) fn home(&self) -> &Arc<Devices> {
        &self.home
    }

    /// The superblock at home.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Makes room for batches of so many dirty bytes, ahead of need.
    ///
    /// Errors: [`StoreError::Full`], [`StoreError::Device`]; nothing depends on it.
    pub(crate) fn reserve(&mut self, dirty_bytes: u64) -> Result<(), StoreError> {
        let geometry = self.superblock.geometry;
        self.images.reserve(geometry, (dirty_bytes / u64::from(geometry.page_bytes)) as u32)
    }

    /// Begins a cycle for what a cut froze. `is_clean` marks the store as closed.
    pub(crate) fn begin(&self, moment: Moment, is_clean: bool) -> Cycle {
        let Moment { applied, catalog, next_tree, micros, frozen, map } = moment;
        let MapCut { cycle, devices, pages: map } = map;
        let superblock =
            Superblock { devices, catalog, next_tree, is_clean, applied, cycle, micros, ..self.superblock };
        let mut order: Vec<(PageId, Option<Vec<u8>>)> = frozen.changed().iter().map(|page| (*page, None)).collect();
        order.extend(map.into_iter().map(|(page, image)| (page, Some(image))));
        order.push((superblock::PAGE, Some(superblock.encode())));
        order.sort_by_key(|(page, _)| *page);
        assert!(order.is_sorted_by(|(a, _), (b, _)| a < b), "each page is in a batch once");
        let mut fresh = frozen.fresh().to_vec();
        fresh.sort_unstable();
        let machine = Machine::new(fresh.len(), order.len());
        let written = Written {
            cycle,
            applied,
            fresh_pages: fresh.iter().map(|(_, pages)| u64::from(*pages)).sum(),
            changed_pages: order.len() as u64,
            ..Written::default()
        };
        Cycle { machine, frozen: Some(frozen), superblock, order, fresh, batch: None, header: None, written }
    }

    /// Does the next step; what was written once all are done.
    ///
    /// Errors: [`StoreError::Full`]: nothing was written, step again when there is space. [`StoreError::Frozen`]: the store
    /// is frozen; what is persistent is known after reopening.
    pub(crate) fn step(&mut self, cycle: &mut Cycle) -> Result<Option<Written>, StoreError> {
        self.freeze.check()?;
        let step = cycle.next_step().expect("a cycle that is over is not stepped");
        match self.perform(cycle, step) {
            Ok(()) => cycle.machine.done(self.chunk()),
            Err(error @ (StoreError::Full(_) | StoreError::Frozen { .. })) => return Err(error),
            Err(error) => return Err(self.freeze.freeze(&error)),
        }
        Ok(cycle.next_step().is_none().then_some(cycle.written))
    }

    /// Pages or runs of the next step.
    fn chunk(&self) -> usize {
        self.threads * STEP_BYTES / self.superblock.geometry.page_bytes as usize
    }

    fn perform(&mut self, cycle: &mut Cycle, step: Step) -> Result<(), StoreError> {
        match step {
            Step::Reserve => {
                let count = cycle.order.len() as u32;
                let Superblock { identity, geometry, cycle: number, applied, .. } = cycle.superblock;
                let reserved = self.images.reserve(geometry, count);
                cycle.frozen().waits(reserved.is_err());
                reserved?;
                cycle.batch = Some(self.images.begin(identity, geometry, number, applied, count));
            }
            Step::Fresh(from, to) => cycle.written.home_bytes += self.write_fresh(cycle, from, to)?,
            Step::Images(from, to) => self.write_images(cycle, from, to)?,
            Step::FlushFresh => {
                self.home.flush()?;
                cycle.fresh.iter().for_each(|(first, _)| cycle.frozen().homed(*first));
            }
            Step::Seal => {
                let batch = cycle.batch.take().expect("the batch was begun");
                let header = self.images.seal(batch)?;
                cycle.written.image_bytes += header.bytes();
                cycle.header = Some(header);
            }
            Step::Flag => self.images.mark(cycle.header(), Mark::Flagged)?,
            Step::Home(from, to) => cycle.written.home_bytes += self.write_home(cycle, from, to)?,
            Step::FlushHome => {
                self.home.flush()?;
                cycle.frozen().changed().iter().for_each(|page| cycle.frozen().homed(*page));
            }
            Step::Clear => self.images.mark(cycle.header(), Mark::Cleared)?,
            Step::Over => {
                self.superblock = cycle.superblock;
                if let Some(frozen) = cycle.frozen.take() {
                    frozen.finish();
                }
                self.space.cleared(cycle.superblock.cycle);
            }
        }
        Ok(())
    }

    fn write_fresh(&mut self, cycle: &Cycle, from: usize, to: usize) -> Result<u64, StoreError> {
        let page_bytes = self.superblock.geometry.page_bytes as usize;
        let (home, frozen) = (&self.home, cycle.frozen());
        let place = |run: &(PageId, u32)| *run;
        side_by_side(&mut self.buffers[..self.threads], &cycle.fresh[from..to], place, |runs, buffer| {
            let mut run = Run::new(home, buffer);
            for (first, pages) in runs {
                let bytes = *pages as usize * page_bytes;
                if !frozen.image(*first, run.room(*first, bytes)?)? {
                    run.take_back(bytes);
                }
            }
            run.finish()
        })
    }

    fn write_images(&self, cycle: &mut Cycle, from: usize, to: usize) -> Result<(), StoreError> {
        let mut batch = cycle.batch.take().expect("the batch was begun");
        let mut buffer = AlignedBuffer::zeroed(self.superblock.geometry.page_bytes as usize);
        for (page, own) in &cycle.order[from..to] {
            image(cycle.frozen(), *page, own.as_deref(), &mut buffer)?;
            self.images.push(&mut batch, *page, &buffer)?;
        }
        cycle.batch = Some(batch);
        Ok(())
    }

    fn write_home(&mut self, cycle: &Cycle, from: usize, to: usize) -> Result<u64, StoreError> {
        let page_bytes = self.superblock.geometry.page_bytes as usize;
        let (home, frozen) = (&self.home, cycle.frozen());
        let place = |(page, _): &(PageId, Option<Vec<u8>>)| (*page, 1);
        side_by_side(&mut self.buffers[..self.threads], &cycle.order[from..to], place, |pages, buffer| {
            let mut run = Run::new(home, buffer);
            for (page, own) in pages {
                image(frozen, *page, own.as_deref(), run.room(*page, page_bytes)?)?;
            }
            run.finish()
        })
    }

    /// Runs a whole cycle without a pause.
    ///
    /// Errors: as for [`step`](Writer::step); after [`StoreError::Full`] the cycle can be gone on with.
    #[cfg(test)]
    pub(crate) fn run(&mut self, cycle: &mut Cycle) -> Result<Written, StoreError> {
        loop {
            if let Some(written) = self.step(cycle)? {
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
