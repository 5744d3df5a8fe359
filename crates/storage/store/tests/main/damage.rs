//! Damage of one page does not affect the others. The test damages every kind of page in every way, and uses and
//! repairs the store.
//!
//! The store has two trees of some hundred rows, short and long, and a third tree without damage. Each case damages one
//! page on its device and runs the same steps: open, read, write, checkpoint, reopen, back up, repair, check.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::{AlignedBuffer, Device, DeviceError, Durability, MemoryShelf, Operation, Shelf, WrappedShelf};
use store::{Direction, Loss, Options, Part, Places, Store, StoreError, TreeId};

use crate::support::{clear_and_encrypted, get, memory, open_with_tree, put, restored, sealer, seed, small, verified};

const PAGE: usize = 4096;
const ROWS: usize = 400;
/// The pages of the only data device.
const PAGES: u64 = 4096;

/// Reads of one page fail, as on a drive with bad sectors. A write repairs the page.
#[derive(Debug)]
struct Unreadable {
    inner: Arc<dyn Device>,
    /// The offset of the page; beyond all devices while no read should fail.
    bad: Arc<AtomicU64>,
}

impl Device for Unreadable {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        let bad = self.bad.load(Ordering::SeqCst);
        if bad < offset + buffer.len() as u64 && offset < bad.saturating_add(PAGE as u64) {
            let source = std::io::Error::from_raw_os_error(5);
            return Err(DeviceError::Io { operation: Operation::Read, name: "pages".into(), offset, source });
        }
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let bad = self.bad.load(Ordering::SeqCst);
        if offset <= bad && bad < offset + data.len() as u64 {
            // The drive has remapped the sectors.
            self.bad.store(u64::MAX, Ordering::SeqCst);
        }
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Flipped,
    Zeroed,
    Misplaced,
    Unreadable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Leaf,
    Inner,
    Root,
    Extent,
    Map,
    Superblock,
}

/// A store, its content, and the means to damage its pages.
struct Bench {
    places: Places,
    raw: Arc<dyn Shelf>,
    bad: Arc<AtomicU64>,
    rows: BTreeMap<(u32, Vec<u8>), Vec<u8>>,
    trees: [TreeId; 3],
}

fn options() -> Options {
    Options { page_bytes: PAGE as u32, data_device_bytes: PAGES * PAGE as u64, cache_bytes: 4 << 20, ..small() }
}

fn value(tree: u32, at: usize) -> Vec<u8> {
    let mut value = format!("{tree}/{at}/").into_bytes();
    value.resize([40, 300, 9000][at % 3], at as u8);
    value
}

impl Bench {
    fn new() -> Bench {
        let raw: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let bad = Arc::new(AtomicU64::new(u64::MAX));
        let of_devices = bad.clone();
        let wrap = move |inner| Arc::new(Unreadable { inner, bad: of_devices.clone() }) as Arc<dyn Device>;
        let data: Arc<dyn Shelf> = Arc::new(WrappedShelf::new(raw.clone(), wrap));
        let places = Places { data, ..memory() };
        let (store, _) = Store::open(places.clone(), options()).expect("opens");
        let mut rows = BTreeMap::new();
        let trees = ["a", "b", "whole"].map(|name| {
            let mut transaction = store.begin();
            let tree = transaction.create_tree(name).expect("is new");
            for at in 0..ROWS {
                // Groups of keys share hundreds of bytes, so that there are inner pages below the root.
                let group = if name == "a" { format!("g{:04}", at / 8).repeat(120) } else { String::new() };
                let key = format!("{group}{at:05}").into_bytes();
                transaction.put(tree, &key, &value(tree.0, at)).expect("fits");
                rows.insert((tree.0, key), value(tree.0, at));
            }
            transaction.commit().expect("commits");
            tree
        });
        store.close().expect("closes");
        Bench { places, raw, bad, rows, trees }
    }

    fn page(&self, number: u64) -> AlignedBuffer {
        let device = self.raw.open("pages-0000").expect("is there");
        let mut bytes = AlignedBuffer::zeroed(PAGE);
        device.read(number * PAGE as u64, &mut bytes).expect("reads");
        bytes
    }

    fn write(&self, number: u64, bytes: &[u8]) {
        let mut page = AlignedBuffer::new();
        page.extend_from_slice(bytes);
        self.raw.open("pages-0000").expect("is there").write(number * PAGE as u64, &page).expect("writes");
    }

