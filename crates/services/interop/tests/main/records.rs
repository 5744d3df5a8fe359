//! The records of the journal, locked: the bytes of each kind, and what any other bytes are.

use std::fmt::Write as _;

use bytes::Bytes;
use hl7::Piece;
use interop::fuzzing;
use interop::record::{self, Delivery, DeliveryOutcome, Derivation, Head, MessageOrigin, Status, Switch, Writer};

const RAW: &[u8] = b"MSH|^~\\&|A\rPID|1\r";

const CHANGED: &[u8] = b"MSH|^~\\&|B\rPID|1\r";

/// A reprocessed duplicate with three outputs: as received, changed, whole.
fn message() -> Vec<u8> {
    let origin = MessageOrigin { id: 0x0102, derivation: Derivation::Reprocessed, key: "k1".to_owned() };
    let head = Head {
        status: Status::Routed,
        duplicate: true,
        origin: Some(&origin),
        received_us: 1_700_000_000_000_001,
        generation: 7,
        service: "in",
        charset: None,
        reason: "main: all",
    };
    let mut writer = Writer::new(&head, RAW);
    writer.pieces("one", "", RAW.len(), [Piece::Original(0..RAW.len())].into_iter());
    let pieces = [Piece::Original(0..9), Piece::New(b"B\r"), Piece::Original(11..RAW.len())];
    writer.pieces("two", "t", CHANGED.len(), pieces.into_iter());
    let body = writer.whole("three", "t", |out| out.extend_from_slice(CHANGED));
    let record = writer.finish();
    assert_eq!(&record[body], CHANGED, "a slice of the record");
    record.to_vec()
}

fn deliveries() -> Vec<u8> {
    let delivery = |output, outcome, detail: &str| Delivery {
        id: 4096,
        output,
        outcome,
        at_us: 1_700_000_000_000_002,
        detail: detail.to_owned(),
        by: if outcome == DeliveryOutcome::SetAside { "ann".to_owned() } else { String::new() },
    };
    record::encode_deliveries(&[
        delivery(0, DeliveryOutcome::Delivered, "AA"),
        delivery(1, DeliveryOutcome::Failed, "AE"),
        delivery(2, DeliveryOutcome::SetAside, "unknown patient"),
    ])
}

fn switch(suspended: bool, until_us: Option<i64>) -> Vec<u8> {
    let (operation, reason) = ("out".to_owned(), "by hand".to_owned());
    record::encode_switch(&Switch { operation, suspended, until_us, at_us: 1_700_000_000_000_003, reason })
}

fn suspended() -> Vec<u8> {
    switch(true, None)
}

/// Started outside its schedule.
fn started() -> Vec<u8> {
    switch(false, Some(1_700_003_600_000_000))
}

fn dump(out: &mut String, title: &str, bytes: &[u8], read: &dyn std::fmt::Debug) {
    writeln!(out, "{title}: {} bytes", bytes.len()).expect("a text grows");
    for (number, line) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        writeln!(out, "  {:04x}  {:<47}  {text}", number * 16, hex.join(" ")).expect("a text grows");
    }
    writeln!(out, "{read:#?}\n").expect("a text grows");
}

#[test]
fn the_bytes_of_each_record_are_those_of_version_1() {
    let mut found = String::new();
    let read = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    dump(&mut found, "message", &message(), &record::decode_message(&read(&message())).expect("ours"));
    dump(&mut found, "deliveries", &deliveries(), &record::decode_deliveries(&read(&deliveries())).expect("ours"));
    dump(&mut found, "operation", &suspended(), &record::decode_switch(&read(&suspended())).expect("ours"));
    dump(&mut found, "operation started", &started(), &record::decode_switch(&read(&started())).expect("ours"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/records.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &found).expect("the golden directory is there");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(found, expected, "if that is meant, it needs another version: UPDATE=1 cargo test -p interop records");
}

#[test]
fn every_cut_and_every_flipped_bit_of_a_record_is_refused_or_read_never_a_panic() {
    for whole in [message(), deliveries(), suspended(), started()] {
        for end in 0..whole.len() {
            fuzzing::record(&whole[..end]);
            let cut = Bytes::copy_from_slice(&whole[..end]);
            let read = [record::decode_message(&cut).is_ok(), record::decode_switch(&cut).is_ok()];
            assert_eq!(read, [false, false], "a record cut at {end} is none");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                fuzzing::record(&flipped);
            }
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(record::decode_message(&Bytes::from(longer)).is_err(), "nothing may follow");
    }
}

#[test]
fn random_changes_of_a_record_are_refused_or_read_never_a_panic() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().expect("SEED is a number"));
    let mut random = fastrand::Rng::with_seed(seed);
    let wholes = [message(), deliveries(), suspended(), started()];
    for _ in 0..20_000 {
        let mut bytes = wholes[random.usize(..wholes.len())].clone();
        for _ in 0..random.usize(1..6) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => drop(bytes.splice(at..at, std::iter::repeat_n(random.u8(..), random.usize(..8)))),
                _ => bytes.truncate(at.max(1)),
            }
        }
        fuzzing::record(&bytes);
    }
}

#[test]
fn pieces_that_overlap_or_go_back_are_refused_so_that_an_output_is_never_longer_than_its_record() {
    let raw = Bytes::from(vec![b'x'; 1 << 20]);
    let head = Head {
        status: Status::Routed,
        duplicate: false,
        origin: None,
        received_us: 0,
        generation: 7,
        service: "",
        charset: None,
        reason: "",
    };
    let forged = |ranges: &[std::ops::Range<usize>]| {
        let mut writer = Writer::new(&head, &raw);
        let bytes = ranges.iter().map(ExactSizeIterator::len).sum();
        writer.pieces("o", "", bytes, ranges.iter().cloned().map(Piece::Original));
        record::decode_message(&writer.finish())
    };
    assert!(forged(&[0..raw.len() / 2, raw.len() / 2..raw.len()]).is_ok());
    assert!(forged(&[0..10, 20..30, 30..30]).is_ok());
    for ranges in [vec![0..10, 5..15], vec![20..30, 0..10], vec![0..raw.len(); 1_000]] {
        assert!(forged(&ranges).is_err(), "{} pieces", ranges.len());
    }
}

#[test]
fn every_record_says_when_it_was_made_and_what_is_cut_says_nothing() {
    let micros = 1_700_000_000_000_000;
    for (kind, payload, more) in [
        (record::KIND_MESSAGE, message(), 1),
        (record::KIND_DELIVERIES, deliveries(), 2),
        (record::KIND_OPERATION, started(), 3),
    ] {
        assert_eq!(record::time_us(kind, &payload), Some(micros + more), "kind {kind}");
        assert_eq!(record::time_us(kind, &payload[..8]), None, "kind {kind}");
    }
    assert_eq!(record::time_us(99, &message()), None);
}
