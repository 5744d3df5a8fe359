//! The stored form of a cache: its layout, its header, the entries of its pages, and the label of the capacity.
//!
//! ```text
//!   cache device "write-back"      | header 4096 | header 4096 | entries: 128 for each page | zeros | page 0 | page 1 | ...
//!   capacity device "write-back"   | label 4096  | label 4096  |
//!
//!   header   0  magic "TERRWBCH"        label: the same, with the magic "TERRWBLB"
//!            8  version, u32: 1
//!           12  CRC-32C of the bytes from 16 to 4096, u32
//!           16  identity, 16 bytes
//!           32  generation, u64: one more with each opening
//!           40  bytes of the cache device, u64
//!           48  bytes of a page, u32
//!           52  zeros
//!
//!   entries  128 bytes for each page: two places of 64, written in turn; of two whole ones the higher sequence counts
//!
//!   entry    0  CRC-32C of the identity and of bytes 4 to 64, u32
//!            4  number of the capacity device, u32; 0: nothing of the page counts
//!            8  number of the page in that device, u64
//!           16  sequence, u64: higher than that of every entry written before
//!           24  a bit for each block of 4096 bytes: the page has it, and the capacity perhaps not
//!           56  number of the place in the cache, u32
//!           60  zeros
//! ```
//!
//! All numbers are little-endian. A place of zeros is an entry that was never written: nothing counts.
//!
//! Both headers and both labels are written for each change, one after the other, so that damage to one at rest loses nothing.
//! An entry that is torn, on any medium, leaves the other place, which contains what was last flushed. One that is damaged at rest
//! cannot be told from a torn one: the other place then counts, which is older. What the volume above stores has sums, and it repairs
//! such a block from another copy.

use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError};

use super::options::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};
use super::page_bits::{BITS_BYTES, PageBits};
use crate::checksum;
use crate::error::VolumeError;

/// The name of the device on the cache shelf, and of the label on the capacity shelf.
pub const WRITE_BACK: &str = "write-back";

/// The version of the format.
pub const CACHE_VERSION: u32 = 1;

/// Bytes of one place of an entry: a cache line.
pub(super) const ENTRY_BYTES: usize = 64;
/// Bytes of both places.
pub(super) const ENTRY_PAIR_BYTES: u64 = 2 * ENTRY_BYTES as u64;
/// Bytes of the headers, and of the labels.
pub(super) const HEADERS_BYTES: u64 = 2 * BLOCK;

const BLOCK: u64 = BLOCK_BYTES as u64;
const CACHE_MAGIC: &[u8; 8] = b"TERRWBCH";
const LABEL_MAGIC: &[u8; 8] = b"TERRWBLB";
const CRC_AT: usize = 12;
const SUMMED_AT: usize = 16;

/// Where the parts of a cache device lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) page_bytes: u32,
    /// Pages that there is room for.
    pub(super) slots: u32,
    pages_at: u64,
}

impl Layout {
    /// Errors: [`VolumeError::Options`].
    pub(super) fn new(cache_bytes: u64, page_bytes: u32) -> Result<Layout, VolumeError> {
        if !page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
            return Err(VolumeError::Options("a page of a cache is a power of two from 4 KiB to 1 MiB"));
        }
        if !cache_bytes.is_multiple_of(BLOCK) || cache_bytes > i64::MAX as u64 {
            return Err(VolumeError::Options("the size of a cache is a multiple of 4096 bytes"));
        }
        let room = cache_bytes.saturating_sub(HEADERS_BYTES);
        let slots = room / (u64::from(page_bytes) + ENTRY_PAIR_BYTES);
        let mut slots = u32::try_from(slots).map_err(|_| VolumeError::Options("a cache has at most 2^32 pages"))?;
        let pages_at = |slots: u32| HEADERS_BYTES + (u64::from(slots) * ENTRY_PAIR_BYTES).next_multiple_of(BLOCK);
        // Rounding the entries up to a block may take the room of the last page.
        while slots > 0 && pages_at(slots) + u64::from(slots) * u64::from(page_bytes) > cache_bytes {
            slots -= 1;
        }
        if slots == 0 {
            return Err(VolumeError::Options("a cache has room for its headers, its entries and one page"));
        }
        Ok(Layout { page_bytes, slots, pages_at: pages_at(slots) })
    }

    /// Blocks of a page.
    pub(super) fn blocks(&self) -> u32 {
        self.page_bytes / BLOCK_BYTES as u32
    }

    /// Where a block of a page lies on the cache device.
    #[inline]
    pub(super) fn block_at(&self, slot: u32, block: u32) -> u64 {
        self.pages_at + u64::from(slot) * u64::from(self.page_bytes) + u64::from(block) * BLOCK
    }

    /// Where one of the two places of an entry lies.
    pub(super) fn entry_at(&self, slot: u32, side: u8) -> u64 {
        HEADERS_BYTES + u64::from(slot) * ENTRY_PAIR_BYTES + u64::from(side) * ENTRY_BYTES as u64
    }

    /// Bytes of all entries, whole blocks.
    pub(super) fn entries_bytes(&self) -> u64 {
        self.pages_at - HEADERS_BYTES
    }
}

