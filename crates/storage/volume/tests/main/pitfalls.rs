//! Faults that other mirrored volumes have had, each as the claim that it cannot happen here. The comment names the source.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use device::faulty::{Fault, FaultyShelf, Rule};
use device::{AlignedBuffer, BLOCK_BYTES, CrashShelf, Device, MemoryShelf, Operation, Shelf};
use volume::{CopyState, Members, Options, Place, Step, Threads, Volume, VolumeError};

use crate::hanging::HangingShelf;
use crate::resync::behind;
use crate::rig::{Rig, TrapShelf, resync, state};
use crate::support::{at, new_volume, options, places_on, read_block, tag_of, tagged};
use crate::threads::{LONG, wait_until};

const REGION: u64 = volume::REGION_BLOCKS;

// oxidecomputer/crucible#893: a write across the extent that was being repaired and its neighbour lost one of them.
#[test]
fn a_write_across_a_region_that_is_copied_and_one_that_is_not_is_on_the_copy_that_joins() {
    // Four regions side by side are copied as one.
    const STEP: u64 = 4 * REGION;
    let (rig, volume) = Rig::filled(3, 2, 4 * STEP);
    volume.exclude(1).expect("two are left");
    for region in 0..16 {
        volume.write(at(region * REGION), &tagged(100 + region)).expect("writes");
    }
    volume.attach(rig.place(1)).expect("attaches");
    for step in 0..3 {
        assert_eq!(
            volume.resync_step(1).expect("a step"),
            Step::Copied { bytes: at(STEP), left: at((3 - step) * STEP) }
        );
        let bytes = [tagged(200 + step), tagged(300 + step)].concat();
        volume.write(at((step + 1) * STEP - 1), &bytes).expect("writes across the edge");
    }
    resync(&volume, 1);
    rig.assert_equal(&volume);
}

// crucible#655, #658, #648: copies that applied reads, flushes and overlapping writes in different orders had different data.
// ceph#43127, #44199: writes were reordered on their way from the log to the copies.
#[test]
fn overlapping_writes_reach_their_places_on_all_copies_in_one_order() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    let mut random = fastrand::Rng::with_seed(3);
    for tag in 1000..1400 {
        let (first, blocks) = (random.u64(..12), random.u64(1..4));
        volume.write(at(first), &tagged(tag).repeat(blocks as usize)).expect("writes");
        if tag % 37 == 0 {
            volume.flush().expect("flushes");
            volume.checkpoint().expect("checkpoints");
        }
    }
    rig.assert_equal(&volume);
}

// crucible#595: an unflushed write on one of three copies was visible after a crash, then vanished.
#[test]
fn a_write_that_one_copy_has_after_a_crash_is_read_for_good_or_never() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    rig.fail(1);
    rig.fail(2);
    assert!(volume.write(at(3), &tagged(100)).is_err(), "it is in one journal only");
    std::mem::forget(volume);
    rig.faults.iter().for_each(|shelf| shelf.heal());
    let volume = rig.open(3);
    let read = tag_of(&read_block(&volume, 3).expect("reads"));
    assert!(read == 3 || read == 100);
    // The attempt to exclude it was recorded on copy 0.
    volume.attach(rig.place(1)).expect("attaches");
    resync(&volume, 1);
    std::mem::forget(volume);
    for copies in [[1, 2], [0, 2], [0, 1]] {
        let volume = rig.open_some(&copies, 4).expect("opens");
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), read, "{copies:?}");
        std::mem::forget(volume);
        let volume = rig.open(5);
        let away = (0..3).find(|copy| !copies.contains(copy)).expect("one is away");
        volume.attach(rig.place(away)).expect("attaches");
        resync(&volume, away as u8);
        std::mem::forget(volume);
    }
}

// crucible#595 again, where too few copies are there: what only their journals have is not read, since it may vanish.
#[test]
fn with_too_few_copies_a_write_that_may_not_have_been_acknowledged_is_not_read() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    rig.fail(1);
    rig.fail(2);
    assert!(volume.write(at(3), &tagged(100)).is_err(), "it is in one journal only");
    std::mem::forget(volume);
    rig.faults.iter().for_each(|shelf| shelf.heal());
    for copy in [1, 2] {
        rig.faults[copy].inject(Rule::from(Operation::Open, 1, Fault::Eio).on("data-0"));
    }
    let volume = rig.open(3);
    assert!(read_block(&volume, 3).is_err());
    assert_eq!(tag_of(&read_block(&volume, 4).expect("reads")), 4);
    std::mem::forget(volume);
    rig.faults.iter().for_each(|shelf| shelf.heal());
    let volume = rig.open_some(&[1, 2], 4).expect("opens");
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 3);
}

