//! The thread that runs cycles: limits begin them, the maximum makes the applier wait, a failure lets nobody wait.

use std::sync::Arc;
use std::time::Duration;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation};
use journal::Lsn;
use parking_lot::Mutex;

use super::toy::{Op, Toy};
use crate::StoreError;
use crate::cycle::cycler::{Cycler, Subject};
use crate::cycle::pace::CycleOptions;
use crate::cycle::write::Moment;

struct Subjected {
    toy: Mutex<Toy>,
}

impl Subject for Subjected {
    fn cut(&self) -> Result<Moment, StoreError> {
        Ok(self.toy.lock().cut())
    }

    fn load(&self) -> (u64, Lsn) {
        let toy = self.toy.lock();
        (toy.dirty_bytes(), toy.applied)
    }

    fn over(&self, applied: Lsn) -> Result<(), StoreError> {
        let toy = self.toy.lock();
        toy.space.set_horizon(applied);
        Ok(toy.journal.truncate(applied)?)
    }
}

fn start(logs: Arc<FaultyShelf>, data: Arc<MemoryShelf>, options: CycleOptions) -> (Arc<Subjected>, Cycler) {
    let mut toy = Toy::open_on(logs, data).expect("opens");
    let (writer, freeze) = (toy.take_writer(), toy.freeze.clone());
    let subject = Arc::new(Subjected { toy: Mutex::new(toy) });
    let cycler = Cycler::start(writer, subject.clone(), options, freeze).expect("starts");
    (subject, cycler)
}

fn shelves() -> (Arc<FaultyShelf>, Arc<MemoryShelf>) {
    (Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new()))), Arc::new(MemoryShelf::new()))
}

const NEVER: CycleOptions = CycleOptions {
    interval: Duration::from_secs(1_000_000),
    journal_bytes: u64::MAX,
    journal_bytes_max: u64::MAX,
    dirty_bytes: u64::MAX,
    dirty_bytes_max: u64::MAX,
};

#[test]
fn the_applier_that_waits_at_the_maximum_is_let_in_once_a_cycle_is_over_and_everything_is_there_after_closing() {
    let (logs, data) = shelves();
    let options = CycleOptions { dirty_bytes: 3 * 4096, dirty_bytes_max: 5 * 4096, ..NEVER };
    let (subject, cycler) = start(logs.clone(), data.clone(), options);
    for number in 0..200_u32 {
        cycler.admit().expect("a cycle makes room");
        assert!(subject.toy.lock().dirty_bytes() < 5 * 4096, "admitted below the maximum");
        let op = Op { slot: (number % 6) as u8, what: 1 + (number % 5 == 0) as u8, pages: 1 };
        subject.toy.lock().change(op).expect("works");
    }
    let stats = cycler.stats();
    assert!(stats.cycles > 10 && stats.waits > 0, "{stats:?}");
    cycler.close().expect("closes");
    let values = subject.toy.lock().values();
    drop(subject);
    let toy = Toy::open_on(logs, data).expect("opens");
    assert!(toy.superblock.is_clean && toy.values() == values);
}

#[test]
fn a_cycle_that_is_asked_for_is_cut_after_the_call_and_a_failure_is_told_to_all_who_wait() {
    let (logs, data) = shelves();
    let (subject, cycler) = start(logs.clone(), data, NEVER);
    subject.toy.lock().change(Op { slot: 0, what: 2, pages: 1 }).expect("works");
    let applied = subject.toy.lock().applied;
    assert_eq!(cycler.run().expect("runs").applied, applied);
    assert_eq!(cycler.stats().cycles, 1, "none without being asked");
    logs.inject(Rule::nth(Operation::Flush, 1, Fault::Eio).on("images-0000"));
    let error = cycler.run().expect_err("the flush fails");
    assert!(matches!(error, StoreError::Frozen { .. }), "{error}");
    assert!(matches!(cycler.admit(), Err(StoreError::Frozen { .. })));
    assert!(matches!(cycler.run(), Err(StoreError::Frozen { .. })));
    assert!(cycler.close().is_err(), "it says that not everything is home");
}

#[test]
fn a_cycle_without_room_is_told_and_ends_once_there_is_some() {
    let (logs, data) = shelves();
    let (subject, cycler) = start(logs.clone(), data, NEVER);
    (0..6).for_each(|slot| subject.toy.lock().change(Op { slot, what: 2, pages: 1 }).expect("works"));
    cycler.run().expect("runs");
    (0..6).for_each(|slot| subject.toy.lock().change(Op { slot, what: 1, pages: 1 }).expect("works"));
    logs.inject(Rule::from(Operation::Create, 1, Fault::NoSpace).on("images-0001"));
    assert!(matches!(cycler.run(), Err(StoreError::Full(_))));
    logs.heal();
    loop {
        match cycler.run() {
            Ok(_) => break,
            Err(StoreError::Full(_)) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    }
}
