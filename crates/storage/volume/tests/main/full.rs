//! Media without free space: volumes whose space is reserved need none, however they are written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::{AlignedBuffer, Device, DeviceError, IoRequest, IoSink, MemoryShelf, QuotaShelf};
use volume::{Options, Place, Threads, Volume};

use crate::hanging::HangingShelf;
use crate::support::{at, new_volume, options, tagged};
use crate::threads::wait_until;

const BLOCKS: u64 = 1024;

/// With threads, and checkpoints that take as long as they want.
fn settings(owner: u64) -> Options {
    Options {
        threads: Threads::Background,
        checkpoint_timeout: Duration::from_secs(100),
        write_timeout: Duration::from_secs(60),
        scrub_interval: None,
        ..options(owner)
    }
}

/// A volume of one copy whose medium has no free space.
fn on_a_full_medium(settings: &dyn Fn(u64) -> Options) -> (Arc<HangingShelf>, Volume) {
    let medium = Arc::new(QuotaShelf::new(Arc::new(MemoryShelf::new()), 1 << 30).expect("it lists"));
    let shelf = Arc::new(HangingShelf::new(medium.clone()));
    Volume::create(&[Place::on(shelf.clone())], &new_volume(BLOCKS), &settings(1)).expect("creates");
    let volume = Volume::open(vec![Place::on(shelf.clone())], settings(2)).expect("opens");
    medium.set_bytes(medium.taken_bytes());
    (shelf, volume)
}

#[derive(Default)]
struct Completed {
    count: AtomicU64,
    errors: Mutex<Vec<DeviceError>>,
}

impl IoSink for Completed {
    fn complete(&self, _: IoRequest, result: Result<(), DeviceError>) {
        self.errors.lock().expect("no panic").extend(result.err());
        self.count.fetch_add(1, Ordering::Release);
    }
}

#[test]
fn a_batch_of_large_writes_takes_no_more_of_the_journals_than_was_reserved() {
    let (_shelf, volume) = on_a_full_medium(&settings);
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    // 128 MiB, with a window of one.
    let (count, data) = (512, tagged(7).repeat(64));
    let write = |token: u64| IoRequest::write(at(token * 64 % BLOCKS), AlignedBuffer::from(&data[..]), token);
    volume.submit(&mut (0..count).map(write).collect(), &sink);
    wait_until("all complete", || completed.count.load(Ordering::Acquire) == count);
    assert_eq!(completed.errors.lock().expect("no panic").iter().map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(volume.status().copies[0].failures, 0);
}

#[test]
fn single_small_writes_while_a_checkpoint_waits_take_no_more_of_the_journal_than_was_reserved() {
    let impatient = |owner| Options { write_timeout: Duration::from_millis(300), ..settings(owner) };
    let (shelf, volume) = on_a_full_medium(&impatient);
    shelf.gate.hang("data");
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // Each commit alone takes two blocks of the journal.
        let writer = scope.spawn(|| {
            for block in 0..BLOCKS {
                volume.write(at(block), &tagged(block)).expect("it waits for the checkpoint");
                written.fetch_add(1, Ordering::Release);
            }
        });
        // Three times as long as it would wait for copies.
        let is_at_rest = || {
            let before = written.load(Ordering::Acquire);
            std::thread::sleep(Duration::from_millis(900));
            before >= 100 && written.load(Ordering::Acquire) == before
        };
        wait_until("the window is full", is_at_rest);
        assert!(written.load(Ordering::Acquire) < BLOCKS && !writer.is_finished(), "{written:?}");
        assert_eq!(volume.status().copies[0].failures, 0, "a write waits for the checkpoint");
        shelf.gate.release();
        writer.join().expect("no write has failed");
    });
    assert_eq!(volume.status().copies[0].failures, 0);
}

#[test]
fn submitted_writes_and_discards_wait_for_a_checkpoint_that_lasts_longer_than_they_wait_for_copies() {
    let impatient = |owner| Options { write_timeout: Duration::from_millis(300), ..settings(owner) };
    let (shelf, volume) = on_a_full_medium(&impatient);
    shelf.gate.hang("data");
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    let write = |token: u64| IoRequest::write(at(token), AlignedBuffer::from(&tagged(token)[..]), token);
    let discard = IoRequest::discard(0, at(BLOCKS), BLOCKS);
    volume.submit(&mut (0..BLOCKS).map(write).chain([discard]).collect(), &sink);
    // The checkpoint begins meanwhile, and all that remains is late.
    std::thread::sleep(Duration::from_millis(900));
    let errors = || completed.errors.lock().expect("no panic").iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(completed.count.load(Ordering::Acquire) < BLOCKS, "the window has no room for all");
    assert_eq!(errors(), [""; 0], "a medium that is slow fails nothing");
    shelf.gate.release();
    wait_until("all complete", || completed.count.load(Ordering::Acquire) == BLOCKS + 1);
    assert_eq!(errors(), [""; 0]);
    assert_eq!(volume.status().copies[0].failures, 0);
}
