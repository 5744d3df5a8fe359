//! Damage never causes a panic or an endless loop: whatever bytes pages contain, every way of reading and changing them
//! returns.

use super::*;

fn grown(rng: &mut fastrand::Rng, page_bytes: usize) -> (MemoryPages, Tree, Vec<Visited>) {
    let pages = MemoryPages::new(page_bytes);
    let tree = Tree::create(&pages, ID, Lsn(1)).expect("room");
    let mut writer = tree.writer(&pages);
    for at in 0..600 {
        let mut key = if at % 2 == 0 { vec![b'k'; 300] } else { Vec::new() };
        key.extend_from_slice(&rng.u32(..3000).to_be_bytes());
        key.extend_from_slice(&vec![7; rng.usize(..40)]);
        let bytes = if at % 50 == 0 { page_bytes } else { rng.usize(..200) };
        writer.put(&key, &vec![5; bytes], Lsn(at)).expect("room");
    }
    let mut visited = Vec::new();
    tree.check(&pages, |one| visited.push(one)).expect("memory does not fail");
    (pages, tree, visited)
}

/// Changes a few bytes, preferably of headers, fences and slots.
fn mutate(rng: &mut fastrand::Rng, page: &mut [u8]) {
    for _ in 0..rng.usize(1..4) {
        let at = match rng.u8(..4) {
            0 => rng.usize(4..32),
            1 => rng.usize(32..400),
            2 => rng.usize(12..16),
            _ => rng.usize(..page.len()),
        };
        match rng.u8(..4) {
            0 => page[at] ^= 1 << rng.u8(..8),
            1 => page[at] = [0, 1, 0x7f, 0x80, 0xff][rng.usize(..5)],
            2 => page[at] = rng.u8(..),
            _ => {
                let from = rng.usize(..page.len());
                let bytes = rng.usize(..16).min(page.len() - from.max(at));
                page.copy_within(from..from + bytes, at);
            }
        }
    }
}

fn walk(tree: Tree, pages: &MemoryPages, direction: Direction, leaves: usize) -> Result<(), StoreError> {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for _ in 0..=leaves {
        let block = tree.leaf_block(pages, &from, &to, direction)?;
        for at in 0..block.len() {
            block.cell(at)?.read(pages)?;
        }
        let end = if direction == Direction::Forward { &block.high } else { &block.low };
        if end.is_empty() {
            return Ok(());
        }
        if direction == Direction::Forward { from = end.to_vec() } else { to = end.to_vec() }
    }
    panic!("a walk sees no leaf twice");
}

/// Deletes one key after the other until nothing is left or a call is refused.
fn empty(tree: Tree, pages: &MemoryPages) -> Result<(), StoreError> {
    let mut writer = tree.writer(pages);
    for at in 0..3000u32 {
        for prefix in [vec![b'k'; 300], Vec::new()] {
            let key = [prefix, at.to_be_bytes().to_vec()].concat();
            let end = [key.clone(), vec![0xff]].concat();
            let block = tree.leaf_block(pages, &key, &end, Direction::Forward)?;
            for at in 0..block.len() {
                writer.delete(block.key(at), Lsn(9))?;
            }
        }
    }
    Ok(())
}

fn use_it(rng: &mut fastrand::Rng, tree: Tree, pages: &MemoryPages, leaves: usize) -> usize {
    let mut refused = 0;
    let mut note = |result: Result<(), StoreError>| refused += usize::from(result.is_err());
    let report = tree.check(pages, |_| ()).expect("damage is no error of the walk");
    note(report.into_result(tree));
    note(walk(tree, pages, Direction::Forward, leaves));
    note(walk(tree, pages, Direction::Backward, leaves));
    for _ in 0..4 {
        let mut key = if rng.bool() { vec![b'k'; 300] } else { Vec::new() };
        key.extend_from_slice(&rng.u32(..3000).to_be_bytes());
        note(tree.get(pages, &key).map(drop));
        let mut writer = tree.writer(pages);
        note(writer.put(&key, &vec![1; rng.usize(..900)], Lsn(9)).map(drop));
        note(writer.delete(&key, Lsn(9)).map(drop));
    }
    note(empty(tree, pages));
    refused
}

