//! Persistent memory on the simulated machine: the possible results of a write after a power failure, instruction by
//! instruction, and the same with each instruction left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::crash::{Instruction, PmemMode};
use device::{BLOCK_BYTES, CrashShelf, Device, DeviceError, Durability, Operation, Shelf, WORD_BYTES};

use crate::seeds;

const BLOCK: u64 = BLOCK_BYTES as u64;
const LINE: u64 = 64;
const MODES: [PmemMode; 3] = [PmemMode::Adr, PmemMode::Eadr, PmemMode::Pages];
const BY_LINE: [PmemMode; 2] = [PmemMode::Adr, PmemMode::Eadr];

/// The first byte of every word of a device.
fn words(shelf: &CrashShelf, name: &str) -> Vec<u8> {
    let device = shelf.open_read_only(name).expect("open");
    let mut bytes = vec![0; device.len() as usize];
    device.read(0, &mut bytes).expect("read");
    for word in bytes.chunks(WORD_BYTES) {
        assert!(word.iter().all(|b| *b == word[0]), "a word is never a mixture");
    }
    bytes.iter().step_by(WORD_BYTES).copied().collect()
}

/// Every content of a device that a power failure at a point can leave, if there are few; else the contents of its
/// images.
fn outcomes(shelf: &CrashShelf, point: usize, name: &str) -> BTreeSet<Vec<u8>> {
    let images = shelf.every_image(point, 1 << 12).unwrap_or_else(|| shelf.images(point));
    images.map(|image| words(&image.shelf(), name)).collect()
}

/// A new device with one persistent block of ones.
fn device_of_ones(shelf: &CrashShelf) -> Arc<dyn Device> {
    let device = shelf.create("a", BLOCK).expect("create");
    device.write_flush(0, &[1; BLOCK_BYTES]).expect("write");
    device
}

/// Offsets and lengths in bytes: inside a line, up to its edge, across one edge and several, below and above the length
/// from which non-temporal stores are used.
const RANGES: &[(u64, usize)] = &[
    (0, 8),
    (56, 8),
    (56, 16),
    (0, 64),
    (8, 64),
    (64, 128),
    (120, 16),
    (24, 216),
    (0, 248),
    (40, 248),
    (0, 256),
    (8, 256),
    (64, 264),
    (3000, 1000),
    (0, 4096),
];

fn ranges(mode: PmemMode) -> Vec<(u64, usize)> {
    if mode == PmemMode::Pages { vec![(0, 4096)] } else { RANGES.to_vec() }
}

#[test]
fn a_write_to_memory_is_there_in_any_part_until_it_returns_and_wholly_after() {
    for mode in MODES {
        for (offset, bytes) in ranges(mode) {
            let shelf = CrashShelf::pmem(1, mode);
            let device = device_of_ones(&shelf);
            let first = shelf.operations();
            device.write_flush(offset, &vec![2; bytes]).expect("write");
            let (from, to) = (offset as usize / WORD_BYTES, (offset as usize + bytes) / WORD_BYTES);
            let old = vec![1; BLOCK_BYTES / WORD_BYTES];
            let mut new = old.clone();
            new[from..to].fill(2);
            let mut seen = BTreeSet::new();
            for point in first..shelf.operations() {
                let found = outcomes(&shelf, point, "a");
                assert!(found.contains(&old) && found.contains(&new), "{mode:?} {offset}+{bytes}, point {point}");
                for content in &found {
                    let fits = |(word, value): (usize, &u8)| *value == 1 || *value == 2 && (from..to).contains(&word);
                    assert!(content.iter().enumerate().all(fits), "{mode:?} {offset}+{bytes}");
                }
                seen.extend(found);
            }
            assert_eq!(outcomes(&shelf, shelf.operations(), "a"), BTreeSet::from([new]), "{mode:?} {offset}+{bytes}");
            // A write of more than one word can be there in part.
            assert_eq!(seen.len() > 2, to - from > 1, "{mode:?} {offset}+{bytes}: {} contents", seen.len());
        }
    }
}

/// The contents of the first words that are possible before the fence, as text: one digit each.
fn before_the_fence(mode: PmemMode, offset: u64, bytes: usize) -> BTreeSet<String> {
    let shelf = CrashShelf::pmem(1, mode);
    let device = device_of_ones(&shelf);
    device.write(offset, &vec![2; bytes]).expect("write");
    let fence = shelf.persists().last().expect("a fence").step;
    let from = offset as usize / WORD_BYTES;
    let images = shelf.every_image(fence, 1 << 12).expect("few");
    let digits = |content: Vec<u8>| content[from..from + bytes / WORD_BYTES].iter().map(u8::to_string).collect();
    images.map(|image| digits(words(&image.shelf(), "a"))).collect()
}

