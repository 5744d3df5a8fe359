//! What counting and timing cost an operation: short writes to memory, with and without `DeviceTraffic::measure`.
//!
//! `cargo run --release -p device --example measured_cost`

use std::sync::Arc;
use std::time::Instant;

use device::{DeviceTraffic, Distribution, MemoryShelf, Shelf};

const OPERATIONS: u32 = 2_000_000;

fn each(work: impl Fn()) -> f64 {
    // The best of some rounds: others of the machine only slow it down.
    let round = || {
        let began = Instant::now();
        (0..OPERATIONS).for_each(|_| work());
        began.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let data = [7u8; 4096];
    let plain: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let traffic = Arc::new(DeviceTraffic::default());
    let measured = traffic.measure(Arc::new(MemoryShelf::new()));
    let (plain, measured) = (plain.create("a", 4096), measured.create("a", 4096));
    let (plain, measured) = (plain.expect("memory"), measured.expect("memory"));
    let (bare, with) =
        (each(|| plain.write(0, &data).expect("memory")), each(|| measured.write(0, &data).expect("memory")));
    let inline = measured.is_inline();
    println!("a write of 4 KiB to memory: {bare:.1} ns, measured {with:.1} ns (a medium of instructions: {inline})");
    let times = Distribution::<8>::default();
    println!("noting a time: {:.1} ns", each(|| times.note(1, 0, std::time::Duration::from_nanos(1_234))));
    println!("counting: {:.1} ns", each(|| _ = times.count(64)));
    println!("a look at the clock: {:.1} ns", each(|| _ = std::hint::black_box(Instant::now())));
}
