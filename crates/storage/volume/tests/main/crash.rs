//! Crash images at every moment of a power failure of all copies: data and sums change as one, nothing acknowledged is lost, and the
//! copies are equal.

use std::sync::Arc;

use device::crash::PmemMode;
use device::{CrashShelf, Device, Shelf};
use volume::{CopyState, Place, Step, Volume, VolumeError};

use crate::support::{History, at, new_volume, options, places_on, read_block, tagged};

const BLOCKS: u64 = 16;

fn workload(shelf: &Arc<CrashShelf>, copies: u8) -> History {
    let any: Arc<dyn Shelf> = shelf.clone();
    let places = places_on(&any, copies);
    let mut history = History::new(BLOCKS);
    let mut tag = 0;
    for life in 0..2 {
        let volume = Volume::open(places.clone(), options(10 + life)).expect("opens");
        let write = |history: &mut History, offset: u64, data: &[u8]| {
            let called = shelf.operations();
            volume.write(offset, data).expect("writes");
            history.change(offset, data, called, Some(shelf.operations()));
        };
        for step in 0..4 {
            tag += 1;
            write(&mut history, at(tag % 5), &tagged(tag));
            write(&mut history, at(3) + 1000 + tag, &[tag as u8; 700]);
            if step == 1 {
                write(&mut history, at(4), &[tagged(tag + 50), tagged(tag + 51)].concat());
            }
            if step == 2 {
                let called = shelf.operations();
                volume.discard(at(1), at(1)).expect("discards");
                history.change(at(1), &[0; 4096], called, Some(shelf.operations()));
                volume.checkpoint().expect("checkpoints");
            }
        }
        // The second life is killed: it is not closed.
        if life == 0 {
            volume.close().expect("closes");
        } else {
            std::mem::forget(volume);
        }
    }
    history
}

fn check(shelf: CrashShelf, copies: u8, history: &History, point: usize) -> Result<(), String> {
    let any: Arc<dyn Shelf> = Arc::new(shelf);
    let places = places_on(&any, copies);
    let volume = Volume::open(places.clone(), options(99)).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for block in 0..BLOCKS {
        let bytes = read_block(&volume, block).map_err(|error| error.to_string())?;
        history.allows(block, &bytes, point)?;
        found.push(bytes);
    }
    let scrubbed = volume.scrub().map_err(|error| error.to_string())?;
    if scrubbed.repaired + scrubbed.damaged > 0 || volume.status().disputed > 0 {
        return Err(format!("the copies differ: {scrubbed:?}"));
    }
    // Another owner, without one of the copies, finds the same.
    if copies > 1 {
        let fewer = places[..places.len() - 1].to_vec();
        if copies == 3 {
            let volume = Volume::open(fewer, options(100)).map_err(|error| error.to_string())?;
            for (block, bytes) in found.iter().enumerate() {
                if read_block(&volume, block as u64).map_err(|error| error.to_string())? != *bytes {
                    return Err(format!("block {block} was read and has vanished"));
                }
            }
        }
    }
    Ok(())
}

fn enumerate(shelf: Arc<CrashShelf>, copies: u8) -> usize {
    let any: Arc<dyn Shelf> = shelf.clone();
    Volume::create(&places_on(&any, copies), &new_volume(BLOCKS), &options(1)).expect("creates");
    let first = shelf.operations();
    let history = workload(&shelf, copies);
    let mut count = 0;
    for point in first..=shelf.operations() {
        for image in shelf.images(point) {
            count += 1;
            check(image.shelf(), copies, &history, point).unwrap_or_else(|why| panic!("{image}: {why}"));
        }
    }
    count
}

#[test]
fn a_power_failure_at_any_moment_leaves_every_block_old_or_new_with_its_sum_on_a_drive() {
    let count = enumerate(Arc::new(CrashShelf::new(1)), 1);
    println!("{count} images");
    assert!(count > 500, "only {count} images");
}

