//! What sealing costs: nanoseconds to seal and to open bodies of the sizes of frames and pages.
//!
//! `cargo run --release -p encryption --example seal_cost`

use std::time::Instant;

use encryption::{SEAL_BYTES, Sealer};

const ROUNDS: u32 = 20_000;

fn main() {
    let sealer = Sealer::for_tests(1, 1, 1);
    println!("{:>8} {:>10} {:>10} {:>8}", "bytes", "seal ns", "open ns", "GB/s");
    for body in [64, 256, 1024, 4096, 8192, 65_536] {
        let mut bytes = vec![7; body + SEAL_BYTES];
        let begun = Instant::now();
        (0..ROUNDS).for_each(|_| sealer.seal(b"place", &mut bytes));
        let seal = begun.elapsed() / ROUNDS;
        let sealed = bytes.clone();
        let mut opened = std::time::Duration::ZERO;
        for _ in 0..ROUNDS {
            bytes.copy_from_slice(&sealed);
            let begun = Instant::now();
            sealer.open(b"place", &mut bytes).expect("it was sealed so");
            opened += begun.elapsed();
        }
        let open = opened / ROUNDS;
        println!(
            "{body:>8} {:>10} {:>10} {:>8.2}",
            seal.as_nanos(),
            open.as_nanos(),
            body as f64 / seal.as_nanos() as f64
        );
    }
}
