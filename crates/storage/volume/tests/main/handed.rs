//! Reads that are handed to devices which complete them by themselves: verified, answered in time, and answered once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device::faulty::{Fault, FaultyShelf, Rule};
use device::{
    AlignedBuffer, BLOCK_BYTES, Device, DeviceError, FileOptions, FileShelf, IoRequest, IoSink, MemoryShelf, Operation,
    Shelf,
};
use volume::{CopyState, NewVolume, Options, Place, Volume, VolumeError};

use crate::support::{at, new_volume, options, read_block, tag_of, tagged};
use crate::threads::{BLOCKS, Call, LONG, check, settings, wait_until};
use crate::waiting::WaitingShelf;

/// Copies on shelves that wait by themselves; each is opened without waiting for a release.
struct WaitingCopies {
    media: Vec<Arc<MemoryShelf>>,
    faults: Vec<Arc<FaultyShelf>>,
    shelves: Vec<Arc<WaitingShelf>>,
}

impl WaitingCopies {
    /// A volume whose blocks have their numbers as tags, in place; copy 0 is read as long as it works.
    fn filled(copies: usize) -> (WaitingCopies, Volume) {
        let media: Vec<Arc<MemoryShelf>> = (0..copies).map(|_| Arc::new(MemoryShelf::new())).collect();
        let faults: Vec<_> = media.iter().map(|medium| Arc::new(FaultyShelf::new(medium.clone()))).collect();
        let shelves = faults.iter().map(|shelf| Arc::new(WaitingShelf::new(shelf.clone()))).collect();
        let all = WaitingCopies { media, faults, shelves };
        let new = NewVolume { min_copies: Some(1), ..new_volume(BLOCKS) };
        Volume::create(&all.places(), &new, &options(1)).expect("creates");
        let volume = Volume::open(all.places(), settings(2)).expect("opens");
        (0..BLOCKS).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
        volume.checkpoint().expect("checkpoints");
        (all, volume)
    }

    fn place(&self, copy: usize) -> Place {
        Place::on(self.shelves[copy].clone())
    }

    fn places(&self) -> Vec<Place> {
        (0..self.shelves.len()).map(|copy| self.place(copy)).collect()
    }
}

/// What comes back.
struct Returned(Mutex<Sender<(IoRequest, Result<(), DeviceError>)>>);

type Results = Receiver<(IoRequest, Result<(), DeviceError>)>;

impl IoSink for Returned {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        // A test that has seen enough is over.
        let _ = self.0.lock().expect("no panic").send((request, result));
    }
}

fn sink() -> (Arc<dyn IoSink>, Results) {
    let (sender, results) = channel();
    (Arc::new(Returned(Mutex::new(sender))), results)
}

fn read_of(block: u64) -> IoRequest {
    IoRequest::read(at(block), AlignedBuffer::zeroed(BLOCK_BYTES), block)
}

/// Checks that reads of these blocks come back once each, with their numbers as tags.
fn expect_blocks(results: &Results, blocks: std::ops::Range<u64>) {
    let mut seen: Vec<u64> = Vec::new();
    for _ in blocks.clone() {
        let (request, result) = results.recv_timeout(LONG).expect("each read is completed");
        result.unwrap_or_else(|error| panic!("{request:?}: {error}"));
        assert_eq!((request.offset, tag_of(&request.buffer)), (at(request.token), request.token));
        assert_eq!(request.buffer.capacity(), BLOCK_BYTES, "as much memory comes back as was given");
        seen.push(request.token);
    }
    seen.sort_unstable();
    assert_eq!(seen, blocks.collect::<Vec<_>>());
    assert!(results.try_recv().is_err(), "once each");
}

fn state(volume: &Volume, copy: usize) -> CopyState {
    volume.status().copies[copy].state
}

