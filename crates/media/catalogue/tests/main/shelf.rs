//! Tests of shelves that simulate the timing of a model: the operations they forward, the budget they share, and that
//! equal runs give equal times.

use std::sync::Arc;

use catalogue::{Budget, Medium, Model, ModelShelf, Timing, VirtualClock};
use device::{AlignedBuffer, DeviceError, Durability, MemoryShelf, Shelf};

fn model(name: &str, modules: u32) -> Model {
    Model::of(&Medium::find(name).expect("built in"), modules).expect("complete")
}

/// A shelf over memory with its own budget and its own clock.
fn shelf(model: &Model) -> (ModelShelf, Arc<VirtualClock>) {
    let clock = VirtualClock::new();
    let budget = Budget::new(model);
    let timing = Timing::Accounted(Arc::clone(&clock));
    (ModelShelf::new(Arc::new(MemoryShelf::new()), model.clone(), budget, timing), clock)
}

#[test]
fn bytes_names_and_errors_are_those_of_the_shelf_below_and_durability_is_emulated() {
    let (shelf, _) = shelf(&model("optane-p4800x", 1));
    let device = shelf.create("a", 8192).expect("create");
    device.write_flush(4096, &[7; 4096]).expect("write");
    let mut back = vec![0; 8192];
    shelf.open("a").expect("open").read(0, &mut back).expect("read");
    assert!(back[..4096].iter().all(|byte| *byte == 0) && back[4096..].iter().all(|byte| *byte == 7));
    assert_eq!((device.len(), device.durability(), device.is_inline()), (8192, Durability::Emulated, false));
    assert!(matches!(shelf.create("a", 4096), Err(DeviceError::AlreadyExists { .. })));
    let read_only = shelf.open_read_only("a").expect("open");
    assert!(matches!(read_only.write(0, &[0; 4096]), Err(DeviceError::ReadOnly { .. })));
    shelf.rename("a", "b").expect("rename");
    assert_eq!(shelf.list().expect("list"), ["b"]);
    shelf.remove("b").expect("remove");
    assert!(matches!(shelf.open("b"), Err(DeviceError::NotFound { .. })));
}

#[test]
fn an_operation_that_fails_below_fails_the_same_way_and_takes_no_time() {
    let model = model("sata-s4500", 1);
    let clock = VirtualClock::new();
    let below = MemoryShelf::new();
    below.create("a", 4096).expect("create");
    let timing = Timing::Accounted(Arc::clone(&clock));
    let shelf = ModelShelf::new(Arc::new(below), model.clone(), Budget::new(&model), timing);
    let device = shelf.open_read_only("a").expect("open");
    assert!(matches!(device.write_flush(0, &[0; 4096]), Err(DeviceError::ReadOnly { .. })));
    assert_eq!(clock.elapsed(), 0.0);
}

#[test]
fn one_operation_of_a_drive_takes_its_published_latency_and_a_flush_its_own() {
    let (shelf, clock) = shelf(&model("optane-p4800x", 1));
    let device = shelf.create("a", 1 << 20).expect("create");
    let mut buffer = AlignedBuffer::zeroed(4096);
    device.read(40960, &mut buffer).expect("read");
    assert_eq!(clock.elapsed(), 8_900.0);
    device.write(0, &buffer).expect("write");
    assert_eq!(clock.elapsed(), 18_900.0);
    device.flush().expect("flush");
    assert_eq!(clock.elapsed(), 28_900.0);
    device.write_flush(0, &buffer).expect("write and flush");
    assert_eq!(clock.elapsed(), 38_900.0);
}

