//! Rewriting: what an older data key has encrypted is written anew, beside changes and snapshots, across stops and power failures; a store
//! whose sealer does not have the old key at all then has everything.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use device::{CrashShelf, Shelf};
use encryption::Sealer;
use store::{Direction, Options, Places, RewriteOptions, RewritePlace, Snapshot, Store, StoreError, TreeId};

use crate::support::{memory, replay, seed, small};

const PAGE: usize = 4096;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

thread_local! {
    /// Of the last opening.
    static EPOCH: Cell<u32> = const { Cell::new(0) };
}

fn next_epoch() -> u32 {
    EPOCH.set(EPOCH.get() + 1);
    EPOCH.get()
}

/// A store that has these data keys and no others. Key `n` consists of bytes `n`.
fn options(data_keys: &[u32]) -> Options {
    let keys: Vec<(u32, u8)> = data_keys.iter().map(|id| (*id, *id as u8)).collect();
    let sealer = Sealer::with_data_keys_for_tests(&keys, next_epoch());
    let journal =
        journal::Options { segment_bytes: 64 << 10, buffer_bytes: 16 << 10, sealer: Some(sealer), ..small().journal };
    Options {
        journal,
        page_bytes: PAGE as u32,
        cache_bytes: 4 << 20,
        data_device_bytes: 256 * PAGE as u64,
        images_device_bytes: 256 << 10,
        ..small()
    }
}

fn open(places: &Places, data_keys: &[u32]) -> Store {
    Store::open(places.clone(), options(data_keys)).expect("opens").0
}

fn begin_data_key(store: &Store, id: u32) {
    store.sealer().expect("it is encrypted").begin_data_key_for_tests(id as u8, next_epoch());
}

fn content(snapshot: &Snapshot, tree: TreeId) -> State {
    let mut cursor = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    let mut state = State::new();
    while let Some((key, value)) = cursor.next().expect("reads") {
        state.insert(key.to_vec(), value.to_vec());
    }
    state
}

fn put(store: &Store, tree: TreeId, key: &[u8], value: &[u8]) {
    let mut transaction = store.begin();
    transaction.put(tree, key, value).expect("fits");
    transaction.commit().expect("commits");
}

fn key(number: usize) -> Vec<u8> {
    // Neighbours differ late, and not all begin alike: long separators make several levels of inner pages.
    let group = number / 8;
    [format!("{group:02}").as_bytes(), &[b'a' + group as u8 % 26; 300], format!("{number:04}").as_bytes()].concat()
}

/// Values in leaves, and in one and in several extents: the longest extent of such a store has half a device.
fn value(number: usize, salt: u8) -> Vec<u8> {
    let bytes = if number % 80 == 79 { 600_000 } else { [5, 700, 9000, 40_000][number % 4] };
    vec![number as u8 ^ salt; bytes + number]
}

/// A tree of several levels, and an empty one beside it.
fn fill(store: &Store, count: usize) -> (TreeId, State) {
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    transaction.create_tree("empty").expect("is new");
    transaction.commit().expect("commits");
    for number in 0..count {
        put(store, tree, &key(number), &value(number, 0));
        if number % 50 == 49 {
            store.checkpoint().expect("writes in place");
        }
    }
    store.checkpoint().expect("writes in place");
    (tree, content(&store.snapshot(), tree))
}

/// Nothing needs another data key: a store without one has this content, and every seal on its media is checked.
fn needs_only(places: &Places, data_key: u32, expected: &State) {
    let sealer = options(&[data_key]).journal.sealer;
    let report = store::verify_places_with(places, sealer.clone(), &mut |_| ()).expect("the key is known");
    assert!(report.is_sound() && report.leaked == Some(0), "{report}");
    let view = journal::View::open_with(places.journal.clone(), sealer.clone()).expect("the key is known");
    assert!(view.corruption().is_none());
    view.read(view.first()).for_each(|record| drop(record.expect("the key is known")));
    assert_eq!(sealer.expect("it is encrypted").opened_with(), [data_key]);
    let store = open(places, &[data_key]);
    let tree = store.snapshot().tree("t").expect("reads").expect("is there");
    assert_eq!(&content(&store.snapshot(), tree), expected);
    store.close().expect("closes");
}

