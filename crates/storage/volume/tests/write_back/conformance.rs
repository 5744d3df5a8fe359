//! The contract of devices and shelves, on cached shelves of every kind: both policies, pages of several sizes, with and without
//! threads, caches so small that everything is evicted all the time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use device::{
    AlignedBuffer, BLOCK_BYTES, CrashShelf, DeviceError, Extent, FileOptions, FileShelf, IoRequest, IoSink,
    MemoryShelf, Shelf,
};
use volume::Threads;
use volume::write_back::{CacheOptions, CachePolicy, CachedShelf, WRITE_BACK};

use crate::write_back::rig::{BLOCK, media, parts, policies, read, seeds, small};

fn on_every_kind(check: impl Fn(&str, &dyn Shelf)) {
    let home = tempfile::tempdir().expect("temporary directory");
    let mut count = 0;
    for (pages, page_bytes) in [(1, 4 << 10), (5, 16 << 10), (300, 8 << 10), (3, 1 << 20)] {
        for threads in [Threads::Callers, Threads::Background] {
            for options in policies(&CacheOptions { threads, dirty_start: 0.3, ..small(pages, page_bytes) }) {
                let mut shelves: Vec<(String, Arc<dyn Shelf>)> = vec![("memory".into(), Arc::new(MemoryShelf::new()))];
                if pages == 5 {
                    let crash = media(1).into_iter();
                    shelves.extend(crash.map(|(name, shelf)| (name.into(), shelf as Arc<dyn Shelf>)));
                    let path = home.path().join(format!("{count}"));
                    let file = FileShelf::open(&path, FileOptions::default()).expect("opens");
                    shelves.push(("file".into(), Arc::new(file)));
                }
                for (name, shelf) in shelves {
                    count += 1;
                    let (capacity, cache) = parts(&shelf);
                    let cached = CachedShelf::create(capacity, cache, &options).expect("creates");
                    check(&format!("{name}, {options:?}"), &cached);
                }
            }
        }
    }
}

#[test]
fn a_cached_device_agrees_with_a_flat_vector_through_any_handle() {
    on_every_kind(|kind, shelf| {
        for seed in seeds(2) {
            agrees_with_a_flat_vector(kind, shelf, seed);
        }
    });
}

fn agrees_with_a_flat_vector(kind: &str, shelf: &dyn Shelf, seed: u64) {
    let blocks = 50;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = vec![0; blocks * BLOCK_BYTES];
    let name = format!("model-{seed}");
    let mut device = shelf.create(&name, model.len() as u64).expect("create");
    for step in 0..120 {
        let first = random.usize(..blocks);
        let most = if random.bool() { 3 } else { blocks };
        let range = first * BLOCK_BYTES..(first + random.usize(..=most.min(blocks - first))) * BLOCK_BYTES;
        let at = range.start as u64;
        let mut data = AlignedBuffer::zeroed(range.len());
        random.fill(&mut data);
        match random.u8(..14) {
            0..=3 => {
                device.write(at, &data).expect("write");
                model[range.clone()].copy_from_slice(&data);
            }
            4..=5 => {
                device.write_flush(at, &data).expect("write_flush");
                model[range.clone()].copy_from_slice(&data);
            }
            6 => device.flush().expect("flush"),
            7 => {
                device.discard(at, range.len() as u64).expect("discard");
                model[range.clone()].fill(0);
            }
            8 => {
                device.write_zeroes(at, range.len() as u64, random.bool()).expect("zeros");
                model[range.clone()].fill(0);
            }
            9 => device = shelf.open(&name).expect("open"),
            10 => {
                shelf.open_read_only(&name).expect("open read-only").read(at, &mut data).expect("read");
                assert!(*data == model[range.clone()], "{kind}, SEED={seed}, step {step}: read-only handle");
            }
            11 => {
                let extents = device.extents(at, range.len() as u64).expect("extents");
                check_extents(&extents, &model[range.clone()]);
            }
            _ => {
                device.read(at, &mut data).expect("read");
                assert!(*data == model[range.clone()], "{kind}, SEED={seed}, step {step}");
            }
        }
    }
    device.deep_flush().expect("flush");
    assert!(read(&*device, 0, blocks as u64) == model, "{kind}, SEED={seed}: at the end");
}

