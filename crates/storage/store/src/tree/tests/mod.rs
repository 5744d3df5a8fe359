//! Tests of trees: golden pages, a model, readers beside the writer, damage; over plain memory and over the page cache.

mod cached;
mod damage;
mod faults;
mod golden;
mod model;
mod readers;
mod shapes;

use std::collections::BTreeMap;

use super::*;
use crate::pages::memory::MemoryPages;

pub(super) const ID: TreeId = TreeId(7);

/// The seed of a randomised test: from the environment variable SEED, or `default`; printed for a replay.
pub(super) fn seed(default: u64) -> u64 {
    let seed = std::env::var("SEED").map_or(default, |text| text.parse().expect("SEED is a number"));
    println!("replay: SEED={seed} cargo test -p store, and the name of this test");
    seed
}

/// The whole content of a tree, by blocks.
pub(super) fn all<P: Pages>(tree: Tree, pages: &P, direction: Direction) -> Vec<(Vec<u8>, Cell)> {
    range(tree, pages, &[], &[], direction)
}

/// The content of a range of a tree, by blocks, in the order of the direction.
pub(super) fn range<P: Pages>(
    tree: Tree,
    pages: &P,
    from: &[u8],
    to: &[u8],
    direction: Direction,
) -> Vec<(Vec<u8>, Cell)> {
    let (mut from, mut to, mut found) = (from.to_vec(), to.to_vec(), Vec::new());
    loop {
        let block = tree.leaf_block(pages, &from, &to, direction).expect("sound");
        let entry = |at: usize| (block.key(at).to_vec(), block.cell(at).expect("sound"));
        match direction {
            Direction::Forward => {
                found.extend((0..block.len()).map(entry));
                if block.high.is_empty() || (!to.is_empty() && *block.high >= *to) {
                    return found;
                }
                from = block.high.to_vec();
            }
            Direction::Backward => {
                found.extend((0..block.len()).rev().map(entry));
                if *block.low <= *from {
                    return found;
                }
                to = block.low.to_vec();
            }
        }
    }
}

/// Panics unless the tree is sound and contains all the pages in use.
pub(super) fn sound(tree: Tree, pages: &MemoryPages) -> Report {
    let mut visited = Vec::new();
    let report = tree.check(pages, |one| visited.push(one)).expect("memory does not fail");
    assert_eq!(report.messages, Vec::<String>::new());
    let extents = visited.iter().filter(|one| matches!(one, Visited::Extent(_))).count();
    assert_eq!((pages.pages_used(), pages.extents_used()), (visited.len() - extents, extents), "nothing is lost");
    report
}

/// Panics unless the tree contains exactly the model's entries.
pub(super) fn equal(tree: Tree, pages: &MemoryPages, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let found = all(tree, pages, Direction::Forward);
    assert_eq!(found.len(), model.len());
    for ((key, cell), (expected, value)) in found.iter().zip(model) {
        assert_eq!(key, expected);
        assert_eq!(cell.read(pages).expect("sound"), value, "of key {key:02x?}");
    }
    let mut backward = all(tree, pages, Direction::Backward);
    backward.reverse();
    assert!(backward == found, "backward is forward reversed");
}