/// A page of a capacity device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PageKey {
    /// Number of the device, not 0.
    pub(super) device: u32,
    /// Its offset there, in pages.
    pub(super) page: u64,
}

/// An entry: which blocks of which page a place of the cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheEntry {
    pub(super) slot: u32,
    pub(super) sequence: u64,
    /// `None`: nothing of the place counts.
    pub(super) content: Option<(PageKey, PageBits)>,
}

/// What is found in the place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryPlace {
    Blank,
    Damaged,
    Whole(CacheEntry),
}

impl CacheEntry {
    pub(super) fn encode(&self, identity: &[u8; 16]) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        if let Some((key, bits)) = self.content {
            out[4..8].copy_from_slice(&key.device.to_le_bytes());
            out[8..16].copy_from_slice(&key.page.to_le_bytes());
            out[24..24 + BITS_BYTES].copy_from_slice(&bits.to_bytes());
        }
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[56..60].copy_from_slice(&self.slot.to_le_bytes());
        let sum = entry_sum(identity, &out);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the place of an entry of slot `slot`, in a cache whose pages have `blocks`.
    pub(super) fn decode(identity: &[u8; 16], slot: u32, blocks: u32, place: &[u8; ENTRY_BYTES]) -> EntryPlace {
        if *place == [0; ENTRY_BYTES] {
            return EntryPlace::Blank;
        }
        let device = u32_at(place, 4);
        let bits = PageBits::from_bytes(place[24..24 + BITS_BYTES].try_into().expect("the length of a set"));
        let is_possible = !bits.is_empty() && bits.minus(PageBits::of(&(0..blocks))).is_empty();
        let is_whole = u32_at(place, 0) == entry_sum(identity, place) && u32_at(place, 56) == slot;
        match is_whole {
            true if device == 0 => EntryPlace::Whole(CacheEntry { slot, sequence: u64_at(place, 16), content: None }),
            true if is_possible => {
                let content = Some((PageKey { device, page: u64_at(place, 8) }, bits));
                EntryPlace::Whole(CacheEntry { slot, sequence: u64_at(place, 16), content })
            }
            _ => EntryPlace::Damaged,
        }
    }
}

fn entry_sum(identity: &[u8; 16], entry: &[u8; ENTRY_BYTES]) -> u32 {
    let mut summed = [0; 16 + ENTRY_BYTES - 4];
    summed[..16].copy_from_slice(identity);
    summed[16..].copy_from_slice(&entry[4..]);
    checksum::of(&summed)
}

/// What a header or a label says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheLabel {
    pub(super) identity: [u8; 16],
    pub(super) generation: u64,
    pub(super) cache_bytes: u64,
    pub(super) page_bytes: u32,
}

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelKind {
    Cache,
    Capacity,
}

impl LabelKind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            LabelKind::Cache => CACHE_MAGIC,
            LabelKind::Capacity => LABEL_MAGIC,
        }
    }

    fn name(self) -> &'static str {
        match self {
            LabelKind::Cache => "the header of the write-back cache",
            LabelKind::Capacity => "the label of the capacity under a write-back cache",
        }
    }
}

