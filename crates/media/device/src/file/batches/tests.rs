//! Tests of the parts of a ring with files that fail, hang or cannot be written, and with results that no file here gives.

use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::*;
use crate::file::device::Writer;
use crate::file::flushers::Flushers;
use crate::file::lock::Lock;
use crate::poison::Poison;
use crate::{AlignedBuffer, BLOCK_BYTES};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// More than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// What was completed, in order.
struct Channel(Mutex<Sender<(IoRequest, Result<(), DeviceError>)>>);

type Completed = Receiver<(IoRequest, Result<(), DeviceError>)>;

impl IoSink for Channel {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        // The test may have seen enough.
        let _ = self.0.lock().send((request, result));
    }
}

fn sink() -> (Arc<dyn IoSink>, Completed) {
    let (sender, completed) = channel();
    (Arc::new(Channel(Mutex::new(sender))), completed)
}

/// The ring; if the kernel has no usable io_uring, prints that and returns `None`.
fn ring() -> Option<Arc<BatchRing>> {
    let ring = BatchRing::probe().inspect_err(|why| println!("skipped: io_uring cannot be used here ({why})")).ok();
    ring.map(Arc::new)
}

/// A device of 1 GiB over any file.
fn file(home: &Path, path: &Path, is_writable: bool, flags: i32) -> Arc<FileDevice> {
    let writer = || Writer {
        flushers: Flushers::default(),
        rings: None,
        poison: Poison::default(),
        _lock: Arc::new(Lock::take(home).expect("a fresh directory")),
    };
    Arc::new(FileDevice {
        name: "a".into(),
        bytes: 1 << 30,
        direct: false,
        durability: Durability::None,
        file: File::options().read(true).write(is_writable).custom_flags(flags).open(path).expect("open"),
        writer: is_writable.then(writer),
    })
}

fn block(value: u8) -> AlignedBuffer {
    AlignedBuffer::from(&[value; BLOCK_BYTES][..])
}

/// Submits one request and returns its result.
fn submit(device: &BatchedFile, request: IoRequest) -> Result<(), DeviceError> {
    let (sink, completed) = sink();
    device.submit(&mut vec![request], &sink);
    completed.recv_timeout(LONG).expect("each request is completed").1
}

fn all_kinds() -> [IoRequest; 6] {
    let zeros = IoRequest { kind: IoKind::WriteZeroes { free: false }, ..IoRequest::discard(0, BLOCK, 4) };
    [
        IoRequest::write(0, block(1), 0),
        IoRequest::write_flush(0, block(1), 1),
        IoRequest::flush(2),
        IoRequest::discard(0, BLOCK, 3),
        zeros,
        IoRequest::write_flush(0, AlignedBuffer::new(), 5),
    ]
}

fn is_poisoned(device: &BatchedFile) -> bool {
    all_kinds().into_iter().all(|request| matches!(submit(device, request), Err(DeviceError::Poisoned { .. })))
        && matches!(device.write(0, &block(1)), Err(DeviceError::Poisoned { .. }))
}

#[test]
fn a_failed_request_of_a_batch_has_the_error_of_the_plain_call_and_poisons_as_it_does() {
    let Some(ring) = ring() else { return };
    let home = tempfile::tempdir().expect("temporary directory");
    // The kernel cannot flush a character device (EINVAL), and /dev/full is always full (ENOSPC).
    let (null, full) = (Path::new("/dev/null"), Path::new("/dev/full"));
    for (path, request) in [
        (null, IoRequest::flush(1)),
        (null, IoRequest::write_flush(BLOCK, block(1), 1)),
        (null, IoRequest::discard(0, BLOCK, 1)),
        (full, IoRequest::write(BLOCK, block(1), 1)),
        (full, IoRequest::write_flush(BLOCK, block(1), 1)),
    ] {
        let what = format!("{request:?} on {}", path.display());
        let mut again = IoRequest { buffer: request.buffer.clone(), ..request };
        let plain = again.perform(&*file(home.path(), path, true, 0)).expect_err("it fails").to_string();
        let device = BatchedFile::new(file(home.path(), path, true, 0), &ring);
        let batched = submit(&device, request).expect_err("it fails").to_string();
        assert_eq!(batched, plain, "{what}");
        assert!(is_poisoned(&device), "{what}");
        assert!(submit(&device, IoRequest::read(0, block(9), 1)).is_err() == (path == null), "{what}: reads go on");
    }
}

