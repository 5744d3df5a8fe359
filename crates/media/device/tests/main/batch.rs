//! Batches of requests do what the single calls do.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::{
    AlignedBuffer, BLOCK_BYTES, Device, DeviceError, FileOptions, FileShelf, IoKind, IoRequest, IoSink, MemoryShelf,
    Shelf,
};

use crate::seeds;

/// More than anything here takes.
const LONG: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Completed(Mutex<Vec<(u64, bool, Vec<u8>)>>);

impl IoSink for Completed {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.lock().expect("no panic").push((request.token, result.is_ok(), request.buffer.to_vec()));
    }
}

#[test]
fn a_batch_does_what_the_single_calls_do() {
    let shelf = MemoryShelf::new();
    let device = shelf.create("a", 8 * BLOCK_BYTES as u64).expect("memory");
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    let block = |value| AlignedBuffer::from(&[value; BLOCK_BYTES][..]);
    let at = |index: u64| index * BLOCK_BYTES as u64;
    let mut batch = vec![
        IoRequest::write(at(1), block(1), 10),
        IoRequest::write_flush(at(2), block(2), 11),
        IoRequest::flush(12),
        IoRequest::discard(at(1), BLOCK_BYTES as u64, 13),
        IoRequest::write(at(3), block(3), 16),
        IoRequest::write(at(4), block(3), 17),
        IoRequest { kind: IoKind::WriteZeroes { free: false }, ..IoRequest::discard(at(3), BLOCK_BYTES as u64, 18) },
        IoRequest { kind: IoKind::WriteZeroes { free: true }, ..IoRequest::discard(at(4), BLOCK_BYTES as u64, 19) },
    ];
    device.submit(&mut batch, &sink);
    assert!(batch.is_empty(), "a batch is taken");
    let reads = (1..5).map(|index| IoRequest::read(at(index), block(9), 20 + index));
    device.submit(&mut reads.collect(), &sink);
    let extents = device.extents(at(0), at(8)).expect("known");
    assert_eq!(extents.iter().map(|extent| extent.bytes).sum::<u64>(), at(8));
    let mut told = std::mem::take(&mut *completed.0.lock().expect("no panic"));
    told.sort_unstable_by_key(|(token, ..)| *token);
    assert!(told.iter().all(|(_, ok, _)| *ok));
    let tokens: Vec<u64> = told.iter().map(|(token, ..)| *token).collect();
    assert_eq!(tokens, [10, 11, 12, 13, 16, 17, 18, 19, 21, 22, 23, 24]);
    let read: Vec<u8> = told[8..].iter().map(|(.., bytes)| bytes[0]).collect();
    assert_eq!(read, [0, 2, 0, 0]);
}

/// Sends what is completed.
struct Sending(Mutex<Sender<(IoRequest, Result<(), DeviceError>)>>);

impl IoSink for Sending {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.lock().expect("no panic").send((request, result)).expect("the test waits");
    }
}

type Returned = Receiver<(IoRequest, Result<(), DeviceError>)>;

fn sending() -> (Arc<dyn IoSink>, Returned) {
    let (sender, completed) = channel();
    (Arc::new(Sending(Mutex::new(sender))), completed)
}

/// Shelves of files: direct and buffered, with batches through io_uring and in turn.
fn on_files(check: impl Fn(&str, &dyn Shelf)) {
    for options in 0..4 {
        let [direct, batches] = [1, 2].map(|bit| options & bit != 0);
        let home = tempfile::tempdir().expect("temporary directory");
        let options = FileOptions { direct, batches, ..FileOptions::default() };
        let shelf = FileShelf::open(home.path(), options).expect("open a shelf");
        let kind = shelf.kind().to_string();
        check(&kind, &shelf);
    }
}

/// A request at random, inside `blocks`; writes have bytes of their own.
fn random_request(random: &mut fastrand::Rng, blocks: u64, token: u64) -> IoRequest {
    let block = BLOCK_BYTES as u64;
    let offset = random.u64(..blocks) * block;
    // Mostly one block; now and then many, or none.
    let most = (blocks - offset / block).min(if random.u8(..8) == 0 { 64 } else { 1 });
    let least = u64::from(random.u8(..50) != 0);
    let bytes = random.u64(least..=most) * block;
    let mut buffer = AlignedBuffer::zeroed(bytes as usize);
    buffer.fill(random.u8(..));
    let empty = |kind| IoRequest { kind, ..IoRequest::discard(offset, bytes, token) };
    match random.u8(..20) {
        0..10 => IoRequest::read(offset, buffer, token),
        10..15 => IoRequest::write(offset, buffer, token),
        15..17 => IoRequest::write_flush(offset, buffer, token),
        17 => IoRequest::flush(token),
        18 => IoRequest::discard(offset, bytes, token),
        _ => empty(IoKind::WriteZeroes { free: random.bool() }),
    }
}

/// The blocks that a request changes, or reads.
fn blocks_of(request: &IoRequest) -> std::ops::Range<usize> {
    let first = request.offset as usize / BLOCK_BYTES;
    first..first + request.bytes as usize / BLOCK_BYTES
}

