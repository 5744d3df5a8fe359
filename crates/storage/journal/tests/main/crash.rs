//! Crash images at every moment of a power failure. Acknowledged records are found, in order and unchanged. Other
//! records are found whole or not at all, and no record is found after a missing one.

use std::sync::{Arc, Mutex};

use device::{AlignedBuffer, CrashShelf, MemoryShelf, Shelf};
use journal::{Check, Journal, Record};

use crate::support::{
    History, MEDIA, Medium, clear_and_encrypted, payload, recover, recover_checking, replay, seed, small,
};

/// A workload of appends, commits, truncations and reopenings. It crosses every boundary: blocks, buffers, segments,
/// recycled segments, a record larger than two segments, commits of one record and of many, and records that are
/// appended and committed in one call.
fn workload(shelf: &Arc<CrashShelf>) -> History {
    let mut history = History::default();
    let mut sizes = [10, 900, 4000, 0, 5000, 100, 100, 3900, 12_000, 64, 2000].into_iter().cycle();
    for life in 0..3 {
        let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
        for step in 0..9 {
            for _ in 0..=step % 3 {
                history.append(&journal, sizes.next().expect("endless"));
            }
            history.commit(&journal, shelf);
            if step % 2 == 0 {
                history.append_commit(&journal, shelf, sizes.next().expect("endless"));
            }
            if step == 4 && life > 0 {
                history.truncate(&journal, shelf, 5);
            }
        }
        if life == 1 {
            history.append(&journal, 40_000);
            history.commit(&journal, shelf);
            // The process is killed, not closed: committed records are on the medium, and nothing else is written.
            std::mem::forget(journal);
        } else {
            journal.close().expect("closes");
        }
    }
    history
}

/// Opens and checks every image of every point. Returns the number of images, or the first failure.
fn enumerate(
    shelf: &CrashShelf,
    history: &History,
    visit: &mut dyn FnMut(usize, Arc<CrashShelf>),
) -> Result<usize, String> {
    let mut count = 0;
    for point in shelf.points() {
        for image in shelf.images(point) {
            let after = Arc::new(image.shelf());
            // Both ways of opening must find the same records. They alternate, so each runs on half of the images of
            // every point.
            let check = if count % 2 == 0 { Check::Everything } else { Check::Tail };
            let (journal, found) =
                recover_checking(after.clone(), check).map_err(|error| format!("{image}: {error}"))?;
            history.check(point, &found).map_err(|why| format!("{image}: {why}"))?;
            std::mem::forget(journal);
            visit(count, after);
            count += 1;
        }
    }
    Ok(count)
}

#[test]
fn a_power_failure_at_any_point_loses_nothing_acknowledged_and_invents_nothing() {
    clear_and_encrypted(|| {
        let seed = seed(1);
        for medium in MEDIA {
            let shelf = medium.shelf(seed);
            let history = workload(&shelf);
            let count = enumerate(&shelf, &history, &mut |_, _| ()).unwrap_or_else(|why| {
                panic!(
                    "{why}\n{}",
                    replay(seed, "crash::a_power_failure_at_any_point_loses_nothing_acknowledged_and_invents_nothing")
                )
            });
            println!("{medium:?}: {} operations, {count} images", shelf.operations());
            assert!(count > 1000, "only {count} images: the enumeration has become too small to mean anything");
        }
    });
}

/// The records acknowledged to one of several threads, and the number of operations at that time.
pub(crate) type Acknowledged = Vec<(usize, Record)>;

/// Threads commit at the same time, then the process is killed.
pub(crate) fn several_threads(shelf: &Arc<CrashShelf>) -> Acknowledged {
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (journal, acknowledged) = (&journal, &acknowledged);
            scope.spawn(move || {
                for step in 0..6 {
                    let record = payload(thread * 100 + step, [40, 1500, 3000][(thread + step) as usize % 3]);
                    let lsn = if step % 2 == 0 {
                        journal.append_commit(thread as u8, &[&record]).expect("works")
                    } else {
                        let lsn = journal.append(thread as u8, &[&record]).expect("appends");
                        journal.commit(lsn).expect("commits");
                        lsn
                    };
                    let found = Record { lsn, kind: thread as u8, payload: record };
                    acknowledged.lock().expect("no panic").push((shelf.operations(), found));
                }
            });
        }
    });
    std::mem::forget(journal);
    acknowledged.into_inner().expect("no panic")
}

/// The first image from a point on in which an acknowledged record is missing.
pub(crate) fn first_loss(shelf: &CrashShelf, acknowledged: &Acknowledged, from: usize) -> Option<String> {
    for image in (from..=shelf.operations()).flat_map(|point| shelf.images(point)) {
        let found = match recover(Arc::new(image.shelf())) {
            Ok((journal, found)) => {
                std::mem::forget(journal);
                found
            }
            Err(error) => return Some(format!("{image}: {error}")),
        };
        let mut promised = acknowledged.iter().filter(|(when, _)| *when <= image.point());
        if let Some((_, record)) = promised.find(|(_, record)| !found.contains(record)) {
            return Some(format!("{image}: the record at {} was acknowledged", record.lsn));
        }
    }
    None
}

#[test]
fn a_power_failure_under_several_threads_loses_nothing_that_one_of_them_acknowledged() {
    clear_and_encrypted(|| {
        let seed = seed(6);
        for medium in MEDIA {
            let shelf = medium.shelf(seed);
            let acknowledged = several_threads(&shelf);
            assert_eq!(first_loss(&shelf, &acknowledged, 0), None, "{medium:?}");
        }
    });
}

