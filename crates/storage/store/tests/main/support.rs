//! Shared by the tests: small stores, seeds, scans.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation, Shelf};
use encryption::Sealer;
use store::{
    BackupSource, Cursor, Direction, Options, Places, Restoration, Snapshot, Store, StoreError, TreeId, Until, Verified,
};

thread_local! {
    /// The number of the next opening of an encrypted store; 0: stores of this thread are clear.
    static EPOCH: Cell<u32> = const { Cell::new(0) };
}

/// Runs a test with clear stores, then with encrypted ones. What it checks must hold for both.
pub(crate) fn clear_and_encrypted(test: impl Fn()) {
    test();
    EPOCH.set(1);
    test();
    EPOCH.set(0);
}

/// The sealer of one more opening, if stores are encrypted.
pub(crate) fn sealer() -> Option<Arc<Sealer>> {
    let epoch = EPOCH.get();
    (epoch > 0).then(|| {
        EPOCH.set(epoch + 1);
        Sealer::for_tests(1, epoch, 0)
    })
}

/// From now on the store seals in another opening, as after a change of keys, if it is encrypted.
pub(crate) fn change_keys(store: &Store) {
    if let Some(sealer) = store.sealer() {
        let epoch = EPOCH.replace(EPOCH.get() + 1);
        sealer.begin_opening_for_tests(epoch, 0);
    }
}

/// Checks a store in its places, also an encrypted one.
pub(crate) fn verified(places: &Places) -> Result<Verified, StoreError> {
    store::verify_places_with(places, sealer(), &mut |_| ())
}

/// Restores a backup, also an encrypted one.
pub(crate) fn restored(
    backup: &Arc<dyn Shelf>,
    kept: Option<&Arc<dyn Shelf>>,
    places: &Places,
    until: Until,
) -> Result<Restoration, StoreError> {
    let sealer = sealer();
    let source = BackupSource { backup, kept, sealer: sealer.as_ref() };
    store::restore(source, places, until, &|_| None, &mut |_| ())
}

/// A store without background threads, with small journal segments.
pub(crate) fn small() -> Options {
    let journal = journal::Options {
        segment_bytes: 256 << 10,
        buffer_bytes: 64 << 10,
        preparation: journal::Preparation::Inline,
        identity: 0x5eed_1d00,
        sealer: sealer(),
        ..journal::Options::default()
    };
    Options { journal, cache_bytes: 8 << 20, background: false, clock: Arc::new(|| 1), ..Options::default() }
}

/// All structures on one shelf.
pub(crate) fn places(shelf: &Arc<dyn Shelf>) -> Places {
    Places { journal: shelf.clone(), images: shelf.clone(), data: shelf.clone() }
}

/// Three shelves in memory.
pub(crate) fn memory() -> Places {
    let shelf = || Arc::new(MemoryShelf::new()) as Arc<dyn Shelf>;
    Places { journal: shelf(), images: shelf(), data: shelf() }
}

/// A store in memory with one tree.
pub(crate) fn with_tree(options: Options) -> (Store, TreeId) {
    open_with_tree(&memory(), &options)
}

/// A store in empty places, with one tree.
pub(crate) fn open_with_tree(places: &Places, options: &Options) -> (Store, TreeId) {
    let (store, _) = Store::open(places.clone(), options.clone()).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    transaction.commit().expect("commits");
    (store, tree)
}

/// One put in its own transaction.
pub(crate) fn put(store: &Store, tree: TreeId, key: &str, value: &str) {
    let mut transaction = store.begin();
    transaction.put(tree, key.as_bytes(), value.as_bytes()).expect("fits");
    transaction.commit().expect("commits");
}

/// The value of a key as text.
pub(crate) fn get(snapshot: &Snapshot, tree: TreeId, key: &str) -> Option<String> {
    snapshot.get(tree, key.as_bytes()).expect("reads").map(text)
}

pub(crate) fn text(bytes: Bytes) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The remaining rows of a scan, as `key=value`.
pub(crate) fn walk(mut cursor: Cursor) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next()? {
        found.push(format!("{}={}", text(key), text(value)));
    }
    Ok(found)
}

/// The whole tree.
pub(crate) fn all(snapshot: &Snapshot, tree: TreeId) -> Vec<String> {
    walk(snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward)).expect("reads")
}

/// The seed of a randomised test: from the environment variable SEED, or `default`.
pub(crate) fn seed(default: u64) -> u64 {
    std::env::var("SEED").map_or(default, |text| text.parse().expect("SEED is a number"))
}

/// The message of a failed randomised test.
pub(crate) fn replay(seed: u64, test: &str) -> String {
    format!("replay: SEED={seed} cargo test -p store --test main {test} -- --exact --nocapture")
}

/// Every flush on the shelf fails from now on.
pub(crate) fn fail_flushes(shelf: &FaultyShelf) {
    shelf.inject(Rule::from(Operation::Flush, 1, Fault::Eio));
}
