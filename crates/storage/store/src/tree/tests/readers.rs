//! Readers beside the writer: a stable key is always seen, and everything that is seen was there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;

const STABLE: u64 = 1500;

fn key(at: u64) -> Vec<u8> {
    // Keys of several lengths with common prefixes, so that fences and separators have all lengths.
    let mut key = format!("{:06}", at).into_bytes();
    key.extend_from_slice(&vec![b'x'; (at % 5 * 60) as usize]);
    key
}

fn value(tree: TreeId, at: u64, version: u64) -> Vec<u8> {
    let mut value = [u64::from(tree.0), at, version].map(u64::to_le_bytes).concat();
    value.extend_from_slice(&vec![version as u8; (version * 37 % 200) as usize]);
    value
}

/// The version in a value; panics if the value is torn, or belongs to another key or tree.
fn version_of(tree: TreeId, at: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes"));
    assert!(bytes == value(tree, at, version), "torn, or of another key or tree: {at}");
    version
}

fn read_until<P: Pages>(done: &AtomicBool, reads: &AtomicU64, pages: &P, trees: [Tree; 2], seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut newest = [vec![0; STABLE as usize], vec![0; STABLE as usize]];
    while !done.load(Ordering::Relaxed) {
        let which = rng.usize(..2);
        let tree = trees[which];
        if rng.u8(..50) == 0 {
            let direction = if rng.bool() { Direction::Forward } else { Direction::Backward };
            let seen: Vec<u64> = all(tree, pages, direction)
                .iter()
                .filter_map(|(key, cell)| {
                    let at: u64 = std::str::from_utf8(&key[..6]).expect("digits").parse().expect("digits");
                    let Cell::Inline(bytes) = cell else { panic!("short values are inline") };
                    version_of(tree.id, at, bytes);
                    (at.is_multiple_of(10) && at < STABLE * 10).then_some(at)
                })
                .collect();
            let mut expected: Vec<u64> = (0..STABLE).map(|at| at * 10).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            assert!(seen == expected, "seed {seed}: a walk sees every stable key once and in order");
        }
        let at = rng.u64(..STABLE);
        let (found, _) = tree.get(pages, &key(at * 10)).expect("sound");
        let Some(Cell::Inline(bytes)) = found else { panic!("seed {seed}: stable key {at} is gone") };
        let version = version_of(tree.id, at * 10, &bytes);
        assert!(version >= newest[which][at as usize], "seed {seed}: key {at} went back in time");
        newest[which][at as usize] = version;
        let passing = rng.u64(..STABLE * 10);
        if let (Some(Cell::Inline(bytes)), _) = tree.get(pages, &key(passing)).expect("sound") {
            version_of(tree.id, passing, &bytes);
        }
        reads.fetch_add(1, Ordering::Relaxed);
    }
}

fn write<P: Pages>(
    pages: &P,
    trees: [Tree; 2],
    rounds: std::ops::Range<u64>,
    rng: &mut fastrand::Rng,
    between: &mut impl FnMut(),
) {
    let mut lsn = 10 + rounds.start * 10_000;
    for round in rounds {
        // A range of temporary keys is inserted and removed as a whole, so that leaves are split, emptied, and reused
        // for the other tree.
        let tree = trees[(round % 2) as usize];
        let mut writer = tree.writer(pages);
        let from = rng.u64(..STABLE * 10);
        for at in from..(from + 400).min(STABLE * 10) {
            lsn += 1;
            between();
            match at % 10 {
                0 if rng.u8(..4) == 0 => drop(writer.put(&key(at), &value(tree.id, at, lsn), Lsn(lsn)).expect("room")),
                0 => {}
                _ if rng.u8(..8) == 0 => drop(writer.delete(&key(at), Lsn(lsn)).expect("sound")),
                _ => drop(writer.put(&key(at), &value(tree.id, at, lsn), Lsn(lsn)).expect("room")),
            }
        }
        let from = rng.u64(..STABLE * 10);
        for at in (from..(from + 800).min(STABLE * 10)).filter(|at| at % 10 != 0) {
            lsn += 1;
            between();
            writer.delete(&key(at), Lsn(lsn)).expect("sound");
        }
        // After the last stable key whole leaves and nodes are created and removed.
        for at in 900_000..900_300 {
            between();
            writer.put(&key(at + 1), &value(tree.id, at + 1, lsn), Lsn(lsn)).expect("room");
        }
        for at in 900_000..900_300 {
            between();
            writer.delete(&key(at + 1), Lsn(lsn)).expect("sound");
        }
    }
}

/// Two trees over the same pages with three readers and one writer, which calls `between` before each change; at the
/// end both must be sound. Returns their reports.
pub(super) fn beside_one_another<P: Pages>(pages: &P, rounds_min: u64, mut between: impl FnMut()) -> [Report; 2] {
    let seed = seed(10);
    let trees = [TreeId(1), TreeId(2)].map(|id| Tree::create(pages, id, Lsn(1)).expect("room"));
    for tree in trees {
        let mut writer = tree.writer(pages);
        for at in (0..STABLE).map(|at| at * 10) {
            writer.put(&key(at), &value(tree.id, at, 1), Lsn(1)).expect("room");
        }
    }
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let readers = [1, 2, 3].map(|reader| {
            let (done, reads) = (&done, &reads);
            scope.spawn(move || read_until(done, reads, pages, trees, seed + reader))
        });
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut round = 0;
        let more = |readers: &[thread::ScopedJoinHandle<'_, ()>]| {
            reads.load(Ordering::Relaxed) < 10_000 && !readers.iter().any(|reader| reader.is_finished())
        };
        while round < rounds_min || more(&readers) {
            write(pages, trees, round..round + 10, &mut rng, &mut between);
            round += 10;
        }
        done.store(true, Ordering::Relaxed);
    });
    let reports = trees.map(|tree| tree.check(pages, |_| ()).expect("memory does not fail"));
    assert!(reports.iter().all(|report| report.faults == 0), "{reports:?}");
    reports
}

#[test]
fn readers_see_what_was_there_while_the_writer_cuts_empties_and_reuses_pages() {
    let pages = MemoryPages::new(4096);
    let reports = beside_one_another(&pages, 150, || ());
    assert_eq!(reports.iter().map(|report| report.inners + report.leaves).sum::<u64>(), pages.pages_used() as u64);
}
