//! [`DelayedDevice`]: completes each request when the medium would have completed it, the path's own cost taken off.
//!
//! ```text
//!   request --> device below, at once --> due = when the medium is done + added - the path's cost
//!                                            |  in the past: complete now
//!                                            v
//!                                      heap by due time --> one thread --> complete
//! ```
//!
//! "When the medium is done" is the moment that its model says (a budget of latency, operations and bytes a second), or the moment at which
//! the device below is done, where that is a medium of its own: a mirror, another export.
//!
//! The thread sleeps; it does not spin, because the command needs the processor. How late the system wakes it is part of the path's cost,
//! which is measured with delays (module `probe`).
//!
//! Invariants: each request is completed once; none before the device below is done; bytes and errors are those of the device below; an
//! error is not delayed. When the last handle is gone, the thread completes what waits, and ends; what the device below completes later is not
//! delayed.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use catalogue::budget::Request;
use catalogue::medium::Direction;
use catalogue::{Budget, Model};
use device::{Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink};
use parking_lot::{Condvar, Mutex};
use workload::histogram::Histogram;
use workload::interrupt;

/// Requests that a model sees as different queues: more than any file system keeps in progress here.
const QUEUES: u64 = 256;

/// What the path costs one request of a kind, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PathCost {
    /// Reads.
    pub read_ns: f64,
    /// Writes.
    pub write_ns: f64,
    /// Flushes.
    pub flush_ns: f64,
}

impl PathCost {
    /// Each of the three, changed.
    pub fn map(self, change: impl Fn(f64) -> f64) -> PathCost {
        PathCost { read_ns: change(self.read_ns), write_ns: change(self.write_ns), flush_ns: change(self.flush_ns) }
    }

    fn of(&self, kind: IoKind) -> f64 {
        match kind {
            IoKind::Read => self.read_ns,
            IoKind::Write | IoKind::WriteFlush => self.write_ns,
            IoKind::Flush => self.flush_ns,
            IoKind::Discard | IoKind::WriteZeroes { .. } => 0.0,
        }
    }
}

/// What is done with requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delays {
    /// Nothing: the path over the device below.
    None,
    /// Every request takes this long in the device: to measure the path.
    Fixed(Duration),
    /// As the medium, and `added` on top.
    Medium {
        /// The path's cost, which is taken off.
        cost: PathCost,
        /// Added to reads, writes and flushes, nanoseconds.
        added_ns: f64,
    },
}

/// What the requests of a time were.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// As the file system sees reads, writes and flushes: the device's time and the path's cost, nanoseconds.
    pub latency_ns: Histogram,
}

/// The medium's time.
#[derive(Debug)]
enum Base {
    Model { model: Model, budget: Arc<Budget>, queue: AtomicU64 },
    Below,
}

#[derive(Debug)]
struct Shared {
    base: Base,
    delays: Mutex<Delays>,
    counts: Mutex<RequestCounts>,
    timer: Arc<Timer>,
}

/// See the module's text.
#[derive(Debug)]
pub struct DelayedDevice {
    inner: Arc<dyn Device>,
    shared: Arc<Shared>,
}

impl DelayedDevice {
    /// `inner`, as slow as `model`; without one, as slow as `inner` is.
    ///
    /// # Errors
    /// There is no thread.
    pub fn new(inner: Arc<dyn Device>, model: Option<Model>) -> anyhow::Result<DelayedDevice> {
        let base = match model {
            Some(model) => Base::Model { budget: Budget::new(&model), model, queue: AtomicU64::new(0) },
            None => Base::Below,
        };
        let timer = Arc::new(Timer::default());
        let own = Arc::clone(&timer);
        // Without it every request would wait for ever.
        let panicked = |why: &str| {
            eprintln!("error: {why}");
            interrupt::request();
        };
        device::supervise::thread("what-if-timer", move || own.run(), panicked)?;
        let shared = Shared { base, delays: Mutex::new(Delays::None), counts: Mutex::default(), timer };
        Ok(DelayedDevice { inner, shared: Arc::new(shared) })
    }

    /// From the next request on.
    pub fn set(&self, delays: Delays) {
        *self.shared.delays.lock() = delays;
    }

    /// The counts since the last call.
    pub fn take_counts(&self) -> RequestCounts {
        std::mem::take(&mut *self.shared.counts.lock())
    }

