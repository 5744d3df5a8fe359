//! Encryption of a volume: ciphertext only on every medium, and what was changed or moved by somebody is damage.

use std::sync::Arc;

use device::faulty::{Fault, Rule};
use device::{
    AlignedBuffer, BLOCK_BYTES, CrashShelf, Device, DeviceError, IoRequest, IoSink, MemoryShelf, Operation, Shelf,
};
use volume::encryption::{Secret, VolumeKeys};
use volume::write_back::{CacheOptions, CachedShelf};
use volume::{Options, Place, Step, Threads, Volume, VolumeError};

use crate::rig::{Rig, resync};
use crate::support::{at, base, memory, new_volume, options, places_on, read_block, tag_of, tagged};

/// What no medium may have.
const SECRET: &[u8; 8] = b"SECRETS!";

/// A sector of a table, its head, the entry of a block, and how many it has.
const SECTOR: usize = 512;
const HEAD: usize = 16;
const ENTRY: usize = 44;
const PER_SECTOR: usize = 11;

fn secret_block(number: u8) -> Vec<u8> {
    let mut block = SECRET.repeat(BLOCK_BYTES / 8);
    block[9] = number;
    block
}

/// All bytes of all devices of a shelf.
fn devices(shelf: &dyn Shelf) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let device = shelf.open_read_only(&name).expect("opens");
        let mut bytes = AlignedBuffer::zeroed(device.len() as usize);
        device.read(0, &mut bytes).expect("reads");
        (name, bytes.to_vec())
    };
    shelf.list().expect("lists").into_iter().map(read).collect()
}

struct Ignored;

impl IoSink for Ignored {
    fn complete(&self, _: IoRequest, result: Result<(), DeviceError>) {
        result.expect("it is done");
    }
}

#[test]
fn no_journal_copy_table_or_cache_ever_has_content_in_clear() {
    let media: Vec<Arc<MemoryShelf>> = (0..4).map(|_| Arc::new(MemoryShelf::new())).collect();
    let cache = CacheOptions { threads: Threads::Callers, ..CacheOptions::new(*b"cache for tests!", 1 << 20) };
    let cached = CachedShelf::create(media[0].clone(), media[3].clone(), &cache).expect("creates");
    let first = Place { journal: Arc::new(MemoryShelf::new()), ..Place::on(Arc::new(cached)) };
    let journal = first.journal.clone();
    let places = [first, Place::on(media[1].clone()), Place::on(media[2].clone())];
    Volume::create(&places, &new_volume(64), &options(1)).expect("creates");
    let volume = Volume::open(places.to_vec(), options(2)).expect("opens");
    let look = || {
        let all = media.iter().flat_map(|medium| devices(&**medium)).chain(devices(&*journal));
        let mut looked_at = 0;
        for (name, bytes) in all {
            assert!(!bytes.windows(8).any(|part| part == SECRET), "{name} has content in clear");
            looked_at += bytes.iter().filter(|byte| **byte != 0).count();
        }
        looked_at
    };
    for block in 0..40 {
        volume.write(at(block), &secret_block(block as u8)).expect("writes");
    }
    volume.write(at(41) + 100, SECRET).expect("writes a part");
    volume.write(at(50) + 4000, &SECRET.repeat(1024)).expect("writes parts of three blocks");
    let mut batch = vec![IoRequest::write(at(55), AlignedBuffer::from(&secret_block(55)[..]), 1)];
    volume.submit(&mut batch, &(Arc::new(Ignored) as Arc<dyn IoSink>));
    assert!(look() > 40 * BLOCK_BYTES, "it is in the journals");
    volume.exclude(2).expect("two are left");
    volume.write(at(3), &secret_block(103)).expect("writes");
    volume.checkpoint().expect("checkpoints");
    volume.attach(places[2].clone()).expect("attaches");
    while volume.resync_step(2).expect("a step") != Step::Joined {
        volume.write(at(4), &secret_block(104)).expect("writes");
    }
    volume.scrub().expect("scrubs");
    assert!(look() > 3 * 40 * BLOCK_BYTES, "it is in place");
    assert_eq!(read_block(&volume, 3).expect("reads"), secret_block(103));
    assert_eq!(read_block(&volume, 55).expect("reads"), secret_block(55));
    assert_eq!(read_block(&volume, 41).expect("reads")[100..108], *SECRET);
    volume.close().expect("closes");
    look();
}

