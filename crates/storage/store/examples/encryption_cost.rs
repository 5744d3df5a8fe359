//! What encryption costs: journal appends and puts of a store in memory, in clear and encrypted, in turns.
//!
//! `cargo run --release -p store --example encryption_cost`
//!
//! In memory nothing hides the processor's time: on a drive the difference is smaller. The last lines give the median of the ratios.

use std::sync::Arc;
use std::time::Instant;

use device::{MemoryShelf, Shelf};
use encryption::Sealer;
use journal::Journal;
use store::{Options, Places, Store};

const TURNS: usize = 11;
const RECORDS: usize = 20_000;
const RECORD_BYTES: usize = 1024;
const PUTS: u32 = 20_000;

fn journal_options(sealer: Option<Arc<Sealer>>) -> journal::Options {
    journal::Options { sealer, ..journal::Options::default() }
}

/// Appends a second, 16 to a commit.
fn appends(sealer: Option<Arc<Sealer>>) -> f64 {
    let (journal, _) = Journal::open(Arc::new(MemoryShelf::new()), journal_options(sealer)).expect("it opens");
    let record = vec![7; RECORD_BYTES];
    let begun = Instant::now();
    for at in 0..RECORDS {
        let lsn = journal.append(1, &[&record]).expect("there is room");
        if at % 16 == 15 {
            journal.commit(lsn).expect("it works");
        }
    }
    RECORDS as f64 / begun.elapsed().as_secs_f64()
}

/// Puts a second, 10 to a transaction, and a checkpoint at the end.
fn puts(sealer: Option<Arc<Sealer>>) -> f64 {
    let shelf = || Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>;
    let places = Places { journal: shelf(), images: shelf(), data: shelf() };
    let options = Options { journal: journal_options(sealer), ..Options::default() };
    let (store, _) = Store::open(places, options).expect("it opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("it is new");
    transaction.commit().expect("it works");
    let begun = Instant::now();
    for batch in 0..PUTS / 10 {
        let mut transaction = store.begin();
        for at in 0..10 {
            let key = (batch * 10 + at).wrapping_mul(2_654_435_761).to_be_bytes();
            transaction.put(tree, &key, &[7; 300]).expect("it fits");
        }
        transaction.commit().expect("it works");
    }
    store.checkpoint().expect("it works");
    f64::from(PUTS) / begun.elapsed().as_secs_f64()
}

fn compare(name: &str, measure: fn(Option<Arc<Sealer>>) -> f64) {
    let mut ratios: Vec<f64> = (0..TURNS)
        .map(|turn| {
            let sealer = || Some(Sealer::for_tests(1, turn as u32 + 1, 0));
            // The one that comes first changes with the turn.
            let (clear, encrypted) = match turn % 2 {
                0 => (measure(None), measure(sealer())),
                _ => {
                    let encrypted = measure(sealer());
                    (measure(None), encrypted)
                }
            };
            println!("{name:>8} {clear:>12.0} {encrypted:>12.0} {:>6.3}", encrypted / clear);
            encrypted / clear
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    println!("{name:>8} median {:.3} of clear, {:.3} to {:.3}\n", ratios[TURNS / 2], ratios[0], ratios[TURNS - 1]);
}

fn main() {
    println!("{:>8} {:>12} {:>12} {:>6}", "", "clear/s", "encrypted/s", "ratio");
    compare("appends", appends);
    compare("puts", puts);
}
