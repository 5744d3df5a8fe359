//! The behaviour of a journal without faults.

use std::sync::Arc;
use std::time::Duration;

use device::{AlignedBuffer, MemoryShelf, QuotaShelf, Shelf};
use journal::{Check, Journal, JournalError, Lsn, Options, Record, View, verify};

use crate::support::{payload, small};

fn all(journal: &Journal) -> Vec<Record> {
    crate::support::all(journal).expect("everything is readable")
}

#[test]
fn what_was_appended_is_read_back_in_order_before_and_after_reopening() {
    let shelf = Arc::new(MemoryShelf::new());
    let mut expected = Vec::new();
    for round in 0..4u64 {
        let (journal, recovered) = Journal::open(shelf.clone(), small()).expect("opens");
        assert_eq!((recovered.records, recovered.torn_bytes), (expected.len() as u64, 0));
        for number in 0..40 {
            let number = round * 40 + number;
            let record = payload(number, (number as usize * 97) % 3000);
            let (left, right) = record.split_at(record.len() / 3);
            let lsn = journal.append(number as u8, &[left, right]).expect("appends");
            if number % 3 == 0 {
                journal.commit(lsn).expect("commits");
                assert!(journal.durable() > lsn);
            }
            expected.push(Record { lsn, kind: number as u8, payload: record });
        }
        journal.commit(journal.appended()).expect("commits");
        assert_eq!(journal.durable(), journal.appended());
        assert_eq!(all(&journal), expected);
        for record in &expected {
            assert_eq!(journal.read_at(record.lsn).expect("is there"), *record);
        }
        journal.close().expect("closes");
    }
    let view = View::open(shelf).expect("opens");
    assert_eq!(view.read(view.first()).collect::<Result<Vec<_>, _>>().expect("readable"), expected);
    assert_eq!(view.corruption(), None);
}

#[test]
fn a_record_may_be_larger_than_buffers_and_segments() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let mut expected = Vec::new();
    for (number, bytes) in [0, 1, 5_000, 8_192, 31_000, 32_768, 200_000, 1 << 20, 17].into_iter().enumerate() {
        let record = payload(number as u64, bytes);
        let lsn = journal.append(number as u8, &[&record]).expect("appends");
        expected.push(Record { lsn, kind: number as u8, payload: record });
    }
    assert!(matches!(journal.append(0, &[&vec![0; (1 << 20) + 1]]), Err(JournalError::TooLarge { .. })));
    journal.commit(expected[expected.len() - 1].lsn).expect("commits");
    assert_eq!(all(&journal), expected);
    drop(journal);
    let (journal, recovered) = Journal::open(shelf, small()).expect("opens");
    assert_eq!(recovered.records, expected.len() as u64);
    assert_eq!(all(&journal), expected);
}

#[test]
fn truncation_gives_up_whole_segments_and_keeps_what_lies_behind() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let mut records = Vec::new();
    for number in 0..200u64 {
        let record = payload(number, 1000);
        let lsn = journal.append(1, &[&record]).expect("appends");
        journal.commit(lsn).expect("commits");
        records.push(Record { lsn, kind: 1, payload: record });
    }
    let middle = records[100].lsn;
    assert!(
        journal.frees(middle) && !journal.frees(records[0].lsn),
        "the first segment has more than the first record"
    );
    journal.truncate(middle).expect("truncates");
    assert!(!journal.frees(middle), "it is done");
    assert!(journal.first() > Lsn::ZERO && journal.first() <= middle);
    assert!(matches!(journal.read_at(records[0].lsn), Err(JournalError::Truncated { .. })));
    assert!(matches!(journal.read(records[0].lsn).next(), Some(Err(JournalError::Truncated { .. }))));
    let kept: Vec<Record> = records.iter().filter(|record| record.lsn >= journal.first()).cloned().collect();
    assert!(kept.len() >= 100);
    assert_eq!(all(&journal), kept);
    for number in 200..400u64 {
        let lsn = journal.append(1, &[&payload(number, 1000)]).expect("appends");
        journal.commit(lsn).expect("commits");
        journal.truncate(lsn).expect("truncates");
    }
    assert!(journal.stats().segments_recycled > 10, "{:?}", journal.stats());
    drop(journal);
    let (journal, _) = Journal::open(shelf, small()).expect("opens");
    assert_eq!(all(&journal).last().map(|record| record.payload.clone()), Some(payload(399, 1000)));
}