#[test]
fn of_flushes_that_fail_together_one_has_the_error_and_the_others_are_told_of_the_poison() {
    let Some(ring) = ring() else { return };
    let home = tempfile::tempdir().expect("temporary directory");
    let device = BatchedFile::new(file(home.path(), Path::new("/dev/null"), true, 0), &ring);
    let (sink, completed) = sink();
    device.submit(&mut (0..100).map(IoRequest::flush).collect(), &sink);
    let results: Vec<_> = (0..100).map(|_| completed.recv_timeout(LONG).expect("completed").1).collect();
    let count = |is: fn(&DeviceError) -> bool| results.iter().filter(|result| result.as_ref().is_err_and(is)).count();
    assert_eq!(count(|error| matches!(error, DeviceError::Io { operation: Operation::Flush, .. })), 1);
    assert_eq!(count(|error| matches!(error, DeviceError::Poisoned { .. })), 99);
}

#[test]
fn a_device_open_for_reading_refuses_changes_of_a_batch_as_it_refuses_calls() {
    let Some(ring) = ring() else { return };
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; BLOCK_BYTES]).expect("write");
    for request in all_kinds() {
        let plain_file = file(home.path(), &path, false, 0);
        let what = format!("{request:?}");
        let mut again = IoRequest { buffer: request.buffer.clone(), ..request };
        let plain = again.perform(&*plain_file).expect_err("it is refused").to_string();
        let device = BatchedFile::new(plain_file, &ring);
        assert_eq!(submit(&device, request).expect_err("it is refused").to_string(), plain, "{what}");
        submit(&device, IoRequest::read(0, block(0), 1)).expect("it can be read");
    }
}

#[test]
fn a_read_past_the_end_of_a_shortened_file_and_a_write_through_a_read_only_descriptor_are_errors() {
    let Some(ring) = ring() else { return };
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; BLOCK_BYTES + 100]).expect("write");
    let device = BatchedFile::new(file(home.path(), &path, true, 0), &ring);
    for at in [BLOCK, 2 * BLOCK] {
        let error = submit(&device, IoRequest::read(at, block(0), 1)).expect_err("it has no such bytes");
        let is_end = matches!(&error, DeviceError::Io { source, .. } if source.kind() == io::ErrorKind::UnexpectedEof);
        assert!(is_end, "{error}");
    }
    submit(&device, IoRequest::write(0, block(1), 1)).expect("an error of a read does not poison");
    drop(device);
    let mut foreign = Arc::into_inner(file(home.path(), &path, true, 0)).expect("the only one");
    foreign.file = File::open(&path).expect("open");
    let device = BatchedFile::new(Arc::new(foreign), &ring);
    let error = submit(&device, IoRequest::write(0, block(2), 1)).expect_err("the descriptor is for reading");
    let code = if let DeviceError::Io { source, .. } = &error { source.raw_os_error() } else { None };
    assert_eq!(code, Some(libc::EBADF), "{error}");
    assert!(is_poisoned(&device));
}