fn all(store: &Store) -> store::Rewritten {
    let mut waits = 0;
    store
        .rewrite(RewriteOptions::default(), &mut |progress| {
            waits += usize::from(progress.waits.is_some());
            if waits < 1000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .expect("it is rewritten")
}

#[test]
fn leaves_inner_pages_values_in_extents_and_the_journal_are_written_anew_beside_changes_and_snapshots() {
    let places = memory();
    let store = open(&places, &[1]);
    let (tree, before) = fill(&store, 240);
    begin_data_key(&store, 2);
    let (reader, mut early) = (store.snapshot(), Some(store.begin()));
    // It began before, changes what is rewritten, and commits after.
    early.as_mut().expect("it is there").put(tree, &key(2), b"early").expect("fits");
    let mut expected = before.clone();
    let mut calls = 0;
    let done = store
        .rewrite(RewriteOptions { save_bytes: 256 << 10, ..RewriteOptions::default() }, &mut |progress| {
            calls += 1;
            assert!(progress.pages <= progress.pages_total && progress.waits.is_none(), "{progress:?}");
            if progress.values > 10
                && let Some(early) = early.take()
            {
                early.commit().expect("rewriting is no change that others conflict with");
                expected.insert(key(2), b"early".to_vec());
            }
            // Before the walk, in it and behind it.
            let number = calls * 37 % 260;
            if calls % 7 == 0 && number != 2 {
                put(&store, tree, &key(number), &value(number, 9));
                expected.insert(key(number), value(number, 9));
            }
            if calls % 31 == 0 && calls % 240 != 2 {
                let mut transaction = store.begin();
                transaction.delete(tree, &key(calls % 240)).expect("works");
                transaction.commit().expect("commits");
                expected.remove(&key(calls % 240));
            }
            ControlFlow::Continue(())
        })
        .expect("it is rewritten");
    assert!(done.is_complete && early.is_none() && done.progress.is_at_journal, "{done:?}");
    assert!(done.progress.renewed > 20 && done.progress.values > 60 && done.progress.bytes > 5 << 20, "{done:?}");
    assert_eq!(content(&reader, tree), before, "a snapshot sees what it saw");
    assert_eq!(content(&store.snapshot(), tree), expected);
    drop(reader);
    let again = all(&store);
    assert_eq!((again.progress.renewed, again.progress.values), (0, 0), "nothing is left");
    store.close().expect("closes");
    needs_only(&places, 2, &expected);
}

#[test]
fn a_rewrite_that_ends_early_goes_on_from_its_place_also_in_another_process_and_with_a_newer_key_from_the_beginning() {
    let places = memory();
    let store = open(&places, &[1]);
    let (_, expected) = fill(&store, 200);
    begin_data_key(&store, 2);
    let mut place: Option<RewritePlace> = None;
    let until = |pages: u64, from: Option<RewritePlace>, store: &Store| {
        let mut last = None;
        let options = RewriteOptions { from, save_bytes: 64 << 10, ..RewriteOptions::default() };
        let done = store.rewrite(options, &mut |progress| {
            last.clone_from(&progress.place);
            if progress.pages < pages { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (done.expect("it works"), last)
    };
    let (mut renewed, mut values, mut lives) = (0, 0, 0);
    let mut store = Some(store);
    loop {
        let of_life = store.take().unwrap_or_else(|| open(&places, &[1, 2]));
        let before = place.as_ref().map_or(0, |place| place.pages);
        let (done, last) = until(before + 300, place.clone(), &of_life);
        renewed += done.progress.renewed;
        values += done.progress.values;
        lives += 1;
        if done.is_complete {
            of_life.close().expect("closes");
            break;
        }
        let last = last.expect("a place was reported");
        assert!(last.data_key == 2 && last.pages > before && last.pages <= done.progress.pages, "{last:?}");
        place = Some(last);
        // Not closed: a crash of the process.
        drop(of_life);
    }
    assert!(lives > 2 && renewed > 15 && values > 50, "{lives} lives, {renewed} pages, {values} values");
    needs_only(&places, 2, &expected);

    let store = open(&places, &[2]);
    begin_data_key(&store, 3);
    let (done, _) = until(u64::MAX, place, &store);
    assert!(done.is_complete && done.progress.renewed >= renewed / 2, "the place was one of an older key: {done:?}");
    store.close().expect("closes");
    needs_only(&places, 3, &expected);
}

#[test]
fn a_key_that_is_made_meanwhile_is_the_one_that_everything_has_in_the_end() {
    let places = memory();
    let store = open(&places, &[1]);
    let (_, expected) = fill(&store, 100);
    begin_data_key(&store, 2);
    let mut calls = 0;
    let done = store.rewrite(RewriteOptions::default(), &mut |_| {
        calls += 1;
        if calls == 20 {
            begin_data_key(&store, 3);
        }
        ControlFlow::Continue(())
    });
    assert!(done.expect("it works").is_complete);
    store.close().expect("closes");
    needs_only(&places, 3, &expected);
}

#[test]
fn old_versions_of_what_is_written_anew_never_make_a_snapshot_too_old_and_rewriting_waits_for_it() {
    let places = memory();
    let options = Options { versions_bytes: 16 << 10, ..options(&[1]) };
    let (store, _) = Store::open(places.clone(), options).expect("opens");
    let (tree, expected) = fill(&store, 200);
    begin_data_key(&store, 2);
    let mut reader = Some(store.snapshot());
    let mut waits = 0;
    let done = store.rewrite(RewriteOptions::default(), &mut |progress| {
        if progress.waits.as_deref().is_some_and(|why| why.contains("snapshots")) {
            waits += 1;
            if waits == 3 {
                let reader = reader.take().expect("it waits for it once");
                assert_eq!(content(&reader, tree), expected, "it is not too old");
            }
        }
        if waits > 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(done.expect("it works").is_complete && waits >= 3, "{waits} waits");
    store.close().expect("closes");
    needs_only(&places, 2, &expected);
}

#[test]
fn rewriting_waits_for_journal_that_is_kept_and_gives_it_up_only_if_told() {
    let places = memory();
    let options = Options { keep_journal_bytes: 1 << 30, ..options(&[1]) };
    let (store, _) = Store::open(places.clone(), options).expect("opens");
    // So little that rewriting it does not reach the next segment: the journal has to be filled.
    let (_, expected) = fill(&store, 2);
    begin_data_key(&store, 2);
    let (mut waits, mut fills) = (0, 0);
    let done = store.rewrite(RewriteOptions::default(), &mut |progress| {
        waits += usize::from(progress.waits.as_deref().is_some_and(|why| why.contains("[journal] keep")));
        fills += usize::from(progress.is_at_journal && progress.waits.is_none());
        if waits < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let done = done.expect("it works");
    assert!(!done.is_complete && waits == 100 && fills > 0, "{waits} waits, {fills} records: {done:?}");
    assert!(store.journal().data_keys().contains(&1));
    let options = RewriteOptions { drops_kept_journal: true, ..RewriteOptions::default() };
    let done = store.rewrite(options, &mut |_| ControlFlow::Continue(())).expect("it works");
    assert!(done.is_complete, "{done:?}");
    store.close().expect("closes");
    needs_only(&places, 2, &expected);
}

#[test]
fn a_store_in_clear_refuses_and_one_of_a_single_key_has_nothing_to_do() {
    let (store, _) = Store::open(memory(), small()).expect("opens");
    let refused = store.rewrite(RewriteOptions::default(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let store = open(&memory(), &[1]);
    fill(&store, 20);
    let done = all(&store);
    assert!(done.is_complete && done.progress.bytes == 0, "{done:?}");
}

/// What was put and acknowledged, and when.
#[derive(Default)]
struct History {
    states: Vec<State>,
    acknowledged: Vec<(usize, usize)>,
    /// (number of operations, place that was reported then)
    reported: Vec<(usize, RewritePlace)>,
}

impl History {
    fn change(&mut self, store: &Store, shelf: &CrashShelf, tree: TreeId, random: &mut fastrand::Rng) {
        let mut state = self.states.last().cloned().unwrap_or_default();
        let mut transaction = store.begin();
        let number = self.states.len().to_be_bytes().to_vec();
        transaction.put(tree, b"number", &number).expect("fits");
        state.insert(b"number".to_vec(), number);
        for _ in 0..random.usize(1..4) {
            let key = key(random.usize(..40));
            let most = [40, 900, 5000, 9000][random.usize(..4)];
            let value: Vec<u8> = (0..random.usize(1..most)).map(|_| random.u8(..)).collect();
            transaction.put(tree, &key, &value).expect("fits");
            state.insert(key, value);
        }
        self.states.push(state);
        transaction.commit().expect("the machine works");
        self.acknowledged.push((shelf.operations(), self.states.len()));
    }
}

fn on(shelf: &Arc<CrashShelf>) -> Places {
    let shelf: Arc<dyn Shelf> = shelf.clone();
    Places { journal: shelf.clone(), images: shelf.clone(), data: shelf }
}

/// Changes under the first key, then rewriting with changes beside it. Returns the number of operations when the second key was made.
fn live(shelf: &Arc<CrashShelf>, history: &mut History) -> usize {
    let random = &mut fastrand::Rng::with_seed(7);
    let store = open(&on(shelf), &[1]);
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    transaction.commit().expect("commits");
    for _ in 0..10 {
        history.change(&store, shelf, tree, random);
    }
    store.checkpoint().expect("writes in place");
    begin_data_key(&store, 2);
    let begun = shelf.operations();
    let mut calls = 0;
    let options = RewriteOptions { save_bytes: 16 << 10, ..RewriteOptions::default() };
    let done = store.rewrite(options, &mut |progress| {
        history.reported.extend(progress.place.clone().map(|place| (shelf.operations(), place)));
        calls += 1;
        if calls % 4 == 0 && calls < 20 {
            history.change(&store, shelf, tree, random);
        }
        ControlFlow::Continue(())
    });
    let done = done.expect("it is rewritten");
    assert!(done.is_complete && done.progress.renewed > 2 && done.progress.values > 2, "{done:?}");
    store.close().expect("closes");
    begun
}

fn recover(history: &History, point: usize, after: &Arc<CrashShelf>) -> Result<(), String> {
    let told = |error: StoreError| error.to_string();
    let places = on(after);
    let (store, _) = Store::open(places.clone(), options(&[1, 2])).map_err(told)?;
    let tree = store.snapshot().tree("t").map_err(told)?.ok_or("the tree is gone")?;
    let found = content(&store.snapshot(), tree);
    let acknowledged = history.acknowledged.iter().filter(|(when, _)| *when <= point).map(|(_, n)| *n).max();
    let number = found.get(b"number".as_slice()).ok_or("there is no number")?;
    let number = usize::from_be_bytes(number.as_slice().try_into().map_err(|_| "a damaged number")?) + 1;
    if number < acknowledged.unwrap_or(0) || history.states.get(number - 1) != Some(&found) {
        return Err(format!("commit {acknowledged:?} was acknowledged, found is another state behind {number}"));
    }
    // It goes on from what was reported last, as after a crash of a node.
    let from = history.reported.iter().rev().find(|(when, _)| *when <= point).map(|(_, place)| place.clone());
    let options = RewriteOptions { from, ..RewriteOptions::default() };
    let mut calls = 0;
    let done = store.rewrite(options, &mut |_| {
        calls += 1;
        if calls < 100_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    if !done.map_err(told)?.is_complete {
        return Err("it never ends".into());
    }
    store.close().map_err(told)?;
    needs_only(&places, 2, &found);
    Ok(())
}

#[test]
fn a_power_failure_at_any_point_of_a_rewrite_loses_nothing_and_what_goes_on_after_it_leaves_nothing_of_the_old_key() {
    let seed = seed(43);
    let shelf = Arc::new(CrashShelf::new(seed));
    let mut history = History::default();
    let begun = live(&shelf, &mut history);
    assert!(history.reported.len() > 5, "{} places", history.reported.len());
    let mut count = 0;
    for point in shelf.points().filter(|point| *point >= begun) {
        // A sixth of the images, others at each point: each of them is rewritten to its end.
        for image in shelf.images(point).skip(point % 6).step_by(6) {
            let after = Arc::new(image.shelf());
            recover(&history, point, &after).unwrap_or_else(|why| {
                let test = "rewrite::a_power_failure_at_any_point_of_a_rewrite_loses_nothing_and_what_goes_on_after_it_leaves_nothing_of_the_old_key";
                panic!("{image}: {why}\n{}", replay(seed, test))
            });
            count += 1;
        }
    }
    println!("{} operations, {count} images", shelf.operations());
    assert!(count > 100, "only {count} images");
}