#[test]
fn thousands_of_random_requests_in_batches_give_the_bytes_of_plain_calls() {
    const BLOCKS: u64 = 512;
    const BATCHES: u64 = 30;
    on_files(|kind, shelf| {
        for seed in seeds(2) {
            println!("{kind}, SEED={seed}");
            let mut random = fastrand::Rng::with_seed(seed);
            let bytes = BLOCKS as usize * BLOCK_BYTES;
            let device = shelf.create(&format!("a{seed}"), bytes as u64).expect("create");
            let plain = MemoryShelf::new().create("a", bytes as u64).expect("create");
            let (sink, completed) = sending();
            for batch in 0..BATCHES {
                // Requests of a batch have no order: none touches a block that another one changes.
                let mut touched = vec![false; BLOCKS as usize];
                let mut requests = Vec::new();
                for token in 0..random.u64(1..300) {
                    let request = random_request(&mut random, BLOCKS, batch << 32 | token);
                    if touched[blocks_of(&request)].iter().any(|touched| *touched) {
                        continue;
                    }
                    touched[blocks_of(&request)].fill(true);
                    let mut again = IoRequest { buffer: request.buffer.clone(), ..request };
                    again.perform(&*plain).expect("a plain call");
                    requests.push((request, again));
                }
                let mut expected: Vec<Option<AlignedBuffer>> = Vec::new();
                let mut submitted = Vec::new();
                for (number, (mut request, again)) in requests.into_iter().enumerate() {
                    request.token = number as u64;
                    expected.push(Some(again.buffer));
                    submitted.push(request);
                }
                let count = submitted.len();
                device.submit(&mut submitted, &sink);
                assert!(submitted.is_empty(), "a batch is taken");
                for _ in 0..count {
                    let (request, result) = completed.recv_timeout(LONG).expect("each request is completed");
                    result.unwrap_or_else(|error| panic!("{kind}, SEED={seed}, {request:?}: {error}"));
                    let bytes = expected[request.token as usize].take().expect("once each");
                    assert!(request.buffer[..] == bytes[..], "{kind}, SEED={seed}, batch {batch}, {request:?}");
                }
                assert!(completed.try_recv().is_err(), "once each");
            }
            let read = |device: &dyn Device| {
                let mut all = AlignedBuffer::zeroed(bytes);
                device.read(0, &mut all).expect("read");
                all
            };
            assert!(read(&*device)[..] == read(&*plain)[..], "{kind}, SEED={seed}: at the end");
        }
    });
}

#[test]
fn batches_of_many_threads_and_devices_of_a_shelf_arrive_and_dropping_the_devices_waits_for_them() {
    const THREADS: u64 = 4;
    const BLOCKS: u64 = 256;
    on_files(|kind, shelf| {
        let devices: Vec<_> =
            (0..2).map(|n| shelf.create(&format!("a{n}"), BLOCKS * BLOCK_BYTES as u64).expect("create")).collect();
        let (sink, completed) = sending();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (sink, devices) = (&sink, &devices);
                scope.spawn(move || {
                    for turn in 0..8 {
                        let own = (0..BLOCKS).filter(|block| block % THREADS == thread);
                        let at = |block| block * BLOCK_BYTES as u64;
                        let data = |block: u64| AlignedBuffer::from(&[(block + turn) as u8; BLOCK_BYTES][..]);
                        // Each turn other blocks, since turns overlap.
                        let of_turn = own.filter(|block| block / THREADS % 8 == turn);
                        let write = |block| IoRequest::write_flush(at(block), data(block), block);
                        let mut batch: Vec<IoRequest> = of_turn.map(write).collect();
                        batch.push(IoRequest::flush(0));
                        devices[(turn % 2) as usize].submit(&mut batch, sink);
                    }
                });
            }
        });
        drop(devices);
        let all: Vec<_> = completed.try_iter().collect();
        assert_eq!(all.len() as u64, BLOCKS + 8 * THREADS, "{kind}: all have ended");
        assert!(all.iter().all(|(_, result)| result.is_ok()), "{kind}");
        for block in 0..BLOCKS {
            let turn = block / THREADS % 8;
            let device = shelf.open(&format!("a{}", turn % 2)).expect("open");
            let mut found = [0; BLOCK_BYTES];
            device.read(block * BLOCK_BYTES as u64, &mut found).expect("read");
            assert!(found.iter().all(|byte| *byte == (block + turn) as u8), "{kind}: block {block}");
        }
    });
}

#[test]
fn a_batch_with_a_request_that_no_caller_may_make_panics_and_nothing_of_it_is_begun_by_io_uring() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelf = FileShelf::open(home.path(), FileOptions::default()).expect("open a shelf");
    if !shelf.kind().batches {
        println!("skipped: {}", shelf.kind());
        return;
    }
    let device = shelf.create("a", 4 * BLOCK_BYTES as u64).expect("create");
    let (sink, completed) = sending();
    let good = || IoRequest::write(0, AlignedBuffer::from(&[1; BLOCK_BYTES][..]), 1);
    for bad in [
        IoRequest::read(100, AlignedBuffer::zeroed(BLOCK_BYTES), 2),
        IoRequest::write(4 * BLOCK_BYTES as u64, AlignedBuffer::zeroed(BLOCK_BYTES), 2),
        IoRequest::write_flush(0, AlignedBuffer::zeroed(100), 2),
        IoRequest::discard(0, 5 * BLOCK_BYTES as u64, 2),
    ] {
        let mut batch = vec![good(), bad];
        let submitting = std::panic::AssertUnwindSafe(|| device.submit(&mut batch, &sink));
        assert!(std::panic::catch_unwind(submitting).is_err());
        assert_eq!(batch.len(), 2, "the caller has them still");
    }
    assert!(completed.try_recv().is_err());
    device.submit(&mut vec![good()], &sink);
    completed.recv_timeout(LONG).expect("it is completed").1.expect("the device is as good as before");
}
