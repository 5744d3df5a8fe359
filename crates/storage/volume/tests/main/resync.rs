//! A copy returns, or is replaced: it is brought up to date, and joins only then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use device::faulty::{Fault, FaultyShelf, Rule};
use device::{BLOCK_BYTES, Device, MemoryShelf, Operation};
use volume::{CopyState, Members, Options, Place, Step, Threads, Volume, VolumeError};

use crate::rig::{Rig, TrapShelf, resync, state};
use crate::support::{at, options, read_block, tag_of, tagged};
use crate::threads::{LONG, wait_until};

const REGION: u64 = volume::REGION_BLOCKS;

/// Fills the last segment of every journal with blocks of one region, then makes a checkpoint.
fn end_journals_in(volume: &Volume, region: u64) {
    (0..2 * REGION).for_each(|_| volume.write(at(region * REGION + 3), &tagged(999)).expect("writes"));
    volume.checkpoint().expect("checkpoints");
}

/// Sixteen regions; copy 1 has failed, and missed writes in these regions.
pub(crate) fn behind(copies: u8, min_copies: u8, regions: &[u64]) -> (Rig, Volume) {
    let (rig, volume) = Rig::filled(copies, min_copies, 16 * REGION);
    // The segment in which a journal ends keeps records of before the checkpoint, and what a returning copy has in its journal is
    // copied anew. So the last segment is made to have only blocks of a region that is missed anyway.
    end_journals_in(&volume, regions[0]);
    rig.fail(1);
    for region in regions {
        volume.write(at(region * REGION + 3), &tagged(1000 + region)).expect("without copy 1");
    }
    rig.count_writes(1);
    (rig, volume)
}

#[test]
fn a_copy_that_comes_back_receives_what_it_has_missed_and_no_more_then_joins() {
    let (rig, volume) = behind(3, 2, &[2, 9]);
    assert_eq!(state(&volume, 1), CopyState::Out { behind: 2 * at(REGION) });
    assert_eq!(volume.attach(rig.place(1)).expect("attaches"), 1);
    assert_eq!(state(&volume, 1), CopyState::Syncing { left: 2 * at(REGION) });
    assert!(rig.superblock(1).is_syncing);
    assert_eq!(volume.status().in_sync, Members(0b101), "it does not count yet");
    let refused = volume.attach(rig.place(1));
    assert!(matches!(refused, Err(VolumeError::Attached(1))), "{refused:?}");
    assert_eq!(resync(&volume, 1), 2 * REGION);
    assert_eq!(rig.faults[1].hits(), 2, "one write in place on the copy for each region");
    for copy in 0..3 {
        let superblock = rig.superblock(copy);
        assert!(superblock.set.in_sync == Members::first(3) && !superblock.is_syncing);
    }
    rig.assert_equal(&volume);
    // Alone with one of the others it has everything.
    drop(volume);
    let volume = rig.open_some(&[1, 2], 5).expect("opens");
    assert_eq!(tag_of(&read_block(&volume, 9 * REGION + 3).expect("reads")), 1009);
}

#[test]
fn a_copy_that_stores_something_else_during_a_resync_does_not_join() {
    let (rig, volume) = behind(3, 2, &[2]);
    volume.attach(rig.place(1)).expect("attaches");
    rig.faults[1].heal();
    rig.faults[1]
        .inject(Rule::nth(Operation::Write, 1, Fault::BitFlip { byte: 4 * BLOCK_BYTES + 9, bit: 1 }).on("data-0"));
    let refused = volume.resync_step(1);
    assert!(matches!(refused, Err(VolumeError::Damaged { offset, .. }) if offset == at(2 * REGION + 4)), "{refused:?}");
    assert_eq!(state(&volume, 1), CopyState::Out { behind: at(REGION) });
    volume.attach(rig.place(1)).expect("attaches again");
    assert_eq!(resync(&volume, 1), REGION);
    rig.assert_equal(&volume);
}