fn rounds(seed: u64, rounds: usize, page_bytes: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut refused = 0;
    for _ in 0..rounds {
        let (pages, tree, visited) = grown(&mut rng, page_bytes);
        {
            let inners: Vec<_> = visited.iter().filter(|one| matches!(one, Visited::Inner(_))).collect();
            let any = if rng.bool() { rng.choice(&inners).copied() } else { rng.choice(&visited) };
            if let Some(Visited::Inner(page) | Visited::Leaf(page)) = any {
                pages.damage(*page, |bytes| mutate(&mut rng, bytes));
            }
            refused += use_it(&mut rng, tree, &pages, visited.len() + 50);
        }
    }
    assert!(refused > rounds, "damage is noticed");
}

#[test]
fn damaged_pages_are_refused_or_answer_and_never_panic_or_loop() {
    let seed = seed(1);
    rounds(seed, 60, 4096);
    rounds(seed + 1, 15, 8192);
}

#[test]
fn every_header_byte_may_have_every_extreme_value() {
    let mut rng = fastrand::Rng::with_seed(3);
    let (pages, tree, visited) = grown(&mut rng, 4096);
    let leaf = visited.iter().find_map(|one| if let Visited::Leaf(page) = one { Some(*page) } else { None });
    for page in [tree.root, leaf.expect("has leaves")] {
        for at in 4..40 {
            for extreme in [0, 1, 0x7f, 0xff] {
                let mut before = 0;
                pages.damage(page, |bytes| before = std::mem::replace(&mut bytes[at], extreme));
                let report = tree.check(&pages, |_| ()).expect("damage is no error of the walk");
                let _ = (walk(tree, &pages, Direction::Forward, visited.len()), report);
                pages.damage(page, |bytes| bytes[at] = before);
            }
        }
    }
    sound(tree, &pages);
}

/// A way to access a cell.
type Meet = fn(Tree, &MemoryPages) -> Result<(), StoreError>;

#[test]
fn damage_of_a_cell_names_its_tree_page_and_slot() {
    const SLOT: usize = 12;
    let slot_at = |leaf: &[u8]| {
        let length = |at: usize| usize::from(u16::from_le_bytes([leaf[at], leaf[at + 1]]));
        crate::tree::leaf::slots_at(length(28), length(30)) + 8 * SLOT
    };
    let outside = |leaf: &mut [u8]| {
        let at = slot_at(leaf) + 2;
        leaf[at..at + 2].copy_from_slice(&0xfff0_u16.to_le_bytes());
    };
    let shorter = |leaf: &mut [u8]| {
        let at = slot_at(leaf) + 2;
        let cell = usize::from(u16::from_le_bytes([leaf[at], leaf[at + 1]]));
        leaf[cell] -= 1;
    };
    let meets: [(&str, Meet); 5] = [
        ("get", |tree, pages| tree.get(pages, b"k12").map(drop)),
        ("scan", |tree, pages| walk(tree, pages, Direction::Forward, 1)),
        ("put", |tree, pages| tree.writer(pages).put(b"k12", b"new", Lsn(9)).map(drop)),
        ("delete", |tree, pages| tree.writer(pages).delete(b"k12", Lsn(9)).map(drop)),
        ("check", |tree, pages| tree.check(pages, |_| ())?.into_result(tree)),
    ];
    for (meet, run) in meets {
        for (damage, what) in
            [(&outside as &dyn Fn(&mut [u8]), "cell exceeds page"), (&shorter, "list of extents cannot be decoded")]
        {
            let pages = MemoryPages::new(4096);
            let tree = Tree::create(&pages, ID, Lsn(1)).expect("room");
            for at in 0..20 {
                let value = vec![7; if at == SLOT { 4096 } else { 10 }];
                tree.writer(&pages).put(format!("k{at:02}").as_bytes(), &value, Lsn(2)).expect("room");
            }
            let mut leaf = None;
            let note = |one| leaf = leaf.or(if let Visited::Leaf(page) = one { Some(page) } else { None });
            tree.check(&pages, note).expect("memory does not fail");
            let leaf = leaf.expect("has a leaf");
            pages.damage(leaf, damage);
            let error = run(tree, &pages).expect_err("the damage is met").to_string();
            let expected = match meet {
                // A check of a tree reports it before the tree's other faults.
                "check" => format!("page {leaf}: slot {SLOT}: {what}"),
                _ => format!("tree {}, page {leaf}, slot {SLOT}: {what}", ID.0),
            };
            assert!(error.contains(&expected), "{meet}: {error}");
        }
    }
}
