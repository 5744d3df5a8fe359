//! Shared by the tests: a small journal, recognisable payloads, and the check of the possible results of a crash.

use std::cell::Cell;
use std::sync::Arc;

use device::crash::PmemMode;
use device::{CrashShelf, MemoryShelf, Shelf};
use encryption::Sealer;
use journal::{Check, Journal, JournalError, Lsn, Options, Preparation, Record, View};

thread_local! {
    /// The number of the next opening of an encrypted journal; 0: journals of this thread are clear.
    static EPOCH: Cell<u32> = const { Cell::new(0) };
}

/// Runs a test with clear journals, then with encrypted ones. What it checks must hold for both.
pub(crate) fn clear_and_encrypted(test: impl Fn()) {
    test();
    EPOCH.set(1);
    test();
    EPOCH.set(0);
}

/// The sealer of one more opening, if journals are encrypted.
pub(crate) fn sealer() -> Option<Arc<Sealer>> {
    let epoch = EPOCH.get();
    (epoch > 0).then(|| {
        EPOCH.set(epoch + 1);
        Sealer::for_tests(1, epoch, 0)
    })
}

/// A view that can read what [`small`] wrote.
pub(crate) fn view(shelf: Arc<dyn Shelf>) -> Result<View, JournalError> {
    View::open_with(shelf, sealer())
}

/// Segments of 8 blocks and buffers of 4, so that a few records cross every boundary.
pub(crate) fn small() -> Options {
    Options {
        segment_bytes: 32 << 10,
        buffer_bytes: 16 << 10,
        max_record_bytes: 1 << 20,
        spare_segments: 2,
        preparation: Preparation::Inline,
        check: Check::Everything,
        identity: 0x5eed_1d00,
        sealer: sealer(),
    }
}

/// The machines of every crash test: a drive, and persistent memory of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Sectors,
    Pmem(PmemMode),
}

pub(crate) const MEDIA: [Medium; 4] =
    [Medium::Sectors, Medium::Pmem(PmemMode::Adr), Medium::Pmem(PmemMode::Eadr), Medium::Pmem(PmemMode::Pages)];

impl Medium {
    pub(crate) fn shelf(self, seed: u64) -> Arc<CrashShelf> {
        Arc::new(match self {
            Medium::Sectors => CrashShelf::new(seed),
            Medium::Pmem(mode) => CrashShelf::pmem(seed, mode),
        })
    }
}

/// A new shelf of every kind that can simulate faults: memory, and the machines without a crash.
pub(crate) fn shelves() -> Vec<Arc<dyn Shelf>> {
    let mut shelves: Vec<Arc<dyn Shelf>> = vec![Arc::new(MemoryShelf::new())];
    shelves.extend(MEDIA.map(|medium| medium.shelf(0) as Arc<dyn Shelf>));
    shelves
}

/// Bytes that differ from those of every other record, wherever they are cut.
pub(crate) fn payload(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(31) + number.wrapping_mul(7919) + (i >> 8)) as u8).collect()
}

pub(crate) fn all(journal: &Journal) -> Result<Vec<Record>, JournalError> {
    journal.read(journal.first()).collect()
}

/// The seed of a randomised test: from the environment variable SEED, or `default`.
pub(crate) fn seed(default: u64) -> u64 {
    std::env::var("SEED").map_or(default, |text| text.parse().expect("SEED is a number"))
}

/// The message of a failed randomised test.
pub(crate) fn replay(seed: u64, test: &str) -> String {
    format!("replay: SEED={seed} cargo test -p journal --test main {test} -- --exact --nocapture")
}

/// The appended, acknowledged and truncated records, each with its moment in the recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) records: Vec<Record>,
    /// (number of operations at that time, records acknowledged until then)
    pub(crate) acknowledged: Vec<(usize, usize)>,
    /// (number of operations when the truncation began, records that may be gone)
    pub(crate) truncated: Vec<(usize, usize)>,
}

impl History {
    pub(crate) fn append(&mut self, journal: &Journal, bytes: usize) -> Lsn {
        let number = self.records.len() as u64;
        let record = payload(number, bytes);
        let (left, right) = record.split_at(bytes / 3);
        let lsn = journal.append(number as u8, &[left, right]).expect("the simulated shelf has space");
        self.records.push(Record { lsn, kind: number as u8, payload: record });
        lsn
    }

    /// Appends and commits in one call, which uses another write path on persistent memory.
    pub(crate) fn append_commit(&mut self, journal: &Journal, shelf: &CrashShelf, bytes: usize) {
        let number = self.records.len() as u64;
        let record = payload(number, bytes);
        let (left, right) = record.split_at(bytes / 3);
        let lsn =
            journal.append_commit(number as u8, &[left, right]).expect("the simulated shelf has space, and works");
        self.records.push(Record { lsn, kind: number as u8, payload: record });
        self.acknowledge(shelf);
    }

    pub(crate) fn commit(&mut self, journal: &Journal, shelf: &CrashShelf) {
        journal.commit(journal.appended()).expect("the simulated shelf works");
        self.acknowledge(shelf);
    }

    pub(crate) fn acknowledge(&mut self, shelf: &CrashShelf) {
        self.acknowledged.push((shelf.operations(), self.records.len()));
    }

    pub(crate) fn truncate(&mut self, journal: &Journal, shelf: &CrashShelf, keep: usize) {
        let index = self.records.len() - keep;
        self.truncated.push((shelf.operations(), index));
        journal.truncate(self.records[index].lsn).expect("the simulated shelf works");
    }

    /// Whether a power failure at `point` may leave exactly `found`.
    pub(crate) fn check(&self, point: usize, found: &[Record]) -> Result<(), String> {
        let at = |list: &[(usize, usize)]| list.iter().filter(|(when, _)| *when <= point).map(|(_, n)| *n).max();
        let acknowledged = at(&self.acknowledged).unwrap_or(0);
        let may_be_gone = at(&self.truncated).unwrap_or(0);
        let from = match found.first() {
            None => may_be_gone,
            Some(first) => self.records.iter().position(|record| record.lsn == first.lsn).ok_or("an unknown record")?,
        };
        if from > may_be_gone {
            return Err(format!("record {may_be_gone} is missing: the first one found is {from}"));
        }
        let to = from + found.len();
        if to < acknowledged {
            return Err(format!("{acknowledged} records were acknowledged, {to} found"));
        }
        if self.records.get(from..to) != Some(found) {
            return Err(format!("records {from}..{to} are not what was appended"));
        }
        Ok(())
    }
}

/// Opens the journal on the shelf and reads all records.
pub(crate) fn recover(shelf: Arc<dyn Shelf>) -> Result<(Journal, Vec<Record>), JournalError> {
    recover_checking(shelf, Check::Everything)
}

pub(crate) fn recover_checking(shelf: Arc<dyn Shelf>, check: Check) -> Result<(Journal, Vec<Record>), JournalError> {
    let (journal, recovered) = Journal::open(shelf, Options { check, ..small() })?;
    let records = all(&journal)?;
    match check {
        Check::Everything => assert_eq!(recovered.records, records.len() as u64, "recovery and reading count alike"),
        Check::Tail => assert!(recovered.records <= records.len() as u64),
    }
    Ok((journal, records))
}
