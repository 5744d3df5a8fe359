//! Which copies open a volume, and which are refused.

use volume::superblock::SUPERBLOCK;
use volume::{CopyState, Members, NewVolume, Options, Volume, VolumeError};

use device::faulty::{Fault, Rule};
use device::{Device, Operation};

use crate::rig::{Rig, resync, state};
use crate::support::{IS_ENCRYPTED, at, memory, new_volume, options, read_block, tag_of, tagged};

fn accepting(owner: u64) -> Options {
    Options { accept_loss: true, ..options(owner) }
}

#[test]
fn a_copy_with_an_old_epoch_cannot_open_the_volume_alone_and_does_not_count_beside_another() {
    for copies in [2, 3] {
        let (rig, volume) = Rig::filled(copies, 1, 16);
        volume.exclude(1).expect("enough are left");
        volume.write(at(3), &tagged(100)).expect("writes");
        volume.close().expect("closes");
        drop(volume);
        let before = rig.superblock(1);
        let alone = rig.open_some(&[1], 3);
        assert!(matches!(alone, Err(VolumeError::Quorum { found: 1, .. })), "{copies}: {alone:?}");
        assert_eq!(rig.superblock(1), before, "a refused opening promises nothing");
        let others = if copies == 3 { &[1, 0, 2][..] } else { &[1, 0] };
        let volume = rig.open_some(others, 4).expect("opens");
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
        assert_eq!(state(&volume, 1), CopyState::Out { behind: at(16) });
        volume.attach(rig.place(1)).expect("attaches");
        assert_eq!(resync(&volume, 1), 16);
        rig.assert_equal(&volume);
    }
}

#[test]
fn a_copy_of_another_volume_is_refused_by_its_name_and_left_as_it_is() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    let (other, second) = Rig::fresh(2, 1, 16);
    drop(second);
    Volume::delete(&other.places()).expect("deletes");
    let new = NewVolume { volume: *b"another volume!!", ..new_volume(16) };
    Volume::create(&other.places(), &new, &options(1)).expect("creates");
    let before = other.superblock(1);
    volume.exclude(1).expect("one is left");
    let refused = volume.attach(other.place(1));
    assert!(matches!(refused, Err(VolumeError::Foreign { .. })), "{refused:?}");
    let refused = volume.replace(1, other.place(1));
    assert!(matches!(refused, Err(VolumeError::Foreign { .. })), "{refused:?}");
    drop(volume);
    let refused = Volume::open(vec![rig.place(0), other.place(1)], accepting(5));
    assert!(matches!(refused, Err(VolumeError::Foreign { .. })), "{refused:?}");
    assert_eq!(other.superblock(1), before);
    let refused = Volume::open(vec![rig.place(0), rig.place(0)], options(6));
    assert!(matches!(refused, Err(VolumeError::Twice(0))), "{refused:?}");
}

#[test]
fn one_of_three_copies_opens_the_volume_only_if_a_loss_is_accepted() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    volume.write(at(3), &tagged(100)).expect("writes");
    std::mem::forget(volume);
    for copy in 0..3 {
        let refused = rig.open_some(&[copy], 3);
        assert!(
            matches!(refused, Err(VolumeError::Quorum { found: 1, needed: 2, copies: 3 })),
            "copy {copy}: {refused:?}"
        );
    }
    let volume = Volume::open(vec![rig.place(2)], accepting(4)).expect("the loss is accepted");
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
    volume.write(at(4), &tagged(101)).expect("writes");
    assert_eq!(rig.superblock(2).set.in_sync, Members(0b100));
    for copy in [0, 1] {
        volume.attach(rig.place(copy)).expect("attaches");
        resync(&volume, copy as u8);
    }
    rig.assert_equal(&volume);
}

#[test]
fn after_an_accepted_loss_copies_with_a_later_state_are_not_brought_up_to_date_by_a_dirty_map() {
    let (rig, volume) = Rig::filled(3, 2, 32);
    volume.exclude(0).expect("two are left");
    volume.write(at(3), &tagged(100)).expect("writes");
    volume.close().expect("closes");
    drop(volume);
    let volume = Volume::open(vec![rig.place(0)], accepting(4)).expect("the loss is accepted");
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 3, "lost");
    for copy in [1, 2] {
        let refused = volume.attach(rig.place(copy));
        assert!(matches!(refused, Err(VolumeError::TooOld(_))), "{refused:?}");
        volume.replace(copy as u8, rig.place(copy)).expect("replaces");
        assert_eq!(resync(&volume, copy as u8), 32);
    }
    rig.assert_equal(&volume);
}

#[test]
fn bit_rot_in_one_slot_of_a_superblock_changes_nothing_and_the_slot_is_written_anew() {
    for slot in 0..2 {
        let (rig, volume) = Rig::filled(3, 2, 16);
        volume.exclude(1).expect("two are left");
        drop(volume);
        rig.rot(0, SUPERBLOCK, slot);
        rig.rot(2, SUPERBLOCK, slot);
        let volume = rig.open(3);
        assert_eq!(volume.status().in_sync, Members(0b101), "the exclusion is not forgotten");
        assert_eq!(rig.superblock(0).set.in_sync, Members(0b101));
        assert_eq!(tag_of(&read_block(&volume, 5).expect("reads")), 5);
    }
}