    /// The pages of a kind, of the first two trees.
    fn pages(&self, what: What) -> Vec<u64> {
        let is = |number: &u64| {
            let page = self.page(*number);
            let (kind, level, tree) = (page[4], page[5], u32::from_le_bytes(page[8..12].try_into().expect("four")));
            let is_ours = self.trees[..2].iter().any(|own| own.0 == tree);
            match what {
                What::Superblock => *number == 0,
                What::Map => *number == 1,
                What::Leaf => kind == 4 && is_ours,
                What::Inner => kind == 3 && level == 1 && tree == self.trees[0].0,
                What::Root => kind == 3 && is_ours && (level > 1 || tree == self.trees[1].0),
                What::Extent => self.trees[..2].iter().any(|own| page.starts_with(format!("{}/", own.0).as_bytes())),
            }
        };
        (0..PAGES).filter(is).collect()
    }

    fn damage(&self, page: u64, other: u64, how: How, random: &mut fastrand::Rng) {
        let mut bytes = self.page(page).to_vec();
        match how {
            How::Flipped => bytes[random.usize(..PAGE)] ^= 1 << random.u8(..8),
            How::Zeroed => bytes.fill(0),
            How::Misplaced => bytes = self.page(other).to_vec(),
            How::Unreadable => self.bad.store(page * PAGE as u64, Ordering::SeqCst),
        }
        self.write(page, &bytes);
    }

    fn open(&self, repair: bool) -> Result<Store, StoreError> {
        Ok(Store::open(self.places.clone(), Options { repair, ..options() })?.0)
    }

    /// Reads every row by its key and by scans in both directions. Each row must be unchanged, or the read must return
    /// an error that names it. Returns the number of errors.
    fn read(&self, store: &Store, case: &dyn fmt::Display) -> usize {
        let snapshot = store.snapshot();
        let mut lost = 0;
        for ((tree, key), expected) in &self.rows {
            match snapshot.get(TreeId(*tree), key) {
                Ok(Some(value)) => assert!(value == *expected, "{case}: wrong data"),
                Ok(None) => panic!("{case}: a row is gone in silence"),
                Err(StoreError::Corrupt(why)) => {
                    assert!(why.contains("tree ") && why.contains("page ") && why.contains("key"), "{case}: {why}");
                    assert_ne!(*tree, self.trees[2].0, "{case}: another tree: {why}");
                    lost += 1;
                }
                Err(error) => panic!("{case}: {error}"),
            }
        }
        for tree in self.trees {
            for direction in [Direction::Forward, Direction::Backward] {
                let walked = self.walk(store, tree, direction, case);
                let expected = self.rows.keys().filter(|(of, _)| *of == tree.0).count();
                assert!(walked.0 == expected || walked.1, "{case}: a walk ends in silence: {walked:?} of {expected}");
            }
        }
        lost
    }

    /// The rows of a scan, and whether it reported damage.
    fn walk(&self, store: &Store, tree: TreeId, direction: Direction, case: &dyn fmt::Display) -> (usize, bool) {
        let snapshot = store.snapshot();
        let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, direction);
        let (mut rows, mut told) = (0, false);
        for _ in 0..4 * ROWS {
            match cursor.next() {
                Ok(None) => return (rows, told),
                Ok(Some((key, value))) => {
                    assert!(
                        self.rows.get(&(tree.0, key.to_vec())).is_some_and(|own| value == *own),
                        "{case}: wrong row"
                    );
                    rows += 1;
                }
                Err(StoreError::Corrupt(_)) => {
                    told = true;
                    cursor.skip_damage().expect("goes on");
                }
                Err(error) => panic!("{case}: {error}"),
            }
        }
        panic!("{case}: a walk does not end");
    }

    /// Changes rows everywhere and removes some, also in damaged pages.
    fn change(&mut self, store: &Store, case: &dyn fmt::Display) {
        let keys: Vec<(u32, Vec<u8>)> = self.rows.keys().cloned().collect();
        for (at, (tree, key)) in keys.into_iter().enumerate().step_by(7) {
            let mut transaction = store.begin();
            let new = vec![at as u8; [30, 5000][at % 2]];
            match at % 5 {
                0 => {
                    transaction.delete(TreeId(tree), &key).expect("fits");
                    self.rows.remove(&(tree, key));
                }
                _ => {
                    transaction.put(TreeId(tree), &key, &new).expect("fits");
                    self.rows.insert((tree, key), new);
                }
            }
            transaction.commit().unwrap_or_else(|error| panic!("{case}: {error}"));
            if at % 35 == 0 {
                store.checkpoint().unwrap_or_else(|error| panic!("{case}: {error}"));
            }
        }
        assert_eq!(store.poisoned(), None, "{case}");
    }
}