#[test]
fn submitted_reads_of_any_range_return_what_single_reads_return() {
    let (copies, volume) = WaitingCopies::filled(3);
    // Holes, blocks that only the journals have, and blocks in place.
    volume.discard(at(5), 3 * BLOCK_BYTES as u64).expect("discards");
    volume.checkpoint().expect("checkpoints");
    volume.write(at(20), &tagged(99)).expect("writes");
    let seed = 4;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (sink, results) = sink();
    let handed = || copies.shelves.iter().map(|shelf| shelf.drive.submitted()).sum::<u64>();
    let mut ranges = Vec::new();
    for token in 0..2_000 {
        let unit = if random.u8(..8) == 0 { 1 } else { BLOCK_BYTES };
        let units = BLOCKS as usize * BLOCK_BYTES / unit;
        let first = random.usize(..units);
        let most = (units - first).min(if random.bool() { BLOCK_BYTES / unit.max(512) } else { 20 });
        let bytes = random.usize(..=most) * unit;
        ranges.push(IoRequest::read((first * unit) as u64, AlignedBuffer::zeroed(bytes), token));
    }
    let count = ranges.len();
    while !ranges.is_empty() {
        let mut batch: Vec<IoRequest> = ranges.drain(..ranges.len().min(random.usize(1..100))).collect();
        volume.submit(&mut batch, &sink);
        assert!(batch.is_empty(), "a batch is taken");
    }
    for _ in 0..count {
        let (request, result) = results.recv_timeout(LONG).expect("each read is completed");
        result.expect("reads");
        let mut expected = vec![0; request.buffer.len()];
        volume.read(request.offset, &mut expected).expect("reads");
        assert!(request.buffer[..] == expected[..], "seed {seed}: {request:?}");
    }
    assert!(handed() > 200, "only {} reads were handed over", handed());
}

#[test]
fn reads_that_are_submitted_together_are_shared_by_copies_that_have_as_few_of_them() {
    let (copies, volume) = WaitingCopies::filled(3);
    drop(volume);
    let volume = Volume::open(copies.places(), Options { prefer: None, ..settings(3) }).expect("opens");
    let (sink, results) = sink();
    copies.shelves.iter().for_each(|shelf| shelf.drive.hold(u64::MAX));
    volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
    let held: Vec<usize> = copies.shelves.iter().map(|shelf| shelf.drive.held()).collect();
    assert_eq!(held.iter().sum::<usize>() as u64, BLOCKS);
    assert!(held.iter().all(|count| *count as u64 >= BLOCKS / 3 - 2), "{held:?}");
    copies.shelves.iter().for_each(|shelf| shelf.drive.release());
    expect_blocks(&results, 0..BLOCKS);
}

#[test]
fn a_copy_that_completes_no_submitted_read_is_excluded_and_the_reads_are_answered_by_another() {
    let (copies, volume) = WaitingCopies::filled(2);
    let drive = &copies.shelves[0].drive;
    let (sink, results) = sink();
    volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
    expect_blocks(&results, 0..BLOCKS);
    assert_eq!(drive.submitted(), BLOCKS, "all were handed to the preferred copy");

    drive.hold(u64::MAX);
    let began = Instant::now();
    volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
    assert!(began.elapsed() < Duration::from_millis(200), "submitting does not wait");
    expect_blocks(&results, 0..BLOCKS);
    assert!(began.elapsed() >= Duration::from_millis(300), "it has its time");
    assert!(began.elapsed() < LONG / 4, "{:?}", began.elapsed());
    assert!(matches!(state(&volume, 0), CopyState::Out { .. }), "{:?}", state(&volume, 0));
    let attached = volume.attach(copies.place(0));
    assert!(matches!(attached, Err(VolumeError::Stalled(0))), "it has not answered yet: {attached:?}");

    // What it completes now comes too late for anybody, and is no reason not to use it again.
    assert_eq!(drive.held() as u64, BLOCKS);
    drive.release();
    wait_until("the copy is attached", || volume.attach(copies.place(0)).is_ok());
    wait_until("the copy is in sync", || state(&volume, 0) == CopyState::InSync);
    assert!(results.try_recv().is_err(), "once each");
    volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
    expect_blocks(&results, 0..BLOCKS);
}

