//! Memory that applying takes: old versions of a transaction that replaces more than the limit.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{MemoryShelf, Shelf};

use crate::{Direction, Options, Places, Snapshot, Store, StoreError, TreeId};

const KEYS: u32 = 20_000;

fn update(store: &Store, tree: TreeId, value: &[u8]) {
    let mut transaction = store.begin();
    (0..KEYS).for_each(|key| transaction.put(tree, &key.to_be_bytes(), value).expect("fits"));
    transaction.commit().expect("commits");
}

fn first(snapshot: &Snapshot, tree: TreeId) -> Result<Option<u8>, StoreError> {
    let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    Ok(cursor.next()?.and_then(|(_, value)| value.first().copied()))
}

#[test]
fn a_transaction_whose_old_versions_exceed_the_limit_keeps_none_and_neither_does_an_opening() {
    const LIMIT: u64 = 1 << 20;
    let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let options = Options {
        versions_bytes: LIMIT,
        transaction_bytes: 1 << 20,
        cache_bytes: 32 << 20,
        background: false,
        ..Options::default()
    };
    let (store, _) = Store::open(places.clone(), options.clone()).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    // One value has pages of its own: they must not be lost.
    transaction.put(tree, &7_u32.to_be_bytes(), &vec![1; 50_000]).expect("fits");
    transaction.commit().expect("commits");
    store.checkpoint().expect("writes in place");
    update(&store, tree, &[1; 60]);
    let before = store.snapshot();
    update(&store, tree, &[2; 60]);
    assert!(store.engine.trees.versions.most.load(Ordering::Relaxed) <= LIMIT);
    assert!(matches!(first(&before, tree), Err(StoreError::TooOld)));
    assert_eq!(first(&store.snapshot(), tree).expect("reads"), Some(2));
    drop((before, store));
    let (store, opened) = Store::open(places, options).expect("opens");
    assert_eq!(opened.records, 2);
    assert_eq!(store.engine.trees.versions.most.load(Ordering::Relaxed), 0, "nobody could look at them");
    assert_eq!(first(&store.snapshot(), tree).expect("reads"), Some(2));
    store.checkpoint().expect("writes in place");
    let verified = store.verify(&mut |_| ()).expect("reads");
    assert!(verified.is_sound(), "{verified}");
}

#[test]
fn who_begins_beside_a_batch_that_keeps_no_old_versions_waits_until_it_is_visible() {
    const UPDATES: u8 = 4;
    let options = Options { versions_bytes: 1 << 20, cache_bytes: 32 << 20, ..Options::default() };
    let store = Store::in_memory(options).expect("memory is enough");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    transaction.commit().expect("commits");
    update(&store, tree, &[0; 60]);
    let reader = std::thread::spawn({
        let store = store.clone();
        move || {
            let mut too_old = 0;
            while {
                let found = first(&store.snapshot(), tree);
                too_old += u8::from(matches!(found, Err(StoreError::TooOld)));
                !matches!(found, Ok(Some(UPDATES)))
            } {}
            too_old
        }
    });
    (1..=UPDATES).for_each(|value| update(&store, tree, &[value; 60]));
    // A snapshot that was already open when the batch dropped its old versions is too old.
    assert!(reader.join().expect("reads") <= UPDATES);
}