/// Repairs without a backup. Returns the parts that were given up.
fn repair(bench: &Bench, case: &dyn fmt::Display) -> Vec<Loss> {
    let store = bench.open(true).unwrap_or_else(|error| panic!("{case}: {error}"));
    let losses = store.losses(&mut |_| ()).expect("walks");
    losses.iter().for_each(|loss| store.open_hole(loss).expect("there is room"));
    let (_, left) = store.reclaim(&losses).unwrap_or_else(|error| panic!("{case}: {error}"));
    for loss in &left {
        if let Part::Value(key) = &loss.part {
            let mut transaction = store.begin();
            transaction.delete(loss.tree, key).expect("fits");
            transaction.commit().expect("commits");
        }
    }
    store.close_holes(&losses).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(store.quarantined().is_empty(), "{case}");
    let verified = store.verify(&mut |_| ()).expect("reads");
    assert!(verified.is_sound(), "{case}: {verified}");
    store.close().expect("closes");
    let verified = crate::support::verified(&bench.places).expect("reads");
    assert!(verified.is_sound(), "{case}: {verified}");
    left
}

fn live_and_repair(mut bench: Bench, what: What, case: &dyn fmt::Display) {
    let offline = verified(&bench.places).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert!(!offline.is_sound(), "{case}: {offline}");
    let store = bench.open(false).unwrap_or_else(|error| panic!("{case}: does not open: {error}"));
    let lost = bench.read(&store, case);
    assert_eq!(lost > 0, !matches!(what, What::Map | What::Superblock), "{case}: {lost} rows cannot be read");
    let quarantined = store.quarantined();
    assert_eq!(quarantined.is_empty(), what == What::Superblock, "{case}: {quarantined:?}");
    let error = store.backup(Arc::new(MemoryShelf::new()), &mut |_| ControlFlow::Continue(()));
    match what {
        What::Map | What::Superblock => assert!(error.is_ok(), "{case}: {error:?}"),
        _ => assert!(error.is_err_and(|error| error.to_string().contains("there is no backup")), "{case}"),
    }
    bench.change(&store, case);
    bench.read(&store, case);
    drop(store);
    let store = bench.open(false).unwrap_or_else(|error| panic!("{case}: does not open again: {error}"));
    bench.read(&store, case);
    put(&store, bench.trees[2], "new", "row");
    let mut transaction = store.begin();
    transaction.delete(bench.trees[2], b"new").expect("fits");
    transaction.commit().expect("commits");
    store.close().unwrap_or_else(|error| panic!("{case}: {error}"));

    let given_up = repair(&bench, case);
    let store = bench.open(false).expect("opens");
    let snapshot = store.snapshot();
    let mut gone = 0;
    for ((tree, key), expected) in &bench.rows {
        let found = snapshot.get(TreeId(*tree), key).unwrap_or_else(|error| panic!("{case}: {error}"));
        let was_lost = given_up.iter().any(|loss| loss.tree.0 == *tree && loss.covers(key));
        match found {
            Some(value) => assert!(value == *expected, "{case}: wrong data after the repair"),
            None => {
                assert!(was_lost, "{case}: a row was given up and not named");
                gone += 1;
            }
        }
    }
    for tree in bench.trees {
        let (rows, told) = bench.walk(&store, tree, Direction::Forward, case);
        assert!(!told, "{case}: nothing is damaged any more, {rows} rows");
    }
    match what {
        What::Leaf => assert!(gone < 30, "{case}: {gone} rows"),
        What::Extent => assert!(gone <= 1, "{case}: {gone} rows, {given_up:?}"),
        // A leaf contains its own place in the tree.
        What::Inner | What::Root | What::Map | What::Superblock => {
            assert!(given_up.is_empty(), "{case}: {given_up:?}")
        }
    }
}

#[test]
fn one_damaged_page_of_any_kind_stops_nothing_else_and_is_repaired() {
    clear_and_encrypted(|| {
        let seed = seed(5);
        let random = &mut fastrand::Rng::with_seed(seed);
        for what in [What::Extent, What::Leaf, What::Inner, What::Root, What::Map, What::Superblock] {
            if what == What::Extent && sealer().is_some() {
                // It cannot be told by its content; `encrypted` damages pages of encrypted stores.
                continue;
            }
            for how in [How::Flipped, How::Zeroed, How::Misplaced, How::Unreadable] {
                let bench = Bench::new();
                let pages = bench.pages(what);
                assert!(!pages.is_empty(), "there is a {what:?}");
                let page = pages[random.usize(..pages.len())];
                let others = bench.pages(if what == What::Extent { What::Extent } else { What::Leaf });
                let other = others.into_iter().find(|other| *other != page).expect("there is another");
                bench.damage(page, other, how, random);
                let case = format!("{what:?} {how:?} page {page}, SEED={seed}");
                live_and_repair(bench, what, &case);
            }
        }
    });
}

