//! Real threads: writers and readers side by side while copies fail, hang and return; and every wait has an end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device::faulty::{Fault, FaultyShelf, Rule};
use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, IoRequest, IoSink, MemoryShelf, Operation, Shelf};
use volume::{CopyState, NewVolume, Options, Place, Threads, Volume, VolumeError};

use crate::hanging::HangingShelf;
use crate::support::{at, new_volume, options, read_block, tag_of, tagged};

pub(crate) const BLOCKS: u64 = 64;
/// More than anything here takes; a wait without an end fails after it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

struct Copies {
    faults: Vec<Arc<FaultyShelf>>,
    hanging: Vec<Arc<HangingShelf>>,
}

impl Copies {
    fn new(copies: u8, min_copies: u8) -> Copies {
        let faults: Vec<Arc<FaultyShelf>> =
            (0..copies).map(|_| Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())))).collect();
        let hanging = faults.iter().map(|shelf| Arc::new(HangingShelf::new(shelf.clone()))).collect();
        let all = Copies { faults, hanging };
        let new = NewVolume { min_copies: Some(min_copies), ..new_volume(BLOCKS) };
        Volume::create(&all.places(), &new, &options(1)).expect("creates");
        all
    }

    fn place(&self, copy: usize) -> Place {
        Place::on(self.hanging[copy].clone())
    }

    fn places(&self) -> Vec<Place> {
        (0..self.hanging.len()).map(|copy| self.place(copy)).collect()
    }

    fn open(&self, owner: u64) -> Volume {
        Volume::open(self.places(), settings(owner)).expect("opens")
    }
}

pub(crate) fn settings(owner: u64) -> Options {
    Options {
        threads: Threads::Background,
        copy_timeout: Duration::from_millis(300),
        checkpoint_timeout: Duration::from_millis(600),
        write_timeout: Duration::from_secs(2),
        prefer: Some(0),
        ..options(owner)
    }
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Attaches a copy as soon as nothing of its former life is under way, and waits until it has joined.
fn bring_back(volume: &Volume, copies: &Copies, copy: usize) {
    let is_in_sync = || volume.status().copies[copy].state == CopyState::InSync;
    let began = Instant::now();
    while !is_in_sync() {
        match volume.attach(copies.place(copy)) {
            Ok(_) | Err(VolumeError::Attached(_) | VolumeError::Stalled(_)) => {}
            // It has recorded a set after it had been given up: nobody served that one, so it is not recognised.
            Err(VolumeError::TooOld(_)) => volume.replace(copy as u8, copies.place(copy)).expect("replaces"),
            Err(error) => println!("copy {copy} is not back yet: {error}"),
        }
        assert!(began.elapsed() < LONG, "copy {copy} never comes back: {:?}", volume.status().copies[copy]);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What one call did, in nanoseconds since the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) block: u64,
    pub(crate) tag: u64,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) is_write: bool,
    pub(crate) is_ok: bool,
}

/// Each block is a register: a read returns no write that began after it, none that another one had replaced before it, none that was
/// refused; and no read returns an older write than one that had ended before it.
pub(crate) fn check(calls: &[Call]) {
    for block in 0..BLOCKS {
        let of_block: Vec<Call> = calls.iter().copied().filter(|call| call.block == block).collect();
        let first = Call { block, tag: 0, began: 0, ended: 0, is_write: true, is_ok: true };
        let mut writes: Vec<Call> = of_block.iter().copied().filter(|call| call.is_write).collect();
        writes.push(first);
        let written = |tag: u64| *writes.iter().find(|write| write.tag == tag).expect("a tag that was written");
        let mut reads: Vec<Call> = of_block.into_iter().filter(|call| !call.is_write && call.is_ok).collect();
        reads.sort_unstable_by_key(|read| read.began);
        for read in &reads {
            let from = written(read.tag);
            assert!(from.is_ok, "a write that was refused is read: {from:?} {read:?}");
            assert!(from.began < read.ended, "{from:?} {read:?}");
            let newer = |write: &&Call| write.is_ok && write.began > from.ended && write.ended < read.began;
            if let Some(newer) = writes.iter().find(newer) {
                panic!("an old state was read: {read:?} of {from:?} after {newer:?}");
            }
        }
        for (index, read) in reads.iter().enumerate() {
            let from = written(read.tag);
            for earlier in reads[..index].iter().filter(|earlier| earlier.ended < read.began) {
                let seen = written(earlier.tag);
                assert!(from.ended >= seen.began, "what was read has vanished: {earlier:?}, then {read:?}");
            }
        }
    }
}

