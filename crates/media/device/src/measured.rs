//! A shelf whose devices count and time what is done to them: reads, writes, flushes and discards, each with its bytes.
//!
//! ```text
//!   structure (journal, pages, ..) --> DeviceTraffic::measure --> the tier's own shelf, slowed down by a model where there is one
//!                                           |
//!                                     counts and times, one for all devices of the shelf --> the metrics of the node
//! ```
//!
//! Every operation is counted. Every operation is timed as well, but on a medium that takes only instructions
//! ([`Device::is_inline`]): there one of [`ONE_OF`] is, because two looks at the clock would be a tenth of a short write. The
//! requests of a batch are timed from its submission to the completion of each.
//!
//! Invariant: it changes nothing of what an operation does, returns or guarantees; a refused operation is counted and timed too.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::contract::{self, Shelf};
use crate::{Device, DeviceError, Distribution, Durability, Extent, IoKind, IoRequest, IoSink, Noted, WrappedShelf};

/// Of operations on a medium that takes only instructions, one of so many is timed.
pub const ONE_OF: u64 = 16;

/// What is done to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficKind {
    /// [`Device::read`].
    Read,
    /// [`Device::write`], [`Device::write_flush`] with its flush, and zeros.
    Write,
    /// [`Device::flush`] and [`Device::deep_flush`].
    Flush,
    /// [`Device::discard`].
    Discard,
}

impl TrafficKind {
    /// All of them.
    pub const ALL: [TrafficKind; 4] = [TrafficKind::Read, TrafficKind::Write, TrafficKind::Flush, TrafficKind::Discard];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            TrafficKind::Read => "read",
            TrafficKind::Write => "write",
            TrafficKind::Flush => "flush",
            TrafficKind::Discard => "discard",
        }
    }

    fn of(kind: IoKind) -> TrafficKind {
        match kind {
            IoKind::Read => TrafficKind::Read,
            IoKind::Write | IoKind::WriteFlush | IoKind::WriteZeroes { .. } => TrafficKind::Write,
            IoKind::Flush => TrafficKind::Flush,
            IoKind::Discard => TrafficKind::Discard,
        }
    }
}

/// What was done to the devices of a shelf since it was opened.
#[derive(Debug, Default)]
pub struct DeviceTraffic {
    kinds: [Distribution; TrafficKind::ALL.len()],
}

impl DeviceTraffic {
    /// The devices of `inner`, whose operations are noted here.
    pub fn measure(self: &Arc<DeviceTraffic>, inner: Arc<dyn Shelf>) -> Arc<dyn Shelf> {
        let traffic = Arc::clone(self);
        Arc::new(WrappedShelf::new(inner, move |device| {
            let (is_inline, traffic) = (device.is_inline(), Arc::clone(&traffic));
            Arc::new(MeasuredDevice { inner: device, is_inline, traffic })
        }))
    }

    /// Operations of a kind: how many and how many bytes ([`Noted::operations`], [`Noted::bytes`]), and the times of those that were timed.
    pub fn noted(&self, kind: TrafficKind) -> Noted {
        self.kinds[kind as usize].noted()
    }

    /// Counts one; whether it is to be timed.
    fn count(&self, kind: TrafficKind, bytes: u64, is_inline: bool) -> bool {
        let before = self.kinds[kind as usize].count(bytes);
        !is_inline || before.is_multiple_of(ONE_OF)
    }

    fn took(&self, kind: TrafficKind, time: Duration) {
        self.kinds[kind as usize].note(1, 0, time);
    }

    fn during<T>(&self, (kind, is_inline): (TrafficKind, bool), bytes: u64, work: impl FnOnce() -> T) -> T {
        if !self.count(kind, bytes, is_inline) {
            return work();
        }
        let began = Instant::now();
        let done = work();
        self.took(kind, began.elapsed());
        done
    }
}

struct MeasuredDevice {
    inner: Arc<dyn Device>,
    is_inline: bool,
    traffic: Arc<DeviceTraffic>,
}

impl fmt::Debug for MeasuredDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MeasuredDevice").field(&self.inner).finish()
    }
}

impl MeasuredDevice {
    #[inline]
    fn during<T>(&self, kind: TrafficKind, bytes: u64, work: impl FnOnce(&dyn Device) -> T) -> T {
        self.traffic.during((kind, self.is_inline), bytes, || work(&*self.inner))
    }
}

