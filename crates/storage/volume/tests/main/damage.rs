//! Damage at rest: found by the sums, repaired from another copy, counted; never returned.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device::faulty::{Fault, Rule};
use device::{AlignedBuffer, Device, DeviceError, IoRequest, IoSink, Operation};
use volume::superblock::SUPERBLOCK;
use volume::{Options, Threads, Volume};

use crate::rig::Rig;
use crate::support::{at, options, read_block, tag_of, tagged};

#[test]
fn bit_rot_on_one_copy_is_repaired_from_another_when_it_is_read_and_counted() {
    let (rig, volume) = Rig::filled(3, 2, 32);
    for block in [3, 4, 20] {
        rig.rot(0, "data-0", block);
    }
    let mut bytes = vec![0; at(8) as usize];
    volume.read(0, &mut bytes).expect("reads");
    assert!((0..8).all(|block| bytes[at(block) as usize..at(block + 1) as usize] == tagged(block)));
    assert_eq!(volume.status().copies[0].repaired, 2, "those that were read");
    assert!(rig.medium_block(0, "data-0", 3) == rig.medium_block(1, "data-0", 3), "written anew");
    assert_eq!(tag_of(&read_block(&volume, 20).expect("reads")), 20);
    assert_eq!(volume.status().copies.iter().map(|copy| copy.repaired).collect::<Vec<_>>(), [3, 0, 0]);
    assert_eq!(volume.status().damaged, 0);
    rig.assert_equal(&volume);
}

#[test]
fn a_part_of_a_block_is_written_over_good_bytes_although_one_copy_is_damaged() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    rig.rot(0, "data-0", 3);
    volume.write(at(3), &tagged(9)[..512]).expect("writes");
    let expected = [&tagged(9)[..512], &tagged(3)[512..]].concat();
    assert!(read_block(&volume, 3).expect("reads") == expected);
    rig.assert_equal(&volume);
}

#[test]
fn bit_rot_on_all_copies_is_an_error_that_names_the_block_until_it_is_written_anew() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    (0..3).for_each(|copy| rig.rot(copy, "data-0", 7));
    let mut bytes = vec![0; at(16) as usize];
    for refused in [volume.read(0, &mut bytes), volume.write(at(7) + 9, b"a part needs the rest")] {
        assert!(
            matches!(refused, Err(DeviceError::Lost { offset, bytes, .. }) if (offset, bytes) == (at(7), at(1))),
            "{refused:?}"
        );
    }
    assert_eq!(volume.status().damaged, 2);
    assert_eq!(volume.scrub().expect("scrubs").damaged, 1);
    for block in (0..16).filter(|block| *block != 7) {
        assert_eq!(tag_of(&read_block(&volume, block).expect("the others are good")), block);
    }
    volume.write(at(7), &tagged(100)).expect("writes");
    assert_eq!(tag_of(&read_block(&volume, 7).expect("good again")), 100);
    rig.assert_equal(&volume);
}

#[test]
fn a_scrub_writes_damaged_sums_anew_before_those_of_the_other_copy_are_damaged_too() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    rig.rot(0, "tables-0", 0);
    let found = volume.scrub().expect("scrubs");
    assert_eq!((found.repaired, found.damaged), (1, 0));
    assert!(rig.medium_block(0, "tables-0", 0) == rig.medium_block(1, "tables-0", 0), "written anew");
    drop(volume);
    rig.rot(1, "tables-0", 0);
    let volume = rig.open(3);
    for block in 0..16 {
        assert_eq!(tag_of(&read_block(&volume, block).expect("its sum is there")), block);
    }
    rig.assert_equal(&volume);
}

#[test]
fn a_scrub_writes_a_damaged_slot_of_a_superblock_anew_before_the_other_one_is_damaged_too() {
    for slot in 0..2 {
        let (rig, volume) = Rig::filled(1, 1, 16);
        let before = rig.superblock(0);
        rig.rot(0, SUPERBLOCK, slot);
        assert_eq!(volume.scrub().expect("scrubs").repaired, 1);
        assert_eq!(rig.superblock(0), before, "both slots are good, and nothing else has changed");
        std::mem::forget(volume);
        rig.rot(0, SUPERBLOCK, 1 - slot);
        let volume = rig.open(3);
        assert_eq!(tag_of(&read_block(&volume, 5).expect("reads")), 5);
    }
}