#[test]
fn a_torn_change_of_a_superblock_with_bit_rot_in_one_slot_leaves_the_other_slot() {
    for slot in 0..2 {
        let (rig, volume) = Rig::filled(1, 1, 16);
        volume.close().expect("closes");
        drop(volume);
        rig.rot(0, SUPERBLOCK, slot);
        // What is written is damaged, and nothing comes after it: as power does that fails.
        let torn = Rule::nth(Operation::Write, 1, Fault::BitFlip { byte: 100, bit: 1 });
        rig.faults[0].inject(torn.on(SUPERBLOCK));
        rig.faults[0].inject(Rule::from(Operation::Write, 2, Fault::Eio).on(SUPERBLOCK));
        let failed = rig.open_some(&[0], 3);
        assert!(failed.is_err(), "slot {slot}: {failed:?}");
        rig.faults[0].heal();
        let volume = rig.open(4);
        assert_eq!(tag_of(&read_block(&volume, 5).expect("reads")), 5, "slot {slot}");
    }
}

#[test]
fn bit_rot_in_both_slots_of_a_superblock_makes_the_copy_missing_until_it_is_made_anew() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    drop(volume);
    (0..2).for_each(|slot| rig.rot(0, SUPERBLOCK, slot));
    let volume = rig.open(3);
    assert_eq!(volume.status().in_sync, Members(0b110));
    let refused = volume.attach(rig.place(0));
    assert!(matches!(refused, Err(VolumeError::Format { .. })), "{refused:?}");
    let refused = volume.replace(0, rig.place(0));
    assert!(matches!(refused, Err(VolumeError::Format { .. })), "nobody knows whose copy it is: {refused:?}");
    Volume::delete(&[rig.place(0)]).expect("deletes");
    volume.replace(0, rig.place(0)).expect("replaces");
    assert_eq!(resync(&volume, 0), 16);
    rig.assert_equal(&volume);
    drop(volume);
    let lost = memory(1);
    assert!(Volume::open(lost, options(4)).is_err(), "an empty place is no copy");
}

#[test]
fn a_copy_with_a_term_that_no_owner_had_is_left_out_and_takes_no_terms_from_the_others() {
    for copies in [2, 3] {
        let (rig, volume) = Rig::filled(copies, copies - 1, 16);
        volume.close().expect("closes");
        drop(volume);
        let before = rig.superblock(0);
        let mut far = rig.superblock(1);
        far.promised.number = (before.promised.term() + (1 << 20) + 1) << 32;
        far.sequence += 1;
        let device = rig.place(1).data.open(SUPERBLOCK).expect("it is there");
        [0, 4096].iter().for_each(|at| device.write_flush(*at, &far.encode()).expect("writes"));
        drop(device);
        let all: Vec<_> = (0..usize::from(copies)).collect();
        let opened = rig.open_some(&all, 3);
        if copies == 2 {
            assert!(matches!(opened, Err(VolumeError::Quorum { found: 1, needed: 2, .. })), "{opened:?}");
            assert_eq!(rig.superblock(0), before, "nothing was promised");
            continue;
        }
        let volume = opened.expect("two of three are enough");
        assert_eq!(rig.superblock(0).promised.term(), before.promised.term() + 1);
        assert_eq!(rig.superblock(1), far, "it is left as it is");
        volume.write(at(3), &tagged(100)).expect("writes");
        assert!(matches!(state(&volume, 1), CopyState::Out { .. }), "{:?}", state(&volume, 1));
    }
}

#[test]
fn a_copy_that_says_another_number_of_copies_does_not_lower_what_the_volume_needs() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    volume.close().expect("closes");
    drop(volume);
    let mut other = rig.superblock(0);
    (other.min_copies, other.sequence) = (1, other.sequence + 1);
    let device = rig.place(0).data.open(SUPERBLOCK).expect("it is there");
    [0, 4096].iter().for_each(|at| device.write_flush(*at, &other.encode()).expect("writes"));
    drop(device);
    let refused = rig.open_some(&[0, 1], 3);
    assert!(matches!(refused, Err(VolumeError::Format { .. })), "{refused:?}");
    rig.open_some(&[1, 2], 4).expect("the others agree");
}

#[test]
fn a_volume_whose_tables_take_more_memory_than_there_is_is_not_made_opened_or_grown() {
    // Sums of 4 bytes, with seals 44, for each block: its own, and while it is opened those of each copy.
    let entry = if IS_ENCRYPTED { 44 } else { 4 };
    let with = |owner: u64, blocks: u64| Options { memory_bytes: blocks * 3 * entry, ..options(owner) };
    let is_refused = |result: Result<(), VolumeError>| matches!(result, Err(VolumeError::Memory { .. }));
    let places = memory(2);
    assert!(is_refused(Volume::create(&places, &new_volume(32), &with(1, 31))));
    assert!(places[0].data.list().expect("lists").is_empty(), "nothing was made");
    Volume::create(&places, &new_volume(32), &with(1, 32)).expect("creates");
    assert!(is_refused(Volume::open(places.clone(), with(2, 31)).map(drop)));
    Volume::open(places.clone(), with(3, 32)).expect("opens").close().expect("closes");
    assert!(is_refused(Volume::grow(&places, at(48), &with(4, 47))));
    assert_eq!(Volume::open(places.clone(), with(5, 32)).expect("opens").len(), at(32), "it is as it was");
    Volume::grow(&places, at(48), &with(6, 48)).expect("grows");
}