// crucible#1788, #1798, #1906: overlapping writes without a flush left newer data with an older context after a crash.
#[test]
fn overlapping_writes_leave_the_bytes_and_the_sum_of_one_of_them_after_any_crash() {
    let shelf = Arc::new(CrashShelf::new(7));
    let any: Arc<dyn Shelf> = shelf.clone();
    let places = places_on(&any, 1);
    Volume::create(&places, &new_volume(16), &options(1)).expect("creates");
    let first = shelf.operations();
    let volume = Volume::open(places, options(2)).expect("opens");
    for tag in 1..6 {
        volume.write(at(tag), &tagged(tag).repeat(3)).expect("writes");
    }
    std::mem::forget(volume);
    let mut count = 0;
    for point in first..=shelf.operations() {
        for image in shelf.images(point) {
            let any: Arc<dyn Shelf> = Arc::new(image.shelf());
            let volume = Volume::open(places_on(&any, 1), options(9)).expect("opens");
            for block in 0..16 {
                let tag = tag_of(&read_block(&volume, block).unwrap_or_else(|why| panic!("{image}: {why}")));
                assert!(tag == 0 || (tag..tag + 3).contains(&block), "{image}: block {block} has {tag}");
            }
            count += 1;
        }
    }
    assert!(count > 50, "only {count} images");
}

// crucible#968, #837, #1783, #1921: repairs hung or began anew for ever when a copy went away in the middle.
// longhorn#4513: copies differed after a rebuild that was interrupted several times.
#[test]
fn a_copy_that_goes_away_at_every_moment_of_its_resync_joins_in_the_end_and_is_equal() {
    let (rig, volume) = Rig::filled(3, 2, 4 * REGION);
    volume.exclude(1).expect("two are left");
    for nth in 1..60 {
        volume.write(at(nth % (4 * REGION)), &tagged(1000 + nth)).expect("writes");
        rig.faults[1].heal();
        rig.faults[1].inject(Rule::from(Operation::Write, nth, Fault::Eio));
        let mut is_broken = volume.attach(rig.place(1)).is_err();
        for _ in 0..40 {
            is_broken = is_broken || !matches!(volume.resync_step(1), Ok(Step::Copied { .. }));
        }
        assert!(is_broken, "it has failed, or has joined");
        volume.write(at((nth * 7) % (4 * REGION)), &tagged(2000 + nth)).expect("writes");
        if state(&volume, 1) == CopyState::InSync {
            volume.exclude(1).expect("two are left");
        }
    }
    rig.faults[1].heal();
    match volume.attach(rig.place(1)) {
        Err(VolumeError::TooOld(_)) => volume.replace(1, rig.place(1)).expect("replaces"),
        other => _ = other.expect("attaches"),
    }
    resync(&volume, 1);
    rig.assert_equal(&volume);
}

// crucible#1555: writes were acknowledged with one copy of three alive.
#[test]
fn one_copy_of_three_acknowledges_nothing() {
    for (first, second) in [(0, 1), (1, 2), (2, 0)] {
        let (rig, volume) = Rig::filled(3, 2, 16);
        rig.fail(first);
        volume.write(at(1), &tagged(100)).expect("two are left");
        rig.fail(second);
        assert!(volume.write(at(1), &tagged(101)).is_err());
        assert_eq!(tag_of(&read_block(&volume, 1).expect("reads")), 100);
    }
}

// crucible#79, #77, #1358: what waited for a flush grew without a bound, unless the owner flushed by a clock. #788: a queue without a bound
// hid the latency.
#[test]
fn what_a_volume_keeps_in_memory_and_in_its_journals_has_a_bound() {
    let (_rig, volume) = Rig::fresh(3, 2, 512);
    for tag in 0..2000 {
        volume.write(at(tag % 512), &tagged(tag)).expect("writes");
        assert!(volume.status().journaled_bytes <= 1 << 20, "more than the window");
    }
    assert!(volume.status().checkpoints > 5);
}

// openebs/mayastor#1084: the last replica was recorded as faulted, and nothing could be opened any more.
#[test]
fn the_last_copy_is_never_recorded_as_excluded() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    volume.exclude(1).expect("one is left");
    rig.fail(0);
    assert!(volume.write(at(1), &tagged(100)).is_err());
    assert!(volume.exclude(0).is_err());
    assert_eq!(rig.superblock(0).set.in_sync, Members(0b01));
    std::mem::forget(volume);
    rig.faults[0].heal();
    let volume = rig.open(3);
    volume.write(at(1), &tagged(101)).expect("it works again");
}