/// Changes bytes so that their CRC-32C stays what it is: adds a multiple of its polynomial.
fn forge(bytes: &mut [u8]) {
    for (byte, change) in bytes[100..].iter_mut().zip(0x1_05ec_76f1_u64.to_le_bytes()) {
        *byte ^= change;
    }
}

fn forge_block(rig: &Rig, copy: usize, block: u64) {
    let mut bytes = AlignedBuffer::from(&rig.medium_block(copy, "data-0", block)[..]);
    let sum = crc_fast::crc32_iscsi(&bytes);
    forge(&mut bytes);
    assert_eq!(crc_fast::crc32_iscsi(&bytes), sum, "no checksum finds it");
    rig.media[copy].open("data-0").expect("a device").write_flush(at(block), &bytes).expect("writes");
}

#[test]
fn bytes_that_somebody_changed_under_the_same_checksum_are_damage_of_that_copy_and_repaired_from_another() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    for block in [3, 5] {
        forge_block(&rig, 0, block);
    }
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 3);
    let status = volume.status();
    assert_eq!((status.copies[0].repaired, status.damaged, status.forged), (1, 0, 1));
    assert_eq!(volume.scrub().expect("scrubs").repaired, 1, "block 5");
    rig.assert_equal(&volume);
    (0..2).for_each(|copy| forge_block(&rig, copy, 7));
    let refused = read_block(&volume, 7).expect_err("both copies were changed");
    assert!(
        matches!(refused, DeviceError::Lost { offset, bytes, .. } if (offset, bytes) == (at(7), at(1))),
        "{refused}"
    );
    assert!(volume.write(at(7) + 9, b"a part needs the rest").is_err());
    assert_eq!(volume.scrub().expect("scrubs").damaged, 1);
    volume.write(at(7), &tagged(107)).expect("written anew");
    assert_eq!(tag_of(&read_block(&volume, 7).expect("reads")), 107);
    rig.assert_equal(&volume);
}

#[test]
fn what_somebody_changed_is_no_source_of_a_copy_that_is_brought_up_to_date() {
    let (rig, volume) = Rig::filled(3, 2, 32);
    volume.exclude(2).expect("two are left");
    (0..16).for_each(|block| volume.write(at(block), &tagged(100 + block)).expect("writes"));
    volume.checkpoint().expect("checkpoints");
    forge_block(&rig, 0, 9);
    volume.attach(rig.place(2)).expect("attaches");
    resync(&volume, 2);
    assert!(rig.medium_block(2, "data-0", 9) == rig.medium_block(1, "data-0", 9));
    rig.assert_equal(&volume);
}

/// The stored bytes of a block and its entry in the table.
#[derive(Clone, PartialEq)]
struct StoredBlock {
    bytes: Vec<u8>,
    entry: Vec<u8>,
}

fn take(rig: &Rig, copy: usize, block: u64) -> StoredBlock {
    let table = rig.medium_block(copy, "tables-0", block / PER_SECTOR as u64 / 8);
    let (sector, at) = place_of(block);
    StoredBlock { bytes: rig.medium_block(copy, "data-0", block), entry: table[sector + at..][..ENTRY].to_vec() }
}

/// Where the sector of a block is in its block of the table, and its entry there.
fn place_of(block: u64) -> (usize, usize) {
    let block = block as usize;
    (block / PER_SECTOR % 8 * SECTOR, HEAD + block % PER_SECTOR * ENTRY)
}