#[test]
fn writes_during_a_resync_arrive_on_the_copy_too() {
    let (rig, volume) = behind(3, 2, &[2, 9, 11]);
    volume.attach(rig.place(1)).expect("attaches");
    volume.write(at(9 * REGION + 3), &tagged(2000)).expect("before its region is copied");
    let step = volume.resync_step(1).expect("a step");
    assert_eq!(step, Step::Copied { bytes: at(REGION), left: 2 * at(REGION) });
    volume.write(at(2 * REGION + 3), &tagged(2001)).expect("after its region was copied");
    volume.write(at(5 * REGION) + 50, b"a region that was not missed").expect("writes");
    volume.checkpoint().expect("in the middle of it");
    volume.write(at(11 * REGION + 7), &tagged(2002)).expect("writes");
    volume.write_zeroes(at(9 * REGION), at(1), false).expect("writes zeros");
    resync(&volume, 1);
    volume.write(at(9 * REGION), &tagged(2003)).expect("so that it is in place");
    rig.assert_equal(&volume);
    drop(volume);
    let volume = rig.open_some(&[1, 2], 5).expect("opens");
    for (block, tag) in [(9 * REGION + 3, 2000), (2 * REGION + 3, 2001), (11 * REGION + 7, 2002), (9 * REGION, 2003)] {
        assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), tag);
    }
}

#[test]
fn a_copy_that_fails_again_during_a_resync_keeps_what_it_has_and_gets_the_rest() {
    let (rig, volume) = behind(3, 2, &[2, 9]);
    volume.attach(rig.place(1)).expect("attaches");
    volume.resync_step(1).expect("a step");
    volume.write(at(5 * REGION), &tagged(3000)).expect("in the journals only");
    rig.faults[1].heal();
    rig.fail(1);
    assert!(volume.resync_step(1).is_err());
    volume.write(at(12 * REGION), &tagged(3001)).expect("without it");
    assert_eq!(state(&volume, 1), CopyState::Out { behind: 3 * at(REGION) }, "regions 5, 9 and 12");
    rig.faults[1].heal();
    volume.attach(rig.place(1)).expect("attaches again");
    assert_eq!(resync(&volume, 1), 3 * REGION);
    rig.assert_equal(&volume);
}

#[test]
fn a_resync_that_a_crash_of_the_owner_interrupts_resumes() {
    for has_checkpoint in [true, false] {
        let (rig, volume) = behind(3, 2, &[2, 5, 9, 11]);
        volume.attach(rig.place(1)).expect("attaches");
        volume.resync_step(1).expect("a step");
        volume.resync_step(1).expect("a step");
        if has_checkpoint {
            // The dirty map is persistent. Region 9 is dirty still.
            end_journals_in(&volume, 9);
        }
        volume.write(at(2 * REGION + 1), &tagged(4000)).expect("after its region was copied");
        std::mem::forget(volume);
        let volume = rig.open(3);
        let left = if has_checkpoint { 3 } else { 4 };
        assert_eq!(state(&volume, 1), CopyState::Out { behind: left * at(REGION) });
        assert_eq!(volume.status().in_sync, Members(0b101), "a mixture never counts");
        volume.attach(rig.place(1)).expect("attaches");
        assert_eq!(resync(&volume, 1), left * REGION);
        assert_eq!(tag_of(&read_block(&volume, 2 * REGION + 1).expect("reads")), 4000);
        rig.assert_equal(&volume);
    }
}

#[test]
fn a_block_that_no_source_can_read_is_tried_for_a_minute_then_left_out_and_mended_when_one_can() {
    const STEPS: u64 = 60;
    for heals in [true, false] {
        let (rig, volume) = behind(2, 1, &[2, 9]);
        volume.attach(rig.place(1)).expect("attaches");
        // Of each step for region 9: all of it at once, then its fourth block, which was missed, and that block again; then the first
        // block of the volume can be read.
        for step in 0..if heals { STEPS - 1 } else { STEPS } {
            for nth in [2, 6, 7] {
                rig.faults[0].inject(Rule::nth(Operation::Read, 7 * step + nth, Fault::Eio).on("data-0"));
            }
        }
        volume.resync_step(1).expect("region 2");
        for _ in 0..STEPS - 1 {
            let refused = volume.resync_step(1);
            assert!(matches!(refused, Err(VolumeError::Damaged { .. })), "{refused:?}");
        }
        assert_eq!(resync(&volume, 1), REGION);
        assert_eq!(state(&volume, 1), CopyState::InSync);
        let found = volume.scrub().expect("reads all");
        assert_eq!((found.repaired, found.damaged), (u64::from(!heals), 0));
        rig.assert_equal(&volume);
    }
}