/// The GB/s of `writers` and `readers` simulated threads with sequential accesses of 4 KiB, each to its own device. The
/// first `split` threads use the first shelf and the others the second.
fn mixed(shelves: [&ModelShelf; 2], clock: &VirtualClock, writers: u32, readers: u32, split: u32) -> (f64, f64) {
    const EACH: u64 = 256;
    let threads = writers + readers;
    let devices: Vec<_> = (0..threads)
        .map(|thread| {
            let shelf = shelves[usize::from(thread >= split)];
            shelf.create(&format!("d{thread}"), EACH * 4096).expect("create")
        })
        .collect();
    let mut done = vec![0; threads as usize];
    let mut buffer = vec![0; 4096];
    // The thread with the earliest time always runs next, until one has finished.
    while done.iter().all(|done| *done < EACH) {
        let behind = (0..threads).min_by(|a, b| clock.now_of(*a).total_cmp(&clock.now_of(*b))).expect("threads");
        let at = &mut done[behind as usize];
        let device = &devices[behind as usize];
        clock.as_queue(behind, || match behind < writers {
            true => device.write_flush(*at * 4096, &buffer).expect("write"),
            false => device.read(*at * 4096, &mut buffer).expect("read"),
        });
        *at += 1;
    }
    let (written, read) = done.split_at(writers as usize);
    let rate = |done: &[u64]| done.iter().sum::<u64>() as f64 * 4096.0 / clock.elapsed();
    (rate(written), rate(read))
}

#[test]
fn two_uses_of_one_set_of_modules_get_together_what_one_gets_alone() {
    let model = model("dcpmm100-256g", 6);
    let two_on = |shared: bool| {
        let clock = VirtualClock::new();
        let first = Budget::new(&model);
        let second = if shared { Arc::clone(&first) } else { Budget::new(&model) };
        let on = |budget| {
            let timing = Timing::Accounted(Arc::clone(&clock));
            ModelShelf::new(Arc::new(MemoryShelf::new()), model.clone(), budget, timing)
        };
        let (journal, memory) = (on(first), on(second));
        mixed([&journal, &memory], &clock, 16, 0, 8).0
    };
    let (shared, apart) = (two_on(true), two_on(false));
    let (alone, clock) = shelf(&model);
    let alone = mixed([&alone, &alone], &clock, 16, 0, 16).0;
    assert!((shared / alone - 1.0).abs() < 0.05, "{shared} shared, {alone} alone");
    assert!(apart > 1.8 * shared, "{apart} on modules of their own, {shared} shared");
}

#[test]
fn readers_lose_what_writers_use_up() {
    let model = model("dcpmm100-256g", 6);
    let run = |writers, readers| {
        let (shelf, clock) = shelf(&model);
        mixed([&shelf, &shelf], &clock, writers, readers, writers + readers)
    };
    let (_, read_alone) = run(0, 8);
    let (written, read) = run(8, 8);
    assert!(read < 0.75 * read_alone, "{read} GB/s read beside {written} GB/s written, {read_alone} alone");
    // Their sum is at most the higher of the two rates alone.
    assert!(written + read < 45.6, "{written} + {read}");
}

#[test]
fn scattered_64_byte_writes_cost_the_medium_four_times_their_bytes_and_following_ones_do_not() {
    use catalogue::budget::Request;
    use catalogue::medium::{Direction, Store};
    let model = model("dcpmm100-256g", 1);
    let run = |step: u64, bytes: u64| {
        let budget = Budget::new(&model);
        let mut now = 0.0;
        for at in 0..4000 {
            let request =
                Request { store: Some(Store::Nt), ..Request::new(0, Direction::Write, at * step % (1 << 30), bytes) };
            for queue in 0..8 {
                let place = Request { place: queue, ..request };
                now = f64::max(now, budget.take(&model, queue, now, &place));
            }
        }
        (budget.traffic().amplification(), 4000.0 * 8.0 * bytes as f64 / now)
    };
    let (scattered, slow) = run(1 << 16 | 64, 64);
    let (units, fast) = run(1 << 16, 256);
    let (following, _) = run(64, 64);
    assert_eq!((scattered, units), (4.0, 1.0));
    assert!(following < 1.01, "{following}");
    assert!((fast / slow - 4.0).abs() < 0.4, "{fast} GB/s in units, {slow} GB/s of 64 bytes");
}

#[test]
fn the_same_operations_take_the_same_virtual_time_to_the_last_bit() {
    let run = || {
        let (shelf, clock) = shelf(&model("pmem200-256g", 8));
        let rates = mixed([&shelf, &shelf], &clock, 5, 3, 8);
        (rates.0.to_bits(), rates.1.to_bits(), clock.elapsed().to_bits())
    };
    assert_eq!(run(), run());
}
