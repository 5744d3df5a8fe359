//! A volume whose copies lie on cached shelves: used, crashed, reopened, and without the cache of one copy.

use std::sync::Arc;

use device::{CrashShelf, Device, MemoryShelf, Shelf};
use volume::write_back::{CacheOptions, CachePolicy, CachedShelf};
use volume::{CopyState, Options, Place, Step, Threads, Volume, VolumeError};

use crate::support::{self, History, at, new_volume, options, read_block, tagged};
use crate::write_back::rig::{BLOCK, seeds, small};

/// The shelves of a copy: capacity, cache, journal.
type Shelves = [Arc<dyn Shelf>; 3];

fn memory() -> Shelves {
    [(); 3].map(|()| Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>)
}

fn place(shelves: &Shelves, options: &CacheOptions) -> Result<(Place, Arc<CachedShelf>), VolumeError> {
    let cached = Arc::new(CachedShelf::open(shelves[0].clone(), shelves[1].clone(), options)?);
    Ok((Place { data: cached.clone(), ..Place::on(shelves[2].clone()) }, cached))
}

fn create(shelves: &Shelves, options: &CacheOptions) {
    drop(CachedShelf::create(shelves[0].clone(), shelves[1].clone(), options).expect("creates"));
}

fn places(copies: &[Shelves], options: &CacheOptions) -> Vec<Place> {
    copies.iter().map(|shelves| place(shelves, options).expect("opens").0).collect()
}

#[test]
fn a_volume_of_three_copies_over_cached_shelves_keeps_everything_over_many_lives_with_and_without_threads() {
    const BLOCKS: u64 = 4096;
    for (seed, threads) in seeds(2).into_iter().flat_map(|seed| [(seed, Threads::Callers), (seed, Threads::Background)])
    {
        let policy = if seed % 2 == 0 { CachePolicy::ReadWrite } else { CachePolicy::WriteOnly };
        let cache = CacheOptions { threads, policy, dirty_start: 0.3, ..small(60, 16 << 10) };
        let copies = [memory(), memory(), memory()];
        copies.iter().for_each(|shelves| create(shelves, &cache));
        Volume::create(&places(&copies, &cache), &new_volume(BLOCKS), &options(1)).expect("creates");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut expected = vec![0_u64; BLOCKS as usize];
        for life in 0..4 {
            let opened: Vec<_> = copies.iter().map(|shelves| place(shelves, &cache).expect("opens")).collect();
            let mine = Options { threads, ..options(10 + life) };
            let volume = Volume::open(opened.iter().map(|(place, _)| place.clone()).collect(), mine).expect("opens");
            for turn in 0..300 {
                let block = random.u64(..BLOCKS);
                let tag = 1 + life * 1000 + turn;
                volume.write(at(block), &tagged(tag)).expect("writes");
                expected[block as usize] = tag;
                let other = random.u64(..BLOCKS);
                let found = read_block(&volume, other).expect("reads");
                assert!(found == tagged(expected[other as usize]), "SEED={seed}: block {other}");
                if turn % 70 == 0 {
                    volume.checkpoint().expect("checkpoints");
                }
            }
            volume.checkpoint().expect("checkpoints");
            if life % 2 == 0 {
                let scrubbed = volume.scrub().expect("scrubs");
                assert_eq!((scrubbed.repaired, scrubbed.damaged), (0, 0), "SEED={seed}");
            }
            volume.close().expect("closes");
            for (_, shelf) in opened {
                let status = shelf.status();
                assert!(status.absorbed_bytes > 300 * BLOCK && status.destaged_bytes > 0, "{status:?}");
                shelf.close().expect("closes");
            }
        }
        let volume = Volume::open(places(&copies, &cache), options(99)).expect("opens");
        for (block, tag) in (0..).zip(&expected) {
            assert!(read_block(&volume, block).expect("reads") == tagged(*tag), "SEED={seed}: block {block}");
        }
    }
}