#[test]
fn stores_to_one_line_are_kept_in_order_and_lines_have_none() {
    let set = |list: &[&str]| -> BTreeSet<String> { list.iter().map(ToString::to_string).collect() };
    // Inside a line: a prefix.
    assert_eq!(before_the_fence(PmemMode::Adr, 0, 24), set(&["111", "211", "221", "222"]));
    // Two words of one line, two of the next.
    let both = ["1111", "2111", "2211", "1121", "1122", "2121", "2122", "2221", "2222"];
    assert_eq!(before_the_fence(PmemMode::Adr, 48, 32), set(&both));
    // Caches in the power-fail domain keep the earlier stores, in whichever line they are.
    assert_eq!(before_the_fence(PmemMode::Eadr, 48, 32), set(&["1111", "2111", "2211", "2221", "2222"]));
}

#[test]
fn stores_past_the_cache_are_kept_word_by_word_in_any_order() {
    for mode in BY_LINE {
        let shelf = CrashShelf::pmem(3, mode);
        let device = device_of_ones(&shelf);
        let store = shelf.operations();
        device.write(0, &[2; 256]).expect("write");
        assert_eq!(shelf.trace()[store].to_string(), "store past the cache a 0+256");
        let found = outcomes(&shelf, store + 1, "a");
        let is = |wanted: &dyn Fn(usize) -> bool| {
            found
                .iter()
                .any(|content| content[..32].iter().enumerate().all(|(word, value)| (*value == 2) == wanted(word)))
        };
        assert!(is(&|word| word > 0) && is(&|word| word < 31), "one word missing");
        assert!(found.iter().any(|content| content.iter().filter(|value| **value == 2).count() == 1), "one word alone");
        assert!(is(&|word| word < 16) && is(&|word| word >= 16), "halves");
        // Later words of a line without its earlier words.
        let out_of_order = |content: &&Vec<u8>| (0..4).any(|line| content[line * 8] == 1 && content[line * 8 + 7] == 2);
        assert!(found.iter().any(|content| out_of_order(&content)));
    }
}

#[test]
fn each_write_back_fence_and_sync_of_a_write_is_needed() {
    let mut counts = [0; 3];
    for (mode, count) in MODES.into_iter().zip(&mut counts) {
        for (offset, bytes) in ranges(mode) {
            let run = |omit: Option<usize>| {
                let shelf = CrashShelf::pmem(1, mode);
                if let Some(nth) = omit {
                    shelf.omit(nth);
                }
                device_of_ones(&shelf).write_flush(offset, &vec![2; bytes]).expect("write");
                shelf
            };
            let whole = run(None);
            let persists = whole.persists();
            let end = whole.operations();
            assert_eq!(outcomes(&whole, end, "a").len(), 1);
            for (nth, persist) in persists.iter().enumerate().skip(1) {
                let lost = outcomes(&run(Some(nth)), end, "a").len() > 1;
                assert!(lost, "{mode:?} {offset}+{bytes}: nobody notices that {persist:?} is missing");
                *count += 1;
            }
            let lines = (offset + bytes as u64).div_ceil(LINE) - offset / LINE;
            let expected = match mode {
                PmemMode::Adr if bytes < 256 => vec![(Instruction::WriteBack, lines as usize), (Instruction::Fence, 1)],
                PmemMode::Adr | PmemMode::Eadr => vec![(Instruction::WriteBack, 0), (Instruction::Fence, 1)],
                PmemMode::Pages => vec![(Instruction::Sync, 1)],
            };
            for (instruction, times) in expected {
                let found = persists.iter().skip(1).filter(|persist| persist.instruction == instruction).count();
                assert_eq!(found, times, "{mode:?} {offset}+{bytes}: {instruction}");
            }
        }
    }
    println!("left out in turn and noticed: {counts:?} of {MODES:?}");
}

#[test]
fn a_flush_covers_what_was_written_through_another_handle() {
    for mode in MODES {
        let shelf = CrashShelf::pmem(1, mode);
        let writer = shelf.create("a", BLOCK).expect("create");
        let flusher = shelf.open("a").expect("open");
        writer.write(0, &[2; BLOCK_BYTES]).expect("write");
        flusher.flush().expect("flush");
        assert_eq!(outcomes(&shelf, shelf.operations(), "a"), BTreeSet::from([vec![2; 512]]), "{mode:?}");
    }
}

