//! Requests of [`device::Device::submit`]: a few threads serve as many requests as callers have outstanding.
//!
//! ```text
//!   submit  -->  queue of writes  -->  two threads: all that wait, as one batch: append each, wait once for all copies
//!           -->  reads in place   -->  the device of a copy, where that completes them by itself (`handed.rs`)
//!           -->  queue of reads   -->  four threads: one after the other
//! ```
//!
//! While one batch becomes durable the next one is gathered: the journals' group commit, without a thread for each request. On media
//! that need no waiting the caller does the request itself, unless too few copies work.
//!
//! Invariants: each request is completed once; submitting never waits, so one volume that waits for a copy stops no other one whose
//! clients are served by the same thread; a request that meets a block of another one of its batch waits for the next batch. The
//! queues have no bound of their own: what waits is what callers have outstanding, in their own buffers.

use std::sync::Arc;
use std::time::Instant;

use device::{BLOCK_BYTES, Device, DeviceError, IoKind, IoRequest, IoSink, supervise};
use parking_lot::Mutex;

use crate::checkpoint::{self, Patience};
use crate::core::Core;
use crate::error::VolumeError;
use crate::handed::HandedReads;
use crate::queue::{Queue, Submitted};
use crate::write::{Batch, Change, piece_bytes, stage};

/// Threads for writes: one batch becomes durable while the next is gathered.
const WRITERS: usize = 2;
/// Threads for reads: as many as a drive needs to be busy with; more only cost memory.
const READERS: usize = 4;
/// Requests of one batch.
const BATCH: usize = 256;

/// The queues of a volume and the threads that serve them.
pub(crate) struct Requests {
    reads: Arc<Queue>,
    writes: Arc<Queue>,
    handed: Arc<HandedReads>,
    watch: Mutex<Option<std::thread::JoinHandle<()>>>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Requests {
    /// Starts the threads. `volume` does single requests.
    pub(crate) fn start<D: Device + Until + 'static>(
        core: &Arc<Core>,
        volume: &Arc<D>,
    ) -> Result<Requests, VolumeError> {
        let (reads, writes): (Arc<Queue>, Arc<Queue>) = Default::default();
        let (handed, threads) = (HandedReads::new(core, &reads), Mutex::default());
        let watch = Mutex::new(Some(start_watch(core, &handed)?));
        let requests = Requests { reads, writes, handed, watch, threads };
        for number in 0..WRITERS + READERS {
            let (core, volume) = (core.clone(), volume.clone());
            let is_writer = number < WRITERS;
            let queue = if is_writer { requests.writes.clone() } else { requests.reads.clone() };
            let (name, failed) = (if is_writer { "volume-write" } else { "volume-read" }, core.clone());
            let work = move || {
                loop {
                    let taken = queue.take(if is_writer { BATCH } else { 1 });
                    if taken.is_empty() {
                        return;
                    }
                    supervise::rehearse(name);
                    if is_writer { write_batch(&core, &*volume, taken) } else { perform_each(&*volume, taken) }
                }
            };
            let panicked = move |why: &str| {
                tracing::error!(why, "the volume serves no longer");
                failed.close();
            };
            let thread = supervise::thread(name, work, panicked).map_err(VolumeError::Thread)?;
            requests.threads.lock().push(thread);
        }
        Ok(requests)
    }

    /// Takes a batch.
    pub(crate) fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        self.handed.hand_over(batch, sink);
        batch.drain(..).for_each(|request| self.submit_one(request, sink));
    }

    /// Takes one request.
    pub(crate) fn submit_one(&self, request: IoRequest, sink: &Arc<dyn IoSink>) {
        let queue = if request.kind == IoKind::Read { &self.reads } else { &self.writes };
        queue.push_or_refuse(request, sink);
    }

    /// Completes what waits, then ends the threads.
    pub(crate) fn close(&self) {
        // First: what devices do not complete goes to the reading threads.
        self.handed.close();
        self.reads.close();
        self.writes.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic has been reported by then.
            let _ = thread.join();
        }
        self.handed.end();
        if let Some(watch) = self.watch.lock().take() {
            let _ = watch.join();
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // Where not all threads could be started; otherwise the volume has closed it.
        self.close();
    }
}