/// Puts a block somewhere, with its checksums: everything matches but the seal.
fn put(rig: &Rig, copy: usize, block: u64, stored: &StoredBlock) {
    let medium = &rig.media[copy];
    medium
        .open("data-0")
        .expect("a device")
        .write_flush(at(block), &AlignedBuffer::from(&stored.bytes[..]))
        .expect("writes");
    let table = block / PER_SECTOR as u64 / 8;
    let mut bytes = AlignedBuffer::from(&rig.medium_block(copy, "tables-0", table)[..]);
    let (sector, entry) = place_of(block);
    let whole = &mut bytes[sector..sector + SECTOR];
    whole[entry..entry + ENTRY].copy_from_slice(&stored.entry);
    let sum = crc_fast::crc32_iscsi(&whole[4..]);
    whole[..4].copy_from_slice(&sum.to_le_bytes());
    medium.open("tables-0").expect("a device").write_flush(at(table), &bytes).expect("writes");
}

/// Fills the journals with blocks from 40 on, and closes: the journals have neither blocks before nor images of their tables any more.
fn close_with_short_journals(volume: Volume) {
    for round in 0..3 {
        (40..64).for_each(|block| volume.write(at(block), &tagged(1000 * round + block)).expect("writes"));
        volume.checkpoint().expect("checkpoints");
    }
    volume.close().expect("closes");
}

fn exchange(rig: &Rig, copy: usize, one: u64, two: u64) {
    let (first, second) = (take(rig, copy, one), take(rig, copy, two));
    put(rig, copy, one, &second);
    put(rig, copy, two, &first);
}

#[test]
fn blocks_that_were_exchanged_with_their_checksums_and_seals_are_damage() {
    let (rig, volume) = Rig::filled(1, 1, 64);
    close_with_short_journals(volume);
    exchange(&rig, 0, 3, 20);
    let volume = rig.open(3);
    for block in 0..32 {
        match read_block(&volume, block) {
            Ok(bytes) => assert!(tag_of(&bytes) == block && ![3, 20].contains(&block)),
            Err(error) => assert!([3, 20].contains(&block) && matches!(error, DeviceError::Lost { .. }), "{error}"),
        }
    }
    assert_eq!(volume.scrub().expect("scrubs").damaged, 2);
}

#[test]
fn copies_with_blocks_that_open_win_over_copies_with_exchanged_ones_also_where_these_are_more() {
    for changed in [&[0][..], &[1], &[0, 1], &[1, 2]] {
        let (rig, volume) = Rig::filled(3, 2, 64);
        close_with_short_journals(volume);
        changed.iter().for_each(|copy| exchange(&rig, *copy, 3, 20));
        let volume = rig.open(3);
        assert_eq!(volume.status().disputed, 2);
        for block in 0..32 {
            assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), block, "{changed:?}");
        }
        volume.scrub().expect("scrubs");
        rig.assert_equal(&volume);
    }
}

#[test]
fn an_older_state_of_a_block_in_its_place_opens_only_with_its_own_seal_and_loses_against_the_newer_one_of_another_copy()
{
    for copy in 0..2 {
        let (rig, volume) = Rig::filled(2, 1, 64);
        let old = take(&rig, copy, 5);
        drop(volume);
        let volume = rig.open(3);
        volume.write(at(5), &tagged(105)).expect("writes");
        volume.checkpoint().expect("checkpoints");
        let mut bytes_only = take(&rig, copy, 5);
        bytes_only.bytes.clone_from(&old.bytes);
        rig.media[copy]
            .open("data-0")
            .expect("a device")
            .write_flush(at(5), &AlignedBuffer::from(&old.bytes[..]))
            .expect("writes");
        assert_eq!(tag_of(&read_block(&volume, 5).expect("reads")), 105, "the checksum finds that");
        close_with_short_journals(volume);
        // With a checksum that matches, and the seal of the newer one.
        bytes_only.entry[..4].copy_from_slice(&old.entry[..4]);
        for stored in [&bytes_only, &old] {
            put(&rig, copy, 5, stored);
            let volume = rig.open(4);
            assert_eq!(volume.status().disputed, 1);
            assert_eq!(tag_of(&read_block(&volume, 5).expect("reads")), 105, "copy {copy}");
            volume.scrub().expect("scrubs");
            rig.assert_equal(&volume);
            close_with_short_journals(volume);
        }
    }
}