#[test]
fn memory_that_is_mistaken_for_a_safer_kind_is_caught() {
    let loses = |machine, believed, bytes: usize| {
        let shelf = CrashShelf::mistaken(1, machine, believed);
        let device = shelf.create("a", BLOCK).expect("create");
        device.write_flush(0, &vec![2; bytes]).expect("write");
        outcomes(&shelf, shelf.operations(), "a").len() > 1
    };
    use PmemMode::{Adr, Eadr, Pages};
    // The caches of the machine lose their lines, but the device assumes that they keep them: only small writes depend
    // on it.
    assert!(loses(Adr, Eadr, 64));
    assert!(!loses(Adr, Eadr, BLOCK_BYTES));
    // Only a sync makes the mapping persistent, but the device assumes that fences do.
    for believed in [Adr, Eadr] {
        assert!(loses(Pages, believed, 64) && loses(Pages, believed, BLOCK_BYTES));
    }
    // The opposite assumption only costs time.
    assert!(!loses(Eadr, Adr, 64) && !loses(Adr, Pages, BLOCK_BYTES) && !loses(Eadr, Pages, BLOCK_BYTES));
}

#[test]
fn a_fence_covers_its_own_thread_and_no_other() {
    for mode in BY_LINE {
        let shelf = CrashShelf::pmem(1, mode);
        let device = shelf.create("a", BLOCK).expect("create");
        // The fence of the first thread is left out; the fence of the second thread comes later.
        shelf.omit(0);
        for value in [2_u8, 3] {
            let device = &device;
            std::thread::scope(|scope| {
                scope.spawn(move || device.write(u64::from(value) * 256, &[value; 256]).expect("write"));
            });
        }
        let found = outcomes(&shelf, shelf.operations(), "a");
        assert!(found.iter().any(|content| content[64] == 0 && content[96] == 3), "{mode:?}");
        assert!(found.iter().all(|content| content[96..128] == [3; 32]), "{mode:?}");
    }
}

#[test]
fn opening_memory_makes_persistent_what_a_killed_process_left_behind() {
    for mode in MODES {
        for bytes in if mode == PmemMode::Pages { vec![4096] } else { vec![64, 256] } {
            let shelf = CrashShelf::pmem(1, mode);
            let device = shelf.create("a", BLOCK).expect("create");
            shelf.kill_at(shelf.operations() + 1);
            let killed = device.write_flush(0, &vec![2; bytes]);
            assert!(matches!(killed, Err(DeviceError::PowerLost)), "{mode:?}: {killed:?}");
            assert!(matches!(device.read(0, &mut [0; BLOCK_BYTES]), Err(DeviceError::PowerLost)));
            drop(device);
            shelf.restart();
            assert_eq!(words(&shelf, "a")[0], 2, "{mode:?}: it can be read");
            assert!(outcomes(&shelf, shelf.operations(), "a").contains(&vec![0; 512]), "{mode:?}: and lost");
            shelf.open("a").expect("open");
            let found = outcomes(&shelf, shelf.operations(), "a");
            assert!(found.len() == 1 && found.iter().all(|content| content[..bytes / 8].iter().all(|b| *b == 2)));
        }
    }
}

/// The results that the contract allows: for every word the values it may have after the failure.
struct Oracle {
    allowed: Vec<BTreeSet<u8>>,
    live: Vec<u8>,
}

impl Oracle {
    fn write(&mut self, words: std::ops::Range<usize>, value: u8) {
        for word in words {
            self.live[word] = value;
            self.allowed[word].insert(value);
        }
    }

    fn flush(&mut self) {
        for (allowed, live) in self.allowed.iter_mut().zip(&self.live) {
            *allowed = BTreeSet::from([*live]);
        }
    }

    fn check(&self, shelf: &CrashShelf, point: usize, seed: u64) {
        for image in shelf.images(point) {
            for (word, (found, allowed)) in words(&image.shelf(), "a").iter().zip(&self.allowed).enumerate() {
                assert!(
                    allowed.contains(found),
                    "word {word} holds {found}, allowed {allowed:?}; SEED={seed}: {image}"
                );
            }
        }
    }
}

#[test]
fn every_image_of_random_writes_to_memory_holds_only_what_the_contract_allows() {
    for mode in MODES {
        for seed in seeds(10) {
            let mut random = fastrand::Rng::with_seed(seed);
            let shelf = CrashShelf::pmem(seed, mode);
            let mut device = shelf.create("a", 2 * BLOCK).expect("create");
            let unit = device.block_bytes() as usize / WORD_BYTES;
            let units = 2 * BLOCK_BYTES / WORD_BYTES / unit;
            let mut oracle = Oracle { allowed: vec![BTreeSet::from([0]); units * unit], live: vec![0; units * unit] };
            for value in 1..=30 {
                let from = random.usize(..units);
                let most = (units - from).min(if random.bool() { 8 } else { 80 });
                let range = from * unit..(from + random.usize(1..=most)) * unit;
                let (offset, bytes) = ((range.start * WORD_BYTES) as u64, range.len() * WORD_BYTES);
                let first = shelf.operations();
                let persistent = match random.u8(..8) {
                    0 => {
                        device.flush().expect("flush");
                        true
                    }
                    1 => {
                        device = shelf.open("a").expect("open");
                        true
                    }
                    2 => {
                        oracle.write(range, 0);
                        device.discard(offset, bytes as u64).expect("discard");
                        false
                    }
                    3..=5 => {
                        oracle.write(range, value);
                        device.write(offset, &vec![value; bytes]).expect("write");
                        false
                    }
                    _ => {
                        oracle.write(range, value);
                        device.write_flush(offset, &vec![value; bytes]).expect("write");
                        true
                    }
                };
                (first..shelf.operations()).for_each(|point| oracle.check(&shelf, point, seed));
                if persistent {
                    oracle.flush();
                }
                oracle.check(&shelf, shelf.operations(), seed);
            }
        }
    }
}