// mayastor#2007: after a crash of the owner all but one replica were rebuilt as a whole.
#[test]
fn after_a_crash_of_the_owner_a_copy_receives_what_it_has_missed_and_no_more() {
    let (rig, volume) = Rig::filled(3, 2, 64 * REGION);
    volume.exclude(1).expect("two are left");
    volume.write(at(9 * REGION), &tagged(5000)).expect("writes");
    std::mem::forget(volume);
    let volume = rig.open(3);
    volume.attach(rig.place(1)).expect("attaches");
    // Also the blocks at the end of its own journal.
    assert!(resync(&volume, 1) <= 4 * REGION);
    rig.assert_equal(&volume);
}

// LINBIT/linstor-server#450: a corrupted node became the source of the synchronisation.
#[test]
fn a_damaged_block_never_is_the_source_of_a_copy() {
    let (rig, volume) = Rig::filled(3, 2, 4 * REGION);
    volume.exclude(1).expect("two are left");
    volume.write(at(5), &tagged(100)).expect("writes");
    volume.checkpoint().expect("checkpoints");
    rig.rot(0, "data-0", 5);
    rig.rot(2, "data-0", 5);
    let damaged = rig.medium_block(0, "data-0", 5);
    volume.attach(rig.place(1)).expect("attaches");
    volume.write(at(9), &tagged(102)).expect("writes");
    resync(&volume, 1);
    assert!(rig.medium_block(1, "data-0", 5) != damaged, "it was not copied");
    // It has everything else, and the damage is reported as before, also by the copy alone, and after it was opened again.
    volume.exclude(0).expect("two are left");
    let refused = read_block(&volume, 5).expect_err("it is damaged").to_string();
    assert!(refused.contains(&format!("{} bytes at {}", BLOCK_BYTES, at(5))), "{refused}");
    assert_eq!(tag_of(&read_block(&volume, 9).expect("reads")), 102);
    drop(volume);
    let volume = rig.open_some(&[1, 2], 5).expect("opens");
    read_block(&volume, 5).expect_err("it is damaged");
    volume.write(at(5), &tagged(101)).expect("written anew");
    volume.attach(rig.place(0)).expect("attaches");
    resync(&volume, 0);
    rig.assert_equal(&volume);
}

// crucible#1146, where the source was paused: here it had been in sync until just now, and is the last that has the block.
#[test]
fn a_copy_that_returns_gives_back_a_block_that_all_others_have_lost() {
    let (rig, volume) = Rig::filled(2, 1, 4 * REGION);
    volume.exclude(1).expect("one is left");
    volume.write(at(3), &tagged(100)).expect("marks the region");
    volume.checkpoint().expect("checkpoints");
    rig.rot(0, "data-0", 5);
    volume.attach(rig.place(1)).expect("attaches");
    resync(&volume, 1);
    assert_eq!(tag_of(&read_block(&volume, 5).expect("reads")), 5);
    rig.assert_equal(&volume);
}

/// Sixteen regions on copies that may hang, served with threads; copy 1 has missed writes of some of them, no two side by side, so that
/// each is a step of its own. Copy 0 is read as long as it works.
fn behind_on_drives(copies: u8, min_copies: u8, copy_timeout: Duration) -> (Rig, Vec<Arc<HangingShelf>>, Volume) {
    let (rig, volume) = behind(copies, min_copies, &[0, 2, 4, 6, 8, 10]);
    drop(volume);
    let drives: Vec<_> = rig.faults.iter().map(|shelf| Arc::new(HangingShelf::new(shelf.clone()))).collect();
    let settings = Options {
        threads: Threads::Background,
        copy_timeout,
        checkpoint_timeout: 2 * copy_timeout,
        write_timeout: LONG,
        prefer: Some(0),
        ..options(9)
    };
    let places = drives.iter().map(|drive| Place::on(drive.clone())).collect();
    let volume = Volume::open(places, settings).expect("opens");
    (rig, drives, volume)
}

/// Attaches copy 1; the blocks of copy 0 hang from the first write of the resync on.
fn attach_and_hang_the_source(volume: &Volume, drives: &[Arc<HangingShelf>]) {
    let (trap, gate) = (TrapShelf::new(drives[1].clone()), drives[0].gate.clone());
    trap.before_write("data-0", move || gate.hang("data"));
    volume.attach(Place::on(Arc::new(trap))).expect("attaches");
}

