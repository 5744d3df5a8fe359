//! Tests of one caller: transactions, savepoints, cursors, trees, service records, reopening.

use std::ops::Bound;
use std::sync::Arc;

use device::{FaultyShelf, MemoryShelf, Shelf};
use store::{
    Changes, Direction, Foreign, Interpreter, KEY_BYTES_MAX, Options, Store, StoreError, TreeId, VALUE_BYTES_MAX,
};

use crate::support::{all, get, memory, open_with_tree, places, put, small, walk, with_tree};

#[test]
fn a_transaction_reads_its_own_changes_and_others_see_them_after_commit() {
    let (store, tree) = with_tree(small());
    let before = store.snapshot();
    let mut transaction = store.begin();
    transaction.put(tree, b"a", b"1").expect("fits");
    transaction.put(tree, b"b", b"2").expect("fits");
    transaction.delete(tree, b"b").expect("fits");
    assert_eq!(transaction.get(tree, b"a").expect("reads").as_deref(), Some(&b"1"[..]));
    assert_eq!(transaction.get(tree, b"b").expect("reads"), None);
    assert_eq!(get(&store.snapshot(), tree, "a"), None, "nobody else before commit");
    let lsn = transaction.commit().expect("commits");
    assert!(store.durable() > lsn, "durable when commit returns");
    assert_eq!(get(&store.snapshot(), tree, "a").as_deref(), Some("1"));
    assert_eq!(get(&before, tree, "a"), None, "an older snapshot stays what it was");
}

#[test]
fn the_second_of_two_that_change_a_key_is_refused_and_leaves_nothing() {
    let (store, tree) = with_tree(small());
    put(&store, tree, "a", "0");
    let (mut first, mut second) = (store.begin(), store.begin());
    first.put(tree, b"a", b"1").expect("fits");
    second.put(tree, b"a", b"2").expect("fits");
    second.put(tree, b"b", b"2").expect("fits");
    first.commit().expect("is first");
    assert!(matches!(second.commit(), Err(StoreError::Conflict)));
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
}

#[test]
fn a_transaction_that_renews_its_snapshot_sees_what_others_committed_and_conflicts_with_what_they_changed_of_its_own() {
    let (store, tree) = with_tree(small());
    put(&store, tree, "a", "0");
    let mut transaction = store.begin();
    transaction.put(tree, b"b", b"1").expect("fits");
    let savepoint = transaction.savepoint();
    transaction.put(tree, b"c", b"1").expect("fits");
    put(&store, tree, "a", "2");
    assert!(!transaction.is_current(tree, b"a") && transaction.is_current(tree, b"b"));
    transaction.renew().expect("nobody else changed b or c");
    assert!(transaction.is_current(tree, b"a"));
    let seen = |transaction: &store::Transaction, key: &[u8]| transaction.get(tree, key).expect("reads");
    assert_eq!(seen(&transaction, b"a").as_deref(), Some(&b"2"[..]));
    assert_eq!(seen(&transaction, b"c").as_deref(), Some(&b"1"[..]));
    put(&store, tree, "c", "3");
    assert!(matches!(transaction.renew(), Err(StoreError::Conflict)));
    assert_eq!(seen(&transaction, b"a").as_deref(), Some(&b"2"[..]), "its snapshot is the one before");
    transaction.rollback_to(savepoint);
    transaction.renew().expect("it has not changed c");
    transaction.release(savepoint);
    transaction.commit().expect("commits");
    assert_eq!(all(&store.snapshot(), tree), ["a=2", "b=1", "c=3"]);
    // What was committed before a renewal is not compared again.
    let mut transaction = store.begin();
    put(&store, tree, "a", "4");
    transaction.renew().expect("it has changed nothing");
    transaction.put(tree, b"a", b"5").expect("fits");
    transaction.commit().expect("commits");
    assert_eq!(get(&store.snapshot(), tree, "a").as_deref(), Some("5"));
}