    /// Does a request on the calling thread, and waits for its time.
    fn timed(
        &self,
        kind: IoKind,
        offset: u64,
        bytes: u64,
        work: impl FnOnce(&dyn Device) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let started = Instant::now();
        work(&*self.inner)?;
        if let Some(due) = self.shared.due(kind, offset, bytes, started) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}

impl Shared {
    /// When a request that the device below has done is complete; none: now.
    fn due(&self, kind: IoKind, offset: u64, bytes: u64, started: Instant) -> Option<Instant> {
        let now = Instant::now();
        let delays = *self.delays.lock();
        let (due, cost_ns) = match delays {
            Delays::None => (now, 0.0),
            Delays::Fixed(time) => (started + time, 0.0),
            Delays::Medium { cost, added_ns } => {
                let done = self.done_by(kind, offset, bytes, started).max(now);
                let ns = added_ns - cost.of(kind);
                (shifted(done, ns).max(now), cost.of(kind))
            }
        };
        let mut counts = self.counts.lock();
        match kind {
            IoKind::Read => counts.reads += 1,
            IoKind::Write | IoKind::WriteFlush => counts.writes += 1,
            IoKind::Flush => counts.flushes += 1,
            IoKind::Discard | IoKind::WriteZeroes { .. } => return None,
        }
        counts.bytes += bytes;
        counts.latency_ns.record(due.saturating_duration_since(started).as_nanos() as u64 + cost_ns as u64);
        drop(counts);
        (due > now).then_some(due)
    }

    /// When the medium is done.
    fn done_by(&self, kind: IoKind, offset: u64, bytes: u64, started: Instant) -> Instant {
        let Base::Model { model, budget, queue } = &self.base else { return Instant::now() };
        let direction = match kind {
            IoKind::Read => Direction::Read,
            IoKind::Write | IoKind::WriteFlush => Direction::Write,
            IoKind::Flush => return shifted(started, model.flush()),
            IoKind::Discard | IoKind::WriteZeroes { .. } => return started,
        };
        let queue = queue.fetch_add(1, Relaxed) % QUEUES;
        let since = budget.now() - started.elapsed().as_nanos() as f64;
        budget.moment(budget.take(model, queue, since, &Request::new(0, direction, offset, bytes)))
    }
}

fn shifted(moment: Instant, ns: f64) -> Instant {
    let by = Duration::from_nanos(ns.abs() as u64);
    if ns < 0.0 { moment.checked_sub(by).unwrap_or(moment) } else { moment + by }
}

/// Returns the requests of a batch to who waits for them, when their time has come.
struct Delaying {
    shared: Arc<Shared>,
    sink: Arc<dyn IoSink>,
    started: Instant,
}

impl IoSink for Delaying {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        let due = match &result {
            Ok(()) => self.shared.due(request.kind, request.offset, request.bytes, self.started),
            Err(_) => None,
        };
        match due {
            Some(due) => self.shared.timer.add(Waiting { due, request, result, sink: Arc::clone(&self.sink) }),
            None => self.sink.complete(request, result),
        }
    }
}

