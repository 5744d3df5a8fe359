//! The load itself: threads that keep requests in progress on devices, time each, and check what comes back.
//!
//! ```text
//!   thread   prepare --> submit [ r | r | w | ... ] --> device
//!      ^                                                  |  on a thread of the device, or inside submit
//!      |     check, count <-- Returned (request, result, when) <--+
//!      +------------ the same buffer again
//!
//!   time   |-- warm-up --|-------- measured --------|-- cool-down --|
//!         now          start                        end            stop      requests that end in [start, end) are counted
//! ```
//!
//! A latency is from the moment of submission to the moment of completion, so it includes the time in which a request waits for others of
//! its own thread: with 64 requests in progress on two processors that is most of it. With one request in progress the thread calls
//! [`Device::read`] and waits, without a batch.
//!
//! Invariants: every request that was submitted is waited for before a thread ends; a request is checked whether it is counted or not;
//! offsets come from the seed, the volume and the thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use device::{AlignedBuffer, Device, DeviceError, IoRequest, IoSink};
use parking_lot::{Condvar, Mutex};
use workload::interrupt;

use crate::blocks::{self, BLOCK, Ledger};
use crate::load::{Load, Order, own_block};
use crate::tally::Tally;

/// Of so many checked requests one is checked to the last byte: that takes as long as a copy of the block.
const WHOLE: u64 = 64;

/// Of a long read every block of so many is checked at its ends, the first one always.
const ENDS: usize = 16;

/// A thread looks this often whether the measurement was interrupted.
const LOOK: Duration = Duration::from_millis(200);

/// A request that takes longer than this is lost: longer than any time-out below.
const LOST: Duration = Duration::from_secs(180);

/// A device under load.
#[derive(Clone, Debug)]
pub struct Target {
    /// The device, once for each thread: connections of their own, or the same one.
    pub devices: Vec<Arc<dyn Device>>,
    /// The number in the content of its blocks.
    pub place: u32,
    /// What its blocks contain.
    pub ledger: Arc<Ledger>,
    /// Whether a read that meets a write sees a block before or after it, as a volume promises; a bare device may mix them.
    pub is_atomic: bool,
}

/// When a run begins to count, and ends.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    /// The end of the warm-up.
    pub start: Instant,
    /// The end of the measured time.
    pub end: Instant,
    /// The end of the cool-down.
    pub stop: Instant,
}

impl Timeline {
    /// From now on.
    pub fn from_now(warm: Duration, measured: Duration, cool: Duration) -> Timeline {
        let start = Instant::now() + warm;
        Timeline { start, end: start + measured, stop: start + measured + cool }
    }

    /// Whole seconds of the measured time.
    pub fn windows(&self) -> u64 {
        (self.end - self.start).as_secs()
    }

    /// The second of the measured time.
    fn window(&self, at: Instant) -> Option<usize> {
        (self.start..self.end).contains(&at).then(|| (at - self.start).as_secs() as usize)
    }
}

/// Everything of one thread that does not change.
struct Worker<'r> {
    load: &'r Load,
    place: u32,
    ledger: &'r Ledger,
    is_atomic: bool,
    thread: usize,
    timeline: Timeline,
}

/// What a request in progress is.
#[derive(Clone, Copy, Debug)]
struct Pending {
    block: u64,
    /// The version that a read contains at least, or that a write stores.
    version: u32,
    is_read: bool,
}

/// Where the next request goes.
struct Offsets {
    rng: fastrand::Rng,
    next: u64,
}

/// A load on targets: a thread for each volume and number, all at the same time. Returns what each counted, by target and thread.
///
/// # Errors
/// A request that never came back, or the user's request to end.
pub fn run(load: &Load, targets: &[Target], timeline: Timeline, seed: u64) -> anyhow::Result<Vec<Vec<Tally>>> {
    std::thread::scope(|scope| {
        let start = |(target, thread): (&Target, usize)| {
            let device = Arc::clone(&target.devices[thread % target.devices.len()]);
            let (place, ledger, is_atomic) = (target.place, Arc::clone(&target.ledger), target.is_atomic);
            scope.spawn(move || {
                let worker = Worker { load, place, ledger: &ledger, is_atomic, thread, timeline };
                let rng = fastrand::Rng::with_seed(seed ^ (u64::from(place) << 32) ^ (thread as u64) << 16);
                worker.run(&device, rng)
            })
        };
        let of_target = |target| (0..load.threads).map(move |thread| (target, thread)).map(start).collect::<Vec<_>>();
        let threads: Vec<Vec<_>> = targets.iter().map(of_target).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, anyhow::Result<Tally>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(|threads| threads.into_iter().map(ended).collect()).collect()
    })
}