#[test]
fn keys_that_count_as_changed_conflict_as_if_they_were_and_stay_what_they_are() {
    let (store, tree) = with_tree(small());
    let counting = || {
        let mut transaction = store.begin();
        transaction.put(tree, b"bulk", b"1").expect("fits");
        transaction.count_as_changed(tree, [&b"b"[..], &b"a"[..]]);
        transaction
    };
    let changing = |key: &[u8]| {
        let mut transaction = store.begin();
        transaction.put(tree, key, b"2").expect("fits");
        transaction
    };
    for key in [&b"a"[..], b"b"] {
        let (counts, changes, other) = (counting(), changing(key), changing(b"c"));
        counts.commit().expect("is first");
        assert!(matches!(changes.commit(), Err(StoreError::Conflict)));
        other.commit().expect("changes another key");
        let (counts, changes) = (counting(), changing(key));
        changes.commit().expect("is first");
        assert!(matches!(counts.commit(), Err(StoreError::Conflict)));
    }
    let mut going_back = store.begin();
    let savepoint = going_back.savepoint();
    going_back.count_as_changed(tree, [&b"z"[..]]);
    going_back.rollback_to(savepoint);
    going_back.commit().expect("it changed nothing");
    assert_eq!(all(&store.snapshot(), tree), ["a=2", "b=2", "bulk=1", "c=2"]);
}

#[test]
fn a_list_of_keys_is_as_current_as_each_of_them() {
    let (store, tree) = with_tree(small());
    put(&store, tree, "a", "0");
    let transaction = store.begin();
    let keys = [&b"a"[..], b"b", b"c"].map(|key| (tree, key));
    assert_eq!(transaction.are_current(keys), [true; 3], "before another commit");
    put(&store, tree, "b", "1");
    assert_eq!(transaction.are_current(keys), [true, false, true]);
    assert_eq!(keys.map(|(tree, key)| transaction.is_current(tree, key)), [true, false, true]);
}

#[test]
fn keys_that_counted_as_changed_before_a_rollback_to_a_savepoint_conflict_no_more() {
    for (undone, renews) in [(true, true), (true, false), (false, true), (false, false)] {
        let (store, tree) = with_tree(small());
        let mut transaction = store.begin();
        transaction.put(tree, b"own", b"1").expect("fits");
        transaction.count_as_changed(tree, [&b"kept"[..]]);
        let first = transaction.savepoint();
        transaction.count_as_changed(tree, [&b"z"[..], &b"y"[..]]);
        let second = transaction.savepoint();
        transaction.count_as_changed(tree, [&b"x"[..]]);
        if undone {
            transaction.rollback_to(first);
        } else {
            transaction.release(second);
            transaction.rollback_to(first);
            transaction.count_as_changed(tree, [&b"z"[..]]);
        }
        put(&store, tree, "x", "2");
        put(&store, tree, "z", "2");
        let outcome = match renews {
            true => transaction.renew(),
            false => transaction.commit().map(|_| ()),
        };
        assert_eq!(outcome.is_ok(), undone, "renews: {renews}");
        let mut kept = store.begin();
        kept.count_as_changed(tree, [&b"kept"[..]]);
        kept.put(tree, b"other", b"1").expect("fits");
        let savepoint = kept.savepoint();
        kept.rollback_to(savepoint);
        put(&store, tree, "kept", "2");
        assert!(matches!(kept.commit(), Err(StoreError::Conflict)), "what was counted before stays");
    }
}

#[test]
fn going_back_to_a_savepoint_undoes_what_came_after_and_nothing_else() {
    let (store, tree) = with_tree(small());
    put(&store, tree, "a", "0");
    let mut transaction = store.begin();
    transaction.put(tree, b"b", b"1").expect("fits");
    let first = transaction.savepoint();
    transaction.put(tree, b"b", b"2").expect("fits");
    transaction.delete(tree, b"a").expect("fits");
    let second = transaction.savepoint();
    transaction.put(tree, b"c", b"3").expect("fits");
    transaction.rollback_to(second);
    assert_eq!(transaction.get(tree, b"c").expect("reads"), None);
    assert_eq!(transaction.get(tree, b"a").expect("reads"), None);
    transaction.rollback_to(first);
    transaction.put(tree, b"d", b"4").expect("fits");
    transaction.rollback_to(first);
    transaction.commit().expect("commits");
    assert_eq!(all(&store.snapshot(), tree), ["a=0", "b=1"]);
}