#[test]
fn short_interrupted_and_impossible_results_of_the_kernel_are_continued_or_reported() {
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; BLOCK_BYTES]).expect("write");
    let file = file(home.path(), &path, true, 0);
    let pending = Arc::default();
    let (sink, completed) = sink();
    let job = |request: IoRequest| Job::new(request, &sink, &file, &pending);

    let mut read = job(IoRequest::read(BLOCK, AlignedBuffer::zeroed(3 * BLOCK_BYTES), 1));
    for (result, left) in [(1, 12287), (-libc::EINTR, 12287), (4095, 8192), (8191, 1)] {
        assert!(matches!(read.advance(result), Transfer::Again), "{result}");
        let (fd, offset, _, bytes) = read.rest();
        assert_eq!((fd, offset, bytes), (file.file.as_raw_fd(), 4 * BLOCK - left, left as usize), "{result}");
    }
    assert!(matches!(read.advance(-libc::EAGAIN), Transfer::Plainly));
    assert!(matches!(read.advance(-libc::ECANCELED), Transfer::Plainly));
    assert!(matches!(read.advance(-libc::EIO), Transfer::Failed(error) if error.raw_os_error() == Some(libc::EIO)));
    assert!(matches!(read.advance(0), Transfer::Failed(error) if error.kind() == io::ErrorKind::UnexpectedEof));
    assert!(matches!(read.advance(2), Transfer::Failed(error) if error.kind() == io::ErrorKind::InvalidData));
    assert!(matches!(read.advance(1), Transfer::Done));
    read.end(Ok(()));
    completed.recv().expect("completed").1.expect("read");

    let mut write = job(IoRequest::write(0, block(1), 2));
    assert!(matches!(write.advance(0), Transfer::Failed(error) if error.kind() == io::ErrorKind::WriteZero));
    let error = write.failure(io::Error::from_raw_os_error(libc::ENOSPC));
    assert!(matches!(error, DeviceError::Full { bytes: BLOCK, .. }), "{error}");
    drop(write);
    let (_, lost) = completed.recv().expect("a job that is dropped has ended");
    assert!(matches!(lost, Err(DeviceError::Io { operation: Operation::Write, .. })), "{lost:?}");
    let (request, leaked) = {
        job(IoRequest::read(0, block(1), 3)).end_without_memory(DeviceError::PowerLost);
        completed.recv().expect("completed")
    };
    assert!(request.buffer.is_empty() && leaked.is_err(), "the memory stays with the kernel");
    pending.wait();
}

#[test]
fn a_request_that_the_kernel_cannot_queue_is_done_by_a_plain_call() {
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; 2 * BLOCK_BYTES]).expect("write");
    let file = file(home.path(), &path, true, 0);
    let (sink, completed) = sink();
    let request = IoRequest::read(0, AlignedBuffer::zeroed(2 * BLOCK_BYTES), 1);
    let mut job = Job::new(request, &sink, &file, &Arc::default());
    assert!(matches!(job.advance(4096), Transfer::Again));
    perform_each(vec![job]);
    let (request, result) = completed.recv().expect("completed");
    result.expect("read");
    assert!(request.buffer.iter().all(|byte| *byte == 7));
}

#[test]
fn dropping_a_device_waits_for_its_requests_and_a_sink_that_panics_ends_only_its_own() {
    struct Panics;
    impl IoSink for Panics {
        fn complete(&self, _: IoRequest, _: Result<(), DeviceError>) {
            panic!("in a sink");
        }
    }
    let Some(ring) = ring() else { return };
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; BLOCK_BYTES]).expect("write");
    let panics: Arc<dyn IoSink> = Arc::new(Panics);
    for turn in 0..20 {
        let device = BatchedFile::new(file(home.path(), &path, true, 0), &ring);
        let (sink, completed) = sink();
        let write = |token: u64| IoRequest::write(token * BLOCK, block(token as u8), token);
        device.submit(&mut (0..10).map(write).collect(), &panics);
        device.submit(&mut (0..10).map(IoRequest::flush).collect(), &panics);
        device.submit(&mut (0..500).map(write).collect(), &sink);
        drop(device);
        assert_eq!(completed.try_iter().filter(|(_, result)| result.is_ok()).count(), 500, "turn {turn}");
    }
}

#[test]
fn the_last_handle_of_a_device_and_of_a_ring_can_be_dropped_by_a_completion() {
    struct Holds {
        device: Mutex<Option<BatchedFile>>,
        done: Mutex<Sender<()>>,
    }
    impl IoSink for Holds {
        fn complete(&self, _: IoRequest, result: Result<(), DeviceError>) {
            result.expect("it is done");
            drop(self.device.lock().take());
            self.done.lock().send(()).expect("the test waits");
        }
    }
    if ring().is_none() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; 64 * BLOCK_BYTES]).expect("write");
    for kind in [IoKind::Read, IoKind::WriteFlush, IoKind::Flush, IoKind::Discard] {
        let (done, ended) = channel();
        let holds = Arc::new(Holds { device: Mutex::default(), done: Mutex::new(done) });
        let held: Arc<dyn IoSink> = holds.clone();
        let requests = (0..64).map(|token| match kind {
            IoKind::Flush => IoRequest::flush(token),
            IoKind::Discard => IoRequest::discard(token * BLOCK, BLOCK, token),
            kind => IoRequest { kind, ..IoRequest::read(token * BLOCK, block(1), token) },
        });
        // Completions wait until it is there.
        let mut place = holds.device.lock();
        let device = BatchedFile::new(file(home.path(), &path, true, 0), &Arc::new(BatchRing::default()));
        let pending = Arc::clone(&device.pending);
        device.submit(&mut requests.collect(), &held);
        *place = Some(device);
        drop(place);
        for _ in 0..64 {
            ended.recv_timeout(LONG).expect("each is completed");
        }
        pending.wait();
    }
}

