//! Backups taken while everything changes: their content is one whole state, and can be restored to every later moment.

use std::sync::Arc;

use device::{MemoryShelf, Shelf};
use journal::{Lsn, View};

use super::restore::{BackupSource, restore};
use super::*;
use crate::checkpoint::tests::toy::{Toy, ToyOp, Values};
use crate::checkpoint::writer::CheckpointWriter;
use crate::options::Places;

struct Node {
    logs: Arc<dyn Shelf>,
    data: Arc<dyn Shelf>,
}

impl Node {
    fn new() -> Node {
        Node { logs: Arc::new(MemoryShelf::new()), data: Arc::new(MemoryShelf::new()) }
    }

    fn open(&self) -> Toy {
        Toy::open_on(self.logs.clone(), self.data.clone()).expect("opens")
    }

    fn places(&self) -> Places {
        Places { journal: self.logs.clone(), images: self.logs.clone(), data: self.data.clone() }
    }
}

fn op(random: &mut fastrand::Rng) -> ToyOp {
    ToyOp { slot: random.u8(..6), what: [0, 1, 1, 2][random.usize(..4)], pages: random.u8(1..4) }
}

/// Makes a backup of a toy while the toy continues between every two chunks.
fn back_up(
    toy: &std::cell::RefCell<Toy>,
    node: &Node,
    to: &Arc<dyn Shelf>,
    meanwhile: &mut dyn FnMut(&mut Toy),
) -> Manifest {
    let (data_devices, retention) = (toy.borrow().data_devices.clone(), Retention::new(0));
    // The toy truncates by itself; the journal is read through a view.
    let view = View::open(node.logs.clone()).expect("opens");
    let between = |work: &mut dyn FnMut(&CheckpointWriter) -> Result<(), StoreError>| work(toy.borrow_mut().writer());
    check_empty(&**to).expect("is empty");
    assert!(data_devices.watch() && !data_devices.watch(), "one at a time");
    let watch = Watch(&data_devices);
    let mut copy = Copy::new(&data_devices, to.clone());
    let _hold = retention.hold(view.first());
    let mut go_on = |_: Copying| {
        meanwhile(&mut toy.borrow_mut());
        ControlFlow::Continue(())
    };
    between(&mut |writer| copy.read_maps(writer.superblock())).expect("reads");
    copy.first_pass(&mut go_on).expect("copies");
    let written = data_devices.take_watched();
    copy.again(&written, &mut go_on).expect("copies");
    let mut superblock = None;
    between(&mut |writer| {
        superblock = Some(*writer.superblock());
        copy.last_pass(writer.superblock(), &data_devices.take_watched(), &mut |_| ControlFlow::Continue(()))
    })
    .expect("copies");
    drop(watch);
    let Superblock { identity, journal, redo_lsn, micros, .. } = superblock.expect("it ran");
    view.refresh().expect("reads");
    let view = View::open(node.logs.clone()).expect("opens");
    let copied = journal::copy(&view, &**to, redo_lsn, toy.borrow().journal.durable()).expect("copies");
    let manifest =
        Manifest { identity, journal, redo_lsn, end: copied.end, micros, from: redo_lsn, consistent_lsn: redo_lsn };
    manifest.write(&**to).expect("writes");
    manifest
}

#[test]
fn a_backup_taken_while_pages_change_can_be_restored_to_every_moment_behind_it() {
    for seed in 0..20 {
        let random = &mut fastrand::Rng::with_seed(seed);
        let node = Node::new();
        let toy = std::cell::RefCell::new(node.open());
        for _ in 0..30 {
            toy.borrow_mut().change(op(random)).expect("works");
        }
        toy.borrow_mut().checkpoint().expect("works");
        let mut moments: Vec<(Lsn, Values)> = Vec::new();
        let to: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let manifest = back_up(&toy, &node, &to, &mut |toy| {
            for _ in 0..random.usize(..4) {
                toy.change(op(random)).expect("works");
                moments.push((toy.redo_lsn, toy.values()));
            }
            match random.u8(..3) {
                0 => toy.write_early().expect("works"),
                1 => toy.checkpoint().expect("works"),
                _ => {}
            }
        });
        let mut toy = toy.into_inner();
        for _ in 0..10 {
            toy.change(op(random)).expect("works");
            moments.push((toy.redo_lsn, toy.values()));
        }
        moments.retain(|(lsn, _)| *lsn >= manifest.redo_lsn);
        assert!(moments.len() >= 10);
        for (number, (until, values)) in moments.iter().enumerate() {
            let new = Node::new();
            let by_itself = *until <= manifest.end && number % 2 == 0;
            let kept = (!by_itself).then_some(&node.logs);
            let restored = restore(
                BackupSource { backup: &to, kept, sealer: None },
                &new.places(),
                Until::Lsn(*until),
                &|_| None,
                &mut |_| (),
            );
            let restored = restored.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(restored.end, *until, "seed {seed}");
            // Opening checks every page and the map.
            let mut opened = new.open();
            assert_eq!(opened.values(), *values, "seed {seed}, up to {until}");
            opened.change(op(random)).expect("it goes on");
            opened.checkpoint().expect("it goes on");
            let values = opened.values();
            drop(opened);
            assert_eq!(new.open().values(), values, "seed {seed}");
        }
    }
}

#[test]
fn what_cannot_be_restored_is_refused_with_the_reason() {
    let node = Node::new();
    let toy = std::cell::RefCell::new(node.open());
    let random = &mut fastrand::Rng::with_seed(1);
    (0..9).for_each(|_| toy.borrow_mut().change(op(random)).expect("works"));
    toy.borrow_mut().checkpoint().expect("works");
    let to: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    back_up(&toy, &node, &to, &mut |_| ());
    let why = |backup: &Arc<dyn Shelf>, kept: Option<&Arc<dyn Shelf>>, until, new: &Node| {
        restore(BackupSource { backup, kept, sealer: None }, &new.places(), until, &|_| Some(5), &mut |_| ())
            .expect_err("is refused")
            .to_string()
    };
    let text = why(&to, None, Until::Lsn(Lsn(1)), &Node::new());
    assert!(text.contains("before the backup"), "{text}");
    let text = why(&to, None, Until::Micros(0), &Node::new());
    assert!(text.contains("before the backup"), "{text}");
    let text = why(&to, None, Until::End, &node);
    assert!(text.contains("choose an empty place"), "{text}");
    to.remove(manifest::NAME).expect("is there");
    let text = why(&to, None, Until::End, &Node::new());
    assert!(text.contains("not finished"), "{text}");
}