#[test]
fn positions_that_are_no_records_are_told_from_damage() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, recovered) = Journal::open(shelf, small()).expect("opens");
    let one = journal.append(7, &[&payload(1, 10_000)]).expect("appends");
    let two = journal.append(7, &[&payload(2, 100)]).expect("appends");
    assert!(matches!(journal.read_at(one), Err(JournalError::BeyondEnd { .. })));
    journal.commit(two).expect("commits");
    assert_eq!(journal.read_at(two).expect("is there").payload, payload(2, 100));
    for wrong in [recovered.end.0, one.0 + 8, one.0 + 9_000, two.0 - 8, two.0 + 1] {
        let answer = journal.read_at(Lsn(wrong));
        assert!(matches!(answer, Err(JournalError::NoRecord { .. })), "{wrong}: {answer:?}");
    }
    assert_eq!(journal.read(recovered.end).count(), 2);
    let mut tailing = journal.read(journal.durable());
    assert!(tailing.next().is_none());
    let three = journal.append(7, &[b"three"]).expect("appends");
    assert!(tailing.next().is_none());
    journal.commit(three).expect("commits");
    assert_eq!(tailing.next().expect("one more").expect("readable").lsn, three);
}

#[test]
fn waiting_for_appends_returns_at_once_when_there_is_one_and_after_the_timeout_when_not() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf, small()).expect("opens");
    let before = journal.appended();
    assert_eq!(journal.wait_appended(before, Duration::ZERO), before);
    let lsn = journal.append(1, &[b"x"]).expect("appends");
    let after = journal.wait_appended(before, Duration::from_secs(3600));
    assert!(after > lsn);
    journal.commit(after).expect("commits");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| journal.wait_appended(after, Duration::from_secs(3600)));
        let lsn = journal.append(1, &[b"y"]).expect("appends");
        assert!(waiter.join().expect("returns") > lsn);
    });
}

#[test]
fn a_record_of_fifty_megabytes_fits_the_default_segments_between_small_ones() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), Options::default()).expect("opens");
    let large: Vec<u8> = payload(1, 50 << 20);
    let outputs = [&large[..10 << 20], &large[10 << 20..11 << 20], &large[11 << 20..]];
    let before = journal.append(1, &[b"before"]).expect("appends");
    let lsn = journal.append(2, &outputs).expect("appends");
    let after = journal.append(1, &[b"after"]).expect("appends");
    journal.commit(after).expect("commits");
    assert!(journal.read_at(lsn).expect("is there").payload == large);
    let lsns: Vec<Lsn> = journal.read(before).map(|record| record.expect("readable").lsn).collect();
    assert_eq!(lsns, [before, lsn, after]);
    journal.close().expect("closes");
    let (_, recovered) = Journal::open(shelf, Options::default()).expect("opens");
    assert_eq!((recovered.records, recovered.torn_bytes), (3, 0));
}

