//! What one and several copies do while everything works.

use std::sync::{Arc, Mutex};

use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{
    AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Extent, FileOptions, FileShelf, IoKind, IoRequest, IoSink,
    MemoryShelf, Shelf,
};
use volume::{CopyState, Options, Place, Volume, VolumeError};

use crate::support::{History, at, base, fresh, memory, new_volume, options, read_block, tag_of, tagged};

#[test]
fn what_is_written_is_read_also_in_pieces_of_any_size_and_after_opening_again() {
    for copies in 1..=3 {
        let places = memory(copies);
        let mut history = History::new(64);
        let mut volume = fresh(&places, 64);
        let mut random = fastrand::Rng::with_seed(7);
        for step in 0..400 {
            let bytes = if random.bool() { random.usize(1..200) } else { random.usize(1..40_000) };
            let offset = random.u64(0..volume.len() - bytes as u64);
            let data: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
            if random.u8(..4) == 0 {
                history.change(offset, &vec![0; bytes], 0, Some(0));
                if random.bool() {
                    volume.discard(offset, bytes as u64)
                } else {
                    volume.write_zeroes(offset, bytes as u64, false)
                }
                .expect("zeroes");
            } else {
                history.change(offset, &data, 0, Some(0));
                volume.write(offset, &data).expect("writes");
            }
            if step % 50 == 20 {
                volume.checkpoint().expect("checkpoints");
            }
            if step % 100 == 70 {
                if random.bool() {
                    volume.close().expect("closes");
                }
                drop(volume);
                volume = Volume::open(places.clone(), options(step)).expect("opens again");
            }
            let mut found = vec![1; bytes];
            volume.read(offset, &mut found).expect("reads");
            let block = offset / BLOCK_BYTES as u64;
            assert_eq!(read_block(&volume, block).expect("reads"), history.latest(block));
        }
        for block in 0..64 {
            assert_eq!(read_block(&volume, block).expect("reads"), history.latest(block), "{copies} copies");
        }
        assert_eq!(volume.scrub().expect("scrubs").repaired, 0);
    }
}

#[test]
fn a_volume_is_thin_and_extents_show_what_has_content() {
    let volume = fresh(&memory(2), 32);
    assert_eq!(volume.extents(0, at(32)).expect("known"), [Extent { bytes: at(32), has_space: false }]);
    volume.write(at(3), &tagged(1)).expect("writes");
    volume.write(at(4) + 100, b"part of a block").expect("writes");
    let expected = [(at(3), false), (at(2), true), (at(27), false)];
    let expected = expected.map(|(bytes, has_space)| Extent { bytes, has_space });
    assert_eq!(volume.extents(0, at(32)).expect("known"), expected);
    volume.checkpoint().expect("checkpoints");
    assert_eq!(volume.extents(0, at(32)).expect("known"), expected);
    volume.discard(at(3), at(2)).expect("discards");
    assert_eq!(volume.extents(0, at(32)).expect("known"), [Extent { bytes: at(32), has_space: false }]);
    assert_eq!(read_block(&volume, 3).expect("reads"), vec![0; BLOCK_BYTES]);
}

#[derive(Default)]
struct Completed(Mutex<Vec<(IoRequest, bool)>>);

impl IoSink for Completed {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.lock().expect("no panic").push((request, result.is_ok()));
    }
}