#[test]
fn a_record_of_a_journal_that_somebody_changed_under_its_checksums_loses_against_that_of_another_copy() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    volume.write(at(3), &tagged(103)).expect("writes");
    std::mem::forget(volume);
    let mut changed = 0;
    for (name, mut bytes) in devices(&*rig.media[0]) {
        // The end of a head: block 3, one block, no flags. What follows is its entry, and its bytes.
        let head = [&3_u64.to_le_bytes()[..], &1_u32.to_le_bytes(), &[0; 4]].concat();
        let found = bytes.windows(head.len()).rposition(|part| part == head).filter(|_| name.starts_with("journal-"));
        let Some(found) = found else { continue };
        forge(&mut bytes[found + head.len() + ENTRY..]);
        changed += 1;
        let device = rig.media[0].open(&name).expect("a device");
        device.write_flush(0, &AlignedBuffer::from(&bytes[..])).expect("writes");
    }
    assert_eq!(changed, 1);
    let volume = rig.open(3);
    assert_eq!(tag_of(&read_block(&volume, 3).expect("reads")), 103);
    rig.assert_equal(&volume);
}

#[test]
fn keys_of_another_volume_none_and_keys_for_a_volume_in_clear_are_refused_before_anything_is_read_or_written() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    volume.close().expect("closes");
    drop(volume);
    let all = || rig.media.iter().flat_map(|medium| devices(&**medium)).collect::<Vec<_>>();
    let before = all();
    for copy in 0..2 {
        for name in ["data-0", "tables-0"] {
            rig.faults[copy].inject(Rule::from(Operation::Open, 1, Fault::Eio).on(name));
        }
    }
    let other = VolumeKeys::new(vec![(1, Secret::new([8; 32]))]);
    let open = |keys| Volume::open(rig.places(), Options { keys, ..options(3) });
    assert!(matches!(open(other.clone()), Err(VolumeError::WrongKeys)));
    assert!(matches!(open(None), Err(VolumeError::KeysMissing)));
    assert!(all() == before && rig.faults.iter().all(|faults| faults.hits() == 0), "nothing was touched");
    let clear = memory(1);
    Volume::create(&clear, &new_volume(16), &Options { keys: None, ..options(1) }).expect("creates");
    assert!(matches!(Volume::open(clear, options(2)), Err(VolumeError::KeysUnwanted)));
    rig.faults.iter().for_each(|faults| faults.heal());
    assert_eq!(tag_of(&read_block(&rig.open(4), 7).expect("reads")), 7, "and its own keys open it");
}

#[test]
fn older_data_keys_open_what_they_sealed_and_the_newest_one_seals() {
    let (rig, volume) = Rig::filled(2, 1, 16);
    drop(volume);
    let both = VolumeKeys::new(vec![(1, Secret::new([7; 32])), (2, Secret::new([8; 32]))]);
    let volume = Volume::open(rig.places(), Options { keys: both, ..options(3) }).expect("opens");
    volume.write(at(3), &tagged(103)).expect("writes");
    (0..16).for_each(|block| {
        assert_eq!(tag_of(&read_block(&volume, block).expect("reads")), if block == 3 { 103 } else { block })
    });
    volume.close().expect("closes");
    drop(volume);
    let volume = rig.open(4);
    assert_eq!(tag_of(&read_block(&volume, 4).expect("reads")), 4);
    assert!(matches!(read_block(&volume, 3), Err(DeviceError::Lost { .. })), "without the newer key");
}

#[test]
fn the_format_of_an_encrypted_volume_is_version_2_and_one_in_clear_stays_as_it_was() {
    let format = |keys: bool| {
        let (medium, all) = (Arc::new(MemoryShelf::new()), options(1));
        let options = Options { keys: all.keys.clone().filter(|_| keys), ..all };
        Volume::create(&[Place::on(medium.clone())], &new_volume(1024), &options).expect("creates");
        let mut slot = AlignedBuffer::zeroed(BLOCK_BYTES);
        medium.open("superblock").expect("a device").read(0, &mut slot).expect("reads");
        (slot[8], slot[43], slot[136..152] != [0; 16], medium.open("tables-0").expect("a device").len() / SECTOR as u64)
    };
    // Sums, then a block of sectors for the dirty map of each of three copies.
    assert_eq!(format(false), (1, 0, false, 1024_u64.div_ceil(124).next_multiple_of(8) + 24));
    assert_eq!(format(true), (2, 8, true, 1024_u64.div_ceil(PER_SECTOR as u64).next_multiple_of(8) + 24));
}

