//! A test of the crash tests. A small correct protocol passes every image on every medium. The same protocol without
//! one of its flushes or fences, or without its checksum, fails.
//!
//! ```text
//!   block 0   pointer: the version, in its first word (in one atom: written whole or not at all)
//!   block 1+  the version's data, every byte the version; two places by turns
//!   set(v):   write data of v to its place | flush | write pointer v | flush | acknowledge v
//! ```

use std::sync::Arc;

use device::crash::PmemMode;
use device::faulty::{Fault, Rule};
use device::{BLOCK_BYTES, CrashShelf, Device, DeviceError, FaultyShelf, Operation, Shelf};

const BLOCK: u64 = BLOCK_BYTES as u64;
const DATA_BLOCKS: u64 = 2;
const VERSIONS: u8 = 4;

fn place(version: u8) -> u64 {
    BLOCK * (1 + u64::from(version % 2) * DATA_BLOCKS)
}

/// Sets versions 1 to [`VERSIONS`]. Returns pairs of a position in the recording and the version that was acknowledged
/// before it.
fn run(shelf: &dyn Shelf, crash: &CrashShelf) -> Result<Vec<(usize, u8)>, DeviceError> {
    let device = shelf.create("register", BLOCK * (1 + 2 * DATA_BLOCKS))?;
    let mut acknowledged = vec![(crash.operations(), 0)];
    for version in 1..=VERSIONS {
        device.write_flush(place(version), &[version; DATA_BLOCKS as usize * BLOCK_BYTES])?;
        let mut pointer = [0; BLOCK_BYTES];
        pointer[0] = version;
        device.write(0, &pointer)?;
        device.flush()?;
        acknowledged.push((crash.operations(), version));
    }
    Ok(acknowledged)
}

/// The version that a recovery finds, or the error.
fn recover(shelf: &dyn Shelf) -> Result<u8, String> {
    let Ok(device) = shelf.open("register") else { return Ok(0) };
    let mut pointer = [0; BLOCK_BYTES];
    device.read(0, &mut pointer).map_err(|error| error.to_string())?;
    let version = pointer[0];
    let mut data = [0; DATA_BLOCKS as usize * BLOCK_BYTES];
    device.read(place(version), &mut data).map_err(|error| error.to_string())?;
    match data.iter().find(|byte| version > 0 && **byte != version) {
        Some(byte) => Err(format!("pointer says {version}, data {byte}")),
        None => Ok(version),
    }
}

/// The first image that violates a guarantee.
fn first_violation(crash: &CrashShelf, acknowledged: &[(usize, u8)]) -> Option<String> {
    for point in crash.points() {
        let promised =
            acknowledged.iter().rev().find(|(position, _)| *position <= point).map_or(0, |(_, version)| *version);
        for image in crash.images(point) {
            match recover(&image.shelf()) {
                Ok(found) if found >= promised => {}
                Ok(found) => return Some(format!("{image}: acknowledged {promised}, found {found}")),
                Err(problem) => return Some(format!("{image}: {problem}")),
            }
        }
    }
    None
}

/// Runs the protocol with a rule, then searches for a violation.
fn violation_with(rule: Option<Rule>) -> Option<String> {
    let crash = Arc::new(CrashShelf::new(7));
    let shelf = FaultyShelf::new(Arc::clone(&crash) as Arc<dyn Shelf>);
    let expected = u64::from(rule.is_some());
    rule.into_iter().for_each(|rule| shelf.inject(rule));
    let acknowledged = run(&shelf, &crash).expect("no fault here is reported");
    assert_eq!(shelf.hits(), expected, "the fault happened");
    first_violation(&crash, &acknowledged)
}

/// A new machine of every kind.
fn machines() -> [CrashShelf; 4] {
    let [adr, eadr, pages] = [PmemMode::Adr, PmemMode::Eadr, PmemMode::Pages].map(|mode| CrashShelf::pmem(7, mode));
    [CrashShelf::new(7), adr, eadr, pages]
}