impl Worker<'_> {
    fn run(&self, device: &Arc<dyn Device>, rng: fastrand::Rng) -> anyhow::Result<Tally> {
        let positions = self.ledger.blocks() / self.load.blocks();
        let share = positions * self.thread as u64 / self.load.threads as u64;
        let mut offsets = Offsets { rng, next: share };
        let tally = match self.load.outstanding {
            1 => self.one_by_one(device, &mut offsets),
            _ => self.many(device, &mut offsets)?,
        };
        interrupt::check()?;
        Ok(tally)
    }

    /// The next request; a write's block is one of this thread's own without a write in progress.
    fn next(&self, offsets: &mut Offsets) -> Pending {
        let (load, ledger) = (self.load, self.ledger);
        let positions = ledger.blocks() / load.blocks();
        let position = match load.order {
            Order::Random => offsets.rng.u64(0..positions),
            Order::Sequential => {
                let next = offsets.next;
                offsets.next = (next + 1) % positions;
                next
            }
        };
        let block = position * load.blocks();
        if load.read_percent < 100 && offsets.rng.u8(0..100) >= load.read_percent {
            let (thread, threads) = (self.thread as u64, load.threads as u64);
            let mut own = own_block(block, thread, threads, ledger.blocks());
            loop {
                if let Some(version) = ledger.begin(own) {
                    return Pending { block: own, version, is_read: false };
                }
                own = own_block((own + threads) % ledger.blocks(), thread, threads, ledger.blocks());
            }
        }
        Pending { block, version: ledger.at_least(block), is_read: true }
    }

    /// Calls and waits.
    fn one_by_one(&self, device: &Arc<dyn Device>, offsets: &mut Offsets) -> Tally {
        let mut tally = Tally::of_seconds(self.timeline.windows());
        let mut buffer = AlignedBuffer::zeroed(self.load.bytes);
        while Instant::now() < self.timeline.stop && !interrupt::is_asked() {
            let pending = self.next(offsets);
            let offset = pending.block * BLOCK as u64;
            if !pending.is_read {
                blocks::fill(self.place, pending.block, pending.version, &mut buffer);
            }
            let began = Instant::now();
            let result = match pending.is_read {
                true => device.read(offset, &mut buffer),
                false => device.write_flush(offset, &buffer),
            };
            self.returned(&mut tally, pending, &buffer, &result, (began, Instant::now()));
        }
        tally
    }

    /// Keeps many in progress.
    fn many(&self, device: &Arc<dyn Device>, offsets: &mut Offsets) -> anyhow::Result<Tally> {
        let mut tally = Tally::of_seconds(self.timeline.windows());
        let outstanding = self.load.outstanding;
        let mailbox = Arc::new(Returned::default());
        let sink: Arc<dyn IoSink> = mailbox.clone();
        let mut buffers: Vec<AlignedBuffer> =
            (0..outstanding).map(|_| AlignedBuffer::zeroed(self.load.bytes)).collect();
        let mut free: Vec<u64> = (0..outstanding as u64).collect();
        let mut pending: Vec<Option<(Pending, Instant)>> = vec![None; outstanding];
        let (mut batch, mut back) = (Vec::with_capacity(outstanding), Vec::with_capacity(outstanding));
        let mut now = Instant::now();
        loop {
            if now < self.timeline.stop && !interrupt::is_asked() {
                for slot in free.drain(..) {
                    let request = self.next(offsets);
                    let buffer = std::mem::take(&mut buffers[slot as usize]);
                    batch.push(self.request(request, buffer, slot));
                    pending[slot as usize] = Some((request, now));
                }
                // The blocks of writes are made by now: that is not the device's time.
                now = Instant::now();
                for request in &batch {
                    if let Some((_, submitted)) = &mut pending[request.token as usize] {
                        *submitted = now;
                    }
                }
                device.submit(&mut batch, &sink);
            }
            if free.len() == outstanding {
                return Ok(tally);
            }
            mailbox.take(&mut back);
            for (request, result, at) in back.drain(..) {
                let slot = request.token as usize;
                let Some((what, submitted)) = pending[slot].take() else {
                    bail!("a request came back twice");
                };
                self.returned(&mut tally, what, &request.buffer, &result, (submitted, at));
                buffers[slot] = request.buffer;
                free.push(request.token);
            }
            now = Instant::now();
            let overdue = pending.iter().flatten().find(|(_, submitted)| now.duration_since(*submitted) > LOST);
            if let Some((what, _)) = overdue {
                bail!("a request at block {} did not come back in {} s", what.block, LOST.as_secs());
            }
        }
    }

    fn request(&self, pending: Pending, mut buffer: AlignedBuffer, token: u64) -> IoRequest {
        let offset = pending.block * BLOCK as u64;
        if pending.is_read {
            return IoRequest::read(offset, buffer, token);
        }
        blocks::fill(self.place, pending.block, pending.version, &mut buffer);
        IoRequest::write_flush(offset, buffer, token)
    }

    /// Counts and checks a request that is back.
    fn returned(
        &self,
        tally: &mut Tally,
        pending: Pending,
        buffer: &[u8],
        result: &Result<(), DeviceError>,
        (submitted, at): (Instant, Instant),
    ) {
        if let Err(error) = result {
            tally.errors += 1;
            tally.note_wrong(|| format!("block {}: {error}", pending.block));
            return;
        }
        if pending.is_read {
            self.check(tally, pending, buffer);
        } else {
            self.ledger.end(pending.block, pending.version);
        }
        if let Some(window) = self.timeline.window(at) {
            let ns = u64::try_from((at - submitted).as_nanos()).unwrap_or(u64::MAX);
            tally.count(pending.is_read, self.load.bytes as u64, ns, window);
        }
    }

    fn check(&self, tally: &mut Tally, pending: Pending, buffer: &[u8]) {
        let place = self.place;
        for (index, bytes) in buffer.chunks_exact(BLOCK).enumerate().step_by(ENDS) {
            let block = pending.block + index as u64;
            // Long reads come without writes: what is acknowledged now was so when they began.
            let least = if index == 0 { pending.version } else { self.ledger.at_least(block) };
            let most = self.ledger.at_most(block);
            if !self.is_atomic && least != most {
                continue;
            }
            let found = blocks::version(place, block, bytes);
            tally.checked += 1;
            let is_sampled = tally.checked.is_multiple_of(WHOLE);
            let is_good = found.is_some_and(|found| {
                (least..=most).contains(&found) && (!is_sampled || blocks::is_whole(place, block, found, bytes))
            });
            tally.checked_whole += u64::from(is_sampled);
            if !is_good {
                tally.mismatches += 1;
                let found = found.map_or_else(|| "other bytes".to_owned(), |found| format!("version {found}"));
                tally.note_wrong(|| {
                    format!("volume {place}, block {block}: {found}, expected versions {least} to {most}")
                });
            }
        }
    }
}

