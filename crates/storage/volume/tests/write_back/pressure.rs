//! Full caches, many threads, policies: writers wait for destaging, readers do not, and what is kept is what is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use device::{Device, DeviceError, Durability, MemoryShelf, Shelf, WrappedShelf};
use parking_lot::{Condvar, Mutex};
use volume::Threads;
use volume::write_back::{CacheOptions, CachePolicy, CachedShelf};

use crate::write_back::rig::{BLOCK, Lazy, filled, in_memory, policies, read, seeds, small, tag_at};

/// Lets writes of a device through only while it is open.
#[derive(Debug, Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicU64,
}

#[derive(Debug)]
struct Gated {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.is_closed.lock() = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut is_closed = self.is_closed.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while *is_closed {
            self.changed.wait(&mut is_closed);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Device for Gated {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.gate.pass();
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{what} did not come to pass within a minute");
}

#[test]
fn writes_wait_while_the_capacity_hangs_and_reads_and_writes_of_pages_that_are_there_go_on() {
    let gate = Arc::new(Gate::default());
    let own = gate.clone();
    let capacity =
        WrappedShelf::new(Arc::new(MemoryShelf::new()), move |inner| Arc::new(Gated { inner, gate: own.clone() }));
    let options = CacheOptions { threads: Threads::Background, dirty_max: 0.75, ..small(16, 4 << 10) };
    let shelf = CachedShelf::create(Arc::new(capacity), Arc::new(MemoryShelf::new()), &options).expect("creates");
    let device = shelf.create("a", 64 * BLOCK).expect("creates");
    gate.set(true);
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for block in 0..64 {
                device.write_flush(block * BLOCK, &filled(block + 1, 1)).expect("writes");
                written.fetch_add(1, Ordering::SeqCst);
            }
        });
        wait_until("the writer waits", || shelf.status().stalls > 0 && gate.waiting.load(Ordering::SeqCst) > 0);
        assert_eq!((written.load(Ordering::SeqCst), shelf.status().dirty_pages), (12, 12), "three quarters of 16");
        assert!(shelf.status().is_destaging);
        for block in 0..12 {
            assert_eq!(tag_at(&*device, block), block + 1);
        }
        assert_eq!(tag_at(&*device, 40), 0, "a read of the capacity");
        device.write_flush(3 * BLOCK, &filled(333, 1)).expect("the page has its place");
        gate.set(false);
    });
    shelf.destage_all().expect("destages");
    let status = shelf.status();
    assert_eq!((status.dirty_pages, status.passed_bytes), (0, 0));
    for block in 0..64 {
        assert_eq!(
            tag_at(&*device, block),
            if block == 3 { 333 } else { block + 1 },
            "also what was written while it was copied"
        );
    }
    device.write(0, &filled(5, 1)).expect("writes");
    shelf.close().expect("closes");
}

/// A number that tells the device, the block and the turn.
fn mark(device: u64, block: u64, turn: u64) -> u64 {
    device << 48 | block << 32 | turn
}

/// Blocks of each device of the threads.
const MARKED: u64 = 96;

/// Reads until it is done: every word is zero or belongs to its block and device.
fn read_all(devices: &[(u64, Arc<dyn Device>); 2], seed: u64, is_done: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    while !is_done.load(Ordering::Relaxed) {
        let (number, device) = &devices[random.usize(..2)];
        let first = random.u64(..MARKED - 8);
        let bytes = read(&**device, first, 8);
        for (word, bytes) in bytes.chunks_exact(8).enumerate() {
            let found = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let block = first + word as u64 / (BLOCK / 8);
            assert!(
                found == 0 || found >> 32 == mark(*number, block, 0) >> 32,
                "SEED={seed}: block {block} of {number} has {found:x}"
            );
        }
    }
}