#[test]
fn a_source_that_fails_in_the_middle_ends_the_resync_cleanly_and_the_copy_does_not_join() {
    let (rig, volume) = behind(2, 1, &[2, 9]);
    volume.attach(rig.place(1)).expect("attaches");
    // Regions are read as one.
    rig.faults[0].inject(Rule::from(Operation::Read, 2, Fault::Eio).on("data-0"));
    volume.resync_step(1).expect("the first region");
    for _ in 0..2 {
        let refused = volume.resync_step(1);
        assert!(matches!(refused, Err(VolumeError::Damaged { .. })), "{refused:?}");
    }
    assert_eq!(state(&volume, 1), CopyState::Syncing { left: at(REGION) });
    assert_eq!((rig.superblock(0).set.in_sync, rig.superblock(1).is_syncing), (Members(0b01), true));
    std::mem::forget(volume);
    // The copy alone is no volume, whatever is accepted.
    let alone = Volume::open(vec![rig.place(1)], Options { accept_loss: true, ..options(3) });
    assert!(matches!(alone, Err(VolumeError::NoneInSync { .. })), "{alone:?}");
    rig.faults[0].heal();
    let volume = rig.open(4);
    volume.attach(rig.place(1)).expect("attaches");
    resync(&volume, 1);
    rig.assert_equal(&volume);
}

#[test]
fn a_resync_goes_on_from_another_source() {
    let (rig, volume) = behind(3, 1, &[2, 9]);
    volume.attach(rig.place(1)).expect("attaches");
    // Reading and mending copy 0 both fail: it is excluded, and copy 2 is read.
    rig.faults[0].inject(Rule::from(Operation::Read, 2, Fault::Eio).on("data-0"));
    rig.faults[0].inject(Rule::from(Operation::Write, 1, Fault::Eio).on("data-0"));
    assert_eq!(resync(&volume, 1), 2 * REGION);
    assert_eq!(volume.status().in_sync, Members(0b110));
    rig.faults[0].heal();
    volume.attach(rig.place(0)).expect("attaches");
    resync(&volume, 0);
    rig.assert_equal(&volume);
}

#[test]
fn a_replacement_by_an_empty_copy_receives_everything_and_the_former_copy_is_refused() {
    let (mut rig, volume) = behind(3, 2, &[2]);
    let former = rig.place(1);
    rig.media[1] = Arc::new(MemoryShelf::new());
    rig.faults[1] = Arc::new(FaultyShelf::new(rig.media[1].clone()));
    let refused = volume.attach(rig.place(1));
    assert!(refused.is_err(), "there is no copy yet: {refused:?}");
    let refused = volume.replace(0, rig.place(1));
    assert!(matches!(refused, Err(VolumeError::Attached(0))), "copy 0 works: {refused:?}");
    volume.replace(1, rig.place(1)).expect("replaces");
    assert_eq!(state(&volume, 1), CopyState::Syncing { left: at(rig.blocks) });
    assert_eq!(resync(&volume, 1), rig.blocks);
    rig.assert_equal(&volume);
    volume.exclude(1).expect("two are left");
    let refused = volume.attach(former);
    assert!(matches!(refused, Err(VolumeError::TooOld(1))), "{refused:?}");
    volume.attach(rig.place(1)).expect("the new one is known");
    assert_eq!(resync(&volume, 1), 0);
}