#[test]
fn a_cursor_merges_snapshot_and_changes_in_both_directions() {
    let (store, tree) = with_tree(small());
    for key in 0..500 {
        put(&store, tree, &format!("k{key:04}"), "old");
    }
    let mut transaction = store.begin();
    for key in (0..500).step_by(3) {
        transaction.delete(tree, format!("k{key:04}").as_bytes()).expect("fits");
    }
    for key in (1..600).step_by(3) {
        transaction.put(tree, format!("k{key:04}").as_bytes(), b"new").expect("fits");
    }
    // Other transactions change the same leaves after the snapshot.
    put(&store, tree, "k0002", "later");
    put(&store, tree, "k0002x", "later");
    let expected: Vec<String> = (0..600)
        .filter_map(|key| match key % 3 {
            1 => Some(format!("k{key:04}=new")),
            2 if key < 500 => Some(format!("k{key:04}=old")),
            _ => None,
        })
        .collect();
    let everything = (Bound::Unbounded, Bound::Unbounded);
    let found = walk(transaction.scan(tree, everything.0, everything.1, Direction::Forward)).expect("reads");
    assert_eq!(found, expected);
    let mut found = walk(transaction.scan(tree, everything.0, everything.1, Direction::Backward)).expect("reads");
    found.reverse();
    assert_eq!(found, expected);
    let (from, to) = (Bound::Excluded(&b"k0100"[..]), Bound::Included(&b"k0107"[..]));
    let part: Vec<&String> =
        expected.iter().filter(|entry| "k0100~" < entry.as_str() && entry[..5] <= *"k0107").collect();
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found = walk(transaction.scan(tree, from, to, direction)).expect("reads");
        if direction == Direction::Backward {
            found.reverse();
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), part, "{direction:?}");
    }
    let nothing = walk(transaction.scan(tree, to, from, Direction::Forward)).expect("reads");
    assert!(nothing.is_empty());
}

#[test]
fn a_dropped_tree_is_gone_for_new_snapshots_and_stays_for_old_ones() {
    let (store, tree) = with_tree(small());
    put(&store, tree, "a", "1");
    let before = store.snapshot();
    let mut writer = store.begin();
    writer.put(tree, b"b", b"2").expect("fits");
    let mut transaction = store.begin();
    transaction.drop_tree("t").expect("is there");
    assert!(transaction.put(tree, b"c", b"3").is_err());
    assert_eq!(transaction.get(tree, b"a").expect("reads"), None);
    transaction.commit().expect("commits");
    assert!(matches!(writer.commit(), Err(StoreError::Conflict)), "it wrote to a tree that is gone");
    assert_eq!(store.snapshot().tree("t").expect("reads"), None);
    assert_eq!(all(&before, tree), ["a=1"]);
    let mut again = store.begin();
    let second = again.create_tree("t").expect("the name is free");
    again.commit().expect("commits");
    assert_ne!(second, tree);
    assert!(all(&store.snapshot(), second).is_empty());
    let names: Vec<String> = store.snapshot().trees().expect("reads").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["t"]);
}

#[test]
fn a_tree_that_was_dropped_or_never_made_takes_nothing_and_shows_nothing() {
    let places = memory();
    let (store, tree) = crate::support::open_with_tree(&places, &small());
    put(&store, tree, "a", "1");
    let before = store.snapshot();
    let mut transaction = store.begin();
    transaction.drop_tree("t").expect("is there");
    transaction.commit().expect("commits");
    assert!(all(&store.snapshot(), tree).is_empty() && get(&store.snapshot(), tree, "a").is_none());
    let mut late = store.begin();
    late.put(tree, b"b", b"2").expect("is looked at when it commits");
    assert!(matches!(late.commit(), Err(StoreError::Refused(_))), "it would be lost with the tree");
    assert_eq!(all(&before, tree), ["a=1"]);
    let mut other = store.begin();
    let never = other.create_tree("never").expect("is new");
    other.rollback();
    drop(before);
    // The pages of dropped trees are reclaimed after this.
    let mut transaction = store.begin();
    let made = transaction.create_tree("u").expect("is new");
    transaction.put(made, b"a", b"1").expect("its own tree");
    transaction.commit().expect("commits");
    for gone in [tree, never] {
        let mut late = store.begin();
        late.put(gone, b"b", b"2").expect("is looked at when it commits");
        assert!(matches!(late.commit(), Err(StoreError::Refused(_))), "tree {}", gone.0);
    }
    drop(store);
    let (store, _) = Store::open(places, small()).expect("opens");
    let mut late = store.begin();
    late.put(tree, b"b", b"2").expect("is looked at when it commits");
    assert!(matches!(late.commit(), Err(StoreError::Refused(_))));
    put(&store, made, "b", "2");
    assert_eq!(all(&store.snapshot(), made), ["a=1", "b=2"]);
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    let (store, tree) = with_tree(small());
    let mut transaction = store.begin();
    assert!(matches!(transaction.put(tree, b"", b"1"), Err(StoreError::Refused(_))));
    assert!(matches!(transaction.put(tree, &[7; KEY_BYTES_MAX + 1], b"1"), Err(StoreError::Refused(_))));
    transaction.put(tree, &[7; KEY_BYTES_MAX], &vec![8; 3 << 20]).expect("fits");
    transaction.commit().expect("commits");
    let value = store.snapshot().get(tree, &[7; KEY_BYTES_MAX]).expect("reads").expect("is there");
    assert!(value.len() == 3 << 20 && value.iter().all(|byte| *byte == 8));
}

