//! The tree against a BTreeMap, with all kinds of keys, sizes of values and of pages.

use super::*;

/// How keys are drawn.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Random,
    Sequential,
    Reverse,
    LongPrefixes,
    AnySize,
    Runs,
    FewBytes,
}

fn key(rng: &mut fastrand::Rng, keys: Keys, at: u32) -> Vec<u8> {
    match keys {
        Keys::Random => rng.u64(..).to_be_bytes().to_vec(),
        Keys::Sequential => format!("message/{at:010}").into_bytes(),
        Keys::Reverse => (u32::MAX - at).to_be_bytes().to_vec(),
        Keys::LongPrefixes => {
            let mut key = vec![b'a' + rng.u8(..3); 900];
            key[899 - rng.usize(..3)] = rng.u8(..);
            key.extend_from_slice(&rng.u16(..2000).to_be_bytes());
            key
        }
        Keys::AnySize => {
            let bytes = if rng.u8(..4) == 0 { 1 + rng.usize(..1024) } else { 1 + rng.usize(..20) };
            let mut key = vec![rng.u8(..3); bytes];
            let last = key.len() - 1;
            key[last] = rng.u8(..);
            key[last / 2] = rng.u8(..4);
            key
        }
        Keys::Runs => format!("{}/{:06}", rng.u8(..5), at / 5).into_bytes(),
        Keys::FewBytes => (0..rng.usize(1..9)).map(|_| rng.u8(..2)).collect(),
    }
}

fn value(rng: &mut fastrand::Rng, page_bytes: usize, spilled: bool) -> Vec<u8> {
    let longest = inline_bytes_max(page_bytes, 8);
    let bytes = match rng.u8(..100) {
        0 if spilled => rng.usize(..3 << 20),
        0..4 => rng.usize(longest - 2..longest + 3),
        4..8 => rng.usize(longest..page_bytes * 3),
        8..20 => rng.usize(..longest),
        20..30 => 0,
        _ => rng.usize(..60),
    };
    let first = rng.u8(..);
    (0..bytes).map(|at| first.wrapping_add((at >> 3) as u8)).collect()
}

struct Case {
    pages: MemoryPages,
    tree: Tree,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    lsn: u64,
}

impl Case {
    fn new(page_bytes: usize) -> Case {
        let pages = MemoryPages::new(page_bytes);
        let tree = Tree::create(&pages, ID, Lsn(1)).expect("room");
        Case { pages, tree, model: BTreeMap::new(), lsn: 1 }
    }

    fn old_is(&self, old: Option<Cell>, expected: Option<Vec<u8>>) {
        let read = old.as_ref().map(|cell| cell.read(&self.pages).expect("sound").to_vec());
        assert!(read == expected, "the old value");
        old.iter().for_each(|cell| cell.free(&self.pages));
    }

    fn verify(&self, rng: &mut fastrand::Rng, keys: Keys) {
        sound(self.tree, &self.pages);
        equal(self.tree, &self.pages, &self.model);
        for at in 0..50 {
            let (one, two) = (key(rng, keys, at * 7), key(rng, keys, at * 9));
            let found = self.tree.get(&self.pages, &one).expect("sound").0;
            let found = found.map(|cell| cell.read(&self.pages).expect("sound").to_vec());
            assert!(found.as_ref() == self.model.get(&one), "get of {one:02x?}");
            let (from, to) = if one <= two { (one, two) } else { (two, one) };
            let forward = range(self.tree, &self.pages, &from, &to, Direction::Forward);
            let expected: Vec<_> = self.model.range(from.clone()..to.clone()).map(|(key, _)| key).collect();
            assert!(forward.iter().map(|(key, _)| key).eq(expected), "range {from:02x?}..{to:02x?}");
            let mut backward = range(self.tree, &self.pages, &from, &to, Direction::Backward);
            backward.reverse();
            assert!(backward == forward);
        }
    }
}

fn run(seed: u64, keys: Keys, page_bytes: usize, changes: u32) {
    println!("seed {seed}, {keys:?}, {page_bytes} bytes a page");
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut case = Case::new(page_bytes);
    for phase in 0..4 {
        let deletes = [5, 30, 70, 20][phase];
        let mut writer = case.tree.writer(&case.pages);
        for at in 0..changes {
            let at = at + changes * if phase == 3 { 0 } else { phase as u32 / 2 };
            case.lsn += 8;
            let mut key = key(&mut rng, keys, at);
            if rng.u8(..100) < deletes {
                if rng.bool() {
                    key = case.model.range(key..).next().map(|(key, _)| key.clone()).unwrap_or(vec![9]);
                }
                let old = writer.delete(&key, Lsn(case.lsn)).expect("room");
                let expected = case.model.remove(&key);
                case.old_is(old, expected);
            } else {
                let value = value(&mut rng, page_bytes, changes < 1000);
                let old = writer.put(&key, &value, Lsn(case.lsn)).expect("room");
                let expected = case.model.insert(key, value);
                case.old_is(old, expected);
            }
        }
        case.verify(&mut rng, keys);
    }
    let mut writer = case.tree.writer(&case.pages);
    let mut left: Vec<_> = case.model.keys().cloned().collect();
    match seed % 3 {
        0 => left.reverse(),
        1 => rng.shuffle(&mut left),
        _ => {}
    }
    for key in left {
        let old = writer.delete(&key, Lsn(case.lsn)).expect("room");
        let expected = case.model.remove(&key);
        case.old_is(old, expected);
    }
    let report = sound(case.tree, &case.pages);
    assert_eq!(report.cells, 0);
    case.tree.drop_all(&case.pages).expect("sound");
    assert_eq!((case.pages.pages_used(), case.pages.extents_used()), (0, 0));
}

const ALL: [Keys; 7] =
    [Keys::Random, Keys::Sequential, Keys::Reverse, Keys::LongPrefixes, Keys::AnySize, Keys::Runs, Keys::FewBytes];

#[test]
fn a_tree_is_an_ordered_map() {
    let seed = seed(0);
    for (at, keys) in ALL.into_iter().enumerate() {
        run(seed + at as u64, keys, [4 << 10, 8 << 10][(at + seed as usize) % 2], 3000);
    }
}

#[test]
fn a_tree_is_an_ordered_map_in_pages_of_every_size_and_with_values_of_megabytes() {
    let seed = seed(100);
    for (at, page_bytes) in [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10].into_iter().enumerate() {
        run(seed + at as u64, ALL[(at + 2 + seed as usize) % 7], page_bytes, 800);
        run(seed + 100 + at as u64, Keys::AnySize, page_bytes, 800);
    }
}