impl CacheLabel {
    fn encode(&self, kind: LabelKind) -> AlignedBuffer {
        let mut out = AlignedBuffer::zeroed(BLOCK_BYTES);
        out[..8].copy_from_slice(kind.magic());
        out[8..12].copy_from_slice(&CACHE_VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.identity);
        out[32..40].copy_from_slice(&self.generation.to_le_bytes());
        out[40..48].copy_from_slice(&self.cache_bytes.to_le_bytes());
        out[48..52].copy_from_slice(&self.page_bytes.to_le_bytes());
        let sum = checksum::of(&out[SUMMED_AT..]);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// `Ok(None)`: it is not one, or damaged. Errors: [`VolumeError::Version`].
    fn decode(kind: LabelKind, block: &[u8]) -> Result<Option<CacheLabel>, VolumeError> {
        if block[..8] != kind.magic()[..] || u32_at(block, CRC_AT) != checksum::of(&block[SUMMED_AT..]) {
            return Ok(None);
        }
        let found = u32_at(block, 8);
        if found != CACHE_VERSION {
            return Err(VolumeError::Version { name: kind.name().into(), found, expected: CACHE_VERSION });
        }
        Ok(Some(CacheLabel {
            identity: block[16..32].try_into().expect("16 bytes"),
            generation: u64_at(block, 32),
            cache_bytes: u64_at(block, 40),
            page_bytes: u32_at(block, 48),
        }))
    }

    /// Writes both places; persistent when it returns.
    pub(super) fn write(&self, kind: LabelKind, device: &dyn Device) -> Result<(), DeviceError> {
        let bytes = self.encode(kind);
        device.write_flush(0, &bytes)?;
        device.write_flush(BLOCK, &bytes)
    }

    /// Reads the whole place with the higher generation; `None` if the second is blank and the first is not whole: its making, which
    /// writes one after the other, was never finished.
    ///
    /// Errors: [`VolumeError::Format`] if neither is whole, [`VolumeError::Version`], and those of reading.
    pub(super) fn read(kind: LabelKind, device: &dyn Device) -> Result<Option<CacheLabel>, VolumeError> {
        let wrong = |why| VolumeError::Format { name: kind.name().into(), why };
        if device.len() < HEADERS_BYTES {
            return Err(wrong("its device is too short"));
        }
        let mut best: Option<CacheLabel> = None;
        let (mut failure, mut is_blank) = (None, false);
        for place in 0..2 {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
            // One that cannot be read is as good as a damaged one: the other has the same content.
            if let Err(error) = device.read(place * BLOCK, &mut block) {
                failure = Some(error);
                is_blank = false;
                continue;
            }
            is_blank = block.iter().all(|byte| *byte == 0);
            if let Some(found) = CacheLabel::decode(kind, &block)?
                && best.as_ref().is_none_or(|best| best.generation < found.generation)
            {
                best = Some(found);
            }
        }
        match (best, failure) {
            (Some(best), _) => Ok(Some(best)),
            (None, Some(error)) => Err(error.into()),
            (None, None) if is_blank => Ok(None),
            (None, None) => Err(wrong("both places are damaged")),
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_and_entry_has_its_own_place_inside_the_device() {
        for page_bytes in [4096, 16384, 1 << 20] {
            for cache_bytes in [2, 3, 10, 4097, 100_003].map(|blocks| blocks * BLOCK + 3 * u64::from(page_bytes)) {
                let Ok(layout) = Layout::new(cache_bytes, page_bytes) else {
                    continue;
                };
                let last = layout.slots - 1;
                assert!(layout.entry_at(last, 1) + ENTRY_BYTES as u64 <= layout.block_at(0, 0));
                assert!(layout.block_at(last, 0) + u64::from(page_bytes) <= cache_bytes);
                // No further page would fit.
                let more = (u64::from(layout.slots) + 1) * (u64::from(page_bytes) + ENTRY_PAIR_BYTES);
                assert!(HEADERS_BYTES + more + BLOCK > cache_bytes);
            }
        }
        assert!(Layout::new(3 * BLOCK, 4096).is_err() && Layout::new(4 * BLOCK, 4096).is_ok());
        assert!(Layout::new(1 << 30, 5000).is_err() && Layout::new((1 << 30) + 1, 4096).is_err());
    }

    #[test]
    fn an_entry_with_any_bit_changed_or_in_another_place_or_cache_is_damaged() {
        let identity = [7; 16];
        let content = Some((PageKey { device: 3, page: 9 }, PageBits::of(&(1..3))));
        for entry in [CacheEntry { slot: 5, sequence: 77, content }, CacheEntry { slot: 5, sequence: 8, content: None }]
        {
            let bytes = entry.encode(&identity);
            assert_eq!(CacheEntry::decode(&identity, 5, 4, &bytes), EntryPlace::Whole(entry));
            assert_eq!(CacheEntry::decode(&identity, 6, 4, &bytes), EntryPlace::Damaged);
            assert_eq!(CacheEntry::decode(&[8; 16], 5, 4, &bytes), EntryPlace::Damaged);
            for bit in 0..8 * ENTRY_BYTES {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(CacheEntry::decode(&identity, 5, 4, &changed), EntryPlace::Damaged, "bit {bit}");
            }
        }
        assert_eq!(CacheEntry::decode(&identity, 5, 4, &[0; ENTRY_BYTES]), EntryPlace::Blank);
    }
}