#[test]
fn a_step_in_flight_marks_nothing_as_copied_on_a_copy_that_has_replaced_its_own() {
    let (mut rig, volume) = behind(3, 2, &[2, 9]);
    let volume = Arc::new(volume);
    let trap = Arc::new(TrapShelf::new(rig.faults[1].clone()));
    volume.attach(Place::on(trap.clone())).expect("attaches");
    rig.media[1] = Arc::new(MemoryShelf::new());
    rig.faults[1] = Arc::new(FaultyShelf::new(rig.media[1].clone()));
    let (other, place) = (volume.clone(), rig.place(1));
    trap.before_write("data-0", move || {
        other.exclude(1).expect("two are left");
        other.replace(1, place).expect("replaces");
    });
    let refused = volume.resync_step(1);
    assert!(matches!(refused, Err(VolumeError::Stalled(1))), "{refused:?}");
    assert_eq!(state(&volume, 1), CopyState::Syncing { left: at(rig.blocks) }, "every region of the new copy is dirty");
    assert_eq!(resync(&volume, 1), rig.blocks);
    rig.assert_equal(&volume);
}

#[test]
fn a_step_in_flight_that_fails_does_not_exclude_the_copy_that_has_replaced_its_own() {
    let (mut rig, volume) = behind(3, 2, &[2]);
    let volume = Arc::new(volume);
    let (former, trap) = (rig.faults[1].clone(), Arc::new(TrapShelf::new(rig.faults[1].clone())));
    volume.attach(Place::on(trap.clone())).expect("attaches");
    rig.media[1] = Arc::new(MemoryShelf::new());
    rig.faults[1] = Arc::new(FaultyShelf::new(rig.media[1].clone()));
    let (other, place) = (volume.clone(), rig.place(1));
    trap.before_write("data-0", move || {
        other.exclude(1).expect("two are left");
        other.replace(1, place).expect("replaces");
        former.heal();
        former.inject(Rule::from(Operation::Write, 1, Fault::Eio));
    });
    assert!(volume.resync_step(1).is_err());
    assert_eq!(state(&volume, 1), CopyState::Syncing { left: at(rig.blocks) }, "the new copy has not failed");
    assert_eq!(resync(&volume, 1), rig.blocks);
    rig.assert_equal(&volume);
}

#[test]
fn a_resync_of_a_copy_that_min_copies_needs_resumes_after_a_crash_of_the_owner() {
    let (rig, volume) = Rig::filled(2, 2, 16 * REGION);
    rig.fail(1);
    for region in [2, 9] {
        assert!(volume.write(at(region * REGION), &tagged(5000)).is_err(), "too few copies");
    }
    rig.count_writes(1);
    volume.attach(rig.place(1)).expect("attaches");
    volume.resync_step(1).expect("a step");
    std::mem::forget(volume);
    let volume = rig.open(3);
    assert!(volume.status().is_frozen, "a mixture never counts");
    for block in 0..rig.blocks {
        let tag = tag_of(&read_block(&volume, block).expect("reads are served"));
        assert!(tag == block || tag == 5000 && [2 * REGION, 9 * REGION].contains(&block));
    }
    assert!(volume.write(at(0), &tagged(1)).is_err(), "too few copies");
    volume.attach(rig.place(1)).expect("attaches");
    resync(&volume, 1);
    volume.write(at(1), &tagged(5001)).expect("writes");
    rig.assert_equal(&volume);
}

#[test]
fn with_a_member_that_cannot_be_opened_nothing_is_written_and_no_copy_can_be_attached() {
    let (rig, volume) = Rig::filled(2, 2, 16);
    volume.write(at(3), &tagged(100)).expect("writes");
    std::mem::forget(volume);
    rig.faults[1].inject(Rule::from(Operation::Open, 1, Fault::Eio).on("data-0"));
    let before = rig.superblock(0).set;
    let volume = rig.open(3);
    rig.faults[1].heal();
    assert!(read_block(&volume, 3).is_err(), "nobody knows whether it was acknowledged");
    assert_eq!(tag_of(&read_block(&volume, 4).expect("reads")), 4);
    assert!(volume.write(at(0), &tagged(1)).is_err(), "too few copies");
    let refused = volume.attach(rig.place(1));
    assert!(matches!(refused, Err(VolumeError::BelowMinimum { working: 1, needed: 2 })), "{refused:?}");
    drop(volume);
    assert_eq!(rig.superblock(0).set, before);
    let volume = rig.open(4);
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
    volume.write(at(0), &tagged(1)).expect("both are there");
    rig.assert_equal(&volume);
}