#[test]
fn the_right_protocol_survives_every_crash() {
    assert_eq!(violation_with(None), None);
    for crash in machines() {
        let acknowledged = run(&crash, &crash).expect("nothing fails");
        assert_eq!(first_violation(&crash, &acknowledged), None);
    }
}

#[test]
fn without_any_single_flush_fence_or_sync_it_is_caught_on_every_medium() {
    let count = |crash: &CrashShelf| {
        run(crash, crash).expect("nothing fails");
        crash.persists().len()
    };
    for (machine, persists) in machines().iter().map(count).enumerate() {
        assert_eq!(persists, 2 * usize::from(VERSIONS), "machine {machine}: one for the data, one for the pointer");
        for nth in 0..persists {
            let crash = &machines()[machine];
            crash.omit(nth);
            let acknowledged = run(crash, crash).expect("nobody is told");
            let violation = first_violation(crash, &acknowledged);
            println!("{crash:?}, {nth}: {violation:?}");
            assert!(violation.is_some(), "{crash:?}: nobody noticed that {:?} was missing", crash.persists()[nth]);
        }
    }
}

#[test]
fn without_any_single_one_of_its_flushes_it_is_caught() {
    for flush in 1..=2 * u64::from(VERSIONS) {
        let violation = violation_with(Some(Rule::nth(Operation::Flush, flush, Fault::Lost)));
        println!("flush {flush}: {violation:?}");
        assert!(violation.is_some(), "nobody noticed that flush {flush} was missing");
    }
}

#[test]
fn a_lost_or_misdirected_write_is_caught() {
    for write in 1..=2 * u64::from(VERSIONS) {
        for fault in [Fault::Lost, Fault::Misdirected { blocks: 1 }] {
            let violation = violation_with(Some(Rule::nth(Operation::Write, write, fault)));
            assert!(violation.is_some(), "nobody noticed {fault:?} of write {write}");
        }
    }
}

#[test]
fn data_of_several_sectors_that_is_trusted_without_a_check_is_caught_torn() {
    // The same register at one place: it is overwritten as if a write of four kilobytes were atomic.
    let crash = CrashShelf::new(7);
    let device = crash.create("register", BLOCK).expect("create");
    for version in 1..=2 {
        device.write_flush(0, &[version; BLOCK_BYTES]).expect("write_flush");
    }
    let is_torn = |point| {
        crash.images(point).any(|image| {
            let mut bytes = [0; BLOCK_BYTES];
            let Ok(device) = image.shelf().open("register") else { return false };
            device.read(0, &mut bytes).expect("read");
            bytes.iter().any(|byte| *byte != bytes[0])
        })
    };
    assert!(crash.points().any(is_torn));
}

#[test]
fn a_crash_during_recovery_is_found_too() {
    // Recovery rewrites the pointer before the data it copies: this is correct unless recovery is interrupted.
    let crash = CrashShelf::new(7);
    crash.create("register", BLOCK * 2).expect("create");
    let image = crash.images(crash.operations()).next().expect("an image").shelf();
    let careless = |device: &dyn Device| -> Result<(), DeviceError> {
        device.write_flush(0, &[1; BLOCK_BYTES])?;
        device.write_flush(BLOCK, &[1; BLOCK_BYTES])
    };
    careless(&*image.open("register").expect("open")).expect("undisturbed");
    let halves = |shelf: &CrashShelf| {
        let mut bytes = [0; 2 * BLOCK_BYTES];
        shelf.open("register").expect("open").read(0, &mut bytes).expect("read");
        (bytes[0], bytes[BLOCK_BYTES])
    };
    assert_eq!(halves(&image), (1, 1));
    let interrupted =
        image.points().flat_map(|point| image.images(point)).any(|again| halves(&again.shelf()) == (1, 0));
    assert!(interrupted, "a second crash must be able to hit the recovery in the middle");
}