/// A request that is back: its outcome, and when it was complete.
type Back = (IoRequest, Result<(), DeviceError>, Instant);

/// Requests that are back, for the thread that submitted them.
#[derive(Default)]
struct Returned {
    requests: Mutex<Vec<Back>>,
    any: Condvar,
}

impl Returned {
    /// Takes all that are back; waits for the first one, but not for ever.
    fn take(&self, into: &mut Vec<Back>) {
        let mut requests = self.requests.lock();
        if requests.is_empty() {
            self.any.wait_for(&mut requests, LOOK);
        }
        std::mem::swap(&mut *requests, into);
    }
}

impl IoSink for Returned {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        let at = Instant::now();
        self.requests.lock().push((request, result, at));
        self.any.notify_one();
    }
}

/// Fills a device with the first version of each block, from its beginning to its end.
///
/// # Errors
/// Those of the device, and the user's request to end.
pub fn fill(device: &dyn Device, place: u32) -> anyhow::Result<()> {
    const PIECE: usize = 1 << 20;
    let mut buffer = AlignedBuffer::zeroed(PIECE);
    let mut at = 0;
    while at < device.len() {
        interrupt::check()?;
        let bytes = (device.len() - at).min(PIECE as u64) as usize;
        for (index, block) in buffer[..bytes].chunks_exact_mut(BLOCK).enumerate() {
            blocks::fill(place, at / BLOCK as u64 + index as u64, blocks::FIRST_VERSION, block);
        }
        device.write(at, &buffer[..bytes])?;
        at += bytes as u64;
    }
    device.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
