//! What blocks contain, so that each read can be checked: who it belongs to, which write stored it, and nothing else.
//!
//! ```text
//!   byte 0        8            16           24                                4088       4096
//!   | place seal | block      | version    | words made from the three before | end seal |
//! ```
//!
//! A [`Ledger`] holds, for each block of one device, the version that was written last and the version that was acknowledged last. A read
//! that was submitted when version 3 was acknowledged, and is back when version 5 was the last one submitted, contains 3, 4 or 5: less is
//! a stale read or a lost write, more was never written.
//!
//! Invariants: at most one write of a block is in progress, since each block is written by one thread, which waits for it. The sealed ends
//! are looked at in every checked block, the words between them in a sample: a mixture of two writes differs at the ends.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a block: the unit of the volume's checksums and of its atomicity.
pub const BLOCK: usize = device::BLOCK_BYTES;

/// The version that filling a device stores.
pub const FIRST_VERSION: u32 = 1;

const END: usize = BLOCK - 8;

/// A word that depends on all bits of `word` (the finaliser of splitmix64).
fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn place_seal(place: u32) -> u64 {
    mixed(u64::from(place) + 0x666c_6565_7401)
}

fn end_seal(place: u32, block: u64, version: u64) -> u64 {
    mixed(place_seal(place) ^ mixed(block).wrapping_add(version))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Writes the content of `version` of `block` on the device `place` into `bytes`, one block.
pub fn fill(place: u32, block: u64, version: u32, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), BLOCK, "one block");
    let end = end_seal(place, block, version.into());
    for (at, eight) in bytes.chunks_exact_mut(8).enumerate() {
        eight.copy_from_slice(&end.wrapping_mul(2 * at as u64 + 1).to_le_bytes());
    }
    bytes[..8].copy_from_slice(&place_seal(place).to_le_bytes());
    bytes[8..16].copy_from_slice(&block.to_le_bytes());
    bytes[16..24].copy_from_slice(&u64::from(version).to_le_bytes());
    bytes[END..].copy_from_slice(&end.to_le_bytes());
}

/// The version in a block, if both ends are those of this block of this place.
pub fn version(place: u32, block: u64, bytes: &[u8]) -> Option<u32> {
    let version = word(bytes, 16);
    let is_own = word(bytes, 0) == place_seal(place)
        && word(bytes, 8) == block
        && word(bytes, END) == end_seal(place, block, version);
    is_own.then(|| u32::try_from(version).ok()).flatten()
}

/// Whether all words are those of [`fill`].
pub fn is_whole(place: u32, block: u64, version: u32, bytes: &[u8]) -> bool {
    let end = end_seal(place, block, version.into());
    let between = bytes[24..END].chunks_exact(8).zip(3u64..);
    self::version(place, block, bytes) == Some(version)
        && between.into_iter().all(|(eight, at)| word(eight, 0) == end.wrapping_mul(2 * at + 1))
}

/// The versions of the blocks of one device.
#[derive(Debug)]
pub struct Ledger {
    submitted: Box<[AtomicU32]>,
    acknowledged: Box<[AtomicU32]>,
}

impl Ledger {
    /// Of a device of so many blocks that was filled with [`FIRST_VERSION`].
    pub fn filled(blocks: u64) -> Ledger {
        let all = || (0..blocks).map(|_| AtomicU32::new(FIRST_VERSION)).collect();
        Ledger { submitted: all(), acknowledged: all() }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.submitted.len() as u64
    }

    /// The version that a read which is submitted now contains at least.
    pub fn at_least(&self, block: u64) -> u32 {
        self.acknowledged[block as usize].load(Ordering::Acquire)
    }

    /// The version that a read which is back now contains at most.
    pub fn at_most(&self, block: u64) -> u32 {
        self.submitted[block as usize].load(Ordering::Acquire)
    }

    /// Begins a write of a block: its version; `None` while another one is in progress. Only the block's thread calls this.
    pub fn begin(&self, block: u64) -> Option<u32> {
        let last = self.at_most(block);
        if last != self.at_least(block) {
            return None;
        }
        self.submitted[block as usize].store(last + 1, Ordering::Release);
        Some(last + 1)
    }

    /// A write is acknowledged.
    pub fn end(&self, block: u64, version: u32) {
        self.acknowledged[block as usize].store(version, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_known_by_place_number_and_version_and_every_changed_word_is_found() {
        let mut bytes = vec![0; BLOCK];
        fill(2, 77, 5, &mut bytes);
        assert_eq!(version(2, 77, &bytes), Some(5));
        assert!(is_whole(2, 77, 5, &bytes));
        for (place, block) in [(1, 77), (2, 76)] {
            assert_eq!(version(place, block, &bytes), None, "{place} {block}");
        }
        assert!(!is_whole(2, 77, 4, &bytes));
        for at in (0..BLOCK).step_by(8) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(!is_whole(2, 77, 5, &damaged), "byte {at}");
        }
    }

    #[test]
    fn a_mixture_of_two_versions_has_none() {
        let (mut old, mut new) = (vec![0; BLOCK], vec![0; BLOCK]);
        fill(0, 9, 1, &mut old);
        fill(0, 9, 2, &mut new);
        for cut in (512..BLOCK).step_by(512) {
            let mixture = [&new[..cut], &old[cut..]].concat();
            assert_eq!(version(0, 9, &mixture), None, "cut at {cut}");
        }
    }

    #[test]
    fn a_write_in_progress_widens_what_a_read_may_contain_and_keeps_others_away() {
        let ledger = Ledger::filled(4);
        assert_eq!((ledger.at_least(3), ledger.at_most(3)), (FIRST_VERSION, FIRST_VERSION));
        let version = ledger.begin(3).expect("none in progress");
        assert_eq!(ledger.begin(3), None);
        assert_eq!((ledger.at_least(3), ledger.at_most(3)), (FIRST_VERSION, version));
        ledger.end(3, version);
        assert_eq!((ledger.at_least(3), ledger.begin(3)), (version, Some(version + 1)));
    }
}