/// Record kind 3: `key=value` pairs. Each is also stored under its value in a second tree.
struct Pairs;

impl Interpreter for Pairs {
    fn trees(&self) -> Vec<String> {
        vec!["pairs".into(), "by value".into()]
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let text = std::str::from_utf8(record.payload).map_err(|_| StoreError::Corrupt("no text".into()))?;
        for (key, value) in text.split(' ').filter_map(|pair| pair.split_once('=')) {
            changes.put(trees[0], key.to_owned(), value.to_owned());
            changes.put(trees[1], value.to_owned(), key.to_owned());
        }
        Ok(())
    }
}

fn interpreted() -> Options {
    Options { interpreter: Some(Arc::new(Pairs)), ..small() }
}

#[test]
fn services_records_become_rows_and_survive_reopening() {
    let places = memory();
    let (store, _) = Store::open(places.clone(), interpreted()).expect("opens");
    let trees = store.interpreted().to_vec();
    let lsn = store.append(3, &b"a=1 b=2"[..]).expect("appends");
    assert!(all(&store.snapshot(), trees[0]).is_empty(), "not durable, not visible");
    store.wait_visible(lsn).expect("applies");
    assert_eq!(all(&store.snapshot(), trees[0]), ["a=1", "b=2"]);
    let mut stale = store.begin();
    stale.delete(trees[0], b"a").expect("fits");
    let lsn = store.append(3, &b"a=3"[..]).expect("appends");
    assert!(matches!(stale.commit(), Err(StoreError::Conflict)), "a record changed the row after the snapshot");
    store.commit(lsn).expect("commits");
    assert_eq!(all(&store.snapshot(), trees[1]), ["1=a", "2=b", "3=a"]);
    drop(store);
    let (store, opened) = Store::open(places, interpreted()).expect("opens");
    assert!(opened.records >= 2 || opened.applied_from > lsn);
    assert_eq!(store.interpreted(), trees);
    assert_eq!(store.snapshot().tree("by value").expect("reads"), Some(trees[1]));
    assert_eq!(all(&store.snapshot(), trees[0]), ["a=3", "b=2"]);
    let mut transaction = store.begin();
    assert!(matches!(transaction.drop_tree("pairs"), Err(StoreError::Refused(_))));
    assert!(transaction.create_tree("t").expect("is new").0 > trees[1].0);
}

/// Record kind 4: a tree, bytes of a key and bytes of a value, as text. Applying it makes such a row.
struct Sized;

impl Interpreter for Sized {
    fn trees(&self) -> Vec<String> {
        vec!["sized".into()]
    }

    fn apply(&self, record: &Foreign<'_>, trees: &[TreeId], changes: &mut Changes) -> Result<(), StoreError> {
        let text = std::str::from_utf8(record.payload).map_err(|_| StoreError::Corrupt("no text".into()))?;
        let numbers: Vec<usize> = text.split(' ').filter_map(|number| number.parse().ok()).collect();
        let [tree, key, value] = numbers[..] else { return Err(StoreError::Corrupt("no three numbers".into())) };
        let tree = TreeId(trees[0].0 + tree as u32);
        match value {
            0 => changes.delete(tree, vec![b'k'; key]),
            bytes => changes.put(tree, vec![b'k'; key], vec![b'v'; bytes]),
        }
        Ok(())
    }
}

