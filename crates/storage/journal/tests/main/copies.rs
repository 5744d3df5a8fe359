//! Copies of parts of a log, on every medium, while the log is being written: they have the same records at the same
//! places, up to the last whole batch.

use std::sync::Arc;

use device::{AlignedBuffer, MemoryShelf, Shelf};
use journal::{Journal, JournalError, Lsn, Record, View, copy, ends_within, is_continued_by};

use crate::support::{MEDIA, all, clear_and_encrypted, payload, recover, seed, small};

/// A journal of several segments, and the end of each commit.
fn write(shelf: Arc<dyn Shelf>) -> (Journal, Vec<Lsn>) {
    let (journal, _) = Journal::open(shelf, small()).expect("opens");
    let mut ends = vec![journal.durable()];
    for number in 0..40_u64 {
        for part in 0..=number % 3 {
            journal.append(part as u8, &[&payload(number * 3 + part, 100 * number as usize)]).expect("appends");
        }
        journal.commit(journal.appended()).expect("commits");
        ends.push(journal.durable());
    }
    (journal, ends)
}

#[test]
fn a_copy_up_to_any_commit_opens_with_exactly_the_records_before_it_at_their_places() {
    clear_and_encrypted(|| {
        for medium in MEDIA {
            let source = medium.shelf(seed(31));
            let (journal, ends) = write(source.clone());
            let records = all(&journal).expect("reads");
            for (number, until) in ends.iter().enumerate().step_by(3) {
                // One byte before the end of the next batch: the copy ends with the batch before.
                let short = ends.get(number + 1).map_or(*until, |next| Lsn(next.0 - 1));
                for until in [*until, short] {
                    let to = medium.shelf(seed(32));
                    let view = View::open(source.clone()).expect("opens");
                    let copied = copy(&view, &*to, journal.first(), until).expect("copies");
                    // What lies behind the batch up to the next one is padding: how much of it is counted depends on the medium.
                    assert!((ends[number]..=until).contains(&copied.end), "{medium:?}: {} up to {until}", copied.end);
                    let (_, found) = recover(to).expect("opens");
                    let expected: Vec<Record> = records.iter().filter(|r| r.lsn < ends[number]).cloned().collect();
                    assert_eq!(found, expected, "{medium:?} up to {until}");
                }
            }
        }
    });
}

#[test]
fn a_copy_from_a_later_place_begins_with_its_segment_and_one_from_an_earlier_place_is_refused() {
    let source = Arc::new(MemoryShelf::new());
    let (journal, ends) = write(source.clone());
    let records = all(&journal).expect("reads");
    let to = Arc::new(MemoryShelf::new());
    let view = View::open(source.clone()).expect("opens");
    let copied = copy(&view, &*to, ends[30], Lsn(u64::MAX)).expect("copies");
    assert!(copied.first > Lsn::ZERO && copied.first <= ends[30] && copied.segments > 1, "{copied:?}");
    let (restored, _) = Journal::open(to, small()).expect("opens");
    let found: Vec<Record> = restored.read(ends[30]).collect::<Result<_, _>>().expect("reads");
    assert_eq!(found, records.iter().filter(|record| record.lsn >= ends[30]).cloned().collect::<Vec<_>>());
    journal.truncate(ends[30]).expect("truncates");
    let view = View::open(source).expect("opens");
    let none = Arc::new(MemoryShelf::new());
    assert!(matches!(copy(&view, &*none, ends[1], ends[39]), Err(JournalError::Truncated { .. })));
    assert!(matches!(copy(&view, &*none, ends[39], ends[30]), Err(JournalError::BeyondEnd { .. })));
    assert!(none.list().expect("lists").is_empty(), "nothing was made");
}

#[test]
fn a_copy_from_a_later_place_needs_no_segment_before_it() {
    let source = Arc::new(MemoryShelf::new());
    let (journal, ends) = write(source.clone());
    let records = all(&journal).expect("reads");
    let view = View::open(source.clone()).expect("opens");
    let first = view.first();
    journal.truncate(ends[30]).expect("truncates beside the copy");
    assert!(journal.first() > first, "segments were removed");
    let to = Arc::new(MemoryShelf::new());
    copy(&view, &*to, ends[30], journal.durable()).expect("what it needs is there");
    let (restored, _) = Journal::open(to, small()).expect("opens");
    let found: Vec<Record> = restored.read(ends[30]).collect::<Result<_, _>>().expect("reads");
    assert_eq!(found, records.iter().filter(|record| record.lsn >= ends[30]).cloned().collect::<Vec<_>>());
}