#[test]
fn a_read_that_is_late_on_a_copy_that_completes_others_is_done_again_and_the_copy_stays() {
    let (copies, volume) = WaitingCopies::filled(2);
    let drive = &copies.shelves[0].drive;
    let ((lost, lost_results), (sink, results)) = (sink(), sink());
    drive.hold(1);
    volume.submit(&mut vec![read_of(0)], &lost);
    let began = Instant::now();
    let answered = loop {
        volume.submit(&mut vec![read_of(1)], &sink);
        expect_blocks(&results, 1..2);
        match lost_results.recv_timeout(Duration::from_millis(10)) {
            Ok(answered) => break answered,
            Err(_) => assert!(began.elapsed() < LONG, "never answered"),
        }
    };
    answered.1.expect("reads");
    assert_eq!(tag_of(&answered.0.buffer), 0);
    assert_eq!((drive.held(), state(&volume, 0)), (1, CopyState::InSync));
    drive.release();
    drop(volume);
    assert!(lost_results.try_recv().is_err(), "once");
}

#[test]
fn bytes_that_a_submitted_read_finds_damaged_are_repaired_and_never_returned_and_errors_go_to_another_copy() {
    let (copies, volume) = WaitingCopies::filled(2);
    let (sink, results) = sink();
    let on_medium = copies.media[0].open("data-0").expect("a device");
    let mut before = [0; BLOCK_BYTES];
    on_medium.read(at(40), &mut before).expect("reads");
    for block in [3, 4, 40] {
        on_medium.write_flush(at(block), &[1; BLOCK_BYTES]).expect("writes");
    }
    volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
    expect_blocks(&results, 0..BLOCKS);
    assert_eq!(volume.status().copies[0].repaired, 3);
    let mut found = [0; BLOCK_BYTES];
    on_medium.read(at(40), &mut found).expect("reads");
    assert!(found == before, "it was written anew");
    copies.faults[0].inject(Rule::from(Operation::Read, 1, Fault::Eio).on("data-0"));
    volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
    expect_blocks(&results, 0..BLOCKS);
}

#[test]
fn closing_a_volume_answers_what_a_hanging_copy_has_and_its_late_completions_meet_nothing() {
    for is_released in [false, true] {
        let (copies, volume) = WaitingCopies::filled(2);
        let drive = copies.shelves[0].drive.clone();
        let (sink, results) = sink();
        drive.hold(u64::MAX);
        volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
        if is_released {
            drive.release();
        }
        let began = Instant::now();
        volume.close().expect("closes");
        assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
        expect_blocks(&results, 0..BLOCKS);
        volume.submit(&mut vec![read_of(0)], &sink);
        let (_, refused) = results.recv_timeout(LONG).expect("completed");
        assert!(matches!(refused, Err(DeviceError::Poisoned { .. })), "{refused:?}");
        drop(volume);
        drive.release();
        drop(copies);
        assert!(results.try_recv().is_err(), "once each");
    }
}

/// Writes by calls and reads by submitting, at random, until told to end.
fn use_volume(volume: &Volume, seed: u64, (began, tags, stop): (Instant, &AtomicU64, &AtomicBool)) -> Vec<Call> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut calls = Vec::new();
    let now = || began.elapsed().as_nanos() as u64 + 1;
    let (sink, results) = sink();
    while !stop.load(Ordering::Relaxed) {
        // Few blocks, so that threads meet.
        let block = random.u64(..BLOCKS) % (random.u64(..BLOCKS) + 1);
        let start = now();
        if random.u8(..3) == 0 {
            let tag = tags.fetch_add(1, Ordering::Relaxed);
            let is_ok = volume.write(at(block), &tagged(tag)).is_ok();
            calls.push(Call { block, tag, began: start, ended: now(), is_write: true, is_ok });
            continue;
        }
        let count = random.u64(1..8);
        volume.submit(&mut (0..count).map(|_| read_of(random.u64(..BLOCKS))).collect(), &sink);
        for _ in 0..count {
            let (request, result) = results.recv_timeout(LONG).expect("each read is completed");
            let tag = if result.is_ok() { tag_of(&request.buffer) } else { 0 };
            let (ended, is_ok) = (now(), result.is_ok());
            calls.push(Call { block: request.token, tag, began: start, ended, is_write: false, is_ok });
        }
    }
    calls
}