/// Writes and reads blocks at random until told to end.
fn use_volume(volume: &Volume, seed: u64, (began, tags, stop): (Instant, &AtomicU64, &AtomicBool)) -> Vec<Call> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut calls = Vec::new();
    let now = || began.elapsed().as_nanos() as u64 + 1;
    while !stop.load(Ordering::Relaxed) {
        // Few blocks, so that threads meet.
        let block = random.u64(..BLOCKS) % (random.u64(..BLOCKS) + 1);
        let is_write = random.u8(..3) > 0;
        let start = now();
        let (tag, is_ok) = if is_write {
            let tag = tags.fetch_add(1, Ordering::Relaxed);
            (tag, volume.write(at(block), &tagged(tag)).is_ok())
        } else {
            match read_block(volume, block) {
                Ok(bytes) => (tag_of(&bytes), true),
                Err(_) => (0, false),
            }
        };
        calls.push(Call { block, tag, began: start, ended: now(), is_write, is_ok });
    }
    calls
}

/// Lets copies fail, hang and return, one after the other.
fn trouble(volume: &Volume, copies: &Copies, seed: u64, rounds: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..rounds {
        let copy = random.usize(..copies.faults.len());
        match random.u8(..4) {
            0 => copies.faults[copy].inject(Rule::from(Operation::Write, random.u64(1..20), Fault::Eio)),
            1 => copies.faults[copy].inject(Rule::from(Operation::Flush, random.u64(1..20), Fault::Eio)),
            2 => copies.hanging[copy].gate.hang(["journal", "data", "tables", ""][random.usize(..4)]),
            _ => drop(volume.exclude(copy as u8)),
        }
        std::thread::sleep(Duration::from_millis(random.u64(..700)));
        copies.faults[copy].heal();
        copies.hanging[copy].gate.release();
        bring_back(volume, copies, copy);
    }
}

#[test]
fn writers_and_readers_side_by_side_see_registers_while_copies_fail_hang_and_return() {
    let seed = 11;
    println!("seed {seed}");
    let copies = Copies::new(3, 2);
    let volume = copies.open(2);
    let (tags, stop, began) = (AtomicU64::new(1), AtomicBool::new(false), Instant::now());
    let mut calls = Vec::new();
    std::thread::scope(|scope| {
        let shared = (began, &tags, &stop);
        let volume = &volume;
        let workers: Vec<_> =
            (0..4).map(|number| scope.spawn(move || use_volume(volume, seed ^ number, shared))).collect();
        let troubled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trouble(volume, &copies, seed, 12)));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| calls.extend(worker.join().expect("no panic")));
        troubled.expect("every copy comes back");
    });
    let refused = calls.iter().filter(|call| !call.is_ok).count();
    println!("{} calls, {refused} of them refused", calls.len());
    assert!(calls.len() > 1000, "only {} calls", calls.len());
    check(&calls);
    volume.checkpoint().expect("checkpoints");
    let scrubbed = volume.scrub().expect("scrubs");
    assert_eq!((scrubbed.repaired, scrubbed.damaged), (0, 0), "the copies differ");
    // Another owner finds the last acknowledged state of every block, or one that was refused after it.
    let last = (0..BLOCKS).map(|block| tag_of(&read_block(&volume, block).expect("reads"))).collect::<Vec<_>>();
    drop(volume);
    let volume = copies.open(3);
    for (block, tag) in last.into_iter().enumerate() {
        assert_eq!(tag_of(&read_block(&volume, block as u64).expect("reads")), tag);
    }
}

#[test]
fn a_copy_that_hangs_is_excluded_by_writes_reads_and_checkpoints_and_the_others_go_on() {
    for device in ["journal", "data", "tables", "superblock"] {
        let copies = Copies::new(3, 2);
        let volume = copies.open(2);
        (0..BLOCKS).for_each(|block| volume.write(at(block), &tagged(block)).expect("writes"));
        volume.checkpoint().expect("checkpoints");
        copies.hanging[0].gate.hang(device);
        let began = Instant::now();
        // It is the preferred one, so reads meet it; a superblock is written only if another copy fails.
        for block in 0..BLOCKS {
            assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), block, "{device}");
        }
        volume.write(at(3), &tagged(100)).expect("two copies are left");
        volume.checkpoint().expect("two copies are left");
        if device == "superblock" {
            assert!(matches!(volume.exclude(2), Err(VolumeError::BelowMinimum { .. })), "copy 0 records nothing");
        }
        assert!(began.elapsed() < LONG / 2, "{device}: waits have an end");
        assert_ne!(volume.status().copies[0].state, CopyState::InSync, "{device}: {:?}", volume.status().copies);
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
        copies.hanging[0].gate.release();
        bring_back(&volume, &copies, 0);
    }
}

