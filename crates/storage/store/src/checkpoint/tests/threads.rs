//! The thread that runs checkpoints: limits start them, the maximum makes the applier wait, a failure leaves no thread
//! waiting.

use std::sync::Arc;
use std::time::Duration;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation};
use journal::Lsn;
use parking_lot::Mutex;

use super::toy::{Toy, ToyOp};
use crate::StoreError;
use crate::checkpoint::checkpointer::{CheckpointSource, Checkpointer};
use crate::checkpoint::pace::CheckpointOptions;
use crate::checkpoint::writer::CheckpointBegin;

struct Subjected {
    toy: Mutex<Toy>,
}

impl CheckpointSource for Subjected {
    fn begin_checkpoint(&self) -> Result<CheckpointBegin, StoreError> {
        Ok(self.toy.lock().begin_checkpoint())
    }

    fn load(&self) -> (u64, Lsn) {
        let toy = self.toy.lock();
        (toy.dirty_bytes(), toy.redo_lsn)
    }

    fn over(&self, redo_lsn: Lsn) -> Result<(), StoreError> {
        let toy = self.toy.lock();
        toy.space.set_horizon(redo_lsn);
        Ok(toy.journal.truncate(redo_lsn)?)
    }
}

fn start(logs: Arc<FaultyShelf>, data: Arc<MemoryShelf>, options: CheckpointOptions) -> (Arc<Subjected>, Checkpointer) {
    let mut toy = Toy::open_on(logs, data).expect("opens");
    let (writer, poison) = (toy.take_writer(), toy.poison.clone());
    let subject = Arc::new(Subjected { toy: Mutex::new(toy) });
    let checkpointer = Checkpointer::start(writer, subject.clone(), options, poison).expect("starts");
    (subject, checkpointer)
}

fn shelves() -> (Arc<FaultyShelf>, Arc<MemoryShelf>) {
    (Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new()))), Arc::new(MemoryShelf::new()))
}

const NEVER: CheckpointOptions = CheckpointOptions {
    interval: Duration::from_secs(1_000_000),
    journal_bytes: u64::MAX,
    journal_bytes_max: u64::MAX,
    dirty_bytes: u64::MAX,
    dirty_bytes_max: u64::MAX,
};

#[test]
fn the_applier_that_waits_at_the_maximum_is_let_in_once_a_checkpoint_is_over_and_everything_is_there_after_closing() {
    let (logs, data) = shelves();
    let options = CheckpointOptions { dirty_bytes: 3 * 4096, dirty_bytes_max: 5 * 4096, ..NEVER };
    let (subject, checkpointer) = start(logs.clone(), data.clone(), options);
    for number in 0..200_u32 {
        checkpointer.admit().expect("a checkpoint makes room");
        assert!(subject.toy.lock().dirty_bytes() < 5 * 4096, "admitted below the maximum");
        let op = ToyOp { slot: (number % 6) as u8, what: 1 + (number % 5 == 0) as u8, pages: 1 };
        subject.toy.lock().change(op).expect("works");
    }
    let stats = checkpointer.stats();
    assert!(stats.checkpoints > 10 && stats.waits > 0, "{stats:?}");
    checkpointer.close().expect("closes");
    let values = subject.toy.lock().values();
    drop(subject);
    let toy = Toy::open_on(logs, data).expect("opens");
    assert!(toy.superblock.is_clean && toy.values() == values);
}

#[test]
fn a_checkpoint_that_is_asked_for_begins_after_the_call_and_a_failure_is_told_to_all_who_wait() {
    let (logs, data) = shelves();
    let (subject, checkpointer) = start(logs.clone(), data, NEVER);
    subject.toy.lock().change(ToyOp { slot: 0, what: 2, pages: 1 }).expect("works");
    let redo_lsn = subject.toy.lock().redo_lsn;
    assert_eq!(checkpointer.run().expect("runs").redo_lsn, redo_lsn);
    assert_eq!(checkpointer.stats().checkpoints, 1, "none without being asked");
    logs.inject(Rule::nth(Operation::Flush, 1, Fault::Eio).on("images-0000"));
    let error = checkpointer.run().expect_err("the flush fails");
    assert!(matches!(error, StoreError::Poisoned { .. }), "{error}");
    assert!(matches!(checkpointer.admit(), Err(StoreError::Poisoned { .. })));
    assert!(matches!(checkpointer.run(), Err(StoreError::Poisoned { .. })));
    assert!(checkpointer.close().is_err(), "it says that not everything is written back");
}

#[test]
fn a_checkpoint_without_room_is_told_and_ends_once_there_is_some() {
    let (logs, data) = shelves();
    let (subject, checkpointer) = start(logs.clone(), data, NEVER);
    (0..6).for_each(|slot| subject.toy.lock().change(ToyOp { slot, what: 2, pages: 1 }).expect("works"));
    checkpointer.run().expect("runs");
    (0..6).for_each(|slot| subject.toy.lock().change(ToyOp { slot, what: 1, pages: 1 }).expect("works"));
    logs.inject(Rule::from(Operation::Create, 1, Fault::NoSpace).on("images-0001"));
    assert!(matches!(checkpointer.run(), Err(StoreError::Full(_))));
    logs.heal();
    loop {
        match checkpointer.run() {
            Ok(_) => break,
            Err(StoreError::Full(_)) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    }
}
