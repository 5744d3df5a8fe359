//! Power failures at random moments of a whole store: journal, write image journal and pages are on one recording.
//! Before the store is opened again, verify reports no damage and no lost page. After opening, it has the state of some
//! commit, and every acknowledged commit is included; and it can be used.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use device::crash::PmemMode;
use device::{CrashShelf, Shelf};
use store::{Direction, Options, Places, Store, StoreError, TreeId};

use crate::support::{change_keys, clear_and_encrypted, replay, seed, small, verified};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    let journal = journal::Options { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, ..small().journal };
    Options {
        journal,
        page_bytes: 4096,
        cache_bytes: 4 << 20,
        data_device_bytes: 64 * 4096,
        images_device_bytes: 64 << 10,
        ..small()
    }
}

fn places(shelf: &Arc<CrashShelf>) -> Places {
    let shelf: Arc<dyn Shelf> = shelf.clone();
    Places { journal: shelf.clone(), images: shelf.clone(), data: shelf }
}

#[derive(Default)]
struct History {
    /// The content of the tree after commit n. The first is the state without a tree.
    states: Vec<State>,
    /// (number of operations at that time, commits acknowledged until then)
    acknowledged: Vec<(usize, usize)>,
}

impl History {
    fn change(&mut self, store: &Store, shelf: &CrashShelf, random: &mut fastrand::Rng) {
        let mut transaction = store.begin();
        let tree = match transaction.tree("t").expect("reads") {
            Some(tree) => tree,
            None => transaction.create_tree("t").expect("is new"),
        };
        let mut state = self.states.last().cloned().unwrap_or_default();
        // The state includes the number of its commit, so no two states are equal.
        let number = self.states.len().to_be_bytes().to_vec();
        transaction.put(tree, b"number", &number).expect("fits");
        state.insert(b"number".to_vec(), number);
        for _ in 0..random.usize(1..4) {
            let key = format!("key {:02}", random.u8(..24)).into_bytes();
            if random.u8(..4) == 0 {
                transaction.delete(tree, &key).expect("works");
                state.remove(&key);
                continue;
            }
            // Values are in a leaf, or in an extent of one or several pages.
            let most = [40, 900, 3000, 9000][random.usize(..4)];
            let value: Vec<u8> = (0..random.usize(1..most)).map(|_| random.u8(..)).collect();
            transaction.put(tree, &key, &value).expect("fits");
            state.insert(key, value);
        }
        self.states.push(state);
        transaction.commit().expect("the machine works");
        self.acknowledged.push((shelf.operations(), self.states.len()));
    }

    fn check(&self, point: usize, found: &State) -> Result<(), String> {
        let acknowledged = self.acknowledged.iter().filter(|(when, _)| *when <= point).map(|(_, n)| *n).max();
        let number = match found.get(b"number".as_slice()) {
            None if found.is_empty() => 0,
            None => return Err("a state without a number".into()),
            Some(number) => usize::from_be_bytes(number.as_slice().try_into().map_err(|_| "a damaged number")?) + 1,
        };
        if number < acknowledged.unwrap_or(0) {
            return Err(format!("commit {acknowledged:?} was acknowledged, found is the state behind {number}"));
        }
        match number > 0 && self.states.get(number - 1) != Some(found) {
            true => Err(format!("the state behind commit {number} is another one")),
            false => Ok(()),
        }
    }
}

fn content(store: &Store) -> Result<State, StoreError> {
    let snapshot = store.snapshot();
    let Some(tree) = snapshot.tree("t")? else { return Ok(State::new()) };
    read(store, tree)
}

fn read(store: &Store, tree: TreeId) -> Result<State, StoreError> {
    let mut cursor = store.snapshot().scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    let mut state = State::new();
    while let Some((key, value)) = cursor.next()? {
        state.insert(key.to_vec(), value.to_vec());
    }
    Ok(state)
}

fn live(shelf: &Arc<CrashShelf>, changes: usize) -> History {
    let mut history = History::default();
    let random = &mut fastrand::Rng::with_seed(5);
    for life in 0..2 {
        let (store, _) = Store::open(places(shelf), options()).expect("opens");
        (0..changes).for_each(|_| history.change(&store, shelf, random));
        store.checkpoint().expect("writes in place");
        change_keys(&store);
        // Old values stay readable over a checkpoint. After a crash their pages must be free again.
        let reader = store.snapshot();
        (0..changes).for_each(|_| history.change(&store, shelf, random));
        store.checkpoint().expect("writes in place");
        drop(reader);
        (0..changes).for_each(|_| history.change(&store, shelf, random));
        if life == 1 {
            store.checkpoint().expect("writes in place");
            store.close().expect("closes");
        }
    }
    history
}

/// Verifies an image, opens it, and checks its content.
fn recover(history: &History, point: usize, after: &Arc<CrashShelf>) -> Result<(), String> {
    match verified(&places(after)) {
        Ok(report) if report.is_sound() => {}
        Ok(report) => return Err(format!("before opening:\n{report}")),
        // The power failed before the store was created.
        Err(StoreError::Refused(_)) => {}
        Err(error) => return Err(format!("before opening: {error}")),
    }
    let told = |error: StoreError| error.to_string();
    let (store, _) = Store::open(places(after), options()).map_err(told)?;
    history.check(point, &content(&store).map_err(told)?)?;
    store.checkpoint().map_err(told)?;
    let report = store.verify(&mut |_| ()).map_err(told)?;
    if report.is_sound() { Ok(()) } else { Err(format!("behind the next checkpoint:\n{report}")) }
}

#[test]
fn a_power_failure_at_any_point_leaves_a_store_that_verifies_and_holds_every_acknowledged_commit() {
    clear_and_encrypted(|| {
        let seed = seed(41);
        let pmem = |mode| Arc::new(CrashShelf::pmem(seed, mode));
        let shelves = [
            ("sectors", Arc::new(CrashShelf::new(seed)), 2),
            ("ADR", pmem(PmemMode::Adr), 1),
            ("eADR", pmem(PmemMode::Eadr), 1),
            ("pages", pmem(PmemMode::Pages), 1),
        ];
        for (name, shelf, changes) in shelves {
            let history = live(&shelf, changes);
            let mut count = 0;
            for point in shelf.points() {
                // Every third image, another third at each point: all of them would take minutes.
                for image in shelf.images(point).skip(point % 3).step_by(3) {
                    let after = Arc::new(image.shelf());
                    recover(&history, point, &after).unwrap_or_else(|why| {
                        let test = "crash::a_power_failure_at_any_point_leaves_a_store_that_verifies_and_holds_every_acknowledged_commit";
                        panic!("{name}, {image}: {why}\n{}", replay(seed, test))
                    });
                    count += 1;
                }
            }
            println!("{name}: {} operations, {count} images", shelf.operations());
            assert!(count > 300, "{name}: only {count} images");
        }
    });
}
