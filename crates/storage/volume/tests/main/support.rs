//! What the tests share: shelves of three copies in one recording, and the history of each block.

use std::sync::Arc;

use device::{BLOCK_BYTES, Device, DeviceError, MemoryShelf, Shelf, SubShelf};
use volume::encryption::{Secret, VolumeKeys};
use volume::{NewVolume, Options, Place, Threads, Volume};

/// A part of a shelf: several copies on one crash shelf have one recording, so power fails for all of them at one moment.
pub(crate) fn part(shelf: &Arc<dyn Shelf>, prefix: &str) -> Arc<dyn Shelf> {
    Arc::new(SubShelf::new(shelf.clone(), prefix))
}

/// The places of copies on one shelf.
pub(crate) fn places_on(shelf: &Arc<dyn Shelf>, copies: u8) -> Vec<Place> {
    (0..copies).map(|copy| Place::on(part(shelf, &format!("c{copy}")))).collect()
}

/// Places in memory of their own.
pub(crate) fn memory(copies: u8) -> Vec<Place> {
    (0..copies).map(|_| Place::on(Arc::new(MemoryShelf::new()))).collect()
}

pub(crate) fn new_volume(blocks: u64) -> NewVolume {
    NewVolume { volume: *b"volume for tests", bytes: blocks * BLOCK_BYTES as u64, min_copies: None, is_thin: false }
}

/// These tests run twice: `encrypted.rs` has them with encryption.
pub(crate) const IS_ENCRYPTED: bool = matches!(env!("CARGO_CRATE_NAME").as_bytes(), b"encrypted");

/// The defaults, with keys where volumes are encrypted.
pub(crate) fn base(owner: u64) -> Options {
    let keys = VolumeKeys::new(vec![(1, Secret::new([7; 32]))]).filter(|_| IS_ENCRYPTED);
    Options { keys, ..Options::new(owner) }
}

/// Small segments, no threads, no time to wait.
pub(crate) fn options(owner: u64) -> Options {
    Options {
        window_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        write_timeout: std::time::Duration::ZERO,
        threads: Threads::Callers,
        ..base(owner)
    }
}

/// Makes a volume and opens it.
pub(crate) fn fresh(places: &[Place], blocks: u64) -> Volume {
    Volume::create(places, &new_volume(blocks), &options(1)).expect("creates");
    Volume::open(places.to_vec(), options(2)).expect("opens")
}

/// A block filled with a number.
pub(crate) fn tagged(tag: u64) -> Vec<u8> {
    tag.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

pub(crate) fn at(block: u64) -> u64 {
    block * BLOCK_BYTES as u64
}

pub(crate) fn read_block(volume: &Volume, block: u64) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; BLOCK_BYTES];
    volume.read(at(block), &mut bytes).map(|()| bytes)
}

/// The tag of a block that was written with [`tagged`].
pub(crate) fn tag_of(bytes: &[u8]) -> u64 {
    let tag = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(bytes == tagged(tag), "a block is a mixture");
    tag
}

/// A state of a block: from which operation of the recording on it may be there, and from which on it must not be older.
#[derive(Clone, Debug)]
struct Version {
    called: usize,
    acknowledged: Option<usize>,
    bytes: Vec<u8>,
}

/// All states of all blocks.
#[derive(Debug)]
pub(crate) struct History {
    blocks: Vec<Vec<Version>>,
}

impl History {
    pub(crate) fn new(blocks: u64) -> History {
        let empty = Version { called: 0, acknowledged: Some(0), bytes: vec![0; BLOCK_BYTES] };
        History { blocks: vec![vec![empty]; blocks as usize] }
    }

    /// The bytes that the volume must have now, if every write was acknowledged.
    pub(crate) fn latest(&self, block: u64) -> &[u8] {
        &self.blocks[block as usize].last().expect("the first version is always there").bytes
    }

    /// A change of a range, called at one operation of the recording and acknowledged at another.
    pub(crate) fn change(&mut self, offset: u64, data: &[u8], called: usize, acknowledged: Option<usize>) {
        let mut at = 0;
        while at < data.len() {
            let place = offset + at as u64;
            let (block, within) = (place / BLOCK_BYTES as u64, (place % BLOCK_BYTES as u64) as usize);
            let bytes = (BLOCK_BYTES - within).min(data.len() - at);
            let mut next = self.latest(block).to_vec();
            next[within..within + bytes].copy_from_slice(&data[at..at + bytes]);
            self.blocks[block as usize].push(Version { called, acknowledged, bytes: next });
            at += bytes;
        }
    }

    /// Whether a block may contain these bytes after a power failure at a point.
    pub(crate) fn allows(&self, block: u64, bytes: &[u8], point: usize) -> Result<(), String> {
        let versions = &self.blocks[block as usize];
        let is_certain = |version: &Version| version.acknowledged.is_some_and(|when| when <= point);
        let last = versions.iter().rposition(is_certain).expect("the first is certain");
        let possible = versions[last..].iter().filter(|version| version.called <= point);
        if possible.clone().any(|version| version.bytes == bytes) {
            return Ok(());
        }
        let older = versions[..last].iter().any(|version| version.bytes == bytes);
        let what = if older { "an older state" } else { "bytes that were never written" };
        Err(format!("block {block} contains {what} at point {point}"))
    }
}
