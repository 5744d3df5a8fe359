//! What the page cache costs: `cargo run --release -p store --example cache_cost`.
//!
//! Backing stores are in plain memory, so a miss costs only the work of the cache: room, copy, checksum. Rows take
//! turns in rounds, and the quickest round counts: other load on the machine then matters less. Pages have 8 KiB and
//! are picked at random with a fixed seed. Picking costs the same in every row; the empty row measures it.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use store::StoreError;
use store::cache::{BackingStore, Cache, CacheOptions, Hint, PageAllocator};
use store::page::{Extent, Kind, PageHeader, PageId, seal};
use store::pages::Pages;

const PAGE: usize = 8192;
const NEAR: u64 = 64 << 20;
/// A number of pages that fit, and a number of which a quarter fits.
const HOT: u32 = 4000;
const ALL: u32 = 28_000;
const INNER: u32 = 200;
const ROUNDS: usize = 9;
const TURNS: u32 = 20_000;

/// Every page is a leaf with the same content. It is sealed at its first read.
struct Memory {
    image: Vec<u8>,
    next: AtomicU32,
}

impl BackingStore for Memory {
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        for (page, bytes) in (first.0..).zip(buffer.chunks_exact_mut(PAGE)) {
            bytes.copy_from_slice(&self.image);
            // Sealing costs as much as checking. It is measured separately and can be subtracted.
            seal(PageId(page), bytes);
        }
        Ok(())
    }

    fn write(&self, _: PageId, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl PageAllocator for Memory {
    fn allocate(&self, pages: u32) -> Result<PageId, StoreError> {
        Ok(PageId(self.next.fetch_add(pages, Ordering::Relaxed)))
    }

    fn free(&self, _: PageId, _: u32) {}
}

fn image(kind: Kind) -> Vec<u8> {
    let mut image = vec![7; PAGE];
    PageHeader { kind, level: 0, flags: 0, tree: 1, lsn: 1 }.put(&mut image);
    image
}

/// One row: its name, its number of threads, and its operation, which gets a random number.
type Row<'a> = (&'a str, usize, Box<dyn Fn(u32) + Sync + 'a>);

fn time(row: &Row<'_>) -> f64 {
    let began = Instant::now();
    thread::scope(|scope| {
        for seed in 0..row.1 as u64 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..TURNS {
                    (row.2)(random.u32(..));
                }
            });
        }
    });
    began.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

fn main() -> Result<(), StoreError> {
    let memory = Arc::new(Memory { image: image(Kind::Leaf), next: AtomicU32::new(ALL) });
    let options = CacheOptions { page_bytes: PAGE, near_bytes: NEAR, ..CacheOptions::default() };
    let cache = Cache::new(&options, memory.clone(), memory.clone())?;
    let inner: Vec<PageId> = (0..INNER).map(|_| cache.create_inner(&image(Kind::Inner))).collect::<Result<_, _>>()?;
    let extents: Vec<Extent> = (0..8).map(|_| cache.create_extent(&vec![1; 200_000])).collect::<Result<_, _>>()?;
    // Pins keep the extents in memory: this backing store could not read them again.
    let _pins: Vec<_> = extents.iter().map(|extent| cache.read_extent(*extent)).collect::<Result<_, _>>()?;
    // Errors end the run.
    let leaf = |page: u32, hint| black_box(cache.read_with(PageId(1 + page), hint).expect("reads")[100]);
    let words =
        |words: &[std::sync::atomic::AtomicU64]| words.iter().step_by(128).map(|w| w.load(Ordering::Relaxed)).sum();
    let probe = |number: u32| -> u64 { cache.inner(inner[(number % INNER) as usize], words).expect("reads") };
    let inner_read = |number: u32| {
        black_box(probe(number));
    };
    let hit = |number: u32| {
        leaf(number % HOT, Hint::Point);
    };
    let write = |number: u32| cache.write(PageId(1 + number % 500)).expect("writes")[100] = number as u8;
    let value = |number: u32| drop(black_box(cache.read_extent(extents[number as usize % 8]).expect("reads")));
    let sealing = |number: u32| {
        let mut page = memory.image.clone();
        seal(PageId(number), black_box(&mut page));
    };
    let rows: Vec<Row<'_>> = vec![
        (
            "nothing",
            1,
            Box::new(|number| {
                black_box(number);
            }),
        ),
        ("leaf, hit", 1, Box::new(hit)),
        ("leaf, hit, 2 threads", 2, Box::new(hit)),
        ("leaf, write, dirty already", 1, Box::new(write)),
        ("extent of 200 kB as Bytes, hit", 1, Box::new(value)),
        ("inner page, 8 words, hit", 1, Box::new(inner_read)),
        ("inner page, 2 threads", 2, Box::new(inner_read)),
        ("a copy and a checksum", 1, Box::new(sealing)),
        (
            "leaf, 1 of 4 hits",
            1,
            Box::new(|number| {
                leaf(number % ALL, Hint::Point);
            }),
        ),
        (
            "leaf of a scan, 1 of 4 hits",
            1,
            Box::new(|number| {
                leaf(number % ALL, Hint::Scan);
            }),
        ),
    ];
    measure(&cache, &rows);
    Ok(())
}

/// Runs rounds of all rows, and keeps the quickest of each.
fn measure(cache: &Cache, rows: &[Row<'_>]) {
    let mut best = vec![f64::INFINITY; rows.len()];
    for _ in 0..ROUNDS {
        for (row, best) in rows.iter().zip(&mut best) {
            (1..=HOT).for_each(|page| drop(cache.read(PageId(page)).expect("reads")));
            let before = cache.metrics();
            let nanoseconds = time(row);
            let (now, turns) = (cache.metrics(), f64::from(TURNS) * row.1 as f64);
            let misses = (now.misses - before.misses) as f64 / turns;
            if nanoseconds < *best {
                *best = nanoseconds;
                println!("{:32} {nanoseconds:8.0} ns, misses {misses:.2}", row.0);
            }
        }
    }
    println!("\nquickest round, ns per turn of one thread");
    for (row, best) in rows.iter().zip(best) {
        println!("{:32} {best:8.0}", row.0);
    }
}
