//! Devices that fail: a failed write or flush poisons the journal until it is reopened. A full shelf does not poison
//! it.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::faulty::{Fault, Rule};
use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{Device, DeviceError, Durability, FaultyShelf, MemoryShelf, Operation, Shelf, WrappedShelf};
use journal::{Journal, JournalError, Lsn, Options, Preparation, View};

use crate::support::{all, payload, recover, shelves, small};

#[test]
fn after_a_failed_flush_or_write_nothing_is_taken_until_reopening_recovers() {
    for (operation, fault) in [
        (Operation::Flush, Fault::Eio),
        (Operation::Write, Fault::Eio),
        (Operation::Write, Fault::Short { bytes: 4096 }),
        (Operation::Write, Fault::NoSpace),
    ] {
        for at_once in [false, true] {
            shelves().into_iter().for_each(|shelf| fails_once(shelf, Rule::nth(operation, 1, fault), at_once));
        }
    }
}

fn fails_once(medium: Arc<dyn Shelf>, rule: Rule, at_once: bool) {
    let faulty = Arc::new(FaultyShelf::new(medium.clone()));
    let (journal, _) = Journal::open(faulty.clone(), small()).expect("opens");
    let kept = journal.append(1, &[b"kept"]).expect("appends");
    journal.commit(kept).expect("commits");
    faulty.inject(rule);
    let before = journal.durable();
    let failed = if at_once {
        journal.append_commit(1, &[&payload(2, 6000)]).map(drop)
    } else {
        journal.append(1, &[&payload(2, 6000)]).and_then(|lsn| journal.commit(lsn))
    };
    assert!(matches!(failed, Err(JournalError::Poisoned { .. })), "{medium:?}: {failed:?}");
    assert_eq!(faulty.hits(), 1);
    faulty.heal();
    assert!(matches!(journal.commit(journal.appended()), Err(JournalError::Poisoned { .. })));
    assert!(matches!(journal.append(1, &[b"more"]), Err(JournalError::Poisoned { .. })));
    assert!(matches!(journal.append_commit(1, &[b"more"]), Err(JournalError::Poisoned { .. })));
    assert!(matches!(journal.append(1, &[&payload(3, 50_000)]), Err(JournalError::Poisoned { .. })));
    assert_eq!(journal.durable(), before);
    journal.commit(kept).expect("what was durable stays durable");
    assert_eq!(journal.read_at(kept).expect("and readable").payload, b"kept");
    assert!(matches!(journal.close(), Err(JournalError::Poisoned { .. })));
    let (journal, records) = recover(medium).expect("recovers");
    assert_eq!(records[0].payload, b"kept");
    let lsn = journal.append(1, &[b"goes on"]).expect("appends");
    journal.commit(lsn).expect("commits");
}