#[test]
fn a_copy_is_not_attached_while_a_call_of_its_former_life_hangs() {
    let copies = Copies::new(3, 2);
    let volume = copies.open(2);
    volume.write(at(3), &tagged(1)).expect("writes");
    // The checkpoint of copy 1 hangs with an old block in its hands.
    copies.hanging[1].gate.hang("data");
    volume.checkpoint().expect("two copies are left");
    volume.write(at(3), &tagged(2)).expect("writes");
    let refused = volume.attach(copies.place(1));
    assert!(matches!(refused, Err(VolumeError::Stalled(1))), "{refused:?}");
    let refused = volume.replace(1, copies.place(1));
    assert!(matches!(refused, Err(VolumeError::Stalled(1))), "{refused:?}");
    copies.hanging[1].gate.release();
    bring_back(&volume, &copies, 1);
    volume.checkpoint().expect("checkpoints");
    let scrubbed = volume.scrub().expect("scrubs");
    assert_eq!((scrubbed.repaired, scrubbed.damaged), (0, 0));
}

#[test]
fn an_opening_leaves_out_a_copy_that_hangs() {
    for device in ["superblock", "journal", "tables"] {
        let copies = Copies::new(3, 2);
        let volume = copies.open(2);
        volume.write(at(3), &tagged(1)).expect("writes");
        drop(volume);
        copies.hanging[2].gate.hang(device);
        let volume = copies.open(3);
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 1, "{device}");
        volume.write(at(4), &tagged(2)).expect("two copies are enough");
        copies.hanging[2].gate.release();
        bring_back(&volume, &copies, 2);
    }
}

#[test]
fn an_opening_leaves_out_a_copy_that_hangs_when_it_is_asked_for_a_block_whose_sum_another_one_has_lost() {
    let copies = Copies::new(3, 2);
    let volume = copies.open(2);
    volume.write(at(3), &tagged(1)).expect("writes");
    volume.close().expect("closes");
    drop(volume);
    let tables = copies.faults[0].open("tables-0").expect("a device");
    let mut sums = AlignedBuffer::zeroed(BLOCK_BYTES);
    tables.read(0, &mut sums).expect("reads");
    sums[100] ^= 4;
    tables.write_flush(0, &sums).expect("writes");
    drop(tables);
    copies.hanging[2].gate.hang("data");
    // So that it ends also if it waits for the copy.
    let gate = copies.hanging[2].gate.clone();
    std::thread::spawn(move || {
        std::thread::sleep(LONG / 3);
        gate.release();
    });
    let began = Instant::now();
    let volume = copies.open(3);
    assert!(began.elapsed() < LONG / 4, "it has waited for the copy: {:?}", began.elapsed());
    assert!(matches!(volume.status().copies[2].state, CopyState::Out { .. }), "{:?}", volume.status());
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 1);
    copies.hanging[2].gate.release();
    bring_back(&volume, &copies, 2);
}

#[test]
fn a_copy_that_hangs_when_it_is_attached_keeps_no_other_one_from_it() {
    for device in ["superblock", "journal"] {
        let copies = Copies::new(3, 1);
        let volume = copies.open(2);
        volume.write(at(3), &tagged(1)).expect("writes");
        [1, 2].into_iter().for_each(|copy| volume.exclude(copy).expect("one is left"));
        copies.hanging[2].gate.hang(device);
        // So that it ends also if it waits for the copy.
        let gate = copies.hanging[2].gate.clone();
        std::thread::spawn(move || {
            std::thread::sleep(LONG / 3);
            gate.release();
        });
        let began = Instant::now();
        let refused = volume.attach(copies.place(2));
        assert!(refused.is_err(), "{device}: {refused:?}");
        bring_back(&volume, &copies, 1);
        assert!(began.elapsed() < LONG / 4, "{device}: it has waited for the copy: {:?}", began.elapsed());
        copies.hanging[2].gate.release();
        bring_back(&volume, &copies, 2);
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 1);
    }
}

#[test]
fn closing_and_dropping_end_in_time_although_a_copy_hangs() {
    for device in ["journal", "data", ""] {
        let copies = Copies::new(3, 2);
        let volume = copies.open(2);
        volume.write(at(3), &tagged(1)).expect("writes");
        copies.hanging[2].gate.hang(device);
        let began = Instant::now();
        drop(volume);
        assert!(began.elapsed() < LONG / 2, "{device}");
        copies.hanging[2].gate.release();
        let volume = copies.open(3);
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 1);
    }
}

