//! The target of a damaged journal.
//!
//! A journal is written once, in memory, then damaged according to the input and opened again:
//!
//! ```text
//!   input  u8: bit 0 the journal was closed, else left by a crash; bit 1 open checks the tail only | change | ...
//!   change u8: device | u16: offset, little endian | u8: mask; 0 clears the sector, anything else flips these bits
//! ```
//!
//! Invariants: for any damage, opening returns an error or a prefix of the written records, each of them right, and
//! never panics; records that were checked in opening can be read. One change to a journal that was closed is never a
//! quiet loss: all records, or an error.

use device::{AlignedBuffer, MemoryShelf, Shelf};
use journal::{Check, Journal, JournalError, Options, Preparation, Record, View};
use std::sync::{Arc, OnceLock};

/// Records of the journal that is damaged: enough for three segments, with one larger than a buffer.
const RECORDS: u64 = 21;

/// Bytes that a change of mask 0 clears.
const SECTOR_BYTES: usize = device::SECTOR_BYTES;

/// A journal as on its devices, and its records.
struct Image {
    devices: Vec<(String, Vec<u8>)>,
    records: Vec<Record>,
}

/// Opens and reads a damaged journal.
pub fn journal(input: &[u8]) {
    static IMAGES: OnceLock<[Image; 2]> = OnceLock::new();
    let Some((&choice, changes)) = input.split_first() else { return };
    let closed = choice & 1 == 1;
    let image = &IMAGES.get_or_init(|| [write(false), write(true)])[usize::from(closed)];
    let mut devices = image.devices.clone();
    for change in changes.chunks_exact(4) {
        let at = usize::from(change[0]) % devices.len();
        damage(&mut devices[at].1, usize::from(u16::from_le_bytes([change[1], change[2]])), change[3]);
    }
    if let Ok(view) = View::open(shelf_of(&devices)) {
        let read = view.read(view.first()).map_while(Result::ok).collect::<Vec<_>>();
        assert!(image.records.starts_with(&read), "a view shows records that were not written");
    }
    let check = if choice & 2 == 2 { Check::Tail } else { Check::Everything };
    let options = Options { check, ..options() };
    let Ok((journal, recovered)) = Journal::open(shelf_of(&devices), options) else { return };
    let answers: Vec<Result<Record, JournalError>> = journal.read(journal.first()).collect();
    let whole = answers.iter().all(Result::is_ok);
    assert!(whole || check == Check::Tail, "what was checked in opening cannot be read");
    let read: Vec<Record> = answers.into_iter().map_while(Result::ok).collect();
    assert!(image.records.starts_with(&read), "records that were not written");
    assert!(check == Check::Tail || recovered.records == read.len() as u64);
    let single = changes.len() / 4 <= 1;
    let lost = whole && read.len() < image.records.len();
    assert!(!(closed && single && lost), "one change, and a quiet loss: {recovered:?}");
}

fn options() -> Options {
    Options {
        segment_bytes: 32 << 10,
        buffer_bytes: 8 << 10,
        max_record_bytes: 1 << 20,
        spare_segments: 1,
        preparation: Preparation::Inline,
        identity: 7,
        ..Options::default()
    }
}

/// Writes the journal: small batches, a large one, and a close or none.
fn write(closed: bool) -> Image {
    let shelf = Arc::new(MemoryShelf::new());
    let (journal, _) = Journal::open(shelf.clone(), options()).expect("memory holds a journal");
    let mut records = Vec::new();
    for number in 0..RECORDS {
        let bytes = if number == 9 { 20_000 } else { number * 97 % 1500 };
        let payload: Vec<u8> = (0..bytes).map(|at| (at * 31 + number) as u8).collect();
        let lsn = journal.append(number as u8, &[&payload]).expect("the journal has room");
        records.push(Record { lsn, kind: number as u8, payload });
        if number % 3 == 2 {
            journal.commit(lsn).expect("memory persists");
        }
    }
    // Dropping a journal closes it too: the state that a crash would leave is read while it is open.
    let left = devices_of(&shelf);
    journal.close().expect("memory persists");
    Image { devices: if closed { devices_of(&shelf) } else { left }, records }
}

fn devices_of(shelf: &MemoryShelf) -> Vec<(String, Vec<u8>)> {
    let names = shelf.list().expect("memory lists");
    names.into_iter().map(|name| (name.clone(), read_all(shelf, &name))).collect()
}

fn read_all(shelf: &MemoryShelf, name: &str) -> Vec<u8> {
    let device = shelf.open(name).expect("it was listed");
    let mut bytes = AlignedBuffer::zeroed(usize::try_from(device.len()).expect("a segment fits memory"));
    device.read(0, &mut bytes).expect("memory reads");
    bytes.to_vec()
}

fn shelf_of(devices: &[(String, Vec<u8>)]) -> Arc<MemoryShelf> {
    let shelf = Arc::new(MemoryShelf::new());
    for (name, bytes) in devices {
        let device = shelf.create(name, bytes.len() as u64).expect("memory has room");
        let mut aligned = AlignedBuffer::zeroed(bytes.len());
        aligned.copy_from_slice(bytes);
        device.write_flush(0, &aligned).expect("memory writes");
    }
    shelf
}

/// Clears the sector at `offset`, or flips the bits of `mask` in its byte.
fn damage(bytes: &mut [u8], offset: usize, mask: u8) {
    let offset = offset % bytes.len();
    if mask == 0 {
        let sector = offset - offset % SECTOR_BYTES;
        bytes[sector..sector + SECTOR_BYTES].fill(0);
    } else {
        bytes[offset] ^= mask;
    }
}