#[test]
fn many_requests_at_once_on_files_are_each_completed_once_with_few_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |copy: u8| {
        let path = folder.path().join(copy.to_string());
        std::fs::create_dir_all(&path).expect("a folder");
        Place::on(Arc::new(FileShelf::open(&path, FileOptions::default()).expect("a shelf")))
    };
    let places: Vec<Place> = (0..3).map(place).collect();
    let settings = Options { segment_bytes: 1 << 20, window_bytes: 4 << 20, ..base(5) };
    Volume::create(&places, &new_volume(256), &settings).expect("creates");
    let volume = Volume::open(places.clone(), settings.clone()).expect("opens");
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    let count = 600;
    let mut batch: Vec<IoRequest> = (0..count)
        .map(|token| IoRequest::write(at(token % 256), AlignedBuffer::from(&tagged(token + 1)[..]), token))
        .collect();
    batch.push(IoRequest { kind: IoKind::WriteZeroes { free: true }, ..IoRequest::discard(at(200), at(3), count) });
    batch.push(IoRequest::flush(count + 1));
    volume.submit(&mut batch, &sink);
    let wait = |expected: usize| {
        while completed.0.lock().expect("no panic").len() < expected {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    wait(count as usize + 2);
    let mut reads: Vec<IoRequest> =
        (0..256).map(|block| IoRequest::read(at(block), AlignedBuffer::zeroed(BLOCK_BYTES), 1000 + block)).collect();
    volume.submit(&mut reads, &sink);
    wait(count as usize + 2 + 256);
    let mut done = std::mem::take(&mut *completed.0.lock().expect("no panic"));
    done.sort_unstable_by_key(|(request, _)| request.token);
    assert!(done.iter().all(|(_, is_ok)| *is_ok));
    done.dedup_by_key(|(request, _)| request.token);
    assert_eq!(done.len(), count as usize + 2 + 256);
    for (request, _) in done.iter().filter(|(request, _)| request.kind == IoKind::Read) {
        let (tag, block) = (tag_of(&request.buffer), request.token - 1000);
        assert!(tag == 0 && (200..203).contains(&block) || tag > 0 && (tag - 1) % 256 == block, "block {block}: {tag}");
    }
    let status = volume.status();
    assert!(status.copies.iter().all(|copy| copy.state == CopyState::InSync));
    volume.close().expect("closes");
    drop(volume);
    drop(places);
    let again = Volume::open((0..3).map(place).collect(), settings).expect("opens again");
    for (request, _) in done.iter().filter(|(request, _)| request.kind == IoKind::Read) {
        assert_eq!(read_block(&again, request.token - 1000).expect("reads"), request.buffer[..]);
    }
}

#[test]
fn a_volume_grows_by_parts_and_keeps_its_content() {
    let places = memory(3);
    let volume = fresh(&places, 16);
    volume.write(at(15), &tagged(15)).expect("writes");
    drop(volume);
    Volume::grow(&places, at(16 + 4096), &options(3)).expect("grows");
    Volume::grow(&places, at(16 + 4096 + 32), &options(4)).expect("grows again");
    let refused = Volume::grow(&places, at(64), &options(4));
    assert!(matches!(refused, Err(VolumeError::Options(_))), "{refused:?}");
    let volume = Volume::open(places.clone(), options(5)).expect("opens");
    assert_eq!(volume.len(), at(16 + 4096 + 32));
    let data: Vec<u8> = (0..at(40)).map(|byte| byte as u8).collect();
    volume.write(at(4096), &data).expect("writes across the edge of two parts");
    volume.checkpoint().expect("checkpoints");
    let mut found = vec![0; data.len()];
    volume.read(at(4096), &mut found).expect("reads");
    assert!(found == data);
    assert_eq!(tag_of(&read_block(&volume, 15).expect("reads")), 15);
    volume.exclude(2).expect("two are left");
    drop(volume);
    let refused = Volume::grow(&places, at(8192), &options(6));
    assert!(matches!(refused, Err(VolumeError::Quorum { .. })), "a copy is not in sync: {refused:?}");
}

#[test]
fn impossible_volumes_are_refused() {
    for (copies, bytes, min_copies) in [
        (0, at(16), None),
        (4, at(16), None),
        (3, at(16), Some(4)),
        (1, at(16), Some(0)),
        (1, 100, None),
        (1, 0, None),
        (2, at(17), None),
    ] {
        let new = volume::NewVolume { bytes, min_copies, ..new_volume(16) };
        let refused = Volume::create(&memory(copies), &new, &options(1));
        assert!(matches!(refused, Err(VolumeError::Options(_))), "{copies} {bytes} {min_copies:?}: {refused:?}");
    }
    let places = memory(2);
    drop(fresh(&places, 16));
    let refused = Volume::create(&places, &new_volume(16), &options(1));
    assert!(matches!(refused, Err(VolumeError::Format { .. })), "a volume is not made over another one: {refused:?}");
    Volume::delete(&places).expect("deletes");
    assert!(places.iter().all(|place| place.data.list().expect("lists").is_empty()));
}

/// A shelf that is full: nothing can be made on it any more.
#[derive(Debug)]
struct FullShelf {
    inner: Arc<dyn Shelf>,
    is_full: std::sync::atomic::AtomicBool,
}

impl Shelf for FullShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        if self.is_full.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(DeviceError::Full { name: name.to_owned(), bytes });
        }
        self.inner.create(name, bytes)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open(name)
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_read_only(name)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.rename(from, to)
    }
}

