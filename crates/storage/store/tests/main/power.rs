//! Power failures at every moment over the whole store: journal, write image journal and pages are on one simulated
//! shelf. Acknowledged transactions are found, every transaction is there whole or not at all, and the content is a
//! state that was committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{CrashShelf, Shelf};
use store::{CheckpointOptions, Options, Store, TreeId};

use crate::support::{all, change_keys, clear_and_encrypted, places, replay, seed, small};

const TEST: &str = "power::a_power_failure_at_any_point_leaves_a_committed_state_with_everything_acknowledged";

/// The smallest size of each structure. Some transactions spill.
fn tiny() -> Options {
    let journal = journal::Options { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, ..small().journal };
    Options {
        journal,
        page_bytes: 4096,
        cache_bytes: 4 << 20,
        data_device_bytes: 1 << 20,
        images_device_bytes: 64 << 10,
        transaction_bytes: 6 << 10,
        ..small()
    }
}

/// The same, with checkpoints that begin when two pages are dirty: in the middle of transactions, with and without
/// spill.
fn hasty() -> Options {
    let checkpoints =
        CheckpointOptions { dirty_bytes: 8 << 10, dirty_bytes_max: 32 << 10, ..CheckpointOptions::default() };
    Options { checkpoints: Some(checkpoints), ..tiny() }
}

/// The committed states, and for each the number of operations of the shelf when it was acknowledged.
struct History {
    states: Vec<Vec<String>>,
    acknowledged: Vec<usize>,
    /// Checkpoints that began between two parts of a transaction.
    begun_inside: u64,
}

fn workload(shelf: &Arc<CrashShelf>, seed: u64, options: &Options) -> History {
    let mut random = fastrand::Rng::with_seed(seed);
    let dyn_shelf: Arc<dyn Shelf> = shelf.clone();
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    let mut history = History { states: vec![Vec::new()], acknowledged: vec![0], begun_inside: 0 };
    for life in 0..3 {
        let (store, _) = Store::open(places(&dyn_shelf), options.clone()).expect("opens");
        let tree = tree_of(&store);
        for step in 0..10 {
            let mut transaction = store.begin();
            let keys = if step % 5 == 4 { 60 } else { 3 };
            for _ in 0..keys {
                let key = format!("k{:02}", random.u32(..90));
                if random.u8(..5) == 0 {
                    transaction.delete(tree, key.as_bytes()).expect("fits");
                    model.remove(&key);
                } else {
                    let bytes = if random.u8(..12) == 0 { 3000 } else { random.usize(..120) };
                    let value = format!("{life}.{step}.{}", "v".repeat(bytes));
                    transaction.put(tree, key.as_bytes(), value.as_bytes()).expect("fits");
                    model.insert(key, value);
                }
            }
            // The state is added before the acknowledgement: a crash may already leave it.
            history.states.push(model.iter().map(|(key, value)| format!("{key}={value}")).collect());
            let before = store.metrics().checkpoints.checkpoints;
            transaction.commit().expect("commits");
            // The first checkpoint begins before the transaction.
            history.begun_inside += (store.metrics().checkpoints.checkpoints - before).saturating_sub(1);
            history.acknowledged.push(shelf.operations());
            if step % 4 == 3 {
                store.checkpoint().expect("writes");
            }
            if step % 5 == 3 {
                change_keys(&store);
            }
        }
        if life == 1 {
            store.close().expect("closes");
        }
    }
    history
}

fn tree_of(store: &Store) -> TreeId {
    if let Some(tree) = store.snapshot().tree("t").expect("reads") {
        return tree;
    }
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("new");
    transaction.commit().expect("commits");
    tree
}

/// Opens and checks the result of a crash, twice: recovery itself may have written.
fn check(history: &History, point: usize, after: &Arc<CrashShelf>, options: &Options) -> Result<(), String> {
    let shelf: Arc<dyn Shelf> = after.clone();
    for _ in 0..2 {
        let (store, _) = Store::open(places(&shelf), options.clone()).map_err(|error| error.to_string())?;
        let snapshot = store.snapshot();
        let found = match snapshot.tree("t").map_err(|error| error.to_string())? {
            Some(tree) => all(&snapshot, tree),
            None => Vec::new(),
        };
        let acknowledged = history.acknowledged.iter().rposition(|operations| *operations <= point).unwrap_or(0);
        if !history.states[acknowledged..].iter().take(2).any(|state| *state == found) {
            return Err(format!("{} rows are neither state {acknowledged} nor the next", found.len()));
        }
    }
    Ok(())
}

#[test]
fn a_power_failure_at_any_point_leaves_a_committed_state_with_everything_acknowledged() {
    clear_and_encrypted(|| {
        for (name, options) in [("usual", tiny()), ("hasty", hasty())] {
            let history = enumerate(&options);
            assert_eq!(history.begun_inside > 0, name == "hasty", "{name}: {} checkpoints", history.begun_inside);
        }
    });
}

fn enumerate(options: &Options) -> History {
    let seed = seed(1);
    let shelf = Arc::new(CrashShelf::new(seed));
    let history = workload(&shelf, seed, options);
    let mut images = 0;
    // Every point with one of its images; the index of the image rotates.
    for point in shelf.points() {
        let all: Vec<_> = shelf.images(point).collect();
        let Some(image) = all.get(point % all.len().max(1)) else { continue };
        let after = Arc::new(image.shelf());
        check(&history, point, &after, options).unwrap_or_else(|why| panic!("{image}: {why}; {}", replay(seed, TEST)));
        images += 1;
    }
    assert!(images > 200, "only {images} images: too few to mean anything");
    history
}
