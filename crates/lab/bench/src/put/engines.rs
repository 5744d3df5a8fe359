//! The measured engines: the raw medium, the journal and the store, each behind one call that is a durable put.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{AlignedBuffer, Device, FileOptions, FileShelf};
use journal::Journal;
use store::{Options, Places, Store, StoreError, TreeId};

use super::{KEY_BYTES, Place, Turn, VALUE_BYTES, drive, fresh};

/// Size of the raw device: it is written around and around, so its blocks are there after the first time.
const RAW_BYTES: u64 = 64 << 20;
/// The bare journal truncates records that are older than this, as a node does with records whose changes are in its
/// pages.
const JOURNAL_KEPT: u64 = 64 << 20;

/// One of the three.
pub(super) enum Engine {
    Raw(Raw),
    Journal(Box<Bare>),
    Store(Box<(Store, TreeId)>),
}

/// The medium by itself.
pub(super) struct Raw {
    device: Arc<dyn Device>,
    data: AlignedBuffer,
    offset: AtomicU64,
}

/// The journal by itself.
pub(super) struct Bare {
    journal: Journal,
    /// Up to here it was given up.
    truncated: AtomicU64,
}

/// Opens all three, empty, for so many committers; in the order of [`Engine::ALL`].
pub(super) fn open(place: &Place, pages: &Path, committers: usize) -> anyhow::Result<Vec<Engine>> {
    let device = place.shelf("raw")?.create("raw", RAW_BYTES)?;
    let block = u64::from(device.block_bytes()).max(8);
    let bytes = ((committers * VALUE_BYTES) as u64).next_multiple_of(block);
    let data = AlignedBuffer::from(&vec![0x5a; usize::try_from(bytes)?][..]);
    let zeros = AlignedBuffer::from(&vec![0; usize::try_from(RAW_BYTES)?][..]);
    device.write(0, &zeros)?;
    device.flush()?;
    let raw = Engine::Raw(Raw { device, data, offset: AtomicU64::new(0) });

    let (journal, _) = Journal::open(place.shelf("bare")?, journal::Options::default())?;
    let bare = Engine::Journal(Box::new(Bare { journal, truncated: AtomicU64::new(0) }));

    let file = |name: &str| -> anyhow::Result<_> {
        Ok(Arc::new(FileShelf::open(&fresh(&pages.join(name))?, FileOptions::default())?))
    };
    let places = Places { journal: place.shelf("journal")?, images: file("images")?, data: file("data")? };
    let (store, _) = Store::open(places, Options::default())?;
    let mut transaction = store.begin();
    let tree = transaction.create_tree("puts")?;
    transaction.commit()?;
    Ok(vec![raw, bare, Engine::Store(Box::new((store, tree)))])
}

impl Engine {
    /// Their names, in the order of their turns.
    pub(super) const ALL: [&'static str; 3] = ["raw", "journal", "store"];

    pub(super) fn name(&self) -> &'static str {
        match self {
            Engine::Raw(_) => Engine::ALL[0],
            Engine::Journal(_) => Engine::ALL[1],
            Engine::Store(_) => Engine::ALL[2],
        }
    }

    /// Puts by so many committers for so long.
    pub(super) fn turn(&mut self, committers: usize, time: Duration) -> anyhow::Result<Turn> {
        let value = [0x5a; VALUE_BYTES];
        match self {
            Engine::Raw(raw) => drive(1, time, committers as u64, &|_| raw.write()),
            Engine::Journal(bare) => drive(committers, time, 1, &|random| bare.put(&key(random), &value)),
            Engine::Store(store) => drive(committers, time, 1, &|random| put(store, &key(random), &value)),
        }
    }

    pub(super) fn close(self) -> anyhow::Result<()> {
        match self {
            Engine::Raw(_) => {}
            Engine::Journal(bare) => bare.journal.close()?,
            Engine::Store(store) => store.0.close()?,
        }
        Ok(())
    }
}

fn key(random: &mut fastrand::Rng) -> [u8; KEY_BYTES] {
    random.u128(..).to_be_bytes()
}

impl Raw {
    fn write(&self) -> anyhow::Result<()> {
        let bytes = self.data.len() as u64;
        // One thread writes.
        let offset = self.offset.load(Ordering::Relaxed);
        self.device.write_flush(offset, &self.data)?;
        let next = offset + bytes;
        self.offset.store(if next + bytes > RAW_BYTES { 0 } else { next }, Ordering::Relaxed);
        Ok(())
    }
}

impl Bare {
    fn put(&self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let lsn = self.journal.append(1, &[key, value])?;
        self.journal.commit(lsn)?;
        let last = self.truncated.load(Ordering::Relaxed);
        // The thread that moves the mark truncates; nothing else is published with it.
        if lsn.0 > last + JOURNAL_KEPT
            && self.truncated.compare_exchange(last, lsn.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.journal.truncate(lsn)?;
        }
        Ok(())
    }
}

fn put((store, tree): &(Store, TreeId), key: &[u8], value: &[u8]) -> anyhow::Result<()> {
    loop {
        let mut transaction = store.begin();
        transaction.put(*tree, key, value)?;
        match transaction.commit() {
            // Another one has drawn the same key: as good as impossible, and no fault.
            Err(StoreError::Conflict) => {}
            result => return Ok(result.map(|_| ())?),
        }
    }
}