#[test]
fn opening_only_the_tail_finds_the_same_end_and_leaves_damage_ahead_to_readers() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let mut expected = Vec::new();
    for number in 0..300u64 {
        let record = payload(number, 1 + (number as usize * 131) % 9000);
        let lsn = journal.append(1, &[&record]).expect("appends");
        journal.commit(lsn).expect("commits");
        expected.push(Record { lsn, kind: 1, payload: record });
        if number % 20 == 0 {
            let view = View::open(shelf.clone()).expect("opens");
            assert_eq!(view.end(), journal.durable());
        }
    }
    std::mem::forget(journal);
    let tail = Options { check: Check::Tail, ..small() };
    let (journal, recovered) = Journal::open(shelf.clone(), tail.clone()).expect("opens");
    assert!(recovered.segments > 20 && (1..60).contains(&recovered.records), "{recovered:?}");
    assert_eq!(all(&journal), expected);
    journal.close().expect("closes");
    let device = shelf.open("journal-0000000000008000").expect("is there");
    let mut block = AlignedBuffer::zeroed(4096);
    device.read(8192, &mut block).expect("reads");
    block[90] ^= 1;
    device.write(8192, &block).expect("writes");
    assert!(matches!(Journal::open(shelf.clone(), small()), Err(JournalError::Corrupt(_))));
    let (journal, _) = Journal::open(shelf.clone(), tail).expect("the tail is whole");
    let answers: Vec<_> = journal.read(journal.first()).collect();
    assert!(matches!(answers.last(), Some(Err(JournalError::Corrupt(_)))) && answers.len() < 20);
    let last = &expected[expected.len() - 1];
    assert_eq!(journal.read_at(last.lsn).expect("is whole"), *last);
    let view = View::open(shelf).expect("opens");
    assert_eq!(view.corruption(), None);
    assert!(verify(&view).expect("reads").corruption.is_some());
    assert!(view.corruption().is_some(), "what verifying found is known to the view");
}

#[test]
fn truncating_up_to_what_is_not_durable_yet_keeps_what_is_still_to_be_written() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let lsn = journal.append(1, &[&payload(1, 60_000)]).expect("appends: the buffers hold it");
    journal.truncate(journal.appended()).expect("truncates nothing");
    assert_eq!(journal.first(), Lsn::ZERO);
    journal.commit(lsn).expect("commits");
    assert_eq!(all(&journal)[0].payload, payload(1, 60_000));
    journal.truncate(journal.appended()).expect("truncates");
    assert!(journal.first() > lsn);
    journal.close().expect("closes");
    assert_eq!(Journal::open(shelf, small()).expect("opens").1.records, 0);
}

#[test]
fn a_reader_that_is_overtaken_by_truncation_is_told_so() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf, small()).expect("opens");
    let mut reader = journal.read(journal.first());
    let mut last = Lsn::ZERO;
    for number in 0..100 {
        last = journal.append(1, &[&payload(number, 2000)]).expect("appends");
        journal.commit(last).expect("commits");
    }
    assert_eq!(reader.next().expect("one").expect("readable").payload, payload(0, 2000));
    journal.truncate(last).expect("truncates");
    // The truncated segment is overwritten before the reader continues.
    for number in 100..200 {
        last = journal.append(1, &[&payload(number, 2000)]).expect("appends");
        journal.commit(last).expect("commits");
    }
    assert!(matches!(reader.next(), Some(Err(JournalError::Truncated { .. }))));
    assert!(reader.next().is_none(), "after an error it ends");
    assert!(journal.read(journal.first()).all(|record| record.is_ok()));
}

#[test]
fn a_closed_journal_writes_nothing_beside_the_one_that_was_opened_after_it() {
    let shelf = Arc::new(MemoryShelf::new());
    let open = || Journal::open(shelf.clone(), small()).expect("opens").0;
    let write = |journal: &Journal, number: u64| {
        let payload = payload(number, 700);
        let lsn = journal.append_commit(1, &[&payload]).expect("takes it");
        Record { lsn, kind: 1, payload }
    };
    let old = open();
    let mut expected = vec![write(&old, 0)];
    old.close().expect("closes");
    old.close().expect("again, nothing happens");
    let new = open();
    assert!(matches!(old.append(1, &[b"late"]), Err(JournalError::Closed)));
    assert!(matches!(old.append_commit(1, &[b"late"]), Err(JournalError::Closed)));
    assert!(matches!(old.truncate(old.durable()), Err(JournalError::Closed)));
    assert_eq!(all(&old), expected, "what it had can be read");
    expected.push(write(&new, 1));
    drop(old);
    expected.push(write(&new, 2));
    drop(new);
    assert_eq!(all(&open()), expected);
}

