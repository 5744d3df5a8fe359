//! Encrypted journals: nothing of a record is on the medium, and bytes that were changed, moved or put back are refused although every
//! checksum matches. That crashes and damage are handled as in clear ones is tested with those, by `clear_and_encrypted`.

use std::collections::HashSet;
use std::sync::Arc;

use device::{AlignedBuffer, MemoryShelf, Shelf};
use encryption::{SEAL_BYTES, SealFault, Sealer};
use journal::format::{BatchHeader, FRAME_HEADER_BYTES, Frame, batch_frame_bytes};
use journal::{Damage, Journal, JournalError, Lsn, Options, Record, View, verify};

use crate::support::{all, small};

const NAME: &str = "journal-0000000000000000";

fn with(sealer: Arc<Sealer>) -> Options {
    Options { sealer: Some(sealer), ..small() }
}

/// The sealer of an opening.
fn opening(epoch: u32) -> Arc<Sealer> {
    Sealer::for_tests(1, epoch, 0)
}

fn text(number: u8) -> Vec<u8> {
    [b"PID|1||4711||Doe^Jane^^^^^L|record ".as_slice(), &[b'0' + number; 60]].concat()
}

/// Three records, each in a batch of its own, and their places.
fn written(shelf: &Arc<MemoryShelf>, is_closed: bool) -> Vec<Lsn> {
    let (journal, _) = Journal::open(shelf.clone(), with(opening(1))).expect("opens");
    let places = (0..3).map(|number| journal.append_commit(1, &[&text(number)]).expect("works")).collect();
    match is_closed {
        true => journal.close().expect("closes"),
        false => std::mem::forget(journal),
    }
    places
}

fn bytes_of(shelf: &dyn Shelf) -> Vec<(String, Vec<u8>)> {
    let read = shelf.list().expect("lists").into_iter().map(|name| {
        let device = shelf.open_read_only(&name).expect("opens");
        let mut bytes = AlignedBuffer::zeroed(device.len() as usize);
        device.read(0, &mut bytes).expect("reads");
        (name, bytes.to_vec())
    });
    read.collect()
}

/// Changes the bytes of the first segment.
fn change(shelf: &MemoryShelf, how: impl FnOnce(&mut [u8])) {
    let device = shelf.open(NAME).expect("opens");
    let mut bytes = AlignedBuffer::zeroed(device.len() as usize);
    device.read(0, &mut bytes).expect("reads");
    how(&mut bytes);
    device.write(0, &bytes).expect("writes");
}

fn frame_at(bytes: &[u8], at: Lsn) -> Frame {
    Frame::decode(&bytes[at.0 as usize..][..FRAME_HEADER_BYTES], at, small().identity).expect("a frame")
}

fn payload_at(bytes: &[u8], at: Lsn) -> Vec<u8> {
    let frame = frame_at(bytes, at);
    bytes[at.0 as usize + FRAME_HEADER_BYTES..][..frame.payload_bytes as usize].to_vec()
}

/// Replaces a payload, with the checksums that belong to it.
fn put(bytes: &mut [u8], at: Lsn, payload: &[u8]) {
    let frame = Frame { payload_crc: crc(payload), ..frame_at(bytes, at) };
    let (header, rest) = bytes[at.0 as usize..].split_at_mut(FRAME_HEADER_BYTES);
    rest[..payload.len()].copy_from_slice(payload);
    frame.encode(header);
}

/// CRC-32C by its definition.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// How many records can be read, and the damage that ends that.
fn damage_of(shelf: &Arc<MemoryShelf>) -> (usize, Damage) {
    let (journal, _) = Journal::open(shelf.clone(), with(opening(9))).expect("checksums match: recovery finds nothing");
    let mut read = 0;
    for record in journal.read(journal.first()) {
        match record {
            Ok(_) => read += 1,
            Err(JournalError::Corrupt(corruption)) => return (read, corruption.damage),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("{read} records, and nothing was noticed");
}

#[test]
fn nothing_of_a_record_is_in_any_byte_of_the_shelf() {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), with(opening(1))).expect("opens");
    let marker = b"Doe^Jane";
    for bytes in [8, 100, 5000, 20_000, 70_000_usize] {
        let record: Vec<u8> = marker.iter().copied().cycle().take(bytes).collect();
        journal.append_commit(1, &[&record]).expect("works");
    }
    // Segments that were recycled too.
    journal.truncate(journal.durable()).expect("truncates");
    for _ in 0..20 {
        journal.append_commit(1, &[&marker.repeat(400)]).expect("works");
    }
    journal.close().expect("closes");
    let bytes = bytes_of(&*shelf);
    assert!(bytes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > 100_000);
    let twice = marker.repeat(2);
    let parts: HashSet<&[u8]> = twice.windows(6).collect();
    for (name, bytes) in bytes {
        assert_eq!(bytes.windows(6).position(|window| parts.contains(window)), None, "{name}");
    }
}