/// They are as long as the range, and what has no space is zeros.
fn check_extents(extents: &[Extent], bytes: &[u8]) {
    let mut at = 0;
    for extent in extents {
        let end = at + extent.bytes as usize;
        assert!(extent.has_space || bytes[at..end].iter().all(|byte| *byte == 0), "a hole with content");
        at = end;
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn names_of_cached_devices_are_unique_listed_in_order_and_can_be_changed_and_removed() {
    on_every_kind(|kind, shelf| {
        for name in ["b", "a", "c-1.x_Y"] {
            let device = shelf.create(name, BLOCK).expect("create");
            device.write_flush(0, &[name.as_bytes()[0]; BLOCK_BYTES]).expect("write");
        }
        assert_eq!(shelf.list().expect("list"), ["a", "b", "c-1.x_Y"], "{kind}");
        assert!(matches!(shelf.create("a", BLOCK), Err(DeviceError::AlreadyExists { name }) if name == "a"), "{kind}");
        assert!(matches!(shelf.rename("a", "b"), Err(DeviceError::AlreadyExists { name }) if name == "b"), "{kind}");
        shelf.rename("a", "d").expect("rename");
        shelf.remove("b").expect("remove");
        assert_eq!(shelf.list().expect("list"), ["c-1.x_Y", "d"], "{kind}");
        assert_eq!(read(&*shelf.open("d").expect("open"), 0, 1), [b'a'; BLOCK_BYTES], "{kind}");
        shelf.create("a", 2 * BLOCK).expect("a freed name can be taken again");
        assert_eq!(read(&*shelf.open("a").expect("open"), 0, 2), [0; 2 * BLOCK_BYTES], "{kind}");
        let is_not_found = |result: Result<(), DeviceError>| {
            assert!(matches!(result, Err(DeviceError::NotFound { name }) if name == "x"), "{kind}");
        };
        is_not_found(shelf.open("x").map(drop));
        is_not_found(shelf.open_read_only("x").map(drop));
        is_not_found(shelf.remove("x"));
        is_not_found(shelf.rename("x", "y"));
        // The label of the cache is no device of users, and its name is free for them.
        let own = shelf.create(WRITE_BACK, BLOCK).expect("create");
        own.write_flush(0, &[5; BLOCK_BYTES]).expect("write");
    });
}

#[test]
fn of_several_threads_that_create_one_cached_device_one_succeeds() {
    on_every_kind(|kind, shelf| {
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| shelf.create("a", 1 << 18))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{kind}");
        let is_expected = |result: &Result<_, _>| matches!(result, Ok(_) | Err(DeviceError::AlreadyExists { .. }));
        assert!(results.iter().all(is_expected), "{kind}: {results:?}");
    });
}

#[test]
fn a_handle_of_a_cached_device_outlives_its_name_and_its_pages_go_with_it() {
    on_every_kind(|kind, shelf| {
        let device = shelf.create("a", 3 * BLOCK).expect("create");
        shelf.rename("a", "b").expect("rename");
        device.write_flush(0, &[1; BLOCK_BYTES]).expect("write after rename");
        assert_eq!(read(&*shelf.open("b").expect("open"), 0, 1), [1; BLOCK_BYTES], "{kind}");
        shelf.remove("b").expect("remove");
        device.write_flush(BLOCK, &[2; BLOCK_BYTES]).expect("write after remove");
        assert_eq!(read(&*device, 0, 3), [[1; BLOCK_BYTES], [2; BLOCK_BYTES], [0; BLOCK_BYTES]].concat(), "{kind}");
        let other = shelf.create("b", 3 * BLOCK).expect("create");
        assert_eq!(read(&*other, 0, 3), [0; 3 * BLOCK_BYTES], "{kind}");
        drop(device);
        other.write_flush(2 * BLOCK, &[4; BLOCK_BYTES]).expect("write");
        assert_eq!(read(&*other, 0, 3), [[0; BLOCK_BYTES], [0; BLOCK_BYTES], [4; BLOCK_BYTES]].concat(), "{kind}");
    });
}

#[test]
fn a_read_only_handle_of_a_cached_device_reads_and_refuses_to_change() {
    on_every_kind(|kind, shelf| {
        let writer = shelf.create("a", BLOCK).expect("create");
        let viewer = shelf.open_read_only("a").expect("open read-only");
        writer.write(0, &[3; BLOCK_BYTES]).expect("write");
        let refusals = [
            viewer.write(0, &[4; BLOCK_BYTES]),
            viewer.write_flush(0, &[4; BLOCK_BYTES]),
            viewer.flush(),
            viewer.deep_flush(),
            viewer.discard(0, BLOCK),
            viewer.write_zeroes(0, BLOCK, false),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, Err(DeviceError::ReadOnly { .. })), "{kind}: {refusal:?}");
        }
        assert_eq!(read(&*viewer, 0, 1), [3; BLOCK_BYTES], "{kind}");
    });
}

#[test]
fn many_threads_write_read_and_flush_a_cached_device_and_every_write_arrives() {
    const THREADS: u64 = 5;
    const TURNS: u8 = 12;
    on_every_kind(|kind, shelf| {
        let device = shelf.create("a", 2 * THREADS * BLOCK).expect("create");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let device = &device;
                scope.spawn(move || {
                    for turn in 1..=TURNS {
                        let data = AlignedBuffer::from(&[turn; 2 * BLOCK_BYTES][..]);
                        let at = 2 * thread * BLOCK;
                        if turn.is_multiple_of(3) {
                            device.write(at, &data).expect("write");
                            device.flush().expect("flush");
                        } else {
                            device.write_flush(at, &data).expect("write_flush");
                        }
                        assert!(read(&**device, 2 * thread, 2) == data[..], "{kind}");
                    }
                });
            }
        });
        assert!(read(&*device, 0, 2 * THREADS).iter().all(|b| *b == TURNS), "{kind}");
    });
}