#[test]
fn a_file_that_hangs_holds_up_no_other_one_of_its_shelf_and_dropping_it_waits() {
    let Some(ring) = ring() else { return };
    let home = tempfile::tempdir().expect("temporary directory");
    let (pipe, plain) = (home.path().join("pipe"), home.path().join("a"));
    let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: mkfifo reads the string, which lives until the call returns.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0, "{}", io::Error::last_os_error());
    std::fs::write(&plain, vec![7; BLOCK_BYTES]).expect("write");
    // Nothing is in the pipe: a read of it waits in the kernel.
    let mut end = File::options().read(true).write(true).open(&pipe).expect("open");
    let hanging = BatchedFile::new(file(home.path(), &pipe, false, 0), &ring);
    let (hanging_sink, hanging_completed) = sink();
    hanging.submit(&mut vec![IoRequest::read(0, block(0), 1)], &hanging_sink);
    let other = BatchedFile::new(file(home.path(), &plain, true, 0), &ring);
    for _ in 0..100 {
        submit(&other, IoRequest::read(0, block(0), 1)).expect("it is read");
        submit(&other, IoRequest::write_flush(0, block(1), 1)).expect("it is written");
    }
    assert!(hanging_completed.try_recv().is_err(), "it hangs");
    let dropping = std::thread::spawn(move || drop(hanging));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!dropping.is_finished(), "the kernel has the memory of the request");
    // In two parts: the first one is a short read.
    for part in [100, BLOCK_BYTES - 100] {
        end.write_all(&vec![9; part]).expect("write");
        std::thread::sleep(Duration::from_millis(10));
    }
    dropping.join().expect("no panic");
    let (request, result) = hanging_completed.try_recv().expect("it has ended before the device");
    result.expect("read");
    assert!(request.buffer.iter().all(|byte| *byte == 9));
}

#[test]
fn when_the_thread_of_a_ring_ends_all_that_it_has_ends_and_later_requests_are_done_by_plain_calls() {
    if ring().is_none() {
        return;
    }
    let home = tempfile::tempdir().expect("temporary directory");
    let path = home.path().join("a");
    std::fs::write(&path, vec![7; BLOCK_BYTES]).expect("write");
    let file = file(home.path(), &path, false, 0);
    let (sink, completed) = sink();
    let pending = Arc::default();
    let job = |token| Job::new(IoRequest::read(0, block(0), token), &sink, &file, &pending);
    let bell = Arc::new(os::event_counter().expect("a counter"));
    let (queue, flushes, others) = (Mutex::default(), PlainCalls::default(), PlainCalls::default());
    let shared = Arc::new(RingShared { queue, bell: Arc::clone(&bell), flushes, others });
    shared.others.close();
    let mut kernel = Kernel::new(bell).expect("a ring");
    kernel.begin(job(1));
    kernel.wait().expect("it is served");
    kernel.begin(job(2));
    shared.queue.lock().jobs.push_back(job(4));
    let owner = RingOwner { kernel, shared: Arc::clone(&shared), taken: vec![job(3)] };
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _owner = owner;
        panic!("in the thread of a ring");
    }));
    assert!(panicked.is_err());
    pending.wait();
    let mut ended: Vec<u64> =
        completed.try_iter().filter(|(_, result)| result.is_err()).map(|(r, _)| r.token).collect();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3, 4]);
    shared.add(vec![job(5)]);
    let (request, result) = completed.try_recv().expect("it is done at once");
    result.expect("read");
    assert_eq!((request.token, request.buffer[0]), (5, 7));
}