impl Device for DelayedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.inner.atom_bytes()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let bytes = buffer.len() as u64;
        self.timed(IoKind::Read, offset, bytes, |inner| inner.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.timed(IoKind::Write, offset, data.len() as u64, |inner| inner.write(offset, data))
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.timed(IoKind::WriteFlush, offset, data.len() as u64, |inner| inner.write_flush(offset, data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.timed(IoKind::Flush, 0, 0, |inner| inner.flush())
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.inner.write_zeroes(offset, bytes, free)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.inner.extents(offset, bytes)
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let delaying = Delaying { shared: Arc::clone(&self.shared), sink: Arc::clone(sink), started: Instant::now() };
        self.inner.submit(batch, &(Arc::new(delaying) as Arc<dyn IoSink>));
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

impl Drop for DelayedDevice {
    fn drop(&mut self) {
        self.shared.timer.stop();
    }
}

/// A request that waits for its time.
struct Waiting {
    due: Instant,
    request: IoRequest,
    result: Result<(), DeviceError>,
    sink: Arc<dyn IoSink>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.due == other.due
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        self.due.cmp(&other.due)
    }
}

#[derive(Default)]
struct Schedule {
    waiting: BinaryHeap<Reverse<Waiting>>,
    is_over: bool,
}

/// The thread that completes requests, and what it has to do.
#[derive(Default)]
struct Timer {
    schedule: Mutex<Schedule>,
    changed: Condvar,
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timer").field("waiting", &self.schedule.lock().waiting.len()).finish()
    }
}

impl Timer {
    fn add(&self, waiting: Waiting) {
        let mut schedule = self.schedule.lock();
        if schedule.is_over {
            // The thread may have ended: the device below completed this one after the last handle was gone.
            drop(schedule);
            return waiting.sink.complete(waiting.request, waiting.result);
        }
        let is_next = schedule.waiting.peek().is_none_or(|Reverse(next)| waiting.due < next.due);
        schedule.waiting.push(Reverse(waiting));
        drop(schedule);
        if is_next {
            self.changed.notify_one();
        }
    }

    fn stop(&self) {
        self.schedule.lock().is_over = true;
        self.changed.notify_one();
    }

    /// Until it is stopped, and nothing waits.
    fn run(&self) {
        // Linux adds 50 us to the sleep of a thread (prctl(2), PR_SET_TIMERSLACK), more than some media take. Where it may not be
        // changed, the slack is part of the measured cost of the path.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut schedule = self.schedule.lock();
        loop {
            let now = Instant::now();
            let is_due = schedule.waiting.peek().is_some_and(|Reverse(next)| next.due <= now || schedule.is_over);
            if is_due && let Some(Reverse(next)) = schedule.waiting.pop() {
                drop(schedule);
                next.sink.complete(next.request, next.result);
                schedule = self.schedule.lock();
                continue;
            }
            match schedule.waiting.peek().map(|Reverse(next)| next.due) {
                Some(due) => drop(self.changed.wait_until(&mut schedule, due)),
                None if schedule.is_over => return,
                None => self.changed.wait(&mut schedule),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use catalogue::Medium;
    use device::{AlignedBuffer, MemoryShelf, Shelf};

    use super::*;

    #[derive(Default)]
    struct Arrivals(Mutex<Vec<(u64, Instant)>>, Condvar);

    impl IoSink for Arrivals {
        fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
            result.expect("memory");
            self.0.lock().push((request.token, Instant::now()));
            self.1.notify_all();
        }
    }

    fn device(model: Option<&str>) -> DelayedDevice {
        let memory = MemoryShelf::new().create("a", 1 << 20).expect("made");
        let model = model.map(|name| Model::of(&Medium::find(name).expect("known"), 1).expect("complete"));
        DelayedDevice::new(memory, model).expect("a thread")
    }

    /// Submits reads and returns when each arrived, by token, from the start.
    fn arrivals(device: &DelayedDevice, count: u64) -> Vec<Duration> {
        let arrivals = Arc::new(Arrivals::default());
        let sink: Arc<dyn IoSink> = arrivals.clone();
        let mut batch =
            (0..count).map(|token| IoRequest::read(token * 4096, AlignedBuffer::zeroed(4096), token)).collect();
        let started = Instant::now();
        device.submit(&mut batch, &sink);
        let mut arrived = arrivals.0.lock();
        while (arrived.len() as u64) < count {
            arrivals.1.wait(&mut arrived);
        }
        arrived.sort_unstable();
        arrived.iter().map(|(_, moment)| *moment - started).collect()
    }

    #[test]
    fn many_requests_wait_side_by_side_and_none_ends_early() {
        let device = device(None);
        device.set(Delays::Fixed(Duration::from_millis(20)));
        let times = arrivals(&device, 32);
        assert!(times.iter().all(|time| *time >= Duration::from_millis(20)), "{times:?}");
        assert!(times.iter().max().expect("some") < &Duration::from_millis(32 * 20), "not one after the other");
        let counts = device.take_counts();
        assert_eq!((counts.reads, counts.writes, counts.bytes), (32, 0, 32 * 4096));
        assert!(counts.latency_ns.quantile(0.5) >= 19_000_000);
        assert_eq!(device.take_counts().reads, 0);
    }

    #[test]
    fn the_medium_decides_less_the_path_plus_what_is_added() {
        let device = device(Some("sata-s4500"));
        let free = PathCost::default();
        device.set(Delays::Medium { cost: free, added_ns: 5e6 });
        assert!(arrivals(&device, 1)[0] >= Duration::from_millis(5));
        // The path costs more than the medium takes: nothing is left to wait for.
        let cost = PathCost { read_ns: 1e9, ..free };
        device.set(Delays::Medium { cost, added_ns: 0.0 });
        assert!(arrivals(&device, 1)[0] < Duration::from_millis(500));
        assert!(device.take_counts().latency_ns.quantile(1.0) >= 990_000_000, "as the file system sees it");
    }

    #[test]
    fn single_calls_wait_too_and_what_waits_at_the_end_is_completed() {
        let device = device(None);
        device.set(Delays::Fixed(Duration::from_millis(10)));
        let started = Instant::now();
        device.write_flush(0, &[7; 4096]).expect("memory");
        assert!(started.elapsed() >= Duration::from_millis(10));
        device.set(Delays::Fixed(Duration::from_secs(3600)));
        let arrivals = Arc::new(Arrivals::default());
        let sink: Arc<dyn IoSink> = arrivals.clone();
        device.submit(&mut vec![IoRequest::flush(3)], &sink);
        assert!(arrivals.0.lock().is_empty());
        drop(device);
        let mut arrived = arrivals.0.lock();
        while arrived.is_empty() {
            arrivals.1.wait(&mut arrived);
        }
        assert_eq!(arrived[0].0, 3);
    }
}
