//! Which copies open a volume, and which are refused.

use volume::superblock::SUPERBLOCK;
use volume::{CopyState, Members, NewVolume, Options, Volume, VolumeError};

use device::Device;

use crate::rig::{Rig, resync, state};
use crate::support::{at, memory, new_volume, options, read_block, tag_of, tagged};

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