// crucible#1146: checksums did not match after a repair whose source was paused. #1777: all requests waited for a copy that went away
// while another one was repaired. LINBIT/drbd#137: assertions failed in a resync whose owner had no copy of its own; here all of them are
// behind devices that wait.
#[test]
fn a_resync_whose_source_hangs_in_the_middle_goes_on_from_another_one_and_the_copy_has_everything() {
    let (rig, drives, volume) = behind_on_drives(3, 2, Duration::from_secs(1));
    attach_and_hang_the_source(&volume, &drives);
    // Writes of a region that was missed and of one that was not, while the source hangs; they wait until two copies are in sync.
    volume.write(at(10 * REGION + 5), &tagged(3000)).expect("writes");
    volume.write(at(11 * REGION + 5), &tagged(3001)).expect("writes");
    wait_until("copy 1 is in sync", || state(&volume, 1) == CopyState::InSync);
    assert_eq!(volume.status().in_sync, Members(0b110), "the source is left out");
    drives[0].gate.release();
    // As soon as no call of its former life is under way.
    wait_until("the source is attached", || volume.attach(Place::on(drives[0].clone())).is_ok());
    wait_until("the source is in sync", || state(&volume, 0) == CopyState::InSync);
    for (block, tag) in [(3, 1000), (10 * REGION + 3, 1010), (10 * REGION + 5, 3000), (11 * REGION + 5, 3001)] {
        assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), tag);
    }
    rig.assert_equal(&volume);
}

// crucible#1146, where there is no other source.
#[test]
fn a_copy_whose_only_source_hangs_in_the_middle_of_its_resync_joins_when_it_has_everything_and_not_before() {
    let (rig, drives, volume) = behind_on_drives(2, 1, Duration::from_secs(1));
    attach_and_hang_the_source(&volume, &drives);
    wait_until("the source is given up", || volume.status().is_frozen);
    let stopped = state(&volume, 1);
    assert!(matches!(stopped, CopyState::Syncing { left } if left > 0), "{stopped:?}");
    // The resync is tried again after a second.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(state(&volume, 1), stopped, "it waits");
    assert_eq!((rig.superblock(0).set.in_sync, rig.superblock(1).is_syncing), (Members(0b01), true));
    // Nothing in sync is left to this owner: the next one goes on.
    drives[0].gate.release();
    drop(volume);
    let alone = Volume::open(vec![rig.place(1)], Options { accept_loss: true, ..options(10) });
    assert!(matches!(alone, Err(VolumeError::NoneInSync { .. })), "{alone:?}");
    let volume = rig.open(11);
    assert!(matches!(state(&volume, 1), CopyState::Out { behind } if behind > 0), "{:?}", state(&volume, 1));
    volume.attach(rig.place(1)).expect("attaches");
    resync(&volume, 1);
    assert_eq!(tag_of(&read_block(&volume, 10 * REGION + 3).expect("reads")), 1010);
    rig.assert_equal(&volume);
}

// crucible#1146, where the pause is shorter than what a copy is given.
#[test]
fn a_source_that_pauses_in_the_middle_of_a_resync_stays_and_the_copy_has_everything() {
    let (rig, drives, volume) = behind_on_drives(3, 2, LONG);
    attach_and_hang_the_source(&volume, &drives);
    volume.write(at(10 * REGION + 5), &tagged(3000)).expect("the journals work");
    std::thread::sleep(Duration::from_millis(200));
    assert_ne!(state(&volume, 1), CopyState::InSync, "it has not got everything");
    drives[0].gate.release();
    wait_until("copy 1 is in sync", || state(&volume, 1) == CopyState::InSync);
    assert_eq!(volume.status().in_sync, Members::first(3));
    rig.assert_equal(&volume);
}

/// Holds a resync step of copy 1 just before it writes in place, calls `before`, writes a block of the region that the step copies, and
/// lets the step go on; returns what the step returned.
fn write_beside_a_step(
    (volume, trap): (&Volume, &TrapShelf),
    before: impl FnOnce(),
    (block, tag): (u64, u64),
) -> Result<Step, VolumeError> {
    let (begun, begins) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    trap.before_write("data-0", move || {
        begun.send(()).expect("the test waits for it");
        // Until the other end is dropped, also by a test that fails.
        let _ = goes.recv_timeout(LONG);
    });
    std::thread::scope(|scope| {
        let step = scope.spawn(|| volume.resync_step(1));
        begins.recv_timeout(LONG).expect("the step writes in place");
        before();
        let writer = scope.spawn(move || volume.write(at(block), &tagged(tag)));
        // Long enough for a write that does not wait for the step.
        std::thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished(), "acknowledged while the step has the former bytes of its block in its hands");
        drop(go);
        writer.join().expect("no panic").expect("acknowledged");
        step.join().expect("no panic")
    })
}