#[test]
fn what_a_tree_would_not_take_is_refused_before_it_is_durable() {
    let journal = journal::Options { max_record_bytes: 128 << 20, ..small().journal };
    let options = Options { journal, interpreter: Some(Arc::new(Sized)), ..small() };
    let places = memory();
    let (store, tree) = crate::support::open_with_tree(&places, &options);
    let begin = store.appended();
    let mut transaction = store.begin();
    let too_long = vec![0; VALUE_BYTES_MAX + 1];
    assert!(matches!(transaction.put(tree, b"k", &too_long), Err(StoreError::Refused(_))));
    drop(transaction);
    for record in ["0 0 1", "0 1025 1", "0 0 0", "0 1025 0", "0 1 67108865", "1 1 1", "text"] {
        let outcome = store.append(4, record);
        assert!(matches!(outcome, Err(StoreError::Refused(_))), "{record}: {outcome:?}");
    }
    assert_eq!(store.appended(), begin, "nothing was appended");
    let last = ["0 1 1", "0 1024 67108864", "0 1 0"].map(|record| store.append(4, record).expect(record));
    store.wait_visible(last[2]).expect("applies");
    let rows = store.interpreted()[0];
    let check = |store: &Store| {
        let found = store.snapshot().get(rows, &[b'k'; KEY_BYTES_MAX]).expect("reads").expect("is there");
        assert_eq!(found.len(), VALUE_BYTES_MAX);
    };
    check(&store);
    drop(store);
    check(&Store::open(places, options).expect("opens").0);
}

#[test]
fn on_data_devices_of_any_size_the_longest_value_is_stored_and_a_longer_one_refused() {
    for (page_bytes, device_bytes) in [(4096, 256 << 10), (8192, 512 << 10), (16384, 1 << 20), (65536, 4 << 20)] {
        let journal = journal::Options { max_record_bytes: 128 << 20, ..small().journal };
        let interpreter: Option<Arc<dyn Interpreter>> = Some(Arc::new(Sized));
        let options = Options {
            journal,
            interpreter,
            page_bytes,
            data_device_bytes: device_bytes,
            cache_bytes: 4 << 20,
            ..small()
        };
        let places = memory();
        let (store, tree) = crate::support::open_with_tree(&places, &options);
        let longest = store.value_bytes_max();
        assert_eq!(longest as u64, VALUE_BYTES_MAX.min(32 * device_bytes as usize) as u64);
        let mut transaction = store.begin();
        assert!(matches!(transaction.put(tree, b"k", &vec![7; longest + 1]), Err(StoreError::Refused(_))));
        transaction.put(tree, b"k", &vec![7; longest]).expect("it is taken");
        transaction.commit().expect("commits");
        let record = |bytes: usize| store.append(4, format!("0 1024 {bytes}"));
        assert!(matches!(record(longest + 1), Err(StoreError::Refused(_))));
        let last = record(longest).expect("it is taken");
        store.wait_visible(last).expect("it is applied");
        assert_eq!(store.poisoned(), None);
        let rows = store.interpreted()[0];
        store.close().expect("closes");
        let (store, _) = Store::open(places, options).expect("opens");
        let length = |tree, key: &[u8]| store.snapshot().get(tree, key).expect("reads").map(|value| value.len());
        assert_eq!(length(tree, b"k"), Some(longest));
        assert_eq!(length(rows, &[b'k'; KEY_BYTES_MAX]), Some(longest));
    }
}

#[test]
fn what_was_committed_is_there_after_reopening_and_ids_are_not_used_twice() {
    let places = memory();
    let (store, _) = Store::open(places.clone(), small()).expect("opens");
    let mut transaction = store.begin();
    let (tree, other) = (transaction.create_tree("t").expect("new"), transaction.create_tree("u").expect("new"));
    transaction.put(tree, b"a", b"1").expect("fits");
    transaction.commit().expect("commits");
    let mut transaction = store.begin();
    transaction.drop_tree("u").expect("is there");
    transaction.commit().expect("commits");
    let mut open = store.begin();
    open.put(tree, b"b", b"2").expect("fits");
    drop(open);
    drop(store);
    let (store, _) = Store::open(places, small()).expect("opens");
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
    assert!(store.begin().create_tree("v").expect("new").0 > other.0);
}