#[test]
fn many_threads_never_see_the_bytes_of_another_block_while_pages_are_evicted_destaged_and_populated() {
    const BLOCKS: u64 = MARKED;
    for seed in seeds(3) {
        let base = CacheOptions { threads: Threads::Background, dirty_start: 0.2, ..small(12, 8 << 10) };
        for options in policies(&base) {
            let cache = WrappedShelf::new(Arc::new(MemoryShelf::new()), |inner| Arc::new(Lazy(inner)));
            let capacity = Arc::new(MemoryShelf::new());
            let shelf = CachedShelf::create(capacity, Arc::new(cache), &options).expect("creates");
            let devices =
                [1, 2].map(|number| (number, shelf.create(&format!("d{number}"), BLOCKS * BLOCK).expect("creates")));
            let is_done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..4_u64)
                    .map(|thread| {
                        let (devices, options) = (&devices, &options);
                        scope.spawn(move || {
                            let mut random = fastrand::Rng::with_seed(seed * 100 + thread);
                            let mut last = vec![[0_u64; BLOCKS as usize]; 2];
                            for turn in 1..600 {
                                let (number, device) = &devices[random.usize(..2)];
                                let own = BLOCKS / 4;
                                let first = thread * own + random.u64(..own);
                                let count = random.u64(1..=6).min((thread + 1) * own - first);
                                let range = first..first + count;
                                let last = &mut last[*number as usize - 1];
                                match random.u8(..8) {
                                    0..=3 => {
                                        let bytes: Vec<u8> = range
                                            .clone()
                                            .flat_map(|block| filled(mark(*number, block, turn), 1))
                                            .collect();
                                        device.write(first * BLOCK, &bytes).expect("writes");
                                        range.for_each(|block| last[block as usize] = mark(*number, block, turn));
                                    }
                                    4 => device.flush().expect("flushes"),
                                    5 if turn % 8 == 0 => {
                                        device.discard(first * BLOCK, count * BLOCK).expect("discards");
                                        range.for_each(|block| last[block as usize] = 0);
                                    }
                                    _ => {
                                        let expected: Vec<u8> =
                                            range.flat_map(|block| filled(last[block as usize], 1)).collect();
                                        let found = read(&**device, first, count);
                                        assert!(found == expected, "SEED={seed}, {options:?}: block {first}+{count}");
                                    }
                                }
                            }
                        })
                    })
                    .collect();
                let (devices, is_done) = (&devices, &is_done);
                let reader = scope.spawn(move || read_all(devices, seed, is_done));
                let failed = writers.into_iter().filter_map(|writer| writer.join().err()).count();
                is_done.store(true, Ordering::Relaxed);
                reader.join().expect("the reader saw its own blocks only");
                assert_eq!(failed, 0);
            });
            let status = shelf.status();
            assert!(status.evicted_pages > 50 && status.destaged_bytes > 0, "{status:?}");
            assert_eq!(status.failure, None);
        }
    }
}

fn touched(shelf: &CachedShelf, device: &dyn Device, blocks: impl Iterator<Item = u64>) -> (u64, u64) {
    let before = shelf.status();
    blocks.for_each(|block| drop(read(device, block, 1)));
    let after = shelf.status();
    (after.read_hits - before.read_hits, after.read_misses - before.read_misses)
}

#[test]
fn only_the_policy_for_reads_keeps_what_was_read_and_writes_are_kept_by_both() {
    for (policy, second) in [(CachePolicy::WriteOnly, (0, 20)), (CachePolicy::ReadWrite, (20, 0))] {
        let shelf = in_memory(&CacheOptions { policy, ..small(64, 4 << 10) });
        let device = shelf.create("a", 100 * BLOCK).expect("creates");
        assert_eq!(touched(&shelf, &*device, 50..70), (0, 20));
        assert_eq!(touched(&shelf, &*device, 50..70), second, "{policy:?}");
        device.write_flush(0, &filled(1, 10)).expect("writes");
        shelf.destage_all().expect("destages");
        assert_eq!(touched(&shelf, &*device, 0..10), (10, 0), "{policy:?}: clean, and still there");
        let status = shelf.status();
        assert_eq!((status.dirty_pages, status.destaged_bytes, status.absorbed_bytes), (0, 10 * BLOCK, 10 * BLOCK));
        assert_eq!(status.populated_bytes, if policy == CachePolicy::ReadWrite { 20 * BLOCK } else { 0 });
        let expected = (second.0 + 10) as f64 / 50.0;
        assert!((status.hit_ratio() - expected).abs() < 1e-9, "{}", status.hit_ratio());
    }
}

#[test]
fn a_scan_leaves_the_pages_that_are_read_again_and_again_in_the_cache() {
    let shelf = in_memory(&CacheOptions { policy: CachePolicy::ReadWrite, ..small(200, 4 << 10) });
    let device = shelf.create("a", 10_000 * BLOCK).expect("creates");
    for _ in 0..4 {
        touched(&shelf, &*device, 0..150);
    }
    let (hits, misses) = touched(&shelf, &*device, 0..150);
    assert!(hits >= 148, "{hits} hits, {misses} misses before the scan");
    touched(&shelf, &*device, 1000..9000);
    let (hits, misses) = touched(&shelf, &*device, 0..150);
    assert!(hits >= 140, "{hits} hits, {misses} misses after the scan");
    // Another set replaces it once it is read often enough.
    for _ in 0..12 {
        touched(&shelf, &*device, 5000..5150);
    }
    let (hits, misses) = touched(&shelf, &*device, 5000..5150);
    assert!(hits > 120, "{hits} hits, {misses} misses of the new set");
}