#[test]
fn a_full_shelf_refuses_appends_whole_and_takes_them_again_once_there_is_space() {
    for (preparation, memory) in [Preparation::Inline, Preparation::Background]
        .into_iter()
        .flat_map(|how| shelves().into_iter().map(move |on| (how, on)))
    {
        let faulty = Arc::new(FaultyShelf::new(memory.clone()));
        let options = Options { preparation, ..small() };
        let (journal, _) = Journal::open(faulty.clone(), options).expect("opens");
        faulty.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
        let mut expected = Vec::new();
        loop {
            let record = payload(expected.len() as u64, 1000);
            match journal.append(1, &[&record]) {
                Ok(lsn) => {
                    journal.commit(lsn).expect("commits");
                    expected.push(record);
                }
                Err(JournalError::Full { bytes }) => {
                    assert_eq!(bytes, 32 << 10);
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
        let large = payload(99, 60_000);
        assert!(matches!(journal.append(1, &[&large]), Err(JournalError::Full { .. })));
        assert_eq!(journal.appended(), journal.durable(), "nothing of what was refused was appended");
        faulty.heal();
        let lsn = journal.append(1, &[&large]).expect("there is space again");
        journal.commit(lsn).expect("commits");
        expected.push(large);
        journal.close().expect("closes");
        let (_, found) = recover(memory).expect("recovers");
        assert_eq!(found.into_iter().map(|record| record.payload).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_journal_without_a_descriptor_for_the_next_segment_waits_for_one_and_takes_records_again() {
    for memory in shelves() {
        let faulty = Arc::new(FaultyShelf::new(memory.clone()));
        let options = Options { preparation: Preparation::Background, ..small() };
        let (journal, _) = Journal::open(faulty.clone(), options).expect("opens");
        for operation in [Operation::Create, Operation::Open] {
            faulty.inject(Rule::from(operation, 1, Fault::NoDescriptors));
        }
        let mut expected = Vec::new();
        loop {
            let record = payload(expected.len() as u64, 1000);
            match journal.append(1, &[&record]) {
                Ok(lsn) => {
                    journal.commit(lsn).expect("commits");
                    expected.push(record);
                }
                Err(JournalError::NoDescriptors) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(journal.lacks_descriptor(), "it says why, and goes on trying");
        assert!(matches!(journal.make_room(1000), Err(JournalError::NoDescriptors)));
        assert_eq!(journal.appended(), journal.durable(), "nothing of what was refused was appended");
        faulty.heal();
        let began = std::time::Instant::now();
        while journal.lacks_descriptor() {
            assert!(began.elapsed().as_secs() < 60, "the segment is made without anybody asking");
            std::thread::yield_now();
        }
        journal.make_room(1000).expect("there is room");
        let lsn = journal.append(1, &[&payload(99, 1000)]).expect("it takes records again");
        journal.commit(lsn).expect("nothing was poisoned");
        expected.push(payload(99, 1000));
        journal.close().expect("closes");
        let (_, found) = recover(memory).expect("recovers");
        assert_eq!(found.into_iter().map(|record| record.payload).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn truncation_makes_room_on_a_full_shelf() {
    let faulty = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let (journal, _) = Journal::open(faulty.clone(), small()).expect("opens");
    let mut last = journal.append(1, &[&payload(0, 70_000)]).expect("appends");
    journal.commit(last).expect("commits");
    faulty.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    while let Ok(lsn) = journal.append(1, &[&payload(1, 2000)]) {
        journal.commit(lsn).expect("commits");
        last = lsn;
    }
    journal.truncate(last).expect("truncates");
    let lsn = journal.append(1, &[&payload(2, 2000)]).expect("a truncated segment is used again");
    journal.commit(lsn).expect("commits");
    assert_eq!(all(&journal).expect("readable").last().map(|record| record.lsn), Some(lsn));
}

#[test]
fn a_journal_that_small_records_have_filled_opens_again_and_goes_on_once_it_is_truncated() {
    for at_once in [false, true] {
        for memory in shelves() {
            let faulty = Arc::new(FaultyShelf::new(memory));
            let options = || Options { preparation: Preparation::Background, ..small() };
            let (journal, _) = Journal::open(faulty.clone(), options()).expect("opens");
            let large = journal.append(1, &[&payload(0, 70_000)]).expect("there is space");
            journal.commit(large).expect("commits");
            faulty.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
            // A large one is refused long before small ones are: those take what is left, one unit after the other.
            let mut taken = 1;
            let refused = loop {
                let appended = match at_once {
                    true => journal.append_commit(1, &[&[7; 100]]),
                    false => journal.append(1, &[&[7; 100]]).and_then(|lsn| journal.commit(lsn).map(|()| lsn)),
                };
                match appended {
                    Ok(_) => taken += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused, JournalError::Full { .. }), "{refused}");
            journal.close().expect("closes");
            let (journal, found) = Journal::open(faulty.clone(), options()).expect("opens although the shelf is full");
            assert_eq!(found.records, taken);
            assert!(matches!(journal.append(1, &[b"more"]), Err(JournalError::Full { .. })));
            assert_eq!(all(&journal).expect("reads").len() as u64, taken);
            journal.truncate(journal.durable()).expect("truncates");
            let lsn = journal.append(1, &[b"goes on"]).expect("a truncated segment is used again");
            journal.commit(lsn).expect("commits");
            journal.close().expect("closes");
            let (journal, _) = Journal::open(faulty, options()).expect("opens");
            assert_eq!(journal.read_at(lsn).expect("reads").payload, b"goes on");
        }
    }
}

#[test]
fn a_journal_whose_next_segment_cannot_be_made_closes_in_good_order() {
    let memory = Arc::new(MemoryShelf::new());
    let faulty = Arc::new(FaultyShelf::new(memory.clone()));
    let (journal, _) = Journal::open(faulty.clone(), small()).expect("opens");
    faulty.inject(Rule::from(Operation::Create, 1, Fault::Eio));
    let error = journal.append(1, &[&payload(0, 100_000)]).expect_err("the segments it needs cannot be made");
    assert!(matches!(error, JournalError::Device(_)), "{error}");
    let lsn = journal.append(1, &[b"fits"]).expect("appends");
    journal.commit(lsn).expect("commits");
    journal.close().expect("closes");
    assert_eq!(recover(memory).expect("recovers").1.len(), 1);
}

#[test]
fn opening_reports_an_unreadable_block_and_changes_nothing() {
    let memory = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(memory.clone(), small()).expect("opens");
    journal.append(1, &[b"one"]).expect("appends");
    journal.close().expect("closes");
    let faulty = Arc::new(FaultyShelf::new(memory.clone()));
    faulty.inject(Rule::nth(Operation::Read, 2, Fault::Eio));
    assert!(matches!(Journal::open(faulty.clone(), small()), Err(JournalError::Device(_))));
    assert_eq!(faulty.hits(), 1);
    let view = View::open(memory.clone()).expect("opens");
    assert_eq!(view.read(view.first()).count(), 1);
    assert_eq!(memory.list().expect("lists").len(), 1);
}

#[test]
fn a_write_that_the_device_lost_or_misplaced_is_refused_at_opening_once_it_was_acknowledged() {
    let faults = [Fault::Lost, Fault::Misdirected { blocks: 1 }, Fault::Misdirected { blocks: 3 }];
    for (fault, memory) in faults.into_iter().flat_map(|fault| shelves().into_iter().map(move |on| (fault, on))) {
        let faulty = Arc::new(FaultyShelf::new(memory.clone()));
        let (journal, _) = Journal::open(faulty.clone(), small()).expect("opens");
        let commit = |number| {
            let lsn = journal.append(1, &[&payload(number, 500)]).expect("appends");
            journal.commit(lsn).expect("commits");
            lsn
        };
        commit(0);
        faulty.inject(Rule::nth(Operation::Write, 1, fault));
        let lost = commit(1);
        assert_eq!(faulty.hits(), 1);
        // Two batches later, the log proves that the lost batch was durable.
        commit(2);
        commit(3);
        assert!(matches!(journal.read_at(lost), Err(JournalError::Corrupt(_))));
        std::mem::forget(journal);
        let error = Journal::open(memory.clone(), small()).expect_err("is refused");
        let JournalError::Corrupt(corruption) = error else { panic!("{error}") };
        assert_eq!(corruption.lsn.0, lost.0 - 48, "{corruption}");
        let view = View::open(memory).expect("opens");
        assert_eq!(view.read(view.first()).count(), 1);
    }
}

/// A device whose flush panics when the test enables it.
#[derive(Debug)]
struct PanickingDevice {
    inner: Arc<dyn Device>,
    armed: Arc<AtomicBool>,
}

impl Device for PanickingDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(offset, data)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        assert!(!self.armed.load(Ordering::SeqCst), "the device panics, as this test wants");
        self.inner.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }
    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}

#[test]
fn a_device_that_panics_poisons_the_journal_and_leaves_nobody_waiting() {
    let armed = Arc::new(AtomicBool::new(false));
    let shelf = Arc::new(WrappedShelf::new(Arc::new(MemoryShelf::new()), {
        let armed = armed.clone();
        move |inner| Arc::new(PanickingDevice { inner, armed: armed.clone() })
    }));
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    armed.store(true, Ordering::SeqCst);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let commit = || journal.append(1, &[b"one"]).and_then(|lsn| journal.commit(lsn));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(commit)).collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    assert!(outcomes.iter().any(Result::is_err), "the leader panicked");
    let told = outcomes.iter().flatten().all(|answer| matches!(answer, Err(JournalError::Poisoned { .. })));
    assert!(told, "the others were told: {outcomes:?}");
    assert!(matches!(journal.append(1, &[b"more"]), Err(JournalError::Poisoned { .. })));
    drop(journal);
    armed.store(false, Ordering::SeqCst);
    let (journal, _) = recover(shelf).expect("recovers");
    journal.close().expect("closes");
}

#[test]
fn a_lost_page_takes_with_it_no_record_that_does_not_lie_on_it() {
    let directory = tempfile::tempdir().expect("there is a temporary directory");
    let shelf = PmemShelf::open(directory.path(), PmemOptions { absent: Absent::Emulate }).expect("opens");
    let (journal, _) = Journal::open(Arc::new(shelf), small()).expect("opens");
    let lsns: Vec<Lsn> =
        (0..10).map(|number| journal.append_commit(1, &[&payload(number, 2000)]).expect("commits")).collect();
    // The file is truncated at a page: an access beyond the end of a mapped file fails as a poisoned page does.
    let cut = lsns[5].0.next_multiple_of(4096);
    let segment = directory.path().join("journal-0000000000000000");
    File::options().write(true).open(segment).expect("opens").set_len(cut).expect("shortens");
    for (number, lsn) in lsns.iter().enumerate() {
        let found = journal.read_at(*lsn);
        if lsns.get(number + 1).is_some_and(|next| next.0 <= cut) {
            assert_eq!(found.expect("lies before the cut").payload, payload(number as u64, 2000));
        } else if lsn.0 >= cut {
            assert!(matches!(found, Err(JournalError::Device(DeviceError::Lost { .. }))), "{number}: {found:?}");
            let told = found.map(drop).map_err(|error| error.to_string()).expect_err("is lost");
            assert!(told.starts_with("journal-0000000000000000 has lost 4096 bytes at "), "{told}");
        }
    }
    std::mem::forget(journal);
}