#[test]
fn a_store_does_not_open_without_its_catalog_and_says_what_comes_next() {
    let bench = Bench::new();
    for number in 2..PAGES {
        let page = bench.page(number);
        let tree = u32::from_le_bytes(page[8..12].try_into().expect("four"));
        if ![3, 4].contains(&page[4]) || ![0, u32::MAX].contains(&tree) {
            continue;
        }
        let mut damaged = page.to_vec();
        damaged[100] ^= 1;
        bench.write(number, &damaged);
        match bench.open(false) {
            Err(StoreError::Corrupt(why)) => assert!(why.contains("restore a backup"), "page {number}: {why}"),
            other => panic!("page {number} of tree {tree}: {other:?}"),
        }
        bench.write(number, &page);
    }
    assert_eq!(bench.read(&bench.open(false).expect("opens"), &"whole again"), 0);
}

#[test]
fn what_is_lost_comes_back_from_a_backup_with_the_journal_and_from_an_older_one_where_checksums_prove_it() {
    for (what, journal_reaches) in
        [(What::Leaf, true), (What::Extent, true), (What::Extent, false), (What::Leaf, false)]
    {
        let case = format!("{what:?}, the journal reaches: {journal_reaches}");
        let mut bench = Bench::new();
        let kept = Options { keep_journal_bytes: if journal_reaches { 1 << 30 } else { 0 }, ..options() };
        let (store, _) = Store::open(bench.places.clone(), kept.clone()).expect("opens");
        let backup: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        store.backup(backup.clone(), &mut |_| ControlFlow::Continue(())).expect("backs up");
        bench.change(&store, &case);
        for number in 0..300 {
            put(&store, bench.trees[2], &format!("more {number}"), &"m".repeat(2000));
            bench.rows.insert((bench.trees[2].0, format!("more {number}").into_bytes()), vec![b'm'; 2000]);
        }
        store.close().expect("closes");
        let random = &mut fastrand::Rng::with_seed(1);
        bench.damage(bench.pages(what)[1], 0, How::Flipped, random);
        // Restores the backup and applies the journal, as far as the journal reaches.
        let source = memory();
        let of_journal = if journal_reaches { Some(&bench.places.journal) } else { None };
        let until = store::Until::End;
        restored(&backup, of_journal, &source, until).expect("restores");
        let (source, _) = Store::open(source, options()).expect("opens");

        let store = bench.open(true).expect("opens");
        let losses = store.losses(&mut |_| ()).expect("walks");
        assert_eq!(losses.len(), 1, "{case}: {losses:?}");
        losses.iter().for_each(|loss| store.open_hole(loss).expect("there is room"));
        store.reclaim(&losses).expect("reads");
        let (rows, is_whole) = store.take(&losses[0], &source.snapshot(), journal_reaches, &|_| false).expect("takes");
        assert_eq!(is_whole, journal_reaches || what == What::Extent, "{case}: {rows} rows");
        store.close_holes(&losses).expect("closes");
        assert!(store.verify(&mut |_| ()).expect("reads").is_sound() || !is_whole, "{case}");
        if is_whole {
            assert_eq!(bench.read(&store, &case), 0, "{case}: nothing is lost");
        }
    }
}

#[test]
fn two_damaged_headers_of_write_images_are_refused_unless_the_store_was_closed() {
    for is_closed in [true, false] {
        let places = memory();
        let (store, tree) = open_with_tree(&places, &small());
        put(&store, tree, "a", "1");
        store.checkpoint().expect("writes in place");
        put(&store, tree, "a", "2");
        match is_closed {
            true => store.close().expect("closes"),
            false => drop(store),
        }
        let mut garbage = AlignedBuffer::zeroed(8192);
        garbage.fill(0xa5);
        places.images.open("images-0000").expect("is there").write(0, &garbage).expect("writes");
        match Store::open(places, small()) {
            Ok((store, _)) => {
                assert!(is_closed, "a batch may have been half in place");
                assert_eq!(get(&store.snapshot(), tree, "a").as_deref(), Some("2"));
            }
            Err(StoreError::Corrupt(why)) => assert!(!is_closed && why.contains("images-0000"), "{why}"),
            Err(error) => panic!("{error}"),
        }
    }
}