#[test]
fn after_a_failed_flush_the_store_is_poisoned_and_reads_go_on() {
    let memory: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let shelf = Arc::new(FaultyShelf::new(memory.clone()));
    let (store, _) = Store::open(places(&(shelf.clone() as Arc<dyn Shelf>)), small()).expect("opens");
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("new");
    transaction.put(tree, b"a", b"1").expect("fits");
    transaction.commit().expect("commits");
    crate::support::fail_flushes(&shelf);
    let mut transaction = store.begin();
    transaction.put(tree, b"a", b"2").expect("fits");
    assert!(matches!(transaction.commit(), Err(StoreError::Poisoned { .. })));
    assert!(store.poisoned().is_some());
    assert_eq!(all(&store.snapshot(), tree), ["a=1"]);
    let mut transaction = store.begin();
    transaction.put(tree, b"b", b"2").expect("fits");
    assert!(matches!(transaction.commit(), Err(StoreError::Poisoned { .. })));
    assert!(matches!(store.append(1, &b"x"[..]), Err(StoreError::Poisoned { .. })));
}

#[test]
fn a_full_journal_refuses_the_transaction_and_takes_it_once_there_is_room() {
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let places = store::Places { journal: shelf.clone(), ..memory() };
    let (store, tree) = crate::support::open_with_tree(&places, &small());
    shelf.inject(device::faulty::Rule::from(device::Operation::Create, 1, device::faulty::Fault::NoSpace));
    let value = "v".repeat(10_000);
    let commit = |number: u32| {
        let mut transaction = store.begin();
        transaction.put(tree, format!("k{number:03}").as_bytes(), value.as_bytes()).expect("fits");
        transaction.commit()
    };
    let refused = (0..100).find_map(|number| commit(number).err().map(|error| (number, error)));
    let Some((number, StoreError::Full(_))) = refused else { panic!("{refused:?}") };
    assert!(store.poisoned().is_none(), "full is not poisoned");
    assert_eq!(all(&store.snapshot(), tree).len(), number as usize);
    shelf.heal();
    commit(number).expect("there is room again");
    assert_eq!(all(&store.snapshot(), tree).len(), number as usize + 1);
}

#[test]
fn a_closed_store_writes_nothing_beside_the_one_that_was_opened_after_it() {
    let (places, options) = (memory(), small());
    let (old, tree) = open_with_tree(&places, &options);
    put(&old, tree, "a", "1");
    let (lingering, mut open) = (old.clone(), old.begin());
    open.put(tree, b"late", b"1").expect("fits");
    let before = old.snapshot();
    old.close().expect("closes");
    let (new, _) = Store::open(places.clone(), options.clone()).expect("opens beside the closed one");
    put(&new, tree, "b", "2");
    assert!(matches!(open.commit(), Err(StoreError::Refused(_))));
    assert!(matches!(lingering.checkpoint(), Err(StoreError::Refused(_))));
    assert_eq!(all(&before, tree), ["a=1"], "what it had can be read");
    drop((before, lingering));
    put(&new, tree, "c", "3");
    drop(new);
    let (again, _) = Store::open(places, options).expect("opens");
    assert_eq!(all(&again.snapshot(), tree), ["a=1", "b=2", "c=3"]);
}

#[test]
fn committers_beside_closing_are_answered_and_what_they_are_told_is_so() {
    for round in 0..30 {
        let (places, options) = (memory(), small());
        let (store, tree) = open_with_tree(&places, &options);
        let committer = |thread: u32| {
            let store = store.clone();
            std::thread::spawn(move || {
                for number in 0u32.. {
                    let key = format!("{thread:02}-{number:06}");
                    let mut transaction = store.begin();
                    transaction.put(tree, key.as_bytes(), b"x").expect("fits");
                    match transaction.commit() {
                        Ok(_) => {}
                        Err(StoreError::Refused(_)) => return number,
                        Err(error) => panic!("{error}"),
                    }
                }
                unreachable!("it is closed some time")
            })
        };
        let committers: Vec<_> = (0..12).map(committer).collect();
        std::thread::sleep(std::time::Duration::from_millis(3));
        store.close().expect("closes");
        let told: Vec<u32> = committers.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        let (again, _) = Store::open(places, options).expect("opens");
        let found = all(&again.snapshot(), tree);
        assert_eq!(found.len() as u32, told.iter().sum::<u32>(), "round {round}: {told:?}");
        for (thread, told) in told.iter().enumerate() {
            let last = format!("{thread:02}-{:06}=x", told.saturating_sub(1));
            assert!(*told == 0 || found.contains(&last), "round {round}: {last} is lost");
        }
    }
}
