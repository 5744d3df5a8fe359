//! A copy fails: what is recorded where, before what is acknowledged.

use std::io::ErrorKind;

use device::faulty::{Fault, Rule};
use device::{Device, DeviceError, Operation};
use volume::superblock::SUPERBLOCK;
use volume::{CopyState, Epoch, Members, Options, Volume, VolumeError};

use crate::rig::{Rig, resync, state};
use crate::support::{at, options, read_block, tag_of, tagged};

/// Whether a write had to wait for a copy, and none came back in time.
fn is_below_minimum(result: &Result<(), DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Io { source, .. }) if source.kind() == ErrorKind::TimedOut)
}

#[test]
fn a_write_whose_one_copy_fails_is_acknowledged_when_the_exclusion_is_durable_on_the_others() {
    for failing in 0..3 {
        let (rig, volume) = Rig::filled(3, 2, 16);
        let before = rig.superblock(0).set;
        rig.fail(failing);
        volume.write(at(3), &tagged(100)).expect("two copies are left");
        assert!(rig.faults[failing].hits() > 0);
        for other in (0..3).filter(|other| *other != failing) {
            let set = rig.superblock(other).set;
            assert_eq!(set.in_sync, Members::first(3).without(failing as u8));
            assert!(set.epoch > before.epoch);
            assert_eq!(set.left[failing], before.epoch, "the last epoch of the copy that failed");
        }
        assert_eq!(rig.superblock(failing).set, before, "a copy that fails learns nothing");
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
        assert!(matches!(state(&volume, failing), CopyState::Out { behind } if behind == at(16)));
        assert_eq!(volume.status().copies[failing].failures, 1);
    }
}

#[test]
fn a_write_is_not_acknowledged_if_the_exclusion_cannot_be_recorded() {
    for operation in [Operation::Write, Operation::Flush] {
        let (rig, volume) = Rig::filled(3, 2, 16);
        let before = rig.superblock(0).set;
        rig.fail(1);
        // Its journal works, its superblock does not.
        rig.faults[2].inject(Rule::from(operation, 1, Fault::Eio).on(SUPERBLOCK));
        let refused = volume.write(at(3), &tagged(100));
        assert!(is_below_minimum(&refused), "{operation}: {refused:?}");
        assert!(rig.faults[2].hits() > 0);
        assert_eq!(
            tag_of(&read_block(&volume, 3).expect("reads go on")),
            3,
            "what was not acknowledged is not visible"
        );
        assert!(volume.status().is_frozen);
        assert_eq!(volume.status().epoch, before.epoch, "no other set is served");
    }
}

#[test]
fn with_min_copies_reached_writes_fail_and_nothing_is_recorded_as_excluded() {
    let (rig, volume) = Rig::filled(2, 2, 16);
    let before = [rig.superblock(0), rig.superblock(1)];
    rig.fail(1);
    for tag in 100..103 {
        let refused = volume.write(at(3), &tagged(tag));
        assert!(is_below_minimum(&refused), "{refused:?}");
        assert_eq!(tag_of(&read_block(&volume, 3).expect("reads go on")), 3);
    }
    assert_eq!([rig.superblock(0), rig.superblock(1)], before);
    assert!(volume.status().is_frozen);
    assert_eq!(state(&volume, 1), CopyState::Missing);

    rig.faults[1].heal();
    assert_eq!(volume.attach(rig.place(1)).expect("it is back"), 1);
    resync(&volume, 1);
    volume.write(at(3), &tagged(200)).expect("enough copies again");
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 200);
    rig.assert_equal(&volume);
}

#[test]
fn of_three_copies_one_is_excluded_and_a_second_is_not() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    rig.fail(2);
    volume.write(at(0), &tagged(100)).expect("two copies are left");
    let before = [rig.superblock(0), rig.superblock(1)];
    rig.fail(1);
    assert!(is_below_minimum(&volume.write(at(1), &tagged(101))));
    assert_eq!([rig.superblock(0), rig.superblock(1)], before);
    // The copy that was excluded first is brought up to date, and is the second one then.
    rig.faults[2].heal();
    volume.attach(rig.place(2)).expect("it is back");
    resync(&volume, 2);
    volume.write(at(2), &tagged(102)).expect("enough copies again");
    assert_eq!(volume.status().in_sync, Members(0b101));
    for (block, tag) in [(0, 100), (1, 1), (2, 102)] {
        assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), tag);
    }
}

#[test]
fn an_owner_that_was_replaced_acknowledges_nothing_that_needs_another_set_and_learns_it() {
    let (rig, old) = Rig::filled(3, 2, 16);
    let new = Volume::open(rig.places(), options(9)).expect("another owner");
    let recorded = rig.superblock(0);
    assert!(old.exclude(2).is_err(), "a set of a lower term is not recorded");
    assert!(old.write(at(0), &tagged(100)).is_err(), "fenced");
    assert!(read_block(&old, 0).is_err(), "fenced");
    assert_eq!(rig.superblock(0), recorded);
    new.write(at(0), &tagged(101)).expect("the new owner works");
    std::mem::forget(old);
}

/// A network is cut and healed again: the owner loses two copies, with which another one opens the volume meanwhile.
#[test]
fn an_owner_whose_copies_another_one_took_serves_nothing_old_once_one_of_them_returns() {
    let (rig, old) = Rig::filled(3, 2, 16);
    [1, 2].into_iter().for_each(|copy| rig.fail(copy));
    assert!(is_below_minimum(&old.write(at(3), &tagged(100))));
    assert_eq!(tag_of(&read_block(&old, 3).expect("nobody has told it")), 3);
    [1, 2].into_iter().for_each(|copy| rig.faults[copy].heal());
    let new = rig.open_some(&[1, 2], 9).expect("two of three");
    new.write(at(3), &tagged(101)).expect("it has enough copies");
    for copy in [1, 2] {
        let refused = old.attach(rig.place(copy));
        assert!(matches!(refused, Err(VolumeError::Fenced { .. })), "{refused:?}");
    }
    assert!(read_block(&old, 3).is_err(), "what it has is old");
    assert!(old.write(at(4), &tagged(102)).is_err());
    assert_eq!(old.status().superseded, Some(Epoch { mint: 0, ..new.status().epoch }));
    assert_eq!((new.status().superseded, tag_of(&read_block(&new, 3).expect("reads"))), (None, 101));
    std::mem::forget(old);
}

/// A copy was opened alone, with its loss accepted, while its owner went on with the others.
#[test]
fn an_owner_with_enough_copies_does_not_end_because_of_a_copy_that_another_one_opened_alone() {
    let (rig, old) = Rig::filled(3, 2, 16);
    rig.fail(2);
    old.write(at(3), &tagged(100)).expect("two copies are left");
    rig.faults[2].heal();
    let alone = Volume::open(vec![rig.place(2)], Options { accept_loss: true, ..options(9) }).expect("opens");
    let refused = old.attach(rig.place(2));
    assert!(matches!(refused, Err(VolumeError::Fenced { .. })), "{refused:?}");
    old.write(at(4), &tagged(101)).expect("it is the owner");
    assert_eq!((old.status().superseded, tag_of(&read_block(&old, 3).expect("reads"))), (None, 100));
    std::mem::forget(alone);
}