// LINBIT/windrbd#27: a late acknowledgement of the resync cleared a bit that a new write had set.
#[test]
fn a_write_of_a_region_that_a_step_is_copying_comes_after_it_and_is_on_the_copy_that_joins() {
    let (rig, volume) = behind(3, 2, &[2, 9]);
    let trap = Arc::new(TrapShelf::new(rig.faults[1].clone()));
    volume.attach(Place::on(trap.clone())).expect("attaches");
    let block = 2 * REGION + 3;
    let step = write_beside_a_step((&volume, &trap), || {}, (block, 3000));
    assert_eq!(step.expect("a step"), Step::Copied { bytes: at(REGION), left: at(REGION) });
    assert_eq!(resync(&volume, 1), REGION);
    rig.assert_equal(&volume);
    drop(volume);
    let volume = rig.open_some(&[1, 2], 5).expect("opens");
    assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), 3000);
}

// windrbd#27, where the copy does not get the write: it was left out meanwhile.
#[test]
fn a_step_that_ends_late_clears_no_bit_of_a_write_that_its_copy_did_not_get() {
    let (rig, volume) = behind(3, 2, &[2, 9]);
    let trap = Arc::new(TrapShelf::new(rig.faults[1].clone()));
    volume.attach(Place::on(trap.clone())).expect("attaches");
    let exclude = || volume.exclude(1).expect("two are left");
    let block = 2 * REGION + 7;
    let step = write_beside_a_step((&volume, &trap), exclude, (block, 3000));
    assert!(matches!(step, Err(VolumeError::Stalled(1))), "{step:?}");
    assert_eq!(state(&volume, 1), CopyState::Out { behind: 2 * at(REGION) }, "both regions are dirty");
    volume.attach(rig.place(1)).expect("attaches again");
    assert_eq!(resync(&volume, 1), 2 * REGION);
    rig.assert_equal(&volume);
    drop(volume);
    let volume = rig.open_some(&[1, 2], 5).expect("opens");
    assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), 3000);
}

// linstor-server#216 and home-operations/miroir#146: each node minted its own first generation, so that data of one were unrelated.
#[test]
fn the_first_epoch_is_minted_once_and_all_copies_have_it() {
    let mints: Vec<u64> = (0..2)
        .map(|owner| {
            let media: Vec<Arc<MemoryShelf>> = (0..3).map(|_| Arc::new(MemoryShelf::new())).collect();
            let faults: Vec<_> = media.iter().map(|medium| Arc::new(FaultyShelf::new(medium.clone()))).collect();
            let rig = Rig { media, faults, blocks: 16 };
            Volume::create(&rig.places(), &new_volume(16), &options(owner)).expect("creates");
            let sets: Vec<_> = (0..3).map(|copy| rig.superblock(copy).set).collect();
            assert!(sets.iter().all(|set| *set == sets[0] && set.in_sync == Members::first(3)));
            assert_ne!(sets[0].epoch.mint, 0);
            sets[0].epoch.mint
        })
        .collect();
    assert_ne!(mints[0], mints[1], "another owner mints another one");
}

// longhorn#4504, #6290: the replica with the largest count of writes won, although these were not acknowledged. #8563: one replica
// alone was salvaged.
#[test]
fn a_copy_with_more_writes_that_were_not_acknowledged_does_not_win() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    rig.fail(0);
    rig.fail(1);
    for tag in 100..120 {
        assert!(volume.write(at(3), &tagged(tag)).is_err());
    }
    std::mem::forget(volume);
    rig.faults.iter().for_each(|shelf| shelf.heal());
    assert!(rig.open_some(&[2], 3).is_err(), "one alone decides nothing");
    let volume = rig.open_some(&[0, 1], 4).expect("opens");
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 3);
    volume.write(at(4), &tagged(200)).expect("writes");
    std::mem::forget(volume);
    let volume = rig.open(5);
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 3);
    volume.attach(rig.place(2)).expect("attaches");
    resync(&volume, 2);
    rig.assert_equal(&volume);
}

