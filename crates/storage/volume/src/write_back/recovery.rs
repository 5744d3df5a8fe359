//! Creating a cache, and opening one: after a shutdown, a crash, or a crash during an opening.
//!
//! ```text
//!   create   cache device, zeros  ->  header, generation 1  ->  label on the capacity, generation 1
//!
//!   open     label g and header h     h = g or g + 1     goes on; h is g + 1 after a crash between the next two steps
//!                                     h < g              an older state of the cache: refused
//!                                     h > g + 1          an older state of the capacity: refused
//!            header g + 1  ->  label g + 1  ->  entries are read  ->  those that count for nothing are written off
//! ```
//!
//! A copy of the cache that was taken since the last opening cannot be told from the cache: its generation is the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Shelf};

use super::backing::Backing;
use super::format::{
    CacheEntry, CacheLabel, ENTRY_BYTES, ENTRY_PAIR_BYTES, EntryPlace, HEADERS_BYTES, LabelKind, Layout, PageKey,
    WRITE_BACK,
};
use super::names::{DeviceNames, full_name};
use super::options::CacheOptions;
use super::page_bits::PageBits;
use super::pool::{CachePool, Entries};
use crate::error::VolumeError;

/// Bytes of entries read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Makes a cache and the label of the capacity. A creation that a crash interrupted can be repeated.
pub(super) fn create(capacity: &dyn Shelf, cache: &dyn Shelf, options: &CacheOptions) -> Result<(), VolumeError> {
    options.check()?;
    let layout = Layout::new(options.cache_bytes, options.page_bytes)?;
    let exists = || VolumeError::Device(DeviceError::AlreadyExists { name: WRITE_BACK.into() });
    let label = match capacity.open(WRITE_BACK) {
        Ok(label) => Some(label),
        Err(DeviceError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if let Some(label) = &label
        && CacheLabel::read(LabelKind::Capacity, &**label)?.is_some()
    {
        return Err(exists());
    }
    match cache.open(WRITE_BACK) {
        Ok(left) => {
            // Left by an interrupted creation: this one's, or one that had not written its header.
            let header = CacheLabel::read(LabelKind::Cache, &*left)?;
            if header.is_some_and(|header| header.identity != options.identity || header.generation != 1) {
                return Err(exists());
            }
            drop(left);
            cache.remove(WRITE_BACK)?;
        }
        Err(DeviceError::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let device = cache.create(WRITE_BACK, options.cache_bytes)?;
    if layout.page_bytes % device.block_bytes() != 0 {
        return Err(VolumeError::Options("a page of a cache is whole blocks of its device"));
    }
    let made = CacheLabel {
        identity: options.identity,
        generation: 1,
        cache_bytes: options.cache_bytes,
        page_bytes: options.page_bytes,
    };
    made.write(LabelKind::Cache, &*device)?;
    let label = match label {
        Some(label) => label,
        None => capacity.create(WRITE_BACK, HEADERS_BYTES)?,
    };
    Ok(made.write(LabelKind::Capacity, &*label)?)
}

/// Opens the cache device that the capacity needs; returns it with what its header and the label say.
fn open_pair(capacity: &dyn Shelf, cache: &dyn Shelf) -> Result<(Arc<dyn Device>, CacheLabel), VolumeError> {
    let unfinished = || DeviceError::NoShelf { name: "the capacity under a write-back cache".into() };
    let label_device = capacity.open(WRITE_BACK).map_err(|error| match error {
        DeviceError::NotFound { .. } => unfinished(),
        other => other,
    })?;
    let label = CacheLabel::read(LabelKind::Capacity, &*label_device)?.ok_or_else(unfinished)?;
    let wrong =
        |why: &str| VolumeError::Device(DeviceError::WrongCache { name: "the capacity".into(), why: why.into() });
    let device = match cache.open(WRITE_BACK) {
        Ok(device) => device,
        Err(DeviceError::NotFound { .. }) => return Err(wrong("there is no cache on the cache shelf")),
        Err(error) => return Err(error.into()),
    };
    let header = CacheLabel::read(LabelKind::Cache, &*device)?;
    let header = header.ok_or_else(|| wrong("the cache there was never used"))?;
    if header.identity != label.identity {
        return Err(wrong("the cache there belongs to another capacity"));
    }
    if header.generation < label.generation {
        return Err(wrong("the cache there is an older state of it"));
    }
    if header.generation > label.generation + 1 {
        return Err(wrong("the capacity is an older state than the cache"));
    }
    if header.cache_bytes != device.len() {
        return Err(VolumeError::Format {
            name: WRITE_BACK.into(),
            why: "its device has another size than its header",
        });
    }
    let now = CacheLabel { generation: label.generation + 1, ..header };
    now.write(LabelKind::Cache, &*device)?;
    now.write(LabelKind::Capacity, &*label_device)?;
    Ok((device, now))
}

/// Opens a cache with what its entries say.
pub(super) fn open(capacity: &dyn Shelf, cache: &dyn Shelf, options: &CacheOptions) -> Result<CachePool, VolumeError> {
    options.check()?;
    let (device, label) = open_pair(capacity, cache)?;
    let layout = Layout::new(label.cache_bytes, label.page_bytes)?;
    let twice =
        |_| VolumeError::Format { name: "the capacity".into(), why: "two of its devices have one name or number" };
    let names = DeviceNames::of(&capacity.list()?).map_err(twice)?;
    let mut pool = CachePool::new((label.identity, label.generation), layout, options.clone(), device, names);
    let (found, image) = read_entries(&pool)?;
    let sequence = found.iter().map(|found| found.entry.sequence).max().unwrap_or(0);
    let image = pool.writes_blocks().then_some(image);
    pool.restore_entries(Entries::new(sequence, image));
    restore(&pool, capacity, found)?;
    // Before anything is served: what counts for nothing must not come back.
    pool.persist()?;
    Ok(pool)
}

/// The entry of one place that counts, and on which side it is.
struct FoundEntry {
    entry: CacheEntry,
    side: u8,
}

/// Reads all entries, and their bytes if they are written in blocks.
fn read_entries(pool: &CachePool) -> Result<(Vec<FoundEntry>, Vec<u8>), VolumeError> {
    let layout = &pool.layout;
    let (mut found, mut image) = (Vec::new(), Vec::new());
    let mut piece = AlignedBuffer::new();
    let mut at = 0;
    while at < layout.entries_bytes() {
        piece.resize(PIECE_BYTES.min(layout.entries_bytes() - at) as usize, 0);
        pool.cache.read(HEADERS_BYTES + at, &mut piece)?;
        for (index, pair) in piece.chunks_exact(ENTRY_PAIR_BYTES as usize).enumerate() {
            let slot = (at / ENTRY_PAIR_BYTES) as u32 + index as u32;
            if slot < layout.slots {
                found.extend(choose(pool, slot, pair));
            }
        }
        if pool.writes_blocks() {
            image.extend_from_slice(&piece);
        }
        at += piece.len() as u64;
    }
    Ok((found, image))
}

/// The one of two places that counts; `None` if neither does.
fn choose(pool: &CachePool, slot: u32, pair: &[u8]) -> Option<FoundEntry> {
    let places = [0, 1].map(|side: usize| {
        let place = pair[side * ENTRY_BYTES..(side + 1) * ENTRY_BYTES].try_into().expect("the length of an entry");
        CacheEntry::decode(pool.identity(), slot, pool.layout.blocks(), place)
    });
    if places.contains(&EntryPlace::Damaged) {
        pool.counts.damaged_entries.fetch_add(1, Ordering::Relaxed);
    }
    let whole = |side: usize| match places[side] {
        EntryPlace::Whole(entry) => Some(FoundEntry { entry, side: side as u8 }),
        _ => None,
    };
    match (whole(0), whole(1)) {
        (Some(a), Some(b)) => Some(if a.entry.sequence > b.entry.sequence { a } else { b }),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => {
            // The next entry goes to the damaged place.
            let side = u8::from(places[0] == EntryPlace::Damaged);
            let (shard, local) = pool.local_of(slot);
            shard.lock().restore_side(local, side);
            None
        }
    }
}

/// Puts pages into the pool: of two places with one page the newer one, and only pages that their device has.
fn restore(pool: &CachePool, capacity: &dyn Shelf, found: Vec<FoundEntry>) -> Result<(), VolumeError> {
    let page_bytes = u64::from(pool.layout.page_bytes);
    let mut newest: BTreeMap<PageKey, u64> = BTreeMap::new();
    let mut names = pool.names.lock();
    for (key, _) in found.iter().filter_map(|found| found.entry.content) {
        names.keep_free_of(key.device);
    }
    let known: Vec<(String, u32)> = names.by_name.iter().map(|(name, number)| (name.clone(), *number)).collect();
    for found in &found {
        if let Some((key, _)) = found.entry.content {
            let newest = newest.entry(key).or_default();
            *newest = found.entry.sequence.max(*newest);
        }
    }
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    for (name, number) in known {
        if newest.range(PageKey { device: number, page: 0 }..).next().is_some_and(|(key, _)| key.device == number) {
            // Its dirty pages may be destaged before anybody opens it.
            let backing = Backing::new(number, &name, capacity.open(&full_name(number, &name))?);
            pages.insert(number, backing.capacity.len().div_ceil(page_bytes));
            names.devices.entry(number).or_default().backing = Some(backing);
        }
    }
    drop(names);
    for FoundEntry { entry, side } in found {
        let (shard, local) = pool.local_of(entry.slot);
        let mut state = shard.lock();
        let Some((key, bits)) = entry.content else {
            state.restore_side(local, side);
            continue;
        };
        let is_there = pages.get(&key.device).is_some_and(|pages| key.page < *pages);
        let is_ours = std::ptr::eq(pool.shard_of(key).1, shard);
        if is_there && is_ours && newest[&key] == entry.sequence && is_inside(pool, key, bits) {
            state.restore(local, key, bits, side);
        } else {
            state.restore_stale(local, key, bits, side);
            pool.add_pending(&state, entry.slot);
        }
    }
    pool.shards().for_each(|(_, shard)| shard.lock().end_restore());
    Ok(())
}

/// Whether all blocks lie in the device: its last page may be shorter.
fn is_inside(pool: &CachePool, key: PageKey, bits: PageBits) -> bool {
    let Some(backing) = pool.names.lock().backing(key.device) else {
        return false;
    };
    let first = key.page * u64::from(pool.layout.page_bytes);
    let blocks = ((backing.capacity.len() - first) / BLOCK_BYTES as u64).min(u64::from(pool.layout.blocks())) as u32;
    bits.minus(PageBits::of(&(0..blocks))).is_empty()
}
