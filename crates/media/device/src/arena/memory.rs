//! The free frames of an arena. Pure: no bytes, no latches.
//!
//! ```text
//!   slab    class, and a bit for each unit at which a free frame begins
//!   partial by class: slabs that may have a free frame        empty: slabs all of whose frames are free
//! ```
//!
//! Invariants: a frame is free if its bit is set; a slab is in `empty` if all its frames are free, and in its class's `partial`
//! if some but not all are.

use std::collections::BTreeSet;

/// The number of possible classes: 4 KiB to 1 MiB.
const CLASSES: usize = 9;

/// The free frames of an arena.
pub(super) struct Frames {
    slab_units: usize,
    slabs: Vec<Slab>,
    /// Ordered, so that the lowest slabs are filled first and the highest become free.
    partial: [BTreeSet<u32>; CLASSES],
    empty: BTreeSet<u32>,
}

#[derive(Clone)]
struct Slab {
    class: u8,
    free: [u64; 4],
    count: u16,
}

impl Slab {
    fn empty(class: u8, slab_units: usize) -> Slab {
        let mut slab = Slab { class, free: [0; 4], count: 0 };
        for unit in (0..slab_units).step_by(1 << class) {
            slab.free[unit / 64] |= 1 << (unit % 64);
            slab.count += 1;
        }
        slab
    }
}

impl Frames {
    pub(super) fn new(slabs: u32, slab_units: usize) -> Frames {
        let partial = Default::default();
        let all = vec![Slab::empty(0, slab_units); slabs as usize];
        Frames { slab_units, slabs: all, partial, empty: (0..slabs).collect() }
    }

    /// Takes a free frame of a class in the slabs below `below`, except slab `outside`. An empty slab of another class
    /// is passed to `reassign` with its present class; if that returns `false` the slab stays unchanged.
    pub(super) fn take(
        &mut self,
        class: u8,
        below: u32,
        outside: u32,
        reassign: impl Fn(u32, u8) -> bool,
    ) -> Option<u32> {
        let partial = self.partial[class as usize].range(..below).find(|slab| **slab != outside).copied();
        let slab = match partial {
            Some(slab) => slab,
            None => {
                let of_class = |slab: &&u32| **slab != outside && self.slabs[**slab as usize].class == class;
                let same = self.empty.range(..below).take(64).find(of_class).copied();
                let other = || {
                    let mut empty = self.empty.range(..below).copied();
                    empty.find(|slab| {
                        let old = self.slabs[*slab as usize].class;
                        *slab != outside && (old == class || reassign(*slab, old))
                    })
                };
                let slab = same.or_else(other)?;
                self.empty.remove(&slab);
                self.slabs[slab as usize] = Slab::empty(class, self.slab_units);
                self.partial[class as usize].insert(slab);
                slab
            }
        };
        let place = &mut self.slabs[slab as usize];
        let (word, bits) = place.free.iter_mut().enumerate().find(|(_, bits)| **bits != 0)?;
        let bit = bits.trailing_zeros();
        *bits &= *bits - 1;
        place.count -= 1;
        if place.count == 0 {
            self.partial[class as usize].remove(&slab);
        }
        Some(slab * self.slab_units as u32 + word as u32 * 64 + bit)
    }

    /// Makes a frame free. Panics if it was free already.
    pub(super) fn give(&mut self, frame: u32, class: u8) {
        let (slab, unit) = (frame / self.slab_units as u32, frame as usize % self.slab_units);
        let place = &mut self.slabs[slab as usize];
        assert!(
            place.class == class && place.free[unit / 64] & 1 << (unit % 64) == 0,
            "frame {frame} was free already"
        );
        place.free[unit / 64] |= 1 << (unit % 64);
        place.count += 1;
        if usize::from(place.count) == self.slab_units >> class {
            self.partial[class as usize].remove(&slab);
            self.empty.insert(slab);
        } else {
            self.partial[class as usize].insert(slab);
        }
    }

    /// Free frames in partly used slabs of a class, and empty slabs.
    pub(super) fn free(&self, class: u8) -> (u32, u32) {
        let partial = self.partial[class as usize].iter().map(|slab| u32::from(self.slabs[*slab as usize].count));
        (partial.sum(), self.empty.len() as u32)
    }
}