#[derive(Default)]
struct Completed(Mutex<Vec<(u64, bool)>>);

impl IoSink for Completed {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.lock().expect("no panic").push((request.token, result.is_ok()));
    }
}

#[test]
fn submitted_writes_of_a_frozen_volume_fail_together_one_time_out_after_they_were_submitted() {
    let copies = Copies::new(2, 2);
    let volume = copies.open(2);
    volume.exclude(1).expect_err("too few are left");
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    let count = 100;
    let write = |token: u64| IoRequest::write(at(token % BLOCKS), AlignedBuffer::from(&tagged(token)[..]), token);
    let mut batch: Vec<IoRequest> = (0..count).map(write).collect();
    let mut odd = AlignedBuffer::zeroed(BLOCK_BYTES + 100);
    odd[0] = 1;
    batch.push(IoRequest::write(at(7) + 5, odd, count));
    let began = Instant::now();
    volume.submit(&mut batch, &sink);
    wait_until("all complete", || completed.0.lock().expect("no panic").len() as u64 == count + 1);
    // One after the other, each with a time-out of 2 s, they would take 200 s.
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    assert!(completed.0.lock().expect("no panic").iter().all(|(_, is_ok)| !is_ok));
}

#[test]
fn submitted_writes_of_a_frozen_volume_are_done_when_a_copy_comes_back_in_time() {
    let copies = Copies::new(2, 2);
    let slow = Options { write_timeout: LONG, ..settings(2) };
    let volume = Volume::open(copies.places(), slow).expect("opens");
    volume.exclude(1).expect_err("too few are left");
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    let write = |token: u64| IoRequest::write(at(token), AlignedBuffer::from(&tagged(token + 1)[..]), token);
    let mut batch: Vec<IoRequest> = (0..BLOCKS).map(write).collect();
    volume.submit(&mut batch, &sink);
    bring_back(&volume, &copies, 1);
    wait_until("all complete", || completed.0.lock().expect("no panic").len() as u64 == BLOCKS);
    assert!(completed.0.lock().expect("no panic").iter().all(|(_, is_ok)| *is_ok));
    for block in 0..BLOCKS {
        assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), block + 1);
    }
}

#[test]
fn two_copies_that_need_each_other_are_both_brought_up_to_date_and_join() {
    let copies = Copies::new(3, 3);
    let volume = copies.open(2);
    for copy in [1, 2] {
        volume.exclude(copy).expect_err("all are needed");
    }
    for copy in [1, 2] {
        wait_until("attached", || volume.attach(copies.place(copy)).is_ok());
    }
    wait_until("in sync", || volume.status().copies.iter().all(|copy| copy.state == CopyState::InSync));
    volume.write(at(3), &tagged(9)).expect("all are there");
}

#[test]
fn submitting_to_a_frozen_volume_in_memory_does_not_wait_however_many_requests_there_are() {
    let places = (0..2).map(|_| Place::on(Arc::new(MemoryShelf::new()))).collect::<Vec<_>>();
    let new = NewVolume { volume: [7; 16], bytes: BLOCKS * BLOCK_BYTES as u64, min_copies: Some(2), is_thin: false };
    Volume::create(&places, &new, &settings(1)).expect("creates");
    let slow = Options { write_timeout: LONG, ..settings(2) };
    let volume = Volume::open(places.clone(), slow).expect("opens");
    let completed = Arc::new(Completed::default());
    let sink: Arc<dyn IoSink> = completed.clone();
    let write = |token: u64| IoRequest::write(at(token % BLOCKS), AlignedBuffer::from(&tagged(token + 1)[..]), token);
    volume.submit(&mut vec![write(0)], &sink);
    assert_eq!(completed.0.lock().expect("no panic").len(), 1, "nothing has to be waited for: it is done at once");
    volume.exclude(1).expect_err("too few are left");
    let began = Instant::now();
    let count = 10_000;
    volume.submit(&mut (1..=count).map(write).collect(), &sink);
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    assert_eq!(completed.0.lock().expect("no panic").len(), 1, "none is acknowledged by one copy");
    volume.attach(places[1].clone()).expect("attaches");
    wait_until("all complete", || completed.0.lock().expect("no panic").len() as u64 == count + 1);
    assert!(completed.0.lock().expect("no panic").iter().all(|(_, is_ok)| *is_ok));
}
