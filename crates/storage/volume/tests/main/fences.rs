//! What decides from outside: a fence at each copy, and a coordinator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use device::{Device, DeviceError, Operation};
use volume::{Coordinator, Disagreement, Fence, Members, Options, Place, Set, Volume, VolumeError};

use crate::rig::{Rig, resync};
use crate::support::{at, options, read_block, tag_of, tagged};

/// Promises numbers as an export does: a lower one is refused.
#[derive(Debug, Default)]
struct Promises(AtomicU64);

impl Fence for Promises {
    fn raise(&self, number: u64) -> Result<(), DeviceError> {
        if self.0.fetch_max(number, Ordering::SeqCst) > number {
            let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
            return Err(DeviceError::Io { operation: Operation::Open, name: "fence".to_owned(), offset: 0, source });
        }
        Ok(())
    }
}

fn fenced(rig: &Rig, fences: &[Arc<Promises>]) -> Vec<Place> {
    let place = |(copy, fence): (usize, &Arc<Promises>)| Place { fence: Some(fence.clone()), ..rig.place(copy) };
    fences.iter().enumerate().map(place).collect()
}

#[test]
fn each_owner_raises_every_fence_higher_before_it_reads_and_two_of_one_term_never_to_the_same() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    drop(volume);
    let fences: Vec<Arc<Promises>> = (0..3).map(|_| Arc::default()).collect();
    let mut before = 0;
    for owner in 3..6 {
        drop(Volume::open(fenced(&rig, &fences), options(owner)).expect("opens"));
        let raised: Vec<u64> = fences.iter().map(|fence| fence.0.load(Ordering::SeqCst)).collect();
        assert!(raised.iter().all(|number| *number == raised[0] && *number > before), "{raised:?} after {before}");
        assert_eq!(raised[0], rig.superblock(0).promised.fence());
        before = raised[0];
    }
    let term = rig.superblock(0).promised.term();
    assert_eq!(before >> 32, term, "the upper half is the term");
    assert_ne!(before & 0xffff_ffff, 0, "the lower half is the owner's own");
}

#[test]
fn a_fence_that_an_owner_raised_and_left_does_not_keep_the_next_one_out() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    drop(volume);
    let fences: Vec<Arc<Promises>> = (0..3).map(|_| Arc::default()).collect();
    // As high as it can be in the next term, and no superblock knows of it.
    let term = rig.superblock(0).promised.term() + 1;
    fences[1].raise(term << 32 | 0xffff_ffff).expect("raises");
    let volume = Volume::open(fenced(&rig, &fences), options(3)).expect("opens");
    assert_eq!(volume.status().in_sync, Members::first(3), "no copy is left out");
}

#[test]
fn a_copy_whose_fence_refuses_does_not_take_part() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    drop(volume);
    let fences: Vec<Arc<Promises>> = (0..3).map(|_| Arc::default()).collect();
    fences[2].raise(u64::MAX).expect("raises");
    let volume = Volume::open(fenced(&rig, &fences), options(3)).expect("two are enough");
    assert_eq!(volume.status().in_sync, Members(0b011));
    volume.write(at(1), &tagged(100)).expect("writes");
    let again = fenced(&rig, &fences).remove(2);
    assert!(volume.attach(again).is_err());
    drop(volume);
    fences[1].raise(u64::MAX).expect("raises");
    let refused = Volume::open(fenced(&rig, &fences), options(4));
    assert!(matches!(refused, Err(VolumeError::Quorum { found: 1, .. })), "{refused:?}");
}

#[test]
fn unfenced_copies_serve_beside_a_fenced_one_and_never_open_a_volume_alone() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    drop(volume);
    let unfenced = |copy: usize| Place { is_unfenced: true, ..rig.place(copy) };
    // What a place is, is recorded when its copy is made.
    let volume = Volume::open(vec![rig.place(0), rig.place(1), rig.place(2)], options(3)).expect("opens");
    for copy in [1, 2] {
        volume.exclude(copy).expect("enough are left");
        volume.replace(copy, unfenced(copy as usize)).expect("replaces");
        resync(&volume, copy);
    }
    volume.write(at(3), &tagged(100)).expect("writes");
    drop(volume);
    let refused = Volume::open(vec![unfenced(1), unfenced(2)], options(4));
    assert!(matches!(refused, Err(VolumeError::OnlyUnfenced)), "{refused:?}");
    let volume = Volume::open(vec![rig.place(0), unfenced(1)], options(5)).expect("opens");
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 100);
}

/// Keeps the set, as one key of a store does; and answers as it is told.
#[derive(Debug, Default)]
struct Authority {
    sets: Mutex<Vec<(Set, Set)>>,
    answer: Mutex<Option<Disagreement>>,
}

impl Coordinator for Authority {
    fn change(&self, from: &Set, to: &Set) -> Result<(), Disagreement> {
        if let Some(answer) = *self.answer.lock().expect("no panic") {
            return Err(answer);
        }
        self.sets.lock().expect("no panic").push((*from, *to));
        Ok(())
    }
}

fn coordinated(rig: &Rig, owner: u64) -> (Arc<Authority>, Volume) {
    let authority = Arc::new(Authority::default());
    let settings = Options { coordinator: Some(authority.clone()), ..options(owner) };
    let volume = Volume::open(rig.places(), settings).expect("opens");
    (authority, volume)
}

#[test]
fn a_coordinator_agrees_to_each_change_in_a_chain_before_it_is_recorded() {
    let (rig, volume) = Rig::filled(3, 2, 16);
    drop(volume);
    let before = rig.superblock(0).set;
    let (authority, volume) = coordinated(&rig, 3);
    volume.exclude(1).expect("two are left");
    volume.attach(rig.place(1)).expect("attaches");
    resync(&volume, 1);
    let sets = authority.sets.lock().expect("no panic").clone();
    assert_eq!(sets.len(), 3, "the opening, the exclusion, the return");
    assert_eq!(sets[0].0, before);
    assert!(sets.windows(2).all(|pair| pair[0].1 == pair[1].0), "each follows the one before");
    assert_eq!(sets[2].1, rig.superblock(0).set);
}

#[test]
fn without_the_agreement_of_the_coordinator_nothing_is_recorded_or_acknowledged_and_the_owner_ends() {
    for answer in [Disagreement::Superseded(99 << 32), Disagreement::Unreachable] {
        let (rig, volume) = Rig::filled(3, 2, 16);
        drop(volume);
        let (authority, volume) = coordinated(&rig, 3);
        let before = rig.superblock(0).set;
        *authority.answer.lock().expect("no panic") = Some(answer);
        volume.write(at(3), &tagged(100)).expect("no change of the set is needed");
        rig.fail(1);
        assert!(volume.write(at(3), &tagged(101)).is_err(), "{answer:?}");
        assert_eq!(rig.superblock(0).set, before, "{answer:?}");
        assert!(read_block(&volume, 3).is_err(), "it serves nothing any more");
        std::mem::forget(volume);
        rig.faults[1].heal();
        let settings = Options { coordinator: Some(authority.clone()), ..options(4) };
        let refused = Volume::open(rig.places(), settings);
        assert!(matches!(refused, Err(VolumeError::Fenced { .. })), "{refused:?}");
        *authority.answer.lock().expect("no panic") = None;
        let settings = Options { coordinator: Some(authority), ..options(5) };
        let volume = Volume::open(rig.places(), settings).expect("opens");
        let tag = tag_of(&read_block(&volume, 3).expect("reads"));
        assert!(tag == 100 || tag == 101, "{tag}");
    }
}