#[test]
fn a_copy_whose_cache_is_lost_is_refused_replaced_and_filled_from_the_others() {
    let cache = small(60, 16 << 10);
    let mut copies = [memory(), memory(), memory()];
    copies.iter().for_each(|shelves| create(shelves, &cache));
    Volume::create(&places(&copies, &cache), &new_volume(64), &options(1)).expect("creates");
    let volume = Volume::open(places(&copies, &cache), options(2)).expect("opens");
    (0..64).for_each(|block| volume.write(at(block), &tagged(block + 1)).expect("writes"));
    volume.checkpoint().expect("checkpoints");
    volume.close().expect("closes");
    drop(volume);
    copies[1][1] = Arc::new(MemoryShelf::new());
    let refused = place(&copies[1], &cache).map(drop).expect_err("its last writes were in the cache");
    assert!(refused.to_string().contains("replace this copy"), "{refused}");
    let two = [&copies[0], &copies[2]].map(|shelves| place(shelves, &cache).expect("opens").0);
    let volume = Volume::open(two.to_vec(), options(3)).expect("two of three are enough");
    assert!(matches!(volume.status().copies[1].state, CopyState::Out { .. }));
    volume.write(at(5), &tagged(555)).expect("writes");
    let new = memory();
    create(&new, &CacheOptions { identity: [3; 16], ..cache.clone() });
    let (place, shelf) = place(&new, &cache).expect("opens");
    volume.replace(1, place).expect("replaces");
    while volume.resync_step(1).expect("a step") != Step::Joined {}
    let scrubbed = volume.scrub().expect("scrubs");
    assert_eq!((scrubbed.repaired, scrubbed.damaged), (0, 0));
    assert!(shelf.status().absorbed_bytes >= 64 * BLOCK);
    assert!((0..64).all(|block| read_block(&volume, block).expect("reads") == tagged(if block == 5 { 555 } else { block + 1 })));
}

/// All copies on one machine, so that the power fails for all of them at one moment.
fn on(machine: &Arc<dyn Shelf>, copies: u8) -> Vec<Shelves> {
    let part = |copy: u8, what: &str| support::part(machine, &format!("{what}{copy}"));
    (0..copies).map(|copy| ["far", "near", "journal"].map(|what| part(copy, what))).collect()
}

#[test]
fn a_power_failure_at_any_moment_of_a_volume_over_cached_shelves_loses_nothing_acknowledged() {
    const BLOCKS: u64 = 16;
    let cache = CacheOptions { policy: CachePolicy::ReadWrite, dirty_start: 0.0, ..small(5, 8 << 10) };
    for (name, machine) in crate::write_back::rig::media(5).into_iter().take(2) {
        let any: Arc<dyn Shelf> = machine.clone();
        let copies = on(&any, 3);
        copies.iter().for_each(|shelves| create(shelves, &cache));
        Volume::create(&places(&copies, &cache), &new_volume(BLOCKS), &options(1)).expect("creates");
        let first = machine.operations();
        let mut history = History::new(BLOCKS);
        let opened: Vec<_> = copies.iter().map(|shelves| place(shelves, &cache).expect("opens")).collect();
        let volume = Volume::open(opened.iter().map(|(place, _)| place.clone()).collect(), options(2)).expect("opens");
        for step in 0..14_u64 {
            let block = step * 5 % BLOCKS;
            let called = machine.operations();
            volume.write(at(block), &tagged(step + 1)).expect("writes");
            history.change(at(block), &tagged(step + 1), called, Some(machine.operations()));
            if step % 4 == 3 {
                volume.checkpoint().expect("checkpoints");
                opened[1].1.destage_step().expect("destages");
            }
        }
        std::mem::forget(volume);
        let count = crash(&machine, first, &cache, &history);
        println!("{name}: {count} images");
        assert!(count > 100, "only {count} images");
    }
}

fn crash(machine: &CrashShelf, first: usize, cache: &CacheOptions, history: &History) -> usize {
    let mut count = 0;
    let points: Vec<usize> = (first..=machine.operations()).collect();
    for point in points.iter().step_by(1 + points.len() / 300).copied() {
        for image in machine.images(point).step_by(4) {
            count += 1;
            let any: Arc<dyn Shelf> = Arc::new(image.shelf());
            let volume = Volume::open(places(&on(&any, 3), cache), options(99));
            let volume = volume.unwrap_or_else(|error| panic!("{image}: {error}"));
            for block in 0..16 {
                let bytes = read_block(&volume, block).unwrap_or_else(|error| panic!("{image}: {error}"));
                history.allows(block, &bytes, point).unwrap_or_else(|why| panic!("{image}: {why}"));
            }
            let scrubbed = volume.scrub().expect("scrubs");
            assert_eq!((scrubbed.repaired, scrubbed.damaged), (0, 0), "{image}");
        }
    }
    count
}
