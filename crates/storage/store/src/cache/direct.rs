//! Memory Mode as the hardware does it: near memory is a cache in front of far memory, and each place in far memory has one place
//! in near memory.
//!
//! ```text
//!   frames     all in far memory, counted in units of a page
//!   tag        of near place (unit modulo places): which unit lies there, and whether it is newer than far memory
//!   access     the unit's tag is there -> near memory's time
//!              else: the displaced unit, if newer, is written to far memory; the unit is read from it
//! ```
//!
//! The hardware is direct-mapped and write-back, takes no hints, and all of DRAM is cache (intel/ipmctl issues 132 and 161). Its unit
//! is a line of 64 bytes; here it is a page, since software sees no single loads; which pages contend for one place is the same.
//!
//! Only tags move: the bytes stay in one arena of the host's memory, and what moving them would cost on the real thing is charged
//! to the model. So this needs a model: on real Memory Mode the hardware does all of it, and the cache is told of near memory only.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which unit lies in which place of near memory.
pub(super) struct DirectMap {
    /// Unit + 1, shifted left; bit 0: newer than far memory.
    tags: Box<[AtomicU64]>,
}

/// What an access moves, in units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// From far memory; or, where units are written as a whole, into near memory only.
    pub(super) missed: u32,
    /// To far memory.
    pub(super) written_back: u32,
}

impl DirectMap {
    pub(super) fn new(places: usize) -> DirectMap {
        DirectMap { tags: (0..places.max(1)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Units from `first` on are read, or written.
    pub(super) fn access(&self, first: u32, units: u32, is_write: bool) -> Moved {
        let mut moved = Moved::default();
        for unit in u64::from(first)..u64::from(first) + u64::from(units) {
            let place = &self.tags[unit as usize % self.tags.len()];
            let found = place.load(Ordering::Relaxed);
            if found >> 1 == unit + 1 {
                if is_write && found & 1 == 0 {
                    place.fetch_or(1, Ordering::Relaxed);
                }
                continue;
            }
            let before = place.swap((unit + 1) << 1 | u64::from(is_write), Ordering::Relaxed);
            moved.missed += 1;
            moved.written_back += (before & 1) as u32;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_one_place_displace_each_other_and_only_newer_ones_are_written_back() {
        let map = DirectMap::new(10);
        let moved = |missed, written_back| Moved { missed, written_back };
        assert_eq!(map.access(0, 10, false), moved(10, 0), "all new");
        assert_eq!(map.access(3, 4, false), moved(0, 0), "all there");
        assert_eq!(map.access(3, 1, true), moved(0, 0), "written where it is");
        assert_eq!(map.access(12, 3, false), moved(3, 1), "12, 13, 14 displace 2, 3, 4; 3 is newer");
        assert_eq!(map.access(3, 1, false), moved(1, 0), "it comes back, 13 was only read");
        assert_eq!(map.access(5, 1, false), moved(0, 0), "others are untouched");
        assert_eq!(map.access(25, 1, true), moved(1, 0));
        assert_eq!(map.access(35, 1, true), moved(1, 1));
    }
}
