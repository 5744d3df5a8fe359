//! The memory of recent accesses: the positions of streams, and the open access units.

use std::collections::{HashMap, VecDeque};

use crate::model::Unit;

/// The number of streams that are followed at a time. More than the 32 threads at which the catalogue's curves end; a
/// random access continues a stream by chance only on a place with few blocks.
const STREAMS: usize = 64;

/// Where recent accesses ended.
#[derive(Debug)]
pub(super) struct Recent {
    /// Place and offset; the oldest is overwritten.
    ends: [(u64, u64); STREAMS],
    next: usize,
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { ends: [(u64::MAX, u64::MAX); STREAMS], next: 0 }
    }
}

impl Recent {
    /// Whether an access starts where a recent one ended; records its end.
    pub(super) fn follows(&mut self, place: u64, offset: u64, bytes: u64) -> bool {
        let end = (place, offset + bytes);
        if let Some(stream) = self.ends.iter_mut().find(|stream| **stream == (place, offset)) {
            *stream = end;
            return true;
        }
        self.ends[self.next] = end;
        self.next = (self.next + 1) % STREAMS;
        false
    }
}

/// The units that are open in the modules' buffers; the least recently written one leaves first. A write to an open
/// unit is merged into it; any other makes the medium write one more unit.
#[derive(Debug)]
pub(super) struct OpenUnits {
    unit: Unit,
    /// Place and number of a unit, with its last write.
    open: HashMap<(u64, u64), u64>,
    /// In the order of their writes; entries whose unit was written again are stale.
    order: VecDeque<((u64, u64), u64)>,
    writes: u64,
}

impl OpenUnits {
    pub(super) fn new(unit: Unit) -> OpenUnits {
        OpenUnits { unit, open: HashMap::new(), order: VecDeque::new(), writes: 0 }
    }

    /// The bytes that the medium writes for a write.
    pub(super) fn write(&mut self, place: u64, offset: u64, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let (first, last) = (offset / self.unit.bytes, (offset + bytes - 1) / self.unit.bytes);
        let mut units = last - first + 1;
        // Units in the middle are written whole, so no write is merged with them.
        let starts_inside = !offset.is_multiple_of(self.unit.bytes);
        let ends_inside = !(offset + bytes).is_multiple_of(self.unit.bytes);
        if starts_inside || (first == last && ends_inside) {
            units -= u64::from(self.touch((place, first)));
        }
        if ends_inside && last != first {
            units -= u64::from(self.touch((place, last)));
        }
        units * self.unit.bytes
    }

    /// Whether a unit was open; opens it.
    fn touch(&mut self, unit: (u64, u64)) -> bool {
        self.writes += 1;
        let was_open = self.open.insert(unit, self.writes).is_some();
        self.order.push_back((unit, self.writes));
        while self.open.len() > self.unit.open || self.order.len() > 2 * self.unit.open.max(1) {
            let Some((oldest, written)) = self.order.pop_front() else { break };
            // A stale entry is only removed from the order; a current one closes its unit.
            if self.open.get(&oldest) == Some(&written) {
                if self.open.len() > self.unit.open {
                    self.open.remove(&oldest);
                } else {
                    self.order.push_back((oldest, written));
                }
            }
        }
        was_open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(open: usize) -> OpenUnits {
        OpenUnits::new(Unit { bytes: 256, open })
    }

    #[test]
    fn small_writes_that_follow_each_other_share_units_and_scattered_ones_do_not() {
        let mut near = units(64);
        let sequential: u64 = (0..400).map(|at| near.write(0, at * 64, 64)).sum();
        assert_eq!(sequential, 100 * 256);
        let mut far = units(64);
        let scattered: u64 = (0..400).map(|at| far.write(0, at * 4096, 64)).sum();
        assert_eq!(scattered, 400 * 256);
    }

    #[test]
    fn a_unit_closes_when_as_many_others_as_the_buffer_holds_were_written_since() {
        for (others, again) in [(63, 0), (64, 256)] {
            let mut units = units(64);
            assert_eq!(units.write(0, 0, 64), 256);
            for other in 1..=others {
                units.write(0, other * 256, 64);
            }
            assert_eq!(units.write(0, 64, 64), again, "{others} others");
        }
    }

    #[test]
    fn a_unit_written_over_and_over_stays_open_and_costs_one() {
        let mut units = units(4);
        let total: u64 = (0..1000).map(|_| units.write(0, 0, 64)).sum();
        assert_eq!(total, 256);
        assert!(units.order.len() <= 9, "the order does not grow with the writes");
    }

    #[test]
    fn a_write_across_units_counts_each_and_whole_ones_in_full() {
        for (offset, bytes, medium) in
            [(0, 256, 256), (128, 256, 512), (0, 4096, 4096), (64, 4096, 17 * 256), (8, 0, 0)]
        {
            assert_eq!(units(64).write(0, offset, bytes), medium, "{offset}+{bytes}");
        }
    }
}