#[test]
fn closing_beside_threads_that_append_keeps_every_record_acknowledged_and_refuses_the_rest() {
    for round in 0..20u64 {
        let shelf = Arc::new(MemoryShelf::new());
        let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
        let acknowledged: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u64)
                .map(|thread| {
                    let journal = &journal;
                    scope.spawn(move || {
                        // Some records have many frames: closing then finds records that are appended only in part.
                        let sizes = (0u64..).map(|n| if n % 5 == thread { 30_000 } else { 300 });
                        let results = sizes.map(|bytes| journal.append_commit(1, &[&vec![7; bytes]]));
                        results.take_while(|result| !matches!(result, Err(JournalError::Closed))).fold(
                            0,
                            |count, result| {
                                result.expect("takes it");
                                count + 1
                            },
                        )
                    })
                })
                .collect();
            while journal.stats().records < 10 * (round % 4) {
                std::thread::yield_now();
            }
            journal.close().expect("closes");
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        let (again, recovered) = Journal::open(shelf, small()).expect("opens beside the closed one");
        assert_eq!((all(&again).len(), recovered.torn_bytes), (acknowledged, 0), "round {round}");
    }
}

/// The spare segments of a shelf, by size.
fn spares(shelf: &dyn Shelf) -> Vec<u64> {
    let names = shelf.list().expect("lists").into_iter().filter(|name| name.starts_with("spare-"));
    names.map(|name| shelf.open_read_only(&name).expect("opens").len()).collect()
}

#[test]
fn spares_of_another_size_do_not_count_as_reserved() {
    let shelf = Arc::new(MemoryShelf::new());
    let options = Options { spare_segments: 4, ..small() };
    let (journal, _) = Journal::open(shelf.clone(), options.clone()).expect("opens");
    journal.reserve_segments(3).expect("there is space");
    journal.close().expect("closes");
    drop(journal);
    assert_eq!(spares(&*shelf), [32 << 10; 3]);
    let (journal, _) = Journal::open(shelf.clone(), Options { segment_bytes: 64 << 10, ..options }).expect("opens");
    journal.reserve_segments(4).expect("there is space");
    assert_eq!(spares(&*shelf), [64 << 10; 4]);
}

#[test]
fn a_journal_that_is_recycled_leaves_its_space_to_the_next_one_and_none_of_its_records() {
    let shelf = Arc::new(QuotaShelf::new(Arc::new(MemoryShelf::new()), 1 << 20).expect("it lists"));
    let open =
        |identity| Journal::open(shelf.clone(), Options { spare_segments: 4, identity, ..small() }).expect("opens").0;
    let journal = open(1);
    journal.reserve_segments(3).expect("there is space");
    (0..60_u64).for_each(|number| _ = journal.append_commit(1, &[&payload(number, 1000)]).expect("appends"));
    drop(journal);
    shelf.set_bytes(shelf.taken_bytes());
    let taken = shelf.taken_bytes();
    journal::recycle(&*shelf).expect("it renames");
    let journal = open(2);
    assert_eq!((shelf.taken_bytes(), journal.identity()), (taken, 2));
    assert_eq!(all(&journal), []);
    let records: Vec<_> = (0..30_u64).map(|number| payload(100 + number, 900)).collect();
    records.iter().for_each(|record| _ = journal.append_commit(2, &[record]).expect("its segments have space"));
    drop(journal);
    // Places that were not written again still have frames of the first one.
    let found: Vec<_> = all(&open(2)).into_iter().map(|record| record.payload).collect();
    assert_eq!(found, records);
}

#[test]
fn sizes_of_records_and_of_batches_are_counted_from_when_they_are_asked_for_first() {
    let (journal, _) = Journal::open(Arc::new(MemoryShelf::new()), small()).expect("opens");
    let append = |bytes: usize| _ = journal.append_commit(1, &[&payload(7, bytes)]).expect("appends");
    let counted = |of: &[u64]| of.iter().sum::<u64>();
    append(10);
    let first = journal.group_commits();
    assert_eq!((counted(&first.record_bytes), counted(&first.batch_records)), (0, 0), "nobody wanted to know");
    [10, 10, 12, 5_000].into_iter().for_each(append);
    let found = journal.group_commits();
    assert_eq!((found.record_bytes[10], found.record_bytes[12], counted(&found.record_bytes)), (2, 1, 4));
    assert_eq!((found.batch_records[1], counted(&found.batch_records)), (4, 4), "each was alone");
}
