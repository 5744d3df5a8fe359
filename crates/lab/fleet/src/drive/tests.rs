//! Loads on memory and on faulty devices: what is counted, and that a lost, stale or misplaced block is found. No figure is judged.

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};

use super::*;

const BLOCKS: u64 = 64;

fn loads() -> Vec<Load> {
    let mut loads = Load::all(2, 4);
    loads.iter_mut().filter(|load| load.order == Order::Sequential).for_each(|load| load.bytes = 16 * BLOCK);
    loads
}

fn target(device: Arc<dyn Device>) -> Target {
    fill(&*device, 7).expect("filled");
    Target { devices: vec![device], place: 7, ledger: Arc::new(Ledger::filled(BLOCKS)), is_atomic: true }
}

fn sum(tallies: &[Vec<Tally>]) -> Tally {
    let mut sum = Tally::default();
    tallies.iter().flatten().for_each(|tally| sum.add(tally));
    sum
}

/// Runs a load until its counts are enough: on a busy machine the threads of one short run may not get to it.
fn run_until(load: &Load, target: &Target, seed: u64, is_enough: impl Fn(&Tally) -> bool) -> Tally {
    for seed in seed..seed + 200 {
        let tallies = run(load, std::slice::from_ref(target), timeline(), seed).expect("run");
        assert_eq!((tallies.len(), tallies[0].len()), (1, load.threads), "{}", load.name);
        let tally = sum(&tallies);
        if is_enough(&tally) {
            return tally;
        }
    }
    panic!("{}: not enough in 200 runs", load.name);
}

fn timeline() -> Timeline {
    let ms = Duration::from_millis;
    Timeline::from_now(ms(5), ms(60), ms(5))
}

#[test]
fn every_load_counts_what_ended_in_its_time_and_finds_nothing_wrong_on_a_good_device() {
    let device = MemoryShelf::new().create("disk", BLOCKS * BLOCK as u64).expect("made");
    let target = target(device);
    for load in loads() {
        let is_enough = |tally: &Tally| {
            (tally.reads.count() > 0 || load.read_percent == 0)
                && (tally.writes.count() > 0 || load.read_percent == 100)
        };
        let tally = run_until(&load, &target, 1, is_enough);
        assert_eq!((tally.errors, tally.mismatches, &tally.first_wrong), (0, 0, &None), "{}", load.name);
        assert_eq!(tally.requests(), tally.windows.iter().map(|window| window.all()).sum::<u64>());
        assert_eq!(tally.read_bytes, tally.reads.count() * load.bytes as u64);
        assert_eq!(tally.written_bytes, tally.writes.count() * load.bytes as u64);
        // Nothing is in progress any more.
        assert!((0..BLOCKS).all(|block| target.ledger.at_least(block) == target.ledger.at_most(block)));
    }
}

#[test]
fn a_block_of_an_older_version_and_a_block_of_another_place_are_found() {
    let device = MemoryShelf::new().create("disk", BLOCKS * BLOCK as u64).expect("made");
    let target = target(device.clone());
    let read = loads()[0];
    // A write that was acknowledged, and is not there.
    let version = target.ledger.begin(5).expect("none in progress");
    target.ledger.end(5, version);
    let tally = run_until(&read, &target, 2, |tally| tally.mismatches > 0 && tally.checked > tally.mismatches);
    assert!(tally.mismatches > 0 && tally.mismatches < tally.checked);
    assert!(tally.first_wrong.expect("in words").contains("block 5: version 1, expected versions 2 to 2"));
    let mut bytes = vec![0; BLOCK];
    blocks::fill(7, 6, version, &mut bytes);
    device.write(5 * BLOCK as u64, &bytes).expect("written");
    let tally = run_until(&read, &target, 300, |tally| tally.mismatches > 0);
    assert!(tally.first_wrong.expect("in words").contains("block 5: other bytes"));
}

#[test]
fn a_request_that_fails_is_an_error_and_no_figure() {
    let faulty = FaultyShelf::new(Arc::new(MemoryShelf::new()));
    let target = target(faulty.create("disk", BLOCKS * BLOCK as u64).expect("made"));
    faulty.inject(Rule::from(Operation::Read, 1, Fault::Eio));
    let tally = run_until(&loads()[0], &target, 600, |tally| tally.errors > 0);
    assert!(tally.errors > 0 && tally.requests() == 0, "{tally:?}");
}

#[test]
fn lost_writes_and_misdirected_reads_are_found_under_the_mixed_load() {
    for rule in [
        Rule::from(Operation::Write, 20, Fault::Lost),
        Rule::from(Operation::Read, 20, Fault::Misdirected { blocks: 1 }),
    ] {
        let faulty = FaultyShelf::new(Arc::new(MemoryShelf::new()));
        let target = target(faulty.create("disk", BLOCKS * BLOCK as u64).expect("made"));
        faulty.inject(rule);
        let tally = run_until(&loads()[1], &target, 900, |tally| tally.mismatches > 0);
        assert!(tally.mismatches > 0, "{tally:?}");
    }
}