#[test]
fn writers_and_submitting_readers_see_registers_while_copies_fail_hang_and_return() {
    let seed = 12;
    println!("seed {seed}");
    let (copies, volume) = WaitingCopies::filled(3);
    // All blocks with one tag: every read finds a write of this history.
    (0..BLOCKS).for_each(|block| volume.write(at(block), &tagged(0)).expect("writes"));
    volume.checkpoint().expect("checkpoints");
    let (tags, stop, began) = (AtomicU64::new(1), AtomicBool::new(false), Instant::now());
    let mut calls = Vec::new();
    std::thread::scope(|scope| {
        let (shared, volume) = ((began, &tags, &stop), &volume);
        let workers: Vec<_> =
            (0..3).map(|number| scope.spawn(move || use_volume(volume, seed ^ number, shared))).collect();
        let mut random = fastrand::Rng::with_seed(seed);
        let troubled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..8 {
                let copy = if round % 2 == 0 { 0 } else { random.usize(..3) };
                match random.u8(..3) {
                    0 => copies.shelves[copy].drive.hold(random.u64(1..30)),
                    1 => copies.shelves[copy].drive.hold(u64::MAX),
                    _ => copies.faults[copy].inject(Rule::from(Operation::Write, random.u64(1..20), Fault::Eio)),
                }
                std::thread::sleep(Duration::from_millis(random.u64(..600)));
                volume.checkpoint().expect("checkpoints");
                copies.faults[copy].heal();
                copies.shelves[copy].drive.release();
                wait_until("the copy is back", || {
                    let attached = volume.attach(copies.place(copy));
                    if let Err(VolumeError::TooOld(_)) = attached {
                        volume.replace(copy as u8, copies.place(copy)).expect("replaces");
                    }
                    (0..3).all(|copy| state(volume, copy) == CopyState::InSync)
                });
            }
        }));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| calls.extend(worker.join().expect("no panic")));
        troubled.expect("every copy comes back");
    });
    println!("{} calls, {} of them refused", calls.len(), calls.iter().filter(|call| !call.is_ok).count());
    assert!(calls.len() > 1000, "only {} calls", calls.len());
    check(&calls);
    let scrubbed = volume.scrub().expect("scrubs");
    assert_eq!((scrubbed.repaired, scrubbed.damaged), (0, 0), "the copies differ");
}

#[test]
fn a_volume_on_files_serves_submitted_reads_through_their_rings_and_closes_cleanly_with_reads_in_progress() {
    let home = tempfile::tempdir().expect("temporary directory");
    let shelves: Vec<Arc<dyn Shelf>> = (0..3)
        .map(|copy| {
            let shelf = FileShelf::open(&home.path().join(format!("c{copy}")), FileOptions::default());
            Arc::new(shelf.expect("a shelf")) as Arc<dyn Shelf>
        })
        .collect();
    let places = || shelves.iter().map(|shelf| Place::on(shelf.clone())).collect::<Vec<_>>();
    Volume::create(&places(), &new_volume(BLOCKS), &options(1)).expect("creates");
    for round in 0..3 {
        let volume = Volume::open(places(), settings(2 + round)).expect("opens");
        assert!(volume.waits_by_itself());
        (0..BLOCKS).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
        volume.checkpoint().expect("checkpoints");
        let (sink, results) = sink();
        for _ in 0..20 {
            volume.submit(&mut (0..BLOCKS).map(read_of).collect(), &sink);
        }
        drop(volume);
        let mut count = [0; BLOCKS as usize];
        for (request, result) in results.try_iter() {
            result.expect("reads");
            assert_eq!(tag_of(&request.buffer), request.token);
            count[request.token as usize] += 1;
        }
        assert_eq!(count, [20; BLOCKS as usize], "all have ended when the volume is dropped");
    }
    let volume = Volume::open(places(), settings(9)).expect("opens");
    assert_eq!(tag_of(&read_block(&volume, 7).expect("reads")), 7);
}