#[test]
fn a_power_failure_during_recovery_changes_nothing_that_recovery_finds() {
    clear_and_encrypted(|| {
        let seed = seed(2);
        for medium in MEDIA {
            let shelf = medium.shelf(seed);
            let history = workload(&shelf);
            let mut nested = 0;
            let mut visit = |count: usize, recovered: Arc<CrashShelf>| {
                // Every 197th image: recovery runs the same few operations each time, and 197 has no common divisor with
                // the images per point.
                if !count.is_multiple_of(197) {
                    return;
                }
                let (_, first) = recover(recovered.clone()).expect("a second opening works");
                for point in recovered.points() {
                    for image in recovered.images(point) {
                        let (_, second) =
                            recover(Arc::new(image.shelf())).unwrap_or_else(|error| panic!("{image}: {error}"));
                        assert!(first == second, "{image}: a second recovery finds other records");
                        nested += 1;
                    }
                }
            };
            let done = enumerate(&shelf, &history, &mut visit);
            done.unwrap_or_else(|why| {
                panic!(
                    "{why}\n{}",
                    replay(seed, "crash::a_power_failure_during_recovery_changes_nothing_that_recovery_finds")
                )
            });
            println!("{medium:?}: {nested} images of recoveries");
            assert!(nested > 1000);
        }
    });
}

#[test]
fn what_a_crash_cut_off_never_comes_back_over_many_lives() {
    clear_and_encrypted(|| {
        let base = seed(3);
        for medium in MEDIA {
            for round in 0..40 {
                let seed = base + round * 1000;
                if let Err(why) = lives(medium, seed) {
                    panic!("{why}\n{}", replay(seed, "crash::what_a_crash_cut_off_never_comes_back_over_many_lives"));
                }
            }
        }
    });
}

/// Several lives on one medium, each ended by a power failure at a random point. The records of two lives differ only
/// in their bytes: a stale batch fits exactly where a new one is expected.
fn lives(medium: Medium, seed: u64) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut shelf = medium.shelf(seed);
    let mut known: Vec<Record> = Vec::new();
    for life in 0..6u64 {
        let (journal, found) = recover(shelf.clone()).map_err(|error| format!("life {life}: {error}"))?;
        let mut history = History { records: found, ..History::default() };
        if history.records.len() < known.len() || history.records[..known.len()] != known[..] {
            return Err(format!("life {life}: records that had been recovered are gone or changed"));
        }
        history.acknowledge(&shelf);
        let started = shelf.operations();
        for step in 0..random.usize(1..12) {
            let bytes = 1000 + 3000 * (step % 3);
            let number = life * 1000 + step as u64;
            let bytes = payload(number, bytes);
            let lsn = journal.append(life as u8, &[&bytes]).expect("there is space");
            history.records.push(Record { lsn, kind: life as u8, payload: bytes });
            if random.bool() {
                history.commit(&journal, &shelf);
            }
        }
        std::mem::forget(journal);
        let point = random.usize(started..=shelf.operations());
        let images: Vec<_> = shelf.images(point).collect();
        let image = &images[random.usize(..images.len())];
        let (journal, found) = recover(Arc::new(image.shelf())).map_err(|error| format!("{image}: {error}"))?;
        history.check(point, &found).map_err(|why| format!("life {life}, {image}: {why}"))?;
        std::mem::forget(journal);
        known = found;
        shelf = Arc::new(image.shelf());
    }
    Ok(())
}

/// Batches whose frames begin exactly on blocks, so that a block of a stale batch fits into a new one frame by frame:
/// place, length and checksums are correct, and only the epoch is wrong.
#[test]
fn a_new_batch_torn_over_a_stale_one_never_mixes_with_it() {
    let memory = Arc::new(MemoryShelf::new());
    let live = |kind: u8, sizes: &[usize]| {
        let (journal, found) = recover(memory.clone()).expect("opens");
        assert_eq!(found, []);
        for bytes in sizes {
            journal.append(kind, &[&payload(u64::from(kind), *bytes)]).expect("appends");
        }
        journal.commit(journal.appended()).expect("commits");
        std::mem::forget(journal);
    };
    let device = |offset: u64, block: &mut AlignedBuffer, write: bool| {
        let device = memory.open("journal-0000000000000000").expect("is there");
        if write { device.write(offset, block) } else { device.read(offset, block) }.expect("works");
    };
    // One batch: 48 + 32 + 4016 is the block at 8192, 32 + 4064 the block at 12288, and the third record begins at
    // 16384.
    live(1, &[4016, 4064, 3000]);
    let mut stale = AlignedBuffer::zeroed(4096);
    device(16384, &mut stale, false);
    // The crash lost the first two blocks of the batch.
    device(8192, &mut AlignedBuffer::zeroed(8192), true);
    // After the opening batch at 8192 comes a batch of the same length, whose second record begins at 16384 too.
    live(2, &[4016, 3000]);
    let mut new = AlignedBuffer::zeroed(4096);
    device(16384, &mut new, false);
    let frame = |block: &AlignedBuffer| (block[8..16].to_vec(), block[24..29].to_vec());
    assert_eq!(frame(&stale), frame(&new), "the stale frame fits but for its epoch");
    // The next crash tore that batch between its blocks.
    device(16384, &mut stale, true);
    let (journal, found) = recover(memory.clone()).expect("opens");
    assert_eq!(found, [], "neither half is a record");
    journal.close().expect("closes");
}