impl Device for MeasuredDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.inner.atom_bytes()
    }

    fn is_inline(&self) -> bool {
        self.is_inline
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.during(TrafficKind::Flush, 0, |inner| inner.deep_flush())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.during(TrafficKind::Read, buffer.len() as u64, |inner| inner.read(offset, buffer))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.during(TrafficKind::Write, data.len() as u64, |inner| inner.write(offset, data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.during(TrafficKind::Flush, 0, |inner| inner.flush())
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.during(TrafficKind::Write, data.len() as u64, |inner| inner.write_flush(offset, data))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.during(TrafficKind::Discard, bytes, |inner| inner.discard(offset, bytes))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.during(TrafficKind::Write, bytes, |inner| inner.write_zeroes(offset, bytes, free))
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.inner.extents(offset, bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.reserve(offset, bytes)
    }

    fn allocated_bytes(&self) -> Result<u64, DeviceError> {
        self.inner.allocated_bytes()
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        // Without threads of its own the device would do them here, one after the other, and each would be timed with those before it.
        if !self.inner.waits_by_itself() {
            return contract::submit_in_turn(self, batch, sink);
        }
        for request in batch.iter() {
            self.traffic.count(TrafficKind::of(request.kind), request.bytes, false);
        }
        let sink: Arc<dyn IoSink> = Arc::new(MeasuredSink {
            inner: Arc::clone(sink),
            began: Instant::now(),
            traffic: Arc::clone(&self.traffic),
        });
        self.inner.submit(batch, &sink);
    }

    fn waits_by_itself(&self) -> bool {
        self.inner.waits_by_itself()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

/// Notes the completion of the requests of a batch.
struct MeasuredSink {
    inner: Arc<dyn IoSink>,
    began: Instant,
    traffic: Arc<DeviceTraffic>,
}

impl IoSink for MeasuredSink {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.traffic.took(TrafficKind::of(request.kind), self.began.elapsed());
        self.inner.complete(request, result);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{AlignedBuffer, FileOptions, FileShelf, MemoryShelf};

    const BLOCK: usize = crate::BLOCK_BYTES;

    fn counts(traffic: &DeviceTraffic) -> Vec<(u64, u64)> {
        TrafficKind::ALL.iter().map(|kind| traffic.noted(*kind)).map(|noted| (noted.operations, noted.bytes)).collect()
    }

    #[test]
    fn each_operation_is_counted_once_with_its_bytes_and_does_what_it_did() {
        let traffic = Arc::new(DeviceTraffic::default());
        let shelf = traffic.measure(Arc::new(MemoryShelf::new()));
        let device = shelf.create("a", 16 * BLOCK as u64).expect("memory");
        let data = vec![7; BLOCK];
        device.write(0, &data).expect("memory");
        device.write_flush(BLOCK as u64, &data).expect("memory");
        device.flush().expect("memory");
        let mut read = vec![0; 2 * BLOCK];
        device.read(0, &mut read).expect("memory");
        assert!(read.iter().all(|byte| *byte == 7));
        device.discard(0, BLOCK as u64).expect("memory");
        let block = BLOCK as u64;
        assert_eq!(counts(&traffic), [(1, 2 * block), (2, 2 * block), (1, 0), (1, block)]);
        // Opened again, it goes on in the same counts.
        shelf.open("a").expect("it is there").flush().expect("memory");
        assert_eq!(counts(&traffic)[2].0, 2);
        let timed: u64 = TrafficKind::ALL.iter().map(|kind| traffic.noted(*kind).count()).sum();
        let expected = if device.is_inline() { 4 } else { 6 };
        assert_eq!(timed, expected);
    }

    #[test]
    fn a_failed_operation_is_counted_and_its_error_is_returned() {
        let faulty = Arc::new(crate::FaultyShelf::new(Arc::new(MemoryShelf::new())));
        faulty.inject(crate::faulty::Rule::nth(crate::Operation::Write, 1, crate::faulty::Fault::Eio));
        let traffic = Arc::new(DeviceTraffic::default());
        let device = traffic.measure(faulty).create("a", BLOCK as u64).expect("memory");
        assert!(device.write(0, &vec![1; BLOCK]).is_err());
        assert_eq!(traffic.noted(TrafficKind::Write).operations, 1);
    }

    struct Told(std::sync::Mutex<mpsc::Sender<u64>>);

    impl IoSink for Told {
        fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
            result.expect("the file takes it");
            self.0.lock().expect("no panic").send(request.token).expect("the test waits");
        }
    }

    #[test]
    fn the_requests_of_a_batch_come_back_once_and_are_counted_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let traffic = Arc::new(DeviceTraffic::default());
        let files = FileShelf::open(folder.path(), FileOptions::default()).expect("a folder");
        let device = traffic.measure(Arc::new(files)).create("a", 64 * BLOCK as u64).expect("room");
        let (tell, told) = mpsc::channel();
        let sink: Arc<dyn IoSink> = Arc::new(Told(std::sync::Mutex::new(tell)));
        let write = |n: u64| IoRequest::write(n * BLOCK as u64, AlignedBuffer::zeroed(BLOCK), n);
        let mut batch: Vec<IoRequest> = (0..32).map(write).collect();
        device.submit(&mut batch, &sink);
        let mut tokens: Vec<u64> = (0..32).map(|_| told.recv().expect("each comes back")).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (0..32).collect::<Vec<_>>());
        let noted = traffic.noted(TrafficKind::Write);
        assert_eq!((noted.operations, noted.bytes, noted.count()), (32, 32 * BLOCK as u64, 32));
    }
}
