//! Tests of the cache: comparison with a flat vector, faults, and a comparison of the two policies.

use std::thread;

use super::*;
use crate::faulty::{Fault, Rule};
use crate::{FaultyShelf, MemoryShelf, Operation, Shelf};

const P: usize = PAGE as usize;
const POLICIES: [Policy; 2] = [Policy::DirectMapped, Policy::Managed];

/// A cache of `near` pages over `far` pages on a shelf with injectable faults: devices `near` and `far`.
fn cache(policy: Policy, near: u64, far: u64) -> (NearCache, FaultyShelf) {
    let shelf = FaultyShelf::new(Arc::new(MemoryShelf::new()));
    let near = shelf.create("near", near * PAGE).expect("memory");
    let far = shelf.create("far", far * PAGE).expect("memory");
    (NearCache::new(near, far, policy), shelf)
}

fn page(value: u8) -> Vec<u8> {
    vec![value; P]
}

fn value(cache: &NearCache, number: u64) -> u8 {
    let mut bytes = page(0);
    cache.read(number * PAGE, &mut bytes).expect("it reads");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a page is whole");
    bytes[0]
}

#[test]
fn it_holds_what_a_flat_vector_holds_under_random_reads_writes_discards_and_flushes() {
    for seed in 1..=20u64 {
        for policy in POLICIES {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (near, far) = (rng.u64(1..200), 256);
            let (cache, shelf) = cache(policy, near, far);
            let mut model = vec![0u8; far as usize * P];
            for step in 0..600 {
                let what = format!("seed {seed}, {policy:?}, {near} near pages, step {step}");
                let first = rng.u64(0..far);
                let pages = rng.u64(1..=8.min(far - first));
                let range = first as usize * P..(first + pages) as usize * P;
                match rng.u8(0..10) {
                    0..4 => {
                        let bytes: Vec<u8> = range.clone().map(|_| rng.u8(..)).collect();
                        cache.write(first * PAGE, &bytes).expect(&what);
                        model[range].copy_from_slice(&bytes);
                    }
                    4..8 => {
                        let mut bytes = vec![0; range.len()];
                        cache.read(first * PAGE, &mut bytes).expect(&what);
                        assert!(bytes == model[range], "{what}");
                    }
                    8 => {
                        cache.discard(first * PAGE, pages * PAGE).expect(&what);
                        model[range].fill(0);
                    }
                    _ => {
                        cache.flush().expect(&what);
                        let mut bytes = vec![0; model.len()];
                        shelf.open("far").expect(&what).read(0, &mut bytes).expect(&what);
                        assert!(bytes == model, "{what}: a flush leaves nothing behind in near memory");
                    }
                }
            }
        }
    }
}

#[test]
fn threads_that_contend_for_slots_each_find_what_they_wrote() {
    for policy in POLICIES {
        let (cache, _) = cache(policy, 256, 1024);
        thread::scope(|scope| {
            for thread in 0..4u64 {
                let cache = &cache;
                // Pages thread, thread + 4, ...: adjacent to those of other threads, and in the same slot as some of
                // them.
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread + 1);
                    let mut model = vec![0u8; 256];
                    for _ in 0..4000 {
                        let own = rng.usize(0..256);
                        let number = own as u64 * 4 + thread;
                        if rng.bool() {
                            model[own] = rng.u8(..);
                            cache.write(number * PAGE, &page(model[own])).expect("it writes");
                        } else {
                            assert_eq!(value(cache, number), model[own], "{policy:?}, page {number}");
                        }
                    }
                });
            }
        });
        let stats = cache.stats();
        assert_eq!(stats.reads + stats.writes, 4 * 4000, "every access is counted once");
        assert!(stats.write_backs > 0 && stats.hits > 0, "{stats:?}");
    }
}

#[test]
fn a_direct_map_gives_a_page_one_place_and_the_managed_policy_any() {
    let (direct, _) = cache(Policy::DirectMapped, 64, 512);
    for _ in 0..50 {
        assert_eq!((value(&direct, 3), value(&direct, 3 + 64)), (0, 0));
    }
    assert_eq!(direct.stats().hits, 0, "two pages of one slot drive each other out");
    let (managed, _) = cache(Policy::Managed, 64, 512);
    for _ in 0..50 {
        assert_eq!((value(&managed, 3), value(&managed, 3 + 64)), (0, 0));
    }
    assert_eq!(managed.stats().far_reads, 2, "there is room for both");
    let stats = managed.stats();
    assert_eq!((stats.reads, stats.hits), (100, 98));
    assert!((stats.hit_ratio() - 0.98).abs() < 1e-9);
}