fn start_watch(core: &Arc<Core>, handed: &Arc<HandedReads>) -> Result<std::thread::JoinHandle<()>, VolumeError> {
    let (watching, ended, failed) = (handed.clone(), handed.clone(), core.clone());
    let panicked = move |why: &str| {
        tracing::error!(why, "the volume serves no longer");
        ended.end();
        failed.close();
    };
    supervise::thread("volume-watch", move || watching.watch(), panicked).map_err(VolumeError::Thread)
}

fn perform_each<D: Device>(volume: &D, taken: Vec<Submitted>) {
    for (mut request, sink, _) in taken {
        let result = request.perform(volume);
        sink.complete(request, result);
    }
}

/// A write of one request, with a time at which it ends; the volume's device does it.
pub(crate) trait Until {
    /// As [`IoRequest::perform`] of a request that is no read; it waits as `patience` says while too few copies work.
    fn perform_until(&self, request: &IoRequest, patience: Patience) -> Result<(), DeviceError>;
}

/// Makes writes durable together where they fit into one record each and meet no other; the others follow one by one. While too few copies
/// work, each ends `write_timeout` after it was submitted at the latest, however many wait before it.
fn write_batch<D: Until>(core: &Core, volume: &D, taken: Vec<Submitted>) {
    let patience = |since: Instant| Patience { until: since + core.options.write_timeout, is_for_room: true };
    let mut rest = taken;
    while !rest.is_empty() {
        let first = rest.iter().map(|(.., since)| *since).min().unwrap_or_else(Instant::now);
        let (together, later) = match checkpoint::make_room(core, patience(first)) {
            Ok(()) if !core.is_frozen() => write_together(core, rest),
            _ => (Vec::new(), rest),
        };
        let is_none = together.is_empty();
        together.into_iter().for_each(|(request, sink, _)| sink.complete(request, Ok(())));
        // Those that cannot be in a batch, or whose batch has failed: each waits, and reports, for itself. So does one of those that
        // could not be begun: it waits for its stripe, or has an error that it would meet again.
        let (mut single, mut again): (Vec<_>, Vec<_>) = later.into_iter().partition(|(request, ..)| !fits(request));
        if is_none && single.is_empty() && !again.is_empty() {
            single.push(again.remove(0));
        }
        for (request, sink, since) in single {
            let result = volume.perform_until(&request, patience(since));
            sink.complete(request, result);
        }
        rest = again;
    }
}

/// Whether a request is one record.
fn fits(request: &IoRequest) -> bool {
    let is_write = matches!(request.kind, IoKind::Write | IoKind::WriteFlush);
    is_write && request.bytes > 0 && piece_bytes(request.offset, request.bytes) == request.bytes
}

/// Returns those that are durable, and the others.
fn write_together(core: &Core, taken: Vec<Submitted>) -> (Vec<Submitted>, Vec<Submitted>) {
    let began = Instant::now();
    let _gate = core.gate.read();
    let mut batch = Batch::new(core);
    let (mut together, mut later) = (Vec::new(), Vec::new());
    for submitted in taken {
        // Asked for each: a batch is up to 256 pieces, and what the journals have reserved is not more than the window and a little.
        if checkpoint::is_window_full(core) {
            later.push(submitted);
            continue;
        }
        let request = &submitted.0;
        let block = BLOCK_BYTES as u64;
        let held = fits(request)
            .then(|| core.stripes.try_lock(request.offset / block, request.bytes.div_ceil(block)))
            .flatten();
        let Some(held) = held else {
            later.push(submitted);
            continue;
        };
        let staged = stage(core, held, request.offset, Change::Bytes(&request.buffer));
        match staged.and_then(|staged| batch.append(core, staged)) {
            Ok(()) => together.push(submitted),
            Err(_) => later.push(submitted),
        }
    }
    if together.is_empty() {
        return (together, later);
    }
    match batch.finish(core) {
        Ok(()) => {
            together.iter().for_each(|(request, ..)| core.metrics.written(request.bytes, began.elapsed()));
            (together, later)
        }
        Err(_) => {
            together.append(&mut later);
            (Vec::new(), together)
        }
    }
}