#[test]
fn the_power_fails_at_the_instruction_asked_for_and_stays_off() {
    for mode in MODES {
        let run = |shelf: &CrashShelf| -> Result<(), DeviceError> {
            let device = shelf.create("a", BLOCK)?;
            device.write_flush(0, &[1; BLOCK_BYTES])?;
            shelf.rename("a", "b")?;
            let device = shelf.open("b")?;
            device.write(0, &vec![2; device.block_bytes() as usize])?;
            device.flush()
        };
        let whole = CrashShelf::pmem(10, mode);
        run(&whole).expect("nothing fails");
        for operation in 0..whole.operations() {
            let shelf = CrashShelf::pmem(10, mode);
            shelf.crash_at(operation);
            assert!(matches!(run(&shelf), Err(DeviceError::PowerLost)), "{mode:?}, operation {operation}");
            assert!(matches!(shelf.list(), Err(DeviceError::PowerLost)));
            assert_eq!(shelf.operations(), operation + 1, "the one that failed is the last that was called");
            let describe =
                |shelf: &CrashShelf| shelf.images(operation).map(|image| image.to_string()).collect::<Vec<_>>();
            assert_eq!(describe(&shelf), describe(&whole));
        }
    }
}

#[test]
fn an_image_of_memory_can_be_had_again_and_records_in_its_turn() {
    for mode in MODES {
        let shelf = CrashShelf::pmem(9, mode);
        device_of_ones(&shelf).write(0, &[2; BLOCK_BYTES]).expect("write");
        for point in shelf.points() {
            for image in shelf.images(point) {
                let again = shelf.image(point, image.index()).expect("the same image");
                assert_eq!(image.to_string(), again.to_string());
                let (one, two) = (image.shelf(), again.shelf());
                if one.list().expect("list") == ["a"] {
                    assert_eq!(words(&one, "a"), words(&two, "a"), "{image}");
                    one.open("a").expect("open").write(0, &[3; BLOCK_BYTES]).expect("write");
                    assert!(one.trace().len() >= 2, "{image}: it is on the same medium, and records");
                    assert_eq!(one.trace()[0].to_string(), "sync a 0+4096");
                }
            }
        }
    }
}

#[test]
fn the_trace_names_every_instruction() {
    let trace = |mode| {
        let shelf = CrashShelf::pmem(12, mode);
        let device = shelf.create("a", BLOCK).expect("create");
        assert_eq!(device.durability(), Durability::Emulated);
        assert!(shelf.trace().iter().all(|step| step.operation() == Operation::Create));
        if mode != PmemMode::Pages {
            device.write_flush(56, &[1; 16]).expect("write");
        }
        device.write_flush(0, &[1; BLOCK_BYTES]).expect("write");
        shelf.trace().iter().skip(1).map(ToString::to_string).collect::<Vec<_>>()
    };
    let large = ["store past the cache a 0+4096", "fence for a"];
    let small = ["store a 56+16", "write back a 0", "write back a 64", "fence for a"];
    assert_eq!(trace(PmemMode::Adr), [&small[..], &large[..]].concat());
    assert_eq!(trace(PmemMode::Eadr), [&["store a 56+16", "fence for a"][..], &large[..]].concat());
    assert_eq!(trace(PmemMode::Pages), ["store a 0+4096", "sync a 0+4096"]);
}

#[test]
fn what_several_threads_wrote_to_memory_is_in_every_image() {
    for mode in MODES {
        let shelf = CrashShelf::pmem(13, mode);
        let device = shelf.create("a", 4 * BLOCK).expect("create");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let device = Arc::clone(&device);
                scope.spawn(move || {
                    for turn in 1..=5 {
                        device.write_flush(thread * BLOCK, &[turn; BLOCK_BYTES]).expect("write_flush");
                    }
                });
            }
        });
        assert_eq!(outcomes(&shelf, shelf.operations(), "a"), BTreeSet::from([vec![5; 4 * 512]]), "{mode:?}");
    }
}
