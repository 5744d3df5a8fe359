//! [`ExtentCache`]: extents of the files of all indices, in memory while they are used.
//!
//! ```text
//!   slots    [ extent | extent | ... ]    one hand goes round: an extent that was read since the last round stays, another one goes
//! ```
//!
//! A new extent comes in as it is written, so that the first searches of a new segment read no medium. Extents that are read once, as by
//! a merge, go before those that are read again and again.
//!
//! Invariants: an extent is given out only for the checksum that it was put in with; memory is bounded by the number of slots.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::extents::{EXTENT_BYTES, Place};

/// Parts with locks of their own.
const PARTS: usize = 16;

/// Names an extent: its pool, and its place there.
type ExtentKey = (u64, Place);

/// See the head comment of this file.
#[derive(Debug)]
pub(super) struct ExtentCache {
    parts: Vec<Mutex<CachePart>>,
    slots_max: usize,
}

#[derive(Debug, Default)]
struct CachePart {
    slot_of: HashMap<ExtentKey, usize>,
    slots: Vec<CacheSlot>,
    hand: usize,
}

#[derive(Debug)]
struct CacheSlot {
    key: ExtentKey,
    checksum: u32,
    bytes: Arc<[u8]>,
    /// Read since the hand came by.
    is_used: bool,
}

impl ExtentCache {
    /// For so many bytes of extents.
    pub(super) fn new(bytes: u64) -> ExtentCache {
        let slots_max = bytes as usize / EXTENT_BYTES / PARTS;
        ExtentCache { parts: (0..PARTS).map(|_| Mutex::default()).collect(), slots_max }
    }

    fn part(&self, (pool, place): ExtentKey) -> &Mutex<CachePart> {
        // Neighbours lie in different parts.
        &self.parts[(pool as usize).wrapping_mul(7).wrapping_add(place as usize) % PARTS]
    }

    /// The bytes of an extent that was put in with this checksum.
    pub(super) fn get(&self, key: ExtentKey, checksum: u32) -> Option<Arc<[u8]>> {
        let mut part = self.part(key).lock();
        let at = *part.slot_of.get(&key)?;
        let slot = &mut part.slots[at];
        slot.is_used = true;
        (slot.checksum == checksum).then(|| Arc::clone(&slot.bytes))
    }

    /// Keeps the bytes of an extent, in the place of others where there is no room.
    pub(super) fn put(&self, key: ExtentKey, checksum: u32, bytes: &[u8]) {
        if self.slots_max == 0 {
            return;
        }
        let slot = CacheSlot { key, checksum, bytes: bytes.into(), is_used: false };
        let mut part = self.part(key).lock();
        let CachePart { slot_of, slots, hand } = &mut *part;
        let at = match slot_of.get(&key) {
            Some(at) => *at,
            None if slots.len() < self.slots_max => {
                slot_of.insert(key, slots.len());
                slots.push(slot);
                return;
            }
            None => {
                while std::mem::take(&mut slots[*hand].is_used) {
                    *hand = (*hand + 1) % slots.len();
                }
                let at = *hand;
                *hand = (*hand + 1) % slots.len();
                slot_of.remove(&slots[at].key);
                slot_of.insert(key, at);
                at
            }
        };
        slots[at] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_again_and_again_stays_and_what_is_read_once_goes() {
        let slots = 8 * PARTS;
        let cache = ExtentCache::new((slots * EXTENT_BYTES) as u64);
        let get = |place: u32| cache.get((1, place), place).map(|bytes| bytes[0]);
        let put = |place: u32| cache.put((1, place), place, &[place as u8; 8]);
        (0..slots as u32).for_each(put);
        for round in 1..20 {
            assert!((0..PARTS as u32).all(|place| get(place) == Some(place as u8)), "round {round}");
            (round * slots as u32..round * slots as u32 + 4 * PARTS as u32).for_each(put);
        }
        let kept: usize = cache.parts.iter().map(|part| part.lock().slots.len()).sum();
        assert_eq!(kept, slots);
        assert_eq!(cache.get((1, 0), 5), None, "another extent is there now");
        assert_eq!(cache.get((2, 0), 0), None, "of another pool");
        let none = ExtentCache::new(0);
        none.put((1, 1), 1, &[1]);
        assert_eq!(none.get((1, 1), 1), None);
    }
}