#[test]
fn a_volume_works_on_media_that_are_full_since_all_of_its_space_is_reserved_when_it_is_made() {
    let shelves: Vec<Arc<FullShelf>> =
        (0..2).map(|_| Arc::new(FullShelf { inner: Arc::new(MemoryShelf::new()), is_full: false.into() })).collect();
    let places: Vec<Place> = shelves.iter().map(|shelf| Place::on(shelf.clone())).collect();
    Volume::create(&places, &new_volume(64), &options(1)).expect("creates");
    shelves.iter().for_each(|shelf| shelf.is_full.store(true, std::sync::atomic::Ordering::SeqCst));
    for life in 0..4_u64 {
        let volume = Volume::open(places.clone(), options(2 + life)).expect("opens");
        // Five times the window, so that the journals go round.
        for number in 0..1280 {
            volume.write(at(number % 64), &tagged(life * 10_000 + number)).expect("there is room");
        }
        assert!(volume.status().copies.iter().all(|copy| copy.state == CopyState::InSync));
        assert_eq!(tag_of(&read_block(&volume, 63).expect("reads")), life * 10_000 + 1279);
        volume.close().expect("closes");
    }
}

// On a full medium a checkpoint could not write them again, on any copy.
#[test]
fn the_space_of_discarded_blocks_stays_reserved() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().expect("a folder");
    let shelf = FileShelf::open(folder.path(), FileOptions::default()).expect("a shelf");
    let places = [Place::on(Arc::new(shelf))];
    Volume::create(&places, &new_volume(1024), &options(1)).expect("creates");
    let volume = Volume::open(places.to_vec(), options(2)).expect("opens");
    let allocated = || std::fs::metadata(folder.path().join("data-0")).expect("a file").blocks();
    (0..1024).step_by(64).for_each(|block| volume.write(at(block), &[7; 64 * BLOCK_BYTES]).expect("writes"));
    volume.checkpoint().expect("checkpoints");
    let before = allocated();
    volume.discard(0, at(512)).expect("discards");
    volume.write_zeroes(at(512), at(512), true).expect("writes zeros");
    volume.checkpoint().expect("checkpoints");
    assert_eq!(read_block(&volume, 5).expect("reads"), [0; BLOCK_BYTES]);
    assert!(allocated() >= before, "{} of {before} sectors are left", allocated());
}

#[test]
fn journal_and_blocks_may_lie_on_media_of_different_kinds_and_every_write_is_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    };
    let file = |name: &str| -> Arc<dyn Shelf> {
        Arc::new(FileShelf::open(&made(name), FileOptions::default()).expect("a shelf"))
    };
    let lines = |name: &str| -> Arc<dyn Shelf> {
        Arc::new(PmemShelf::open(&made(name), PmemOptions { absent: Absent::Emulate }).expect("a shelf"))
    };
    let settings = Options { segment_bytes: 1 << 20, window_bytes: 4 << 20, ..base(5) };
    for (number, (journal, data)) in [
        (lines("a-j"), file("a-d")),
        (file("b-j"), lines("b-d")),
        (lines("c-j"), lines("c-d")),
        (file("d-j"), file("d-d")),
    ]
    .into_iter()
    .enumerate()
    {
        let place = Place { journal, ..Place::on(data) };
        Volume::create(std::slice::from_ref(&place), &new_volume(64), &settings).expect("creates");
        let volume = Volume::open(vec![place], settings.clone()).expect("opens");
        for block in 0..64 {
            volume.write(at(block), &tagged(block + 1)).unwrap_or_else(|error| panic!("kind {number}: {error}"));
        }
        let completed = Arc::new(Completed::default());
        let sink: Arc<dyn IoSink> = completed.clone();
        let write = |token: u64| IoRequest::write(at(token), AlignedBuffer::from(&tagged(token + 2)[..]), token);
        volume.submit(&mut (0..64).map(write).collect(), &sink);
        while completed.0.lock().expect("no panic").len() < 64 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(completed.0.lock().expect("no panic").iter().all(|(_, is_ok)| *is_ok), "kind {number}");
        assert_eq!(tag_of(&read_block(&volume, 63).expect("reads")), 65, "kind {number}");
        assert_eq!(volume.status().copies[0].failures, 0, "kind {number}");
        assert!(format!("{volume:?}").len() < 200, "what a log prints of it does not grow with the volume");
    }
}