#[test]
fn sums_of_which_only_the_journal_has_an_image_are_in_place_after_the_next_opening() {
    let (rig, volume) = Rig::filled(1, 1, 16);
    rig.rot(0, "tables-0", 0);
    // The checkpoint of the scrub ends when the image is durable, as in a power failure.
    rig.faults[0].inject(Rule::from(Operation::Write, 1, Fault::Eio).on("tables-0"));
    volume.scrub().expect("scrubs");
    drop(volume);
    rig.faults[0].heal();
    for owner in [3, 4] {
        let volume = rig.open(owner);
        for block in 0..16 {
            assert_eq!(tag_of(&read_block(&volume, block).expect("its sum is there")), block, "owner {owner}");
        }
    }
}

#[test]
fn submitted_writes_that_meet_damage_on_all_copies_end_with_an_error_and_the_others_are_done() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    drop(volume);
    let settings = Options { threads: Threads::Background, ..options(3) };
    let volume = Volume::open(rig.places(), settings).expect("opens");
    (0..2).for_each(|copy| rig.rot(copy, "data-0", 7));
    let completed = Arc::new(Completed::default());
    let part = |block: u64| IoRequest::write(at(block) + 9, AlignedBuffer::from(&b"a part needs the rest"[..]), block);
    let mut batch: Vec<IoRequest> = [7, 7, 3, 7, 4].into_iter().map(part).collect();
    volume.submit(&mut batch, &(completed.clone() as Arc<dyn IoSink>));
    let began = Instant::now();
    while completed.0.lock().expect("no panic").len() < 5 {
        assert!(began.elapsed() < Duration::from_secs(20), "a request has no end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut done = std::mem::take(&mut *completed.0.lock().expect("no panic"));
    done.sort_unstable();
    assert_eq!(done, [(3, true), (4, true), (7, false), (7, false), (7, false)]);
}

#[derive(Default)]
struct Completed(Mutex<Vec<(u64, bool)>>);

impl IoSink for Completed {
    fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
        self.0.lock().expect("no panic").push((request.token, result.is_ok()));
    }
}

#[test]
fn a_scrub_finds_and_repairs_damage_on_every_copy_before_a_read() {
    let (rig, volume) = Rig::filled(3, 2, 32);
    rig.rot(0, "data-0", 1);
    rig.rot(1, "data-0", 1);
    rig.rot(2, "data-0", 30);
    let scrubbed = volume.scrub().expect("scrubs");
    assert_eq!((scrubbed.repaired, scrubbed.damaged), (3, 0));
    assert_eq!(volume.status().copies.iter().map(|copy| copy.repaired).collect::<Vec<_>>(), [1, 1, 1]);
    rig.assert_equal(&volume);
}

#[test]
fn a_misdirected_and_a_lost_write_are_found_by_the_sums_and_repaired() {
    for (fault, damaged) in [(Fault::Misdirected { blocks: 5 }, 2), (Fault::Lost, 1)] {
        let (rig, volume) = Rig::filled(2, 1, 16);
        let old = rig.medium_block(0, "data-0", 3);
        volume.write(at(3), &tagged(100)).expect("writes");
        rig.faults[0].inject(Rule::nth(Operation::Write, 1, fault).on("data-0"));
        volume.checkpoint().expect("the drive reports success");
        assert_eq!(rig.faults[0].hits(), 1);
        assert!(rig.medium_block(0, "data-0", 3) == old, "{fault:?}: the block is old on the medium");
        for block in 0..16 {
            let expected = if block == 3 { 100 } else { block };
            assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), expected);
        }
        assert_eq!(volume.status().copies[0].repaired, damaged, "{fault:?}");
        rig.assert_equal(&volume);
    }
}

#[test]
fn damaged_tables_of_one_copy_are_settled_by_the_others_when_the_volume_is_opened() {
    let (rig, volume) = Rig::filled(3, 2, 32);
    drop(volume);
    rig.rot(0, "tables-0", 0);
    let volume = rig.open(3);
    for block in 0..32 {
        assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), block);
    }
    rig.assert_equal(&volume);
}
