//! Tries every moment at which the power may fail, over journal, write image journal and pages. The recovered state
//! must be the state after some record, and contain every acknowledged one; each page must verify, and the map must
//! count exactly the reachable pages.

use std::sync::Arc;

use device::CrashShelf;

use super::toy::{History, Toy, ToyOp, media, seed};
use crate::StoreError;
use crate::checkpoint::machine::Step;

fn ops(random: &mut fastrand::Rng) -> ToyOp {
    ToyOp {
        slot: random.u8(..6),
        what: [0, 1, 1, 1, 2, 2][random.usize(..6)],
        pages: [1, 1, 1, 2, 3][random.usize(..5)],
    }
}

/// Lives of a store that cover all cases: checkpoints with changes between their steps, pages written back early,
/// uncommitted runs, a second data device; killed while pages are written in place, killed before the commit mark,
/// closed.
pub(super) fn live(shelf: &Arc<CrashShelf>) -> History {
    let mut history = History::new();
    let random = &mut fastrand::Rng::with_seed(11);
    let mut change = |history: &mut History, toy: &mut Toy, count: usize| {
        (0..count).for_each(|_| history.change(toy, shelf, ops(random)).expect("the machine works"));
    };
    let mut toy = Toy::open(shelf.clone()).expect("opens");
    change(&mut history, &mut toy, 6);
    toy.checkpoint().expect("checkpoints");
    change(&mut history, &mut toy, 4);
    toy.write_early().expect("writes");
    // Never attached: a crash frees it.
    toy.space.allocate_uncommitted(4).expect("there is room");
    let between = |toy: &mut Toy, step: Step| {
        if matches!(step, Step::Fresh(..) | Step::Seal | Step::InPlace(..) | Step::Invalidate) {
            change(&mut history, toy, 1);
        }
        Ok(true)
    };
    toy.checkpoint_with(false, between).expect("checkpoints");
    for slot in 0..6 {
        history.change(&mut toy, shelf, ToyOp { slot, what: 2, pages: 1 }).expect("the machine works");
    }
    toy.checkpoint().expect("checkpoints");
    // Not adjacent, so that they take several writes.
    for slot in [1, 3, 5] {
        history.change(&mut toy, shelf, ToyOp { slot, what: 1, pages: 1 }).expect("the machine works");
    }
    // Killed when a part of the batch has been written in place and not flushed.
    let killed = toy.checkpoint_with(false, |_, step| {
        if matches!(step, Step::InPlace(..)) {
            shelf.kill_at(shelf.operations() + 1);
        }
        Ok(true)
    });
    assert!(matches!(killed, Err(StoreError::Poisoned { .. })), "several writes are written in place");
    drop(toy);
    shelf.restart();

    history.restoring = shelf.operations();
    let mut toy = Toy::open(shelf.clone()).expect("opens");
    assert!(toy.found.restored.is_some(), "the batch was committed");
    change(&mut history, &mut toy, 3);
    toy.checkpoint().expect("checkpoints");
    change(&mut history, &mut toy, 3);
    toy.write_early().expect("writes");
    // Killed before the commit mark: what the new batch has overwritten of the old one must not matter.
    let from = shelf.operations();
    toy.checkpoint_with(false, |_, step| Ok(step != Step::Commit)).expect("checkpoints");
    history.dropped = from..shelf.operations();
    drop(toy);

    let mut toy = Toy::open(shelf.clone()).expect("opens");
    assert!(toy.found.is_dropped && toy.found.restored.is_none());
    change(&mut history, &mut toy, 2);
    toy.checkpoint().expect("checkpoints");
    change(&mut history, &mut toy, 2);
    toy.checkpoint().expect("checkpoints");
    toy.checkpoint_with(true, |_, _| Ok(true)).expect("checkpoints");
    let Toy { journal, .. } = toy;
    journal.close().expect("closes");
    history
}

/// Returns the first image from operation `from` on that breaks a promise, or the number of images.
pub(super) fn enumerate(
    shelf: &CrashShelf,
    history: &History,
    from: usize,
    visit: &mut dyn FnMut(usize, &Arc<CrashShelf>),
) -> Result<usize, String> {
    let mut count = 0;
    for point in from..=shelf.operations() {
        for image in shelf.images(point) {
            let after = Arc::new(image.shelf());
            let toy = Toy::open(after.clone()).map_err(|error| format!("{image}: {error}"))?;
            history.check(point, &toy).map_err(|why| format!("{image}: {why}"))?;
            visit(count, &after);
            drop(toy);
            count += 1;
        }
    }
    Ok(count)
}

#[test]
fn a_power_failure_at_any_point_of_a_checkpoint_leaves_a_state_behind_everything_acknowledged() {
    let seed = seed(21);
    for (name, medium) in media() {
        let shelf = medium(seed);
        let history = live(&shelf);
        let count = enumerate(&shelf, &history, 0, &mut |_, _| ()).unwrap_or_else(|why| {
            panic!("{name}: {why}\nreplay: SEED={seed} cargo test -p store --lib checkpoint::tests")
        });
        println!("{name}: {} operations, {count} images", shelf.operations());
        assert!(count > 1000, "only {count} images: the enumeration has become too small to mean anything");
    }
}

#[test]
fn a_power_failure_while_a_batch_is_restored_is_followed_by_a_restoration_that_ends_alike() {
    let seed = seed(22);
    for (name, medium) in media() {
        let shelf = medium(seed);
        let history = live(&shelf);
        let mut again = 0;
        let result = enumerate(&shelf, &history, 0, &mut |count, after| {
            // Each image is a recording of its own recovery; trying all of them would take minutes.
            if count % 311 == 0 {
                let acknowledged = History { acknowledged: Vec::new(), ..history.clone() };
                again += enumerate(after, &acknowledged, 0, &mut |_, _| ())
                    .unwrap_or_else(|why| panic!("{name}, seed {seed}, crash while opening: {why}"));
            }
        });
        result.unwrap_or_else(|why| panic!("{name}: {why}"));
        println!("{name}: {again} images of crashes while opening");
        assert!(again > 200, "only {again} images");
    }
}
