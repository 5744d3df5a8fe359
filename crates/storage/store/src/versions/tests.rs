//! Old versions under snapshots, limits and a model.

use super::*;

const TREE: TreeId = TreeId(5);

fn value(number: u8) -> Cell {
    Cell::Inline(Bytes::copy_from_slice(&[number]))
}

fn push(versions: &Versions, lsn: u64, key: &'static str, old: Option<Cell>) {
    let mut replaced = Replaced::at(lsn);
    versions.writer(TREE, &mut replaced).push(&Bytes::from_static(key.as_bytes()), old);
    versions.publish(replaced);
}

fn seen(versions: &Versions, key: &str, at: u64) -> Option<Option<u8>> {
    let found = versions.get(TREE, key.as_bytes(), at)?;
    Some(found.map(|stored| match stored {
        Cell::Inline(bytes) => bytes[0],
        other @ (Cell::Large(_) | Cell::Lost(_)) => panic!("{other:?}"),
    }))
}

#[test]
fn a_snapshot_sees_the_first_version_replaced_after_it() {
    let versions = Versions::default();
    push(&versions, 10, "a", None);
    push(&versions, 20, "a", Some(value(1)));
    push(&versions, 30, "a", Some(value(2)));
    assert_eq!(seen(&versions, "a", 5), Some(None));
    assert_eq!(seen(&versions, "a", 10), Some(Some(1)));
    assert_eq!(seen(&versions, "a", 29), Some(Some(2)));
    assert_eq!(seen(&versions, "a", 30), None);
    assert_eq!(seen(&versions, "b", 5), None);
    let range = versions.range(TREE, (Bound::Unbounded, Bound::Excluded(b"b")), 12);
    assert_eq!(range.len(), 1);
    assert!(versions.range(TREE, (Bound::Included(b"b"), Bound::Excluded(b"a")), 12).is_empty());
}

#[test]
fn what_no_snapshot_sees_is_dropped_and_the_rest_stays() {
    let versions = Versions::default();
    push(&versions, 10, "a", None);
    push(&versions, 20, "a", Some(value(1)));
    versions.collect(10, 20, u64::MAX);
    assert_eq!(seen(&versions, "a", 10), Some(Some(1)));
    assert!(!versions.is_too_old(10));
    versions.collect(20, 20, u64::MAX);
    assert_eq!(versions.size(), (0, 0));
}

#[test]
fn the_limit_ends_the_oldest_snapshot_and_no_other() {
    let versions = Versions::default();
    push(&versions, 10, "a", Some(value(0)));
    push(&versions, 20, "a", Some(value(1)));
    push(&versions, 30, "a", Some(value(2)));
    let limit = versions.size().0 / 2;
    versions.collect(5, 20, limit);
    assert!(versions.is_too_old(5) && versions.is_too_old(19));
    assert!(!versions.is_too_old(20), "what new snapshots see is kept, whatever the limit");
    assert_eq!(seen(&versions, "a", 20), Some(Some(2)));
}

#[test]
fn only_the_version_of_the_key_whose_change_failed_is_taken_back() {
    let versions = Versions::default();
    let (a, b) = (Bytes::from_static(b"a"), Bytes::from_static(b"b"));
    let mut replaced = Replaced::at(10);
    let mut replacing = versions.writer(TREE, &mut replaced);
    assert!(replacing.push(&a, Some(value(1))).is_none());
    let of_one = replacing.bytes();
    replacing.next_key();
    assert!(replacing.push(&b, Some(value(2))).is_none());
    replacing.take_back(&b);
    assert_eq!(replacing.bytes(), of_one);
    // Its change fails before anything is pushed.
    assert!(replacing.push(&b, Some(value(2))).is_none());
    let of_both = replacing.bytes();
    replacing.next_key();
    replacing.take_back(&a);
    assert_eq!(replacing.bytes(), of_both);
    assert_eq!((seen(&versions, "a", 5), seen(&versions, "b", 5)), (Some(Some(1)), Some(Some(2))));
    assert!(replacing.push(&Bytes::from_static(b"c"), None).is_none());
    let garbage = versions.let_go(replacing.replaced());
    assert!(garbage.trees.is_empty());
    replacing.take_back(b"c");
    assert_eq!(replacing.bytes(), 0, "nothing is kept any more");
}

#[test]
fn an_open_snapshot_is_the_oldest_until_it_is_dropped() {
    let snapshots = Arc::new(Snapshots::default());
    snapshots.publish(7);
    let held = snapshots.begin();
    snapshots.publish(9);
    assert_eq!((held.lsn(), snapshots.oldest(), snapshots.count()), (7, 7, (1, Some(7))));
    drop(held);
    assert_eq!((snapshots.oldest(), snapshots.count()), (9, (0, None)));
}

#[test]
fn versions_of_many_batches_are_what_a_model_says() {
    let seed = 0x7665_7273;
    let mut random = fastrand::Rng::with_seed(seed);
    let versions = Versions::default();
    let keys: Vec<Bytes> = (0..40).map(|key| Bytes::from(format!("k{key:02}"))).collect();
    // The value of each key after each batch.
    let mut history = vec![vec![None; keys.len()]];
    let mut oldest = 0;
    for batch in 1..200_u64 {
        let mut now = history.last().expect("one at least").clone();
        let mut replaced = Replaced::at(batch);
        {
            let mut replacing = versions.writer(TREE, &mut replaced);
            for (key, held) in keys.iter().zip(&mut now) {
                if random.u8(..4) > 0 {
                    continue;
                }
                replacing.push(key, held.map(value));
                *held = random.bool().then(|| random.u8(..));
            }
        }
        versions.publish(replaced);
        history.push(now);
        if random.u8(..30) == 0 {
            oldest = random.u64(oldest..=batch);
            versions.collect(oldest, batch, u64::MAX);
        }
        let at = random.u64(oldest..=batch);
        let (now, then) = (&history[batch as usize], &history[at as usize]);
        let key = random.usize(..keys.len());
        let name = std::str::from_utf8(&keys[key]).expect("text");
        assert_eq!(seen(&versions, name, at).unwrap_or(now[key]), then[key], "seed {seed} batch {batch} at {at}");
        let mut found = now.clone();
        for (key, old) in versions.range(TREE, (Bound::Unbounded, Bound::Unbounded), at) {
            let place = keys.binary_search(&key).expect("known");
            found[place] = old.map(|old| match old {
                Cell::Inline(bytes) => bytes[0],
                other @ (Cell::Large(_) | Cell::Lost(_)) => panic!("{other:?}"),
            });
        }
        assert_eq!(found, *then, "seed {seed} batch {batch} at {at}");
    }
    versions.collect(200, 200, u64::MAX);
    assert_eq!(versions.size(), (0, 0));
}