#[test]
fn a_copy_from_the_very_end_goes_on_there_also_where_a_segment_ends() {
    let source = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(source.clone(), small()).expect("opens");
    let mut boundaries = 0;
    for number in 0..40 {
        let end = journal.durable();
        boundaries += u32::from(end.0.is_multiple_of(small().segment_bytes));
        let to = Arc::new(MemoryShelf::new());
        let view = View::open(source.clone()).expect("opens");
        let copied = copy(&view, &*to, end, end).expect("copies");
        assert_eq!((copied.end, copied.segments), (end, 1));
        let again = Arc::new(MemoryShelf::new());
        let view = View::open(to).expect("opens");
        copy(&view, &*again, end, Lsn(u64::MAX)).expect("copies a copy");
        let (restored, recovered) = Journal::open(again, small()).expect("opens");
        assert!(recovered.first <= end && recovered.end > end, "it goes on behind {end}");
        assert!(restored.read(end).next().is_none(), "nothing was there");
        let lsn = restored.append_commit(1, &[b"next"]).expect("works");
        assert!(lsn >= end);
        journal.append_commit(number, &[b"one block"]).expect("works");
    }
    assert!(boundaries >= 3, "{boundaries} of the ends were those of segments");
}

#[test]
fn a_log_and_a_copy_of_it_that_went_on_by_itself_are_told_apart_at_every_end_and_on_every_medium() {
    clear_and_encrypted(|| {
        for medium in MEDIA {
            let source: Arc<dyn Shelf> = medium.shelf(seed(33));
            let (journal, ends) = write(source.clone());
            let part = |from: Lsn, until: Lsn| {
                let to: Arc<dyn Shelf> = medium.shelf(seed(34));
                let view = View::open(source.clone()).expect("opens");
                copy(&view, &*to, from, until).expect("copies");
                to
            };
            let view = |shelf: &Arc<dyn Shelf>| View::open(shelf.clone()).expect("opens");
            // The copy goes on with batches of the same sizes at the same places.
            let branch = part(journal.first(), ends[20]);
            {
                let (other, _) = Journal::open(branch.clone(), small()).expect("opens");
                for number in 20..60_u64 {
                    for part in 0..=number % 3 {
                        other
                            .append(part as u8, &[&payload(7_000 + number, 100 * (number as usize % 40))])
                            .expect("appends");
                    }
                    other.commit(other.appended()).expect("commits");
                }
            }
            let (own, other) = (view(&source), view(&branch));
            assert!(other.end() > own.end() && own.identity() == other.identity(), "{medium:?}: nothing else tells");
            for (number, until) in ends.iter().enumerate().skip(1) {
                let backup = view(&part(ends[number - 1], *until));
                assert!(is_continued_by(&backup, &own).expect("reads"), "{medium:?} {number}");
                assert_eq!(is_continued_by(&backup, &other).expect("reads"), number <= 20, "{medium:?} {number}");
            }
            journal.truncate(ends[30]).expect("truncates");
            let (own, backup) = (view(&source), view(&part(ends[31], ends[35])));
            assert!(is_continued_by(&backup, &own).expect("reads"), "what is kept no more is not compared");
            assert!(!is_continued_by(&backup, &other).expect("reads"), "{medium:?}");
        }
    });
}

#[test]
fn a_copy_that_is_damaged_ahead_of_its_last_segment_is_told_apart_by_that_one() {
    let source: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
    let (journal, ends) = write(source.clone());
    let view = |shelf: &Arc<dyn Shelf>| View::open(shelf.clone()).expect("opens");
    let part = |until: Lsn| {
        let to: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        copy(&view(&source), &*to, journal.first(), until).expect("copies");
        to
    };
    let branch = part(ends[20]);
    {
        let (other, _) = Journal::open(branch.clone(), small()).expect("opens");
        for number in 20..60_u64 {
            let record = payload(7_000 + number, 100 * (number as usize % 40));
            other.append_commit(0, &[&record]).expect("works");
        }
    }
    let backup = part(ends[40]);
    let end = view(&backup).end();
    let device = backup.open("journal-0000000000000000").expect("is there");
    let mut block = AlignedBuffer::zeroed(4096);
    device.read(8192, &mut block).expect("reads");
    block.iter_mut().for_each(|byte| *byte ^= 0x55);
    device.write(8192, &block).expect("writes");
    let damaged = view(&backup);
    assert_eq!(damaged.end(), end, "its last segment is whole");
    assert!(matches!(is_continued_by(&damaged, &view(&source)), Err(JournalError::Corrupt(_))));
    assert!(ends_within(&damaged, &view(&source)).expect("reads"));
    assert!(!ends_within(&damaged, &view(&branch)).expect("reads"), "it went on otherwise");
}