#[test]
fn a_copy_whose_journal_cannot_be_read_just_now_is_refused_and_keeps_what_it_has() {
    let (rig, volume) = behind(3, 2, &[2]);
    rig.faults[1].heal();
    rig.faults[1].inject(Rule::nth(Operation::List, 1, Fault::Eio));
    let refused = volume.attach(rig.place(1));
    assert!(matches!(&refused, Err(error) if !matches!(error, VolumeError::TooOld(_))), "{refused:?}");
    volume.attach(rig.place(1)).expect("it works again");
    assert_eq!(resync(&volume, 1), REGION, "not all of it");
    rig.assert_equal(&volume);
}

#[test]
fn where_two_copies_are_missing_and_one_is_too_few_both_join_together() {
    let (rig, volume) = Rig::filled(3, 3, 2 * REGION);
    for copy in [1, 2] {
        volume.exclude(copy).expect_err("all are needed");
    }
    volume.attach(rig.place(1)).expect("attaches");
    let waits = (0..4).find_map(|_| volume.resync_step(1).err());
    assert!(matches!(waits, Some(VolumeError::BelowMinimum { .. })), "{waits:?}");
    assert!(matches!(state(&volume, 1), CopyState::Syncing { .. }), "it goes on taking part");
    volume.attach(rig.place(2)).expect("attaches");
    resync(&volume, 2);
    volume.write(at(3), &tagged(100)).expect("all are there");
    rig.assert_equal(&volume);
}

#[test]
fn a_replacement_that_a_crash_interrupts_leaves_a_copy_that_counts_and_is_replaced_again() {
    for nth in 1..12 {
        let (rig, volume) = Rig::filled(2, 2, 16);
        volume.exclude(1).expect_err("both are needed");
        rig.faults[1].inject(Rule::from(Operation::Create, nth, Fault::Eio));
        let replaced = volume.replace(1, rig.place(1));
        std::mem::forget(volume);
        rig.faults[1].heal();
        // Two superblocks are there: the volume is opened, and no loss has to be accepted.
        let volume = rig.open(3);
        for block in 0..16 {
            assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), block);
        }
        volume.replace(1, rig.place(1)).unwrap_or_else(|why| panic!("{nth}: {why} after {replaced:?}"));
        resync(&volume, 1);
        rig.assert_equal(&volume);
    }
}

#[test]
fn a_resync_is_no_faster_than_it_may_be_and_without_a_bound_the_copy_is_in_sync_soon() {
    // A region a second: sixteen of them take sixteen seconds.
    const RATE: u64 = REGION * BLOCK_BYTES as u64;
    let (rig, volume) = behind(3, 2, &(0..16).collect::<Vec<_>>());
    drop(volume);
    let all = at(rig.blocks);
    let left = |volume: &Volume| match state(volume, 1) {
        CopyState::Syncing { left } => left,
        other => panic!("{other:?}"),
    };
    let slow = Options { threads: Threads::Background, upkeep_bytes_per_second: RATE, prefer: Some(0), ..options(3) };
    let volume = Volume::open(rig.places(), slow).expect("opens");
    let began = Instant::now();
    volume.attach(rig.place(1)).expect("attaches");
    wait_until("something is copied", || left(&volume) < all);
    while began.elapsed() < Duration::from_millis(1_500) {
        let copied = all - left(&volume);
        // A step is not cut in two, and what it has copied is paid for afterwards.
        let bound = 4 * at(REGION) + RATE * (began.elapsed().as_millis() as u64 + 1) / 1000;
        assert!(copied <= bound, "{copied} of {bound} after {:?}", began.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(left(&volume) > 0, "it is not in sync");
    drop(volume);
    let usual = Options { threads: Threads::Background, prefer: Some(0), ..options(4) };
    let volume = Volume::open(rig.places(), usual).expect("opens");
    let began = Instant::now();
    volume.attach(rig.place(1)).expect("attaches");
    wait_until("it is in sync", || state(&volume, 1) == CopyState::InSync);
    assert!(began.elapsed() < LONG / 6, "it waited for a bound: {:?}", began.elapsed());
    rig.assert_equal(&volume);
}