/// The stamp of a seal without its random bits: what makes a nonce differ although these repeat.
fn stamps(rig_tables: &[u8]) -> Vec<[u8; 12]> {
    let sectors = rig_tables.chunks(SECTOR).take_while(|sector| sector.len() == SECTOR);
    let entries = sectors.flat_map(|sector| sector[HEAD..].chunks_exact(ENTRY));
    let stamp = |entry: &[u8]| {
        let mut stamp = [0; 12];
        stamp[..4].copy_from_slice(&entry[24..28]);
        stamp[4..].copy_from_slice(&entry[36..44]);
        stamp
    };
    entries.filter(|entry| entry[..4] != [0; 4]).map(stamp).collect()
}

#[test]
fn no_opening_after_a_crash_at_any_moment_has_the_term_of_one_that_has_sealed_anything() {
    let shelf = Arc::new(CrashShelf::new(1));
    let any: Arc<dyn Shelf> = shelf.clone();
    let places = places_on(&any, 2);
    Volume::create(&places, &new_volume(16), &options(1)).expect("creates");
    // From which operation on blocks may be sealed in which term.
    let mut sealing = Vec::new();
    let first = shelf.operations();
    for life in 0..3 {
        let volume = Volume::open(places.clone(), options(10 + life)).expect("opens");
        sealing.push((shelf.operations(), volume.status().epoch.term()));
        for block in 0..4 {
            volume.write(at(block), &tagged(10 * life + block + 1)).expect("writes");
        }
        if life == 1 {
            volume.close().expect("closes");
        } else {
            std::mem::forget(volume);
        }
    }
    let mut count = 0;
    for point in first..=shelf.operations() {
        for image in shelf.images(point) {
            count += 1;
            let image: Arc<dyn Shelf> = Arc::new(image.shelf());
            let volume = Volume::open(places_on(&image, 2), options(99)).expect("opens");
            let term = volume.status().epoch.term();
            let used = sealing.iter().filter(|(begun, _)| *begun <= point).map(|(_, term)| *term).max();
            assert!(used.is_none_or(|used| used < term), "term {term} at {point}, {used:?} has sealed blocks");
        }
    }
    assert!(count > 200, "only {count} images");
}

#[test]
fn one_term_and_counter_seal_one_block_only_over_many_openings() {
    let (rig, volume) = Rig::fresh(2, 1, 64);
    drop(volume);
    let mut seen = std::collections::HashSet::new();
    for life in 0..30 {
        let volume = Volume::open(rig.places(), base_of(100 + life)).expect("opens");
        for block in 0..64 {
            volume.write(at(block), &tagged(life * 64 + block + 1)).expect("writes");
        }
        volume.checkpoint().expect("checkpoints");
        // Every third one is killed, and its journals are not empty.
        volume.write(at(life % 64), &tagged(1)).expect("writes");
        if life % 3 == 0 {
            std::mem::forget(volume);
        }
        let table = rig.media[0].open("tables-0").expect("a device");
        let mut bytes = AlignedBuffer::zeroed(table.len() as usize);
        table.read(0, &mut bytes).expect("reads");
        let sums = &bytes[..SECTOR * 64_usize.div_ceil(PER_SECTOR)];
        let found = stamps(sums);
        assert_eq!(found.len(), 64);
        assert!(found.into_iter().all(|stamp| seen.insert(stamp)), "one was there before life {life}");
    }
}

fn base_of(owner: u64) -> Options {
    Options { threads: Threads::Callers, window_bytes: 1 << 20, segment_bytes: 64 << 10, ..base(owner) }
}