#[test]
fn a_later_opening_reads_what_earlier_ones_wrote_and_equal_records_differ_on_the_medium() {
    let shelf = Arc::new(MemoryShelf::new());
    for epoch in 1..5 {
        let (journal, _) = Journal::open(shelf.clone(), with(opening(epoch))).expect("opens");
        journal.append_commit(1, &[&text(0)]).expect("works");
        std::mem::forget(journal);
    }
    let (journal, _) = Journal::open(shelf.clone(), with(opening(5))).expect("opens");
    let records = all(&journal).expect("reads");
    assert!(records.len() == 4 && records.iter().all(|record| record.payload == text(0)));
    drop(journal);
    // Four batches and their markers are in the first segment.
    let (_, bytes) = bytes_of(&*shelf).into_iter().find(|(name, _)| name == NAME).expect("it is there");
    let in_first = records.iter().filter(|record| record.lsn.0 < bytes.len() as u64);
    let stored: Vec<Vec<u8>> = in_first.map(|record| payload_at(&bytes, record.lsn)).collect();
    assert!(stored.len() > 1 && stored.iter().collect::<HashSet<_>>().len() == stored.len());
}

#[test]
fn a_record_that_was_moved_changed_or_replaced_is_damage_although_every_checksum_matches() {
    type Change = fn(&mut [u8], &[Lsn]);
    let changes: [(&str, usize, Change); 4] = [
        ("moved", 1, |bytes, at| put(bytes, at[1], &payload_at(bytes, at[0]))),
        ("one bit", 0, |bytes, at| {
            let mut payload = payload_at(bytes, at[0]);
            payload[3] ^= 1;
            put(bytes, at[0], &payload);
        }),
        ("in clear", 2, |bytes, at| {
            let clear = vec![b'x'; payload_at(bytes, at[2]).len()];
            put(bytes, at[2], &clear);
        }),
        ("an empty batch", 1, |bytes, at| {
            let head = batch_frame_bytes(true);
            let start = at[1].0 as usize - head;
            let old = BatchHeader::decode(&bytes[start..][..head], Lsn(start as u64), small().identity);
            let old = old.expect("it is whole").expect("a batch");
            bytes[start..start + 4096].fill(0);
            BatchHeader { bytes: head as u32, records: 0, ..old }.encode(&mut bytes[start..][..head]);
        }),
    ];
    for is_closed in [true, false] {
        for (name, before, how) in changes {
            let shelf = Arc::new(MemoryShelf::new());
            let places = written(&shelf, is_closed);
            change(&shelf, |bytes| how(bytes, &places));
            // Without a key nothing is wrong: the checksums are those of the bytes.
            assert!(verify(&View::open(shelf.clone()).expect("opens")).expect("reads").is_sound(), "{name}");
            let (read, damage) = damage_of(&shelf);
            assert_eq!(read, before, "{name}");
            assert!(matches!(damage, Damage::Seal(SealFault::Tag | SealFault::UnknownKey(_))), "{name}: {damage}");
        }
    }
}

#[test]
fn a_whole_frame_of_another_journal_with_the_same_key_is_refused() {
    let (one, other) = (Arc::new(MemoryShelf::new()), Arc::new(MemoryShelf::new()));
    let places = written(&one, true);
    let options = Options { identity: 0x0dd, ..with(opening(2)) };
    let (journal, _) = Journal::open(other.clone(), options).expect("opens");
    let lsn = journal.append_commit(1, &[&text(0)]).expect("works");
    assert_eq!(lsn, places[0]);
    journal.close().expect("closes");
    let start = lsn.0 as usize + FRAME_HEADER_BYTES;
    let foreign = bytes_of(&*other)[0].1[start..start + text(0).len() + SEAL_BYTES].to_vec();
    change(&one, |bytes| put(bytes, lsn, &foreign));
    assert_eq!(damage_of(&one), (0, Damage::Seal(SealFault::Tag)));
}

#[test]
fn a_wrong_key_no_key_and_a_key_too_many_are_told_before_anything_is_written() {
    let shelf = Arc::new(MemoryShelf::new());
    written(&shelf, false);
    let before = bytes_of(&*shelf);
    let wrong = Journal::open(shelf.clone(), with(Sealer::for_tests(2, 1, 0))).expect_err("another key");
    assert!(matches!(wrong, JournalError::Key { fault: SealFault::OtherKey(1), .. }), "{wrong}");
    let none = Journal::open(shelf.clone(), small()).expect_err("no key");
    assert!(matches!(none, JournalError::Encrypted { .. }), "{none}");
    let view = View::open(shelf.clone()).expect("opens");
    let read: Result<Vec<Record>, JournalError> = view.read(view.first()).collect();
    assert!(matches!(read, Err(JournalError::Encrypted { .. })), "{read:?}");
    assert!(View::open_with(shelf.clone(), Some(Sealer::for_tests(2, 1, 0))).is_err());
    assert_eq!(bytes_of(&*shelf), before);
    let clear = Arc::new(MemoryShelf::new());
    drop(Journal::open(clear.clone(), small()).expect("opens"));
    let before = bytes_of(&*clear);
    let too_many = Journal::open(clear.clone(), with(opening(1))).expect_err("it is clear");
    assert!(matches!(too_many, JournalError::Clear { .. }), "{too_many}");
    assert_eq!(bytes_of(&*clear), before);
}