/// Reads a hot set repeatedly, with a scan of everything in between; returns the share of hot reads that hit.
fn hot_hits_with_scans(policy: Policy) -> f64 {
    let (cache, _) = cache(policy, 64, 4096);
    let (mut hits, mut reads) = (0, 0);
    for round in 0..20u64 {
        for hot in (0..32).cycle().take(128) {
            let before = cache.stats().hits;
            value(&cache, hot * 64 + hot);
            hits += cache.stats().hits - before;
            reads += 1;
        }
        for scanned in 0..200 {
            value(&cache, 2300 + (round * 200 + scanned) % 1700);
        }
    }
    hits as f64 / reads as f64
}

#[test]
fn a_scan_does_not_drive_out_what_the_managed_policy_has_seen_again() {
    let (managed, direct) = (hot_hits_with_scans(Policy::Managed), hot_hits_with_scans(Policy::DirectMapped));
    assert!(managed > 0.97, "managed {managed:.3}");
    assert!(managed > direct + 0.1, "managed {managed:.3}, direct-mapped {direct:.3}");
}

#[test]
fn only_dirty_pages_are_written_back_and_each_once() {
    for policy in POLICIES {
        let (cache, _) = cache(policy, 8, 64);
        for number in 0..64 {
            value(&cache, number);
        }
        assert_eq!(cache.stats().write_backs, 0, "{policy:?}: nothing was written");
        cache.write(0, &page(1)).expect("it writes");
        cache.flush().expect("it flushes");
        cache.flush().expect("and has nothing to do");
        assert_eq!(cache.stats().write_backs, 1, "{policy:?}");
        assert_eq!(cache.durability(), Durability::None);
    }
}

#[test]
fn a_write_back_that_fails_is_told_loses_nothing_and_poisons() {
    for policy in POLICIES {
        let (cache, shelf) = cache(policy, 1, 8);
        cache.write(0, &page(7)).expect("it writes");
        shelf.inject(Rule::from(Operation::Write, 1, Fault::Eio).on("far"));
        let told = cache.read(PAGE, &mut page(0)).expect_err("page 0 must make room and cannot");
        assert!(matches!(told, DeviceError::Io { operation: Operation::Write, .. }), "{policy:?}: {told}");
        shelf.heal();
        for refused in [cache.write(0, &page(8)), cache.flush(), cache.discard(0, PAGE)] {
            assert!(matches!(refused, Err(DeviceError::Poisoned { .. })), "{policy:?}: {refused:?}");
        }
        assert_eq!(value(&cache, 0), 7, "{policy:?}: the newest bytes are still in near memory");
        assert_eq!(value(&cache, 1), 0, "{policy:?}: others are read past it");
    }
}

#[test]
fn a_flush_that_cannot_write_back_or_flush_far_memory_fails_and_poisons() {
    for operation in [Operation::Write, Operation::Flush] {
        let (cache, shelf) = cache(Policy::DirectMapped, 4, 8);
        cache.write(0, &page(7)).expect("it writes");
        shelf.inject(Rule::from(operation, 1, Fault::Eio).on("far"));
        assert!(matches!(cache.flush(), Err(DeviceError::Io { .. })), "{operation}");
        shelf.heal();
        assert!(
            matches!(cache.flush(), Err(DeviceError::Poisoned { .. })),
            "{operation}: never tried again and believed"
        );
        assert_eq!(value(&cache, 0), 7);
    }
}

#[test]
fn a_read_that_fails_below_is_told_and_changes_nothing() {
    for policy in POLICIES {
        let (cache, shelf) = cache(policy, 2, 8);
        cache.write(0, &page(1)).expect("it writes");
        shelf.inject(Rule::nth(Operation::Read, 1, Fault::Eio).on("far"));
        let told = cache.read(5 * PAGE, &mut page(0)).expect_err("far memory cannot be read");
        assert!(matches!(told, DeviceError::Io { operation: Operation::Read, .. }), "{policy:?}: {told}");
        assert_eq!(shelf.hits(), 1);
        assert_eq!((value(&cache, 5), value(&cache, 0)), (0, 1), "{policy:?}: and the next one is served");
        for number in 0..8 {
            cache.write(number * PAGE, &page(number as u8)).expect("every slot is still used");
        }
        assert_eq!(value(&cache, 7), 7);
    }
}
