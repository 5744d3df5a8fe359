//! Damage by the medium: the test changes each byte of a small closed journal in turn. Opening or reading must report
//! the damage, or the byte must be unused. Wrong bytes must never be returned.

use std::sync::Arc;

use device::{AlignedBuffer, MemoryShelf, Shelf};
use journal::{Journal, JournalError, Options, Record, View, verify};

use crate::support::{all, clear_and_encrypted, payload, small, view};

/// The whole journal in one segment.
fn one_segment() -> Options {
    Options { segment_bytes: 64 << 10, ..small() }
}

const NAME: &str = "journal-0000000000000000";

fn closed_journal() -> (Arc<MemoryShelf>, Vec<Record>, u64) {
    let shelf = Arc::new(MemoryShelf::new());
    for bytes in [300, 5000] {
        let (journal, _) = Journal::open(shelf.clone(), one_segment()).expect("opens");
        for number in 0..2 {
            let lsn = journal.append(number as u8, &[&payload(number, bytes)]).expect("appends");
            journal.commit(lsn).expect("commits");
        }
        journal.close().expect("closes");
    }
    let view = view(shelf.clone()).expect("opens");
    let records = view.read(view.first()).collect::<Result<_, _>>().expect("readable");
    (shelf, records, view.end().0)
}

#[test]
fn no_changed_byte_of_a_closed_journal_goes_unnoticed_or_changes_a_record() {
    clear_and_encrypted(|| {
        let (pristine, expected, end) = closed_journal();
        let device = pristine.open(NAME).expect("is there");
        let mut original = AlignedBuffer::zeroed(device.len() as usize);
        device.read(0, &mut original).expect("reads");
        let (mut refused, mut padding, mut unwritten) = (0, 0, 0);
        for at in 0..original.len() {
            // Every byte at the beginning of a block, where the headers are, and of the beginning of every payload;
            // elsewhere each 13th byte.
            if at % 4096 > 160 && at % 13 != 0 {
                continue;
            }
            let shelf = Arc::new(MemoryShelf::new());
            let device = shelf.create(NAME, original.len() as u64).expect("creates");
            let mut bytes = original.clone();
            bytes[at] ^= 1 << (at % 8);
            device.write(0, &bytes).expect("writes");
            // The close marker is the last batch: no later batch proves that it was durable, and it has no record.
            let in_last_marker = at as u64 >= end - 4096 && (at as u64) < end;
            let sound = View::open(shelf.clone()).map(|view| verify(&view).expect("reads").is_sound());
            match Journal::open(shelf, one_segment()) {
                Err(JournalError::Corrupt(_) | JournalError::Version { .. }) => {
                    assert!(!matches!(sound, Ok(true)), "byte {at}: verify calls it sound, opening does not");
                    refused += 1;
                }
                Err(other) => panic!("byte {at}: {other}"),
                Ok((journal, _)) => {
                    assert!(all(&journal).expect("readable") == expected, "byte {at} changed what is read");
                    if at as u64 >= end {
                        unwritten += 1;
                    } else if !in_last_marker {
                        assert_eq!(original[at], 0, "byte {at} is no padding and was not noticed");
                        assert!(matches!(sound, Ok(false)), "byte {at}: verify does not see changed padding");
                        padding += 1;
                    }
                }
            }
        }
        println!("{refused} refused, {padding} in padding, {unwritten} behind the end");
        assert!(refused > 1000 && padding > 100 && unwritten > 100);
    });
}

#[test]
fn damage_is_reported_with_its_place_and_its_proof() {
    clear_and_encrypted(|| {
        let (shelf, expected, _) = closed_journal();
        let device = shelf.open(NAME).expect("is there");
        let at = expected[1].lsn.0;
        let mut block = AlignedBuffer::zeroed(4096);
        device.read(at - at % 4096, &mut block).expect("reads");
        block[(at % 4096) as usize + 40] ^= 1;
        device.write(at - at % 4096, &block).expect("writes");
        let error = Journal::open(shelf.clone(), one_segment()).expect_err("is refused");
        let JournalError::Corrupt(corruption) = &error else { panic!("{error}") };
        assert_eq!((corruption.segment.as_str(), corruption.offset, corruption.lsn.0), (NAME, at, at));
        assert!(corruption.proof.is_some_and(|proof| proof.durable.0 > at));
        let text = error.to_string();
        for part in [NAME, "offset", "payload checksum: expected", "it was durable"] {
            assert!(text.contains(part), "{text}");
        }
        let view = view(shelf).expect("a view opens all the same");
        assert_eq!(view.read(view.first()).collect::<Result<Vec<_>, _>>().expect("readable"), expected[..1]);
        assert_eq!(view.corruption().as_ref(), Some(&**corruption));
    });
}

#[test]
fn a_missing_segment_in_the_middle_is_refused() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
    let lsn = journal.append(1, &[&payload(1, 100_000)]).expect("appends");
    journal.commit(lsn).expect("commits");
    drop(journal);
    shelf.remove("journal-0000000000010000").expect("was there");
    let error = Journal::open(shelf, small()).expect_err("is refused").to_string();
    assert!(error.contains("a segment is missing: expected one at lsn 65536, found lsn 98304"), "{error}");
}

/// A known limit, tested so that it does not grow: damage in the last batch looks like a torn tail, because no later
/// batch proves that it was durable.
#[test]
fn damage_to_the_last_batch_of_a_killed_journal_reads_as_a_torn_tail_and_is_counted() {
    clear_and_encrypted(|| {
        let shelf = Arc::new(MemoryShelf::new());
        let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
        let mut last = 0;
        for number in 0..3 {
            let lsn = journal.append(1, &[&payload(number, 500)]).expect("appends");
            journal.commit(lsn).expect("commits");
            last = lsn.0;
        }
        std::mem::forget(journal);
        let device = shelf.open(NAME).expect("is there");
        let mut block = AlignedBuffer::zeroed(4096);
        device.read(last - last % 4096, &mut block).expect("reads");
        block[(last % 4096) as usize + 52] ^= 1;
        device.write(last - last % 4096, &block).expect("writes");
        let (journal, recovered) = Journal::open(shelf, small()).expect("opens");
        assert_eq!((recovered.records, recovered.torn_bytes), (2, 4096));
        assert_eq!(all(&journal).expect("readable").len(), 2);
    });
}
