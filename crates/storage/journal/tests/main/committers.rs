//! Threads that each keep a committer, on real mappings, while other threads append, truncate behind a reader, and
//! wait. The device works, fails one write, or panics in one write.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{Device, DeviceError, Durability, Shelf, WrappedShelf};
use journal::{Journal, JournalError, Lsn, Options, Preparation, View, verify};

use crate::support::{payload, recover, replay, seed, small};

const THREADS: u64 = 4;
const EACH: u64 = 150;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Works,
    Fails,
    Panics,
}

/// The action at one write. Other writes may overtake it meanwhile.
#[derive(Debug)]
struct Script {
    fate: Fate,
    at: u64,
    writes: AtomicU64,
}

struct ScriptedDevice {
    inner: Arc<dyn Device>,
    script: Arc<Script>,
}

impl fmt::Debug for ScriptedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Device for ScriptedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }
    fn is_inline(&self) -> bool {
        self.inner.is_inline()
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
        if offset == 0 {
            // The header of a new segment is no batch, and its write may fail without harm.
            return self.inner.write_flush(offset, data);
        }
        let nth = self.script.writes.fetch_add(1, Ordering::SeqCst);
        if nth % 7 == 3 {
            std::thread::yield_now();
        }
        match self.script.fate {
            Fate::Fails if nth == self.script.at => Err(DeviceError::Lost { name: "it".into(), offset, bytes: 4096 }),
            Fate::Panics if nth == self.script.at => panic!("as the test wants it"),
            _ => self.inner.write_flush(offset, data),
        }
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }
    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

/// The places of acknowledged records, with their numbers and sizes.
type Acknowledged = Mutex<Vec<(Lsn, u64, usize)>>;

/// Commits until all its records are committed, or one is refused.
fn commit(journal: &Journal, thread: u64, seed: u64, acknowledged: &Acknowledged) {
    let mut random = fastrand::Rng::with_seed(seed * THREADS + thread);
    let mut committer = journal.committer();
    for step in 0..EACH {
        let number = thread * EACH + step;
        let bytes = [10, 100, 1000, 3000, 200, 15_000, 20_000, 70_000][random.usize(..8).min(random.usize(..16))];
        let parts: &[&[u8]] = &[&payload(number, bytes)];
        let result = match random.u8(..8) {
            0 => journal.append(1, parts).and_then(|lsn| journal.commit(lsn).map(|()| lsn)),
            // The commit of another thread includes it.
            1 => match journal.append(1, parts) {
                Ok(_) => continue,
                refused => refused,
            },
            _ => committer.append_commit(1, parts),
        };
        match result {
            Ok(lsn) => {
                assert!(journal.durable() > lsn);
                acknowledged.lock().expect("no panic").push((lsn, number, bytes));
            }
            Err(JournalError::Poisoned { .. }) => return,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Counts a thread that has ended, also after a panic.
struct Done<'a>(&'a AtomicUsize);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn life(seed: u64, fate: Fate) {
    let mut random = fastrand::Rng::with_seed(seed);
    let home = tempfile::tempdir().expect("there is a temporary directory");
    let options = PmemOptions { absent: Absent::Emulate };
    let medium: Arc<dyn Shelf> = Arc::new(PmemShelf::open(home.path(), options).expect("opens"));
    let script = Arc::new(Script { fate, at: random.u64(20..400), writes: AtomicU64::new(0) });
    let shelf = Arc::new(WrappedShelf::new(medium.clone(), {
        let script = script.clone();
        move |inner| Arc::new(ScriptedDevice { inner, script: script.clone() })
    }));
    let preparation = if random.bool() { Preparation::Background } else { Preparation::Inline };
    let (journal, _) = Journal::open(shelf, Options { preparation, ..small() }).expect("opens");
    assert!(journal.is_inline());
    let (acknowledged, running) = (Acknowledged::default(), AtomicUsize::new(THREADS as usize));
    let truncated = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, acknowledged, running) = (&journal, &acknowledged, &running);
            scope.spawn(move || {
                let _done = Done(running);
                let ended = catch_unwind(AssertUnwindSafe(|| commit(journal, thread, seed, acknowledged)));
                // A thread that takes the lock after a panic under the lock panics too. The test checks that no thread
                // waits for ever.
                assert!(ended.is_ok() || fate == Fate::Panics);
            });
        }
        let read_along = || {
            let mut reader = journal.read(journal.first());
            while running.load(Ordering::SeqCst) > 0 {
                for (count, record) in reader.by_ref().enumerate() {
                    let record = record.expect("what is durable can be read");
                    if count % 100 == 99 {
                        truncated.store(record.lsn.0, Ordering::SeqCst);
                        journal.truncate(record.lsn).expect("truncates");
                    }
                }
                journal.wait_appended(journal.durable(), Duration::from_millis(1));
            }
        };
        assert!(catch_unwind(AssertUnwindSafe(read_along)).is_ok() || fate == Fate::Panics);
    });
    let closed = catch_unwind(AssertUnwindSafe(|| journal.close()));
    let is_hit = script.writes.load(Ordering::SeqCst) > script.at;
    assert_eq!(matches!(closed, Ok(Ok(()))), fate == Fate::Works || !is_hit, "{closed:?}");
    let found = verify(&View::open(medium.clone()).expect("opens")).expect("reads");
    assert!(found.corruption.is_none() && found.dirty_padding_bytes == 0, "{found:?}");
    let (journal, _) = recover(medium).expect("recovers");
    for (lsn, number, bytes) in acknowledged.into_inner().expect("no panic") {
        if lsn.0 >= truncated.load(Ordering::SeqCst) {
            let record = journal.read_at(lsn).unwrap_or_else(|error| panic!("record {number} at {lsn}: {error}"));
            assert!(record.payload == payload(number, bytes), "record {number} at {lsn}");
        }
    }
}

#[test]
fn committers_side_by_side_lose_nothing_and_nobody_waits_for_one_that_failed_or_panicked() {
    let first = seed(9);
    for seed in first..first + 4 {
        for fate in [Fate::Works, Fate::Fails, Fate::Panics] {
            let name =
                "committers::committers_side_by_side_lose_nothing_and_nobody_waits_for_one_that_failed_or_panicked";
            println!("{fate:?}, {}", replay(seed, name));
            life(seed, fate);
        }
    }
}
