//! The shape of trees after certain changes, and what they refuse.

use super::*;

fn tree(page_bytes: usize) -> (MemoryPages, Tree) {
    let pages = MemoryPages::new(page_bytes);
    let tree = Tree::create(&pages, ID, Lsn(1)).expect("room");
    (pages, tree)
}

#[test]
fn ascending_keys_leave_full_leaves_and_full_nodes() {
    for (name, key) in [
        ("of one tree", (|at| format!("{at:09}")) as fn(u32) -> String),
        ("of three runs", |at| format!("{}/{at:09}", at % 3)),
    ] {
        let (pages, tree) = tree(4096);
        let mut keys: Vec<String> = (0..60_000).map(key).collect();
        // Each run separately, so that two of them end before keys that exist.
        keys.sort_by_key(|key| (key.starts_with("1/"), key.clone()));
        let mut writer = tree.writer(&pages);
        for key in &keys {
            writer.put(key.as_bytes(), b"0123456789", Lsn(2)).expect("room");
        }
        let report = sound(tree, &pages);

        let full = report.leaf_bytes_used as f64 / (report.leaves * 4096) as f64;
        assert!(full > 0.95, "keys {name}: leaves are {full:.2} full");
        assert!(report.inners <= 2 + report.leaves / 100, "keys {name}: {report:?}");
    }
}

#[test]
fn random_keys_leave_leaves_more_than_half_full() {
    let (pages, tree) = tree(4096);
    let mut rng = fastrand::Rng::with_seed(5);
    let mut writer = tree.writer(&pages);
    for _ in 0..30_000 {
        writer.put(&rng.u64(..).to_be_bytes(), &[1; 30], Lsn(2)).expect("room");
    }
    let report = sound(tree, &pages);
    let full = report.leaf_bytes_used as f64 / (report.leaves * 4096) as f64;
    assert!(full > 0.6, "leaves are {full:.2} full: {report:?}");
}

#[test]
fn a_queue_whose_front_is_deleted_stays_small() {
    let (pages, tree) = tree(4096);
    let mut writer = tree.writer(&pages);
    for at in 0..50_000u32 {
        writer.put(format!("queue/{at:08}").as_bytes(), &[2; 50], Lsn(3)).expect("room");
        if at >= 500 {
            let old = writer.delete(format!("queue/{:08}", at - 500).as_bytes(), Lsn(3)).expect("sound");
            assert!(old.is_some());
        }
    }
    let report = sound(tree, &pages);
    assert_eq!(report.cells, 500);
    assert!(report.leaves <= 14 && report.inners <= 3, "{report:?}");
}

#[test]
fn deleting_everything_leaves_a_root_and_an_empty_leaf_or_two() {
    let (pages, tree) = tree(4096);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut writer = tree.writer(&pages);
        (0..20_000u32).for_each(|at| drop(writer.put(&at.to_be_bytes(), &[0; 200], Lsn(1)).expect("room")));
        assert!(sound(tree, &pages).height >= 3);
        for at in 0..20_000u32 {
            let at = if direction == Direction::Forward { at } else { 19_999 - at };
            assert!(writer.delete(&at.to_be_bytes(), Lsn(2)).expect("sound").is_some());
        }
        let report = sound(tree, &pages);
        assert!((report.cells, report.height) == (0, 2) && report.leaves <= 2, "{report:?}");
    }
}

#[test]
fn the_writer_is_told_the_old_cell_before_a_reader_can_see_the_new_one() {
    let (pages, tree) = tree(8192);
    let mut writer = tree.writer(&pages);
    let long = vec![3; 3 << 20];
    for (value, old) in [(&b"one"[..], None), (&long, Some(&b"one"[..])), (b"", Some(&long)), (b"two", Some(b""))] {
        let mut kept = None;
        writer
            .change(b"key", Some(NewValue::Bytes(value)), Lsn(1), |stored| kept = stored.and_then(Stored::to_cell))
            .expect("room");
        assert_eq!(kept.as_ref().map(|cell| cell.read(&pages).expect("sound")).as_deref(), old);
        kept.iter().for_each(|cell| cell.free(&pages));
    }
    assert_eq!(writer.delete(b"key", Lsn(2)).expect("sound"), Some(Cell::Inline("two".into())));
    assert_eq!(writer.delete(b"key", Lsn(2)).expect("sound"), None);
    sound(tree, &pages);
}

