//! Memory Mode as the hardware implements it: near memory is a direct-mapped cache of far memory, so each place in far
//! memory has exactly one place in near memory.
//!
//! ```text
//!   frames     all in far memory, counted in units of a page
//!   tag        of a near place (unit modulo places): which unit it contains, and whether it is newer than far memory
//!   access     the tag is that of the unit -> near memory's time
//!              else: the displaced unit, if newer, is written to far memory; the unit is read from far memory
//! ```
//!
//! The hardware is direct-mapped and write-back, accepts no hints, and uses all of DRAM as cache (intel/ipmctl issues
//! 132 and 161). Its unit is a line of 64 bytes. Here it is a page, because software does not see single loads; the
//! same pages contend for one place.
//!
//! Only tags move: the bytes stay in one arena of the host's memory, and the model is charged with the cost of moving
//! them on the real hardware. So this requires a model. On real Memory Mode the hardware does all of this, and the
//! cache is configured with near memory only.

use std::sync::atomic::{AtomicU64, Ordering};

/// Which unit is in which place of near memory.
pub(super) struct DirectMap {
    /// Unit + 1, shifted left; bit 0: newer than far memory.
    tags: Box<[AtomicU64]>,
}

/// The units that an access moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// From far memory; or into near memory only, if whole units are written.
    pub(super) missed: u32,
    /// To far memory.
    pub(super) written_back: u32,
}

impl DirectMap {
    pub(super) fn new(places: usize) -> DirectMap {
        DirectMap { tags: (0..places.max(1)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Records an access to units from `first` on; returns what it moves.
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