#[test]
fn a_power_failure_at_any_moment_leaves_every_block_old_or_new_with_its_sum_on_persistent_memory() {
    for mode in [PmemMode::Adr, PmemMode::Eadr, PmemMode::Pages] {
        let count = enumerate(Arc::new(CrashShelf::pmem(2, mode)), 1);
        println!("{mode:?}: {count} images");
        assert!(count > 2_000, "only {count} images");
    }
}

#[test]
fn a_power_failure_of_three_copies_at_any_moment_loses_nothing_and_leaves_them_equal() {
    let count = enumerate(Arc::new(CrashShelf::new(3)), 3);
    println!("{count} images");
    assert!(count > 5_000, "only {count} images");
}

/// A copy is taken away, misses writes, returns and joins; writes come before, between and after.
fn resync_workload(shelf: &Arc<CrashShelf>, places: &[Place]) -> History {
    let mut history = History::new(BLOCKS);
    let volume = Volume::open(places.to_vec(), options(10)).expect("opens");
    let mut tag = 0;
    let mut write = |block: u64| {
        tag += 1;
        let called = shelf.operations();
        volume.write(at(block), &tagged(tag)).expect("writes");
        history.change(at(block), &tagged(tag), called, Some(shelf.operations()));
    };
    (0..4).for_each(&mut write);
    volume.exclude(1).expect("two are left");
    (1..3).for_each(&mut write);
    volume.attach(places[1].clone()).expect("attaches");
    write(1);
    while volume.resync_step(1).expect("a step") != Step::Joined {
        write(2);
    }
    write(3);
    std::mem::forget(volume);
    history
}

/// What is found after a crash is allowed, and copy 1 joins and is equal then. Returns whether all of it had to be copied.
fn check_resync(shelf: CrashShelf, history: &History, point: usize) -> Result<bool, String> {
    let any: Arc<dyn Shelf> = Arc::new(shelf);
    let places = places_on(&any, 3);
    let volume = Volume::open(places.clone(), options(99)).map_err(|error| error.to_string())?;
    let mut is_whole = false;
    if let CopyState::Out { .. } = volume.status().copies[1].state {
        match volume.attach(places[1].clone()) {
            Ok(_) => {}
            Err(VolumeError::TooOld(1)) => {
                is_whole = true;
                volume.replace(1, places[1].clone()).map_err(|error| error.to_string())?;
            }
            Err(error) => return Err(error.to_string()),
        }
        while volume.resync_step(1).map_err(|error| error.to_string())? != Step::Joined {}
    }
    for block in 0..BLOCKS {
        history.allows(block, &read_block(&volume, block).map_err(|error| error.to_string())?, point)?;
    }
    volume.checkpoint().map_err(|error| error.to_string())?;
    let scrubbed = volume.scrub().map_err(|error| error.to_string())?;
    if scrubbed.repaired + scrubbed.damaged > 0 || volume.status().disputed > 0 {
        return Err(format!("the copies differ: {scrubbed:?}"));
    }
    Ok(is_whole)
}

#[test]
fn a_power_failure_at_any_moment_of_an_exclusion_and_a_resync_loses_nothing_and_the_copy_joins_afterwards() {
    let shelf = Arc::new(CrashShelf::new(4));
    let any: Arc<dyn Shelf> = shelf.clone();
    let places = places_on(&any, 3);
    Volume::create(&places, &new_volume(BLOCKS), &options(1)).expect("creates");
    let first = shelf.operations();
    let history = resync_workload(&shelf, &places);
    let (mut count, mut whole) = (0, 0);
    for point in first..=shelf.operations() {
        for image in shelf.images(point) {
            count += 1;
            let checked = check_resync(image.shelf(), &history, point);
            whole += u64::from(checked.unwrap_or_else(|why| panic!("{image} at {point}: {why}")));
        }
    }
    println!("{count} images; in {whole} all of the copy had to be copied");
    assert!(count > 300, "only {count} images");
}