#[test]
fn what_no_caller_of_a_cached_device_may_ask_panics_and_changes_nothing() {
    let options = small(5, 16 << 10);
    let shelf = crate::write_back::rig::in_memory(&options);
    let device = shelf.create("a", 2 * BLOCK).expect("create");
    for at in [0, 2 * BLOCK] {
        device.read(at, &mut []).expect("an empty transfer");
        device.write_flush(at, &[]).expect("an empty transfer");
        device.discard(at, 0).expect("an empty transfer");
    }
    let panics = |what: &str, call: &dyn Fn()| {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err(), "{what} did not panic");
    };
    let block = [0; BLOCK_BYTES];
    panics("an offset inside a block", &|| drop(device.write(512, &block)));
    panics("half a block", &|| drop(device.write_flush(0, &block[..2048])));
    panics("a read past the end", &|| drop(device.read(2 * BLOCK, &mut [0; BLOCK_BYTES])));
    panics("a write across the end", &|| drop(device.write(BLOCK, &[0; 2 * BLOCK_BYTES])));
    panics("an offset near the largest number", &|| drop(device.write(u64::MAX - 4095, &block)));
    panics("a discard past the end", &|| drop(device.discard(0, 3 * BLOCK)));
    for name in ["", ".", "..", ".hidden", "a/b", "lock", "a b", "\u{e4}", &"x".repeat(189)] {
        panics(name, &|| drop(shelf.create(name, BLOCK)));
        panics(name, &|| drop(shelf.rename("a", name)));
    }
    panics("a device of no bytes", &|| drop(shelf.create("b", 0)));
    assert_eq!(shelf.list().expect("list"), ["a"]);
    device.write_flush(0, &block).expect("the device is as good as before");
}

struct Channel(mpsc::Sender<(IoRequest, Result<(), DeviceError>)>);

impl IoSink for Channel {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        let _ = self.0.send((request, result));
    }
}

#[test]
fn each_request_of_a_batch_comes_back_once_with_its_token_and_the_bytes_of_cache_and_capacity() {
    on_every_kind(|kind, shelf| {
        let device = shelf.create("a", 64 * BLOCK).expect("create");
        for block in 0..64 {
            device.write(block * BLOCK, &[block as u8; BLOCK_BYTES]).expect("write");
        }
        device.flush().expect("flush");
        for _ in 0..3 {
            let (sender, receiver) = mpsc::channel();
            let sink: Arc<dyn IoSink> = Arc::new(Channel(sender));
            let request = |token: u64| {
                let blocks = 1 + token % 3;
                IoRequest::read((token % 60) * BLOCK, AlignedBuffer::zeroed((blocks * BLOCK) as usize), token)
            };
            let mut batch: Vec<IoRequest> = (0..40).map(|index| request(index * 7)).collect();
            batch.push(IoRequest::write_flush(63 * BLOCK, AlignedBuffer::from(&[63; BLOCK_BYTES][..]), 1000));
            batch.push(IoRequest::flush(1001));
            device.submit(&mut batch, &sink);
            assert!(batch.is_empty());
            drop(sink);
            let mut tokens = Vec::new();
            for (request, result) in receiver {
                result.unwrap_or_else(|error| panic!("{kind}: {error}"));
                tokens.push(request.token);
                let (first, bytes) = (request.offset / BLOCK, request.buffer.chunks_exact(BLOCK_BYTES));
                for (block, bytes) in (first..).zip(bytes).take(if request.token < 1000 { 3 } else { 0 }) {
                    assert!(bytes.iter().all(|byte| u64::from(*byte) == block), "{kind}: block {block}");
                }
            }
            tokens.sort_unstable();
            let expected: Vec<u64> = (0..40).map(|index| index * 7).chain([1000, 1001]).collect();
            assert_eq!(tokens, expected, "{kind}");
        }
    });
}

#[test]
fn the_atom_is_the_smaller_one_of_cache_and_capacity_and_durability_the_weaker_one() {
    let drive = || Arc::new(CrashShelf::new(1)) as Arc<dyn Shelf>;
    let lines = || Arc::new(CrashShelf::pmem(1, device::crash::PmemMode::Adr)) as Arc<dyn Shelf>;
    let memory = || Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>;
    let cases =
        [(drive(), drive(), 512, "emulated"), (drive(), lines(), 8, "emulated"), (drive(), memory(), 512, "none")];
    for (capacity, cache, atom, durability) in cases {
        let shelf = CachedShelf::create(capacity, cache, &small(5, 16 << 10)).expect("creates");
        let device = shelf.create("a", BLOCK).expect("creates");
        assert_eq!((device.block_bytes(), device.atom_bytes()), (4096, atom));
        assert_eq!(device.durability().as_str(), durability);
    }
    let options = CacheOptions { policy: CachePolicy::ReadWrite, ..small(5, 16 << 10) };
    assert!(
        CachedShelf::create(lines(), lines(), &options)
            .expect("creates")
            .create("a", BLOCK)
            .expect("creates")
            .is_inline()
    );
}