#[test]
fn a_value_is_inline_below_half_a_page_and_one_extent_is_read_without_a_copy() {
    // In the smallest pages the longest fences leave less space.
    for (page_bytes, inline) in [(4 << 10, 1995), (8 << 10, 4095), (64 << 10, 32_767)] {
        let (pages, tree) = tree(page_bytes);
        let mut writer = tree.writer(&pages);
        for (bytes, extents) in
            [(inline, 0), (inline + 1, 1), (crate::page::EXTENT_BYTES_MAX, 1), (crate::page::EXTENT_BYTES_MAX + 1, 2)]
        {
            writer.put(b"key", &vec![8; bytes], Lsn(5)).expect("room").iter().for_each(|old| old.free(&pages));
            assert_eq!(sound(tree, &pages).extents, extents, "{bytes} bytes in pages of {page_bytes}");
            let (cell, lsn) = tree.get(&pages, b"key").expect("sound");
            let cell = cell.expect("just put");
            assert_eq!((cell.value_bytes(0), lsn), (bytes, Lsn(5)));
            if extents == 1 {
                let (one, two) = (cell.read(&pages).expect("sound"), cell.read(&pages).expect("sound"));
                assert_eq!(one.as_ptr(), two.as_ptr(), "the same bytes");
            }
        }
        let extents = store_value(&pages, &vec![1; 5000]).expect("room");
        let old = writer.change(b"key", Some(NewValue::Extents(&extents)), Lsn(6), |old| {
            old.and_then(Stored::to_cell).iter().for_each(|old| old.free(&pages));
        });
        old.expect("room");
        assert_eq!(sound(tree, &pages).extent_bytes, 5000);
    }
}

#[test]
fn keys_and_values_out_of_range_are_refused_and_change_nothing() {
    let (pages, tree) = tree(4096);
    let mut writer = tree.writer(&pages);
    writer.put(&[1; 1024], &[1; 1024], Lsn(1)).expect("the longest key");
    let too_long = vec![0; VALUE_BYTES_MAX + 1];
    for (key, value) in [(&[][..], &[][..]), (&[1; 1025], &[]), (b"key", &too_long)] {
        assert!(matches!(writer.put(key, value, Lsn(2)), Err(StoreError::Refused(_))), "{} bytes", key.len());
    }
    let none = writer.change(b"key", Some(NewValue::Extents(&[])), Lsn(2), |_| panic!("nothing is replaced"));
    assert!(matches!(none, Err(StoreError::Refused(_))));
    assert_eq!(sound(tree, &pages).cells, 1);
}

#[test]
fn a_full_medium_leaves_the_tree_as_it_was_and_is_no_end() {
    for room in 0..40 {
        let (pages, tree) = tree(4096);
        let mut writer = tree.writer(&pages);
        pages.limit(room);
        let mut model = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(room as u64);
        for at in 0..3000 {
            let mut key = vec![rng.u8(..); 1 + rng.usize(..1000)];
            key.extend_from_slice(&rng.u16(..).to_be_bytes());
            let value = vec![at as u8; rng.usize(..1500)];
            match writer.put(&key, &value, Lsn(at)) {
                Ok(old) => {
                    old.iter().for_each(|old| old.free(&pages));
                    model.insert(key, value);
                }
                Err(StoreError::Full(_)) => break,
                Err(other) => panic!("{other}"),
            }
        }
        sound(tree, &pages);
        equal(tree, &pages, &model);
        if let Some((key, _)) = model.pop_first() {
            writer.delete(&key, Lsn(9)).expect("sound").iter().for_each(|old| old.free(&pages));
        }
        equal(tree, &pages, &model);
    }
}
