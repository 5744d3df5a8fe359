//! Two writes in flight, in an order that the test controls: the later batch reaches the medium first.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex};

use device::{CrashShelf, Device, DeviceError, Durability, Shelf, WrappedShelf};
use journal::{Journal, JournalError, Options, Record};

use crate::support::{History, MEDIA, clear_and_encrypted, payload, recover, small};

/// When it is armed, it delays the next batch until the batch after it is persistent.
#[derive(Debug, Default)]
struct Gate {
    /// Whether the devices report inline writes, where they support them.
    inline: bool,
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// The next write will be delayed.
    Armed,
    /// A write is being delayed.
    Holding,
}

impl Gate {
    fn wait_until(&self, wanted: Phase) {
        let phase = self.phase.lock().expect("no panic");
        drop(self.changed.wait_while(phase, |phase| *phase != wanted).expect("no panic"));
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock().expect("no panic") = phase;
        self.changed.notify_all();
    }
}

/// The crash shelf behind the gate.
fn gated(inner: Arc<CrashShelf>, gate: &Arc<Gate>) -> Arc<dyn Shelf> {
    let gate = gate.clone();
    Arc::new(WrappedShelf::new(inner, move |inner| Arc::new(GatedDevice { inner, gate: gate.clone() })))
}

struct GatedDevice {
    inner: Arc<dyn Device>,
    gate: Arc<Gate>,
}

impl fmt::Debug for GatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for GatedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }
    fn is_inline(&self) -> bool {
        self.gate.inline && self.inner.is_inline()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(offset, data)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }
    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        let mut phase = self.gate.phase.lock().expect("no panic");
        let hold = *phase == Phase::Armed;
        // The header of a new segment is no batch.
        let release = *phase == Phase::Holding && offset > 0;
        if hold {
            *phase = Phase::Holding;
            self.gate.changed.notify_all();
            phase = self.gate.changed.wait_while(phase, |phase| *phase == Phase::Holding).expect("no panic");
        }
        drop(phase);
        self.inner.write_flush(offset, data)?;
        if release {
            self.gate.set(Phase::Open);
        }
        Ok(())
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }
    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

/// Commits records in pairs of batches. The second batch of a pair is persistent before the first is written. The gate
/// does not report inline writes, so that two threads write on persistent memory too.
fn workload(shelf: &Arc<CrashShelf>) -> History {
    let gate = Arc::new(Gate::default());
    let gated = gated(shelf.clone(), &gate);
    let (journal, _) = Journal::open(gated, small()).expect("opens");
    let mut history = History::default();
    for pair in 0..8 {
        let first = history.append(&journal, 1000 + 500 * (pair % 3));
        gate.set(Phase::Armed);
        std::thread::scope(|scope| {
            let journal = &journal;
            let leader = scope.spawn(move || journal.commit(first).expect("commits"));
            gate.wait_until(Phase::Holding);
            let before = journal.durable();
            // The record is at least as large as the batch in flight; a smaller one would wait for that batch.
            history.append(journal, 1000 + 500 * (pair % 3));
            let second = history.append(journal, 2000);
            journal.commit(second).expect("commits");
            assert!(before <= first && journal.durable() > second);
            leader.join().expect("no panic");
        });
        history.acknowledge(shelf);
    }
    assert_eq!(journal.stats().batches_overlapped, 8, "every second batch was written while its predecessor was held");
    // The process is killed, not closed.
    std::mem::forget(journal);
    history
}

#[test]
fn a_later_batch_without_the_earlier_one_is_a_torn_tail_and_not_corruption() {
    clear_and_encrypted(|| {
        for medium in MEDIA {
            let shelf = medium.shelf(crate::support::seed(5));
            let history = workload(&shelf);
            let torn = torn_tails(&shelf, &history);
            println!("{medium:?}: {torn} torn tails");
            assert!(torn > 100, "{medium:?}: the images hold torn tails: {torn}");
        }
    });
}

/// Two threads reserve one place each, and the second place is persistent before the first is written. A third place,
/// reserved after them, is written only after both.
fn side_by_side(shelf: &Arc<CrashShelf>) -> History {
    let gate = Arc::new(Gate { inline: true, ..Gate::default() });
    let gated = gated(shelf.clone(), &gate);
    // The segment has room for all three: at the end of a segment the later one would wait for the delayed one.
    let options = Options { segment_bytes: 64 << 10, ..small() };
    let (journal, _) = Journal::open(gated, options).expect("opens");
    assert!(journal.is_inline());
    let mut history = History::default();
    for pair in 0..12 {
        let [first, second] = [1000 + 500 * (pair % 3), 700].map(|bytes| payload(pair as u64, bytes));
        gate.set(Phase::Armed);
        let before = journal.durable();
        let lsns = std::thread::scope(|scope| {
            let earlier = scope.spawn(|| journal.append_commit(1, &[&first]).expect("commits"));
            gate.wait_until(Phase::Holding);
            let later = scope.spawn(|| journal.append_commit(2, &[&second]).expect("commits"));
            [earlier.join().expect("no panic"), later.join().expect("no panic")]
        });
        assert!(before <= lsns[0] && lsns[0] < lsns[1] && journal.durable() > lsns[1]);
        for (lsn, (kind, payload)) in lsns.into_iter().zip([(1, first), (2, second)]) {
            history.records.push(Record { lsn, kind, payload });
        }
        history.acknowledge(shelf);
    }
    std::mem::forget(journal);
    history
}

#[test]
fn a_later_place_without_the_earlier_one_is_a_torn_tail_and_not_corruption() {
    for medium in MEDIA.into_iter().filter(|medium| medium.shelf(0).create("a", 4096).expect("creates").is_inline()) {
        let shelf = medium.shelf(crate::support::seed(6));
        let history = side_by_side(&shelf);
        let torn = torn_tails(&shelf, &history);
        println!("{medium:?}: {torn} torn tails");
        assert!(torn > 100, "{medium:?}: the images hold torn tails: {torn}");
    }
}

fn torn_tails(shelf: &Arc<CrashShelf>, history: &History) -> usize {
    let mut torn = 0;
    for point in shelf.points() {
        for image in shelf.images(point) {
            let after = Arc::new(image.shelf());
            let (journal, recovered) =
                Journal::open(after.clone(), small()).unwrap_or_else(|error| panic!("{image}: {error}"));
            let found = crate::support::all(&journal).unwrap_or_else(|error| panic!("{image}: {error}"));
            history.check(point, &found).unwrap_or_else(|why| panic!("{image}: {why}"));
            torn += usize::from(recovered.torn_bytes > 0);
            std::mem::forget(journal);
            go_on(&after, &found).unwrap_or_else(|error| panic!("{image}: {error}"));
        }
    }
    torn
}

/// Lives that write over the stale bytes of the later batch: one writes nothing, so that the log ends exactly where the
/// stale batch begins; the others write a block each.
fn go_on(shelf: &Arc<CrashShelf>, found: &[Record]) -> Result<(), JournalError> {
    for life in 0..4_usize {
        let (journal, records) = recover(shelf.clone())?;
        let written = life.saturating_sub(1);
        assert!(
            records.len() == found.len() + written && records[..found.len()] == *found,
            "life {life} finds the same"
        );
        if life > 0 {
            journal.append(9, &[&payload(100 + life as u64, 1000)])?;
            journal.commit(journal.appended())?;
        }
        std::mem::forget(journal);
    }
    Ok(())
}