// Ceph's persistent write log cache: a write was acknowledged by the log of the client alone, and was lost with it. ceph#41490: a
// damaged log lost what it had.
#[test]
fn an_acknowledged_write_survives_the_loss_of_any_one_copy_with_its_journal() {
    for lost in 0..3 {
        let (rig, volume) = Rig::filled(3, 2, 16);
        volume.write(at(3), &tagged(100)).expect("writes");
        std::mem::forget(volume);
        for name in rig.media[lost].list().expect("lists") {
            rig.media[lost].remove(&name).expect("removes");
        }
        let volume = rig.open(3);
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
        volume.replace(lost as u8, rig.place(lost)).expect("replaces");
        resync(&volume, lost as u8);
        rig.assert_equal(&volume);
    }
}

// A medium that was replaced and is put back: found by the simulation of this crate.
#[test]
fn a_former_medium_in_the_place_of_the_one_that_replaced_it_does_not_count() {
    let (mut rig, volume) = Rig::filled(3, 2, 16);
    volume.exclude(1).expect("two are left");
    let former = (rig.media[1].clone(), rig.faults[1].clone());
    rig.media[1] = Arc::new(MemoryShelf::new());
    rig.faults[1] = Arc::new(FaultyShelf::new(rig.media[1].clone()));
    volume.replace(1, rig.place(1)).expect("replaces");
    resync(&volume, 1);
    volume.write(at(3), &tagged(100)).expect("writes");
    drop(volume);
    (rig.media[1], rig.faults[1]) = former;
    let volume = rig.open_some(&[0, 1], 3).expect("opens");
    assert_eq!(volume.status().copies[1].state, CopyState::Missing);
    drop(volume);
    let volume = rig.open(4);
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
    let refused = volume.attach(rig.place(1));
    assert!(matches!(refused, Err(VolumeError::TooOld(1))), "{refused:?}");
}

// A replacement of a member that is missing, and the owner dies: the new copy must know the set that is in force.
#[test]
fn a_replaced_copy_and_an_old_one_do_not_open_the_volume_without_the_one_that_knows_better() {
    let (mut rig, volume) = Rig::filled(3, 2, 16);
    volume.exclude(2).expect("two are left");
    volume.write(at(3), &tagged(100)).expect("copy 2 misses it");
    volume.exclude(1).expect_err("too few are left");
    rig.media[1] = Arc::new(MemoryShelf::new());
    rig.faults[1] = Arc::new(FaultyShelf::new(rig.media[1].clone()));
    volume.replace(1, rig.place(1)).expect("replaces");
    std::mem::forget(volume);
    let refused = rig.open_some(&[1, 2], 3);
    assert!(matches!(refused, Err(VolumeError::NoneInSync { .. })), "{refused:?}");
    let volume = rig.open(4);
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
}

// A discard of what is empty costs nothing, but its acknowledgement says that the owner is still the owner.
#[test]
fn an_owner_that_was_replaced_acknowledges_no_discard_of_empty_blocks() {
    let (rig, old) = Rig::fresh(3, 2, 16);
    let new = Volume::open(rig.places(), options(9)).expect("another owner");
    new.write(at(3), &tagged(1)).expect("writes");
    rig.faults.iter().for_each(|shelf| shelf.inject(Rule::from(Operation::Write, 1, Fault::Eio)));
    assert!(old.discard(0, at(16)).is_err());
    std::mem::forget(old);
}

// A crash in the middle of making a copy leaves a place that can be used again.
#[test]
fn a_copy_that_a_crash_left_half_made_is_made_again() {
    let shelf = Arc::new(CrashShelf::new(5));
    let any: Arc<dyn Shelf> = shelf.clone();
    Volume::create(&places_on(&any, 1), &new_volume(16), &options(1)).expect("creates");
    for point in 0..=shelf.operations() {
        for image in shelf.images(point) {
            let any: Arc<dyn Shelf> = Arc::new(image.shelf());
            let places = places_on(&any, 1);
            if let Err(error) = Volume::open(places.clone(), options(2)) {
                Volume::create(&places, &new_volume(16), &options(3))
                    .unwrap_or_else(|why| panic!("{image}: neither opened ({error}) nor made ({why})"));
            }
            let volume = Volume::open(places, options(4)).unwrap_or_else(|why| panic!("{image}: {why}"));
            let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
            volume.read(0, &mut bytes).expect("reads");
        }
    }
}