#[test]
fn with_a_thread_reads_populate_and_destaging_keeps_below_its_start() {
    let options = CacheOptions {
        policy: CachePolicy::ReadWrite,
        threads: Threads::Background,
        dirty_start: 0.25,
        ..small(100, 4 << 10)
    };
    let shelf = in_memory(&options);
    let device = shelf.create("a", 500 * BLOCK).expect("creates");
    device.write_flush(0, &filled(7, 90)).expect("writes");
    wait_until("destaging ends", || shelf.status().dirty_pages <= 25 && !shelf.status().is_destaging);
    read(&*device, 300, 5);
    wait_until("populating ends", || shelf.status().populated_bytes == 5 * BLOCK);
    assert_eq!(touched(&shelf, &*device, 300..305), (5, 0));
    assert!((0..90).all(|block| tag_at(&*device, block) == 7));
}

#[test]
fn large_writes_go_past_the_cache_except_where_it_has_dirty_blocks() {
    let shelf = in_memory(&CacheOptions { bypass_bytes: Some(8 * BLOCK), ..small(64, 16 << 10) });
    let device = shelf.create("a", 64 * BLOCK).expect("creates");
    device.write(5 * BLOCK, &filled(1, 1)).expect("writes");
    device.write(0, &filled(2, 16)).expect("writes");
    let status = shelf.status();
    assert_eq!(
        (status.passed_bytes, status.absorbed_bytes),
        (12 * BLOCK, 5 * BLOCK),
        "one page of four was in the way"
    );
    shelf.destage_all().expect("destages");
    assert_eq!(shelf.status().clean_pages, 1);
    device.write(0, &filled(3, 16)).expect("writes");
    assert_eq!(shelf.status().passed_bytes, 28 * BLOCK, "a clean page is not");
    device.write(6 * BLOCK, &filled(4, 7)).expect("writes");
    assert_eq!(shelf.status().passed_bytes, 28 * BLOCK, "it is not large");
    let expected = [filled(3, 6), filled(4, 7), filled(3, 3)].concat();
    assert!(read(&*device, 0, 16) == expected);
    device.flush().expect("flushes");
    assert!(read(&*device, 0, 16) == expected);
}

#[test]
fn a_range_of_many_pages_is_emptied_in_cache_and_capacity_alike() {
    let shelf = in_memory(&small(64, 4 << 10));
    let device = shelf.create("a", 10_000 * BLOCK).expect("creates");
    for (turn, is_freed) in [(1, Some(true)), (2, Some(false)), (3, None)] {
        for block in (0..10_000).step_by(97) {
            device.write(block * BLOCK, &filled(turn, 1)).expect("writes");
        }
        let (offset, bytes) = (97 * BLOCK, 9_800 * BLOCK);
        match is_freed {
            Some(is_freed) => device.write_zeroes(offset, bytes, is_freed).expect("zeros"),
            None => device.discard(offset, bytes).expect("discards"),
        }
        let content = read(&*device, 0, 10_000);
        for (block, bytes) in (0..).zip(content.chunks_exact(BLOCK as usize)) {
            let is_kept = block % 97 == 0 && !(97..9_897).contains(&block);
            assert!(bytes == filled(if is_kept { turn } else { 0 }, 1), "block {block}, turn {turn}");
        }
    }
}

#[test]
fn neighbouring_dirty_pages_are_destaged_in_one_write() {
    #[derive(Debug)]
    struct Counting(Arc<dyn Device>, Arc<Mutex<Vec<(u64, usize)>>>);
    impl Device for Counting {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
            self.0.read(offset, buffer)
        }
        fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
            self.1.lock().push((offset / BLOCK, data.len() / BLOCK as usize));
            self.0.write(offset, data)
        }
        fn flush(&self) -> Result<(), DeviceError> {
            self.0.flush()
        }
        fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
            self.0.discard(offset, bytes)
        }
        fn durability(&self) -> Durability {
            self.0.durability()
        }
    }
    let writes = Arc::new(Mutex::new(Vec::new()));
    let own = writes.clone();
    let capacity = WrappedShelf::new(Arc::new(MemoryShelf::new()), move |inner| Arc::new(Counting(inner, own.clone())));
    let options = small(300, 16 << 10);
    let shelf = CachedShelf::create(Arc::new(capacity), Arc::new(MemoryShelf::new()), &options).expect("creates");
    let device = shelf.create("a", 1000 * BLOCK).expect("creates");
    let mut blocks: Vec<u64> = (0..64).chain(100..102).chain(103..110).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut blocks);
    blocks.iter().for_each(|block| device.write(block * BLOCK, &filled(*block, 1)).expect("writes"));
    writes.lock().clear();
    shelf.destage_step().expect("destages");
    assert_eq!(*writes.lock(), [(0, 64), (100, 2), (103, 7)]);
}
