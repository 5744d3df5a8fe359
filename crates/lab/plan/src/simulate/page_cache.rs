//! The decisions of the store's page cache on keys without contents: `store::cache` has the reasons, and the same names.
//!
//! ```text
//!   not in memory  -> a frame of near memory; usage 0, or 2 if the key left lately (ghost)
//!   near           -> usage + 1, at most 3
//!   far            -> promoted with a probability (usage 1, then + 1), else usage + 1 in its place
//!   hand of CLOCK  -> usage - 1; at 0 the page leaves: near -> far if far memory has room, or if the page was used since it came
//! ```

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::tier::ClockTier;

/// Memory is divided into slabs of this size, bytes.
const SLAB_BYTES: u64 = 1 << 20;
/// Pages that near memory of Memory Mode is simulated with at most: each takes 8 bytes.
const PLACES_MAX: u64 = 1 << 28;
/// Rounds of the hand after which eviction fails.
const ROUNDS: usize = 6;
/// The largest usage count.
const USAGE_MAX: u8 = 3;

/// Which memory a cache has, and how pages move in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheMemory {
    /// Near memory only.
    Near,
    /// Far memory behind it; a use there promotes with this probability.
    NearFar {
        /// Far memory, bytes.
        far_bytes: u64,
        /// 0 to 1.
        promote: f64,
    },
    /// Memory Mode: all pages in far memory, near memory a direct-mapped cache of it.
    DirectMapped {
        /// Far memory, bytes.
        far_bytes: u64,
    },
}

/// The shape of a page cache, in the words of its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheShape {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Near memory, bytes; a sixteenth is for inner pages.
    pub near_bytes: u64,
    /// What is behind it.
    pub memory: CacheMemory,
}

/// Where an access was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In near memory.
    Near,
    /// In far memory.
    Far,
    /// On a device.
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The number of pages that had left when it left.
    Nowhere(u32),
    Near(u32),
    Far(u32),
}

#[derive(Clone, Copy, Debug)]
struct Word {
    place: Place,
    bytes: u64,
    usage: u8,
    /// Used in this place since it came there.
    is_used: bool,
}

/// See the head comment of this file.
#[derive(Debug)]
pub struct PageCacheModel {
    words: HashMap<u64, Word, FixedState>,
    main: ClockTier,
    far: Option<ClockTier>,
    direct: Option<DirectTags>,
    page_bytes: u64,
    has_pages: bool,
    /// So many pages that left are ghosts.
    ghosts: u32,
    left: u32,
    draw: Draw,
}

impl PageCacheModel {
    /// A cache of this shape with a part `rate` of its memory. `has_pages`: keys are pages, and take whole frames.
    ///
    /// # Errors
    /// What is impossible about the shape, or too small to be simulated at this rate.
    pub fn new(shape: &CacheShape, rate: f64, has_pages: bool) -> Result<PageCacheModel, String> {
        let near = shape.near_bytes - shape.near_bytes / 16;
        let part = |bytes: u64| (bytes as f64 * rate) as u64;
        let (main_bytes, far, places, promote) = match shape.memory {
            CacheMemory::Near => (near, None, None, 0.0),
            CacheMemory::NearFar { far_bytes, promote } if (0.0..=1.0).contains(&promote) => {
                (near, Some(far_bytes), None, promote)
            }
            CacheMemory::NearFar { .. } => return Err("a probability of promotion is 0 to 1".into()),
            CacheMemory::DirectMapped { far_bytes } if far_bytes < shape.near_bytes => {
                return Err("Memory Mode has at least as much far as near memory".into());
            }
            CacheMemory::DirectMapped { far_bytes } => (far_bytes, None, Some(near / shape.page_bytes), 0.0),
        };
        let slabs = (main_bytes / SLAB_BYTES).max(1);
        // The hand, and so the ghost list, also covers the slabs that are used when all others are changed.
        let units = (slabs + (slabs / 4).max(4)).saturating_mul((SLAB_BYTES / shape.page_bytes).max(1));
        let main = ClockTier::new(part(slabs * SLAB_BYTES));
        if main.capacity() < 16 * shape.page_bytes && has_pages {
            let (bytes, rate) = (shape.near_bytes, rate * 100.0);
            return Err(format!("a cache of {bytes} bytes is too small for a stream with {rate:.4} % of all keys"));
        }
        let places = places.map(part);
        if let Some(places) = places.filter(|places| *places > PLACES_MAX) {
            let (near, page) = (shape.near_bytes, shape.page_bytes);
            return Err(format!(
                "Memory Mode with {near} bytes of near memory and pages of {page} is simulated with {places} pages, and {PLACES_MAX} are the most"
            ));
        }
        let far = far.map(|far| ClockTier::new(part((far / SLAB_BYTES).max(1) * SLAB_BYTES)));
        Ok(PageCacheModel {
            words: HashMap::default(),
            main,
            far,
            direct: places.map(|places| DirectTags::new(places as usize)),
            page_bytes: shape.page_bytes,
            has_pages,
            ghosts: (units as f64 * rate) as u32,
            left: 0,
            draw: Draw::new(promote),
        })
    }

    /// An access to a key; returns where it was found.
    pub fn access(&mut self, key: u64, bytes: u32) -> Found {
        let bytes = match self.has_pages {
            true => u64::from(bytes).div_ceil(self.page_bytes).next_power_of_two() * self.page_bytes,
            false => u64::from(bytes).max(1),
        };
        let word = self.words.get(&key).copied();
        match word {
            Some(word) if !matches!(word.place, Place::Nowhere(_)) && word.bytes == bytes => self.hit(key, word),
            other => {
                // A key with another size now is another page.
                if let Some(word) = other {
                    self.release(word.place);
                }
                self.load(key, bytes, other);
                Found::Device
            }
        }
    }

    fn hit(&mut self, key: u64, word: Word) -> Found {
        let (mut word, mut found) = (word, Found::Near);
        if let Place::Far(_) = word.place {
            found = Found::Far;
            if self.draw.wins() && self.promote(key, word) {
                found = Found::Near;
                word = self.words.get(&key).copied().unwrap_or(word);
            }
        }
        if let Some(word) = self.words.get_mut(&key) {
            word.usage = (word.usage + 1).min(USAGE_MAX);
            word.is_used = true;
        }
        match (&mut self.direct, word.place) {
            (Some(tags), Place::Near(frame)) => {
                let unit = self.main.address(frame) / self.page_bytes;
                let units = word.bytes.div_ceil(self.page_bytes);
                if tags.access(unit, units) == 0 { Found::Near } else { Found::Far }
            }
            _ => found,
        }
    }

    fn load(&mut self, key: u64, bytes: u64, before: Option<Word>) {
        let nowhere =
            Word { place: Place::Nowhere(self.left.wrapping_sub(self.ghosts)), bytes, usage: 0, is_used: false };
        if !self.make_room(bytes) {
            // It is read past the cache.
            self.words.insert(key, nowhere);
            return;
        }
        // After a page has left for it, as in the cache.
        let is_ghost = matches!(before, Some(Word { place: Place::Nowhere(left), .. })
            if self.left.wrapping_sub(left) < self.ghosts);
        let frame = self.main.put(key, bytes);
        let usage = if is_ghost { 2 } else { 0 };
        self.words.insert(key, Word { place: Place::Near(frame), usage, ..nowhere });
        if let Some(tags) = &mut self.direct {
            tags.access(self.main.address(frame) / self.page_bytes, bytes.div_ceil(self.page_bytes));
        }
    }

    /// Evicts from near memory until so many bytes are free; `false` if it has not so many.
    fn make_room(&mut self, bytes: u64) -> bool {
        if bytes > self.main.capacity() {
            return false;
        }
        while !self.main.has_room(bytes) {
            let (frame, Some(owner)) = self.main.next() else { continue };
            let Some(word) = self.words.get_mut(&owner) else { continue };
            if word.usage > 0 {
                word.usage -= 1;
                continue;
            }
            let word = *word;
            if !self.demote(owner, word) {
                self.leave(owner);
            }
            self.main.release(frame);
        }
        true
    }

    /// Moves a page that leaves near memory to far memory; `false` if it finds no room.
    fn demote(&mut self, key: u64, word: Word) -> bool {
        let Some(mut far) = self.far.take() else { return false };
        let mut is_there = far.has_room(word.bytes);
        if !is_there && word.is_used && word.bytes <= far.capacity() {
            let mut steps = ROUNDS * far.frames();
            while !far.has_room(word.bytes) && steps > 0 {
                steps -= 1;
                let (frame, Some(owner)) = far.next() else { continue };
                let Some(other) = self.words.get_mut(&owner) else { continue };
                if other.usage > 0 {
                    other.usage -= 1;
                    continue;
                }
                // The page that is being promoted is latched.
                if other.place != Place::Far(frame) {
                    continue;
                }
                self.leave(owner);
                far.release(frame);
            }
            is_there = far.has_room(word.bytes);
        }
        if is_there {
            let frame = far.put(key, word.bytes);
            self.words.insert(key, Word { place: Place::Far(frame), usage: 1, is_used: false, ..word });
        }
        self.far = Some(far);
        is_there
    }

    /// Moves a page from far to near memory.
    fn promote(&mut self, key: u64, word: Word) -> bool {
        let Place::Far(frame) = word.place else { return false };
        if word.bytes > self.main.capacity() {
            return false;
        }
        // Its frame is latched meanwhile: far memory's hand passes it.
        if let Some(word) = self.words.get_mut(&key) {
            word.place = Place::Nowhere(0);
            word.usage = 0;
        }
        let has_room = self.make_room(word.bytes);
        let place = if has_room { Place::Near(self.main.put(key, word.bytes)) } else { word.place };
        self.words.insert(key, Word { place, usage: 1, is_used: false, ..word });
        if let (true, Some(far)) = (has_room, &mut self.far) {
            far.release(frame);
        }
        has_room
    }

    /// A page leaves memory.
    fn leave(&mut self, key: u64) {
        self.left = self.left.wrapping_add(1);
        if let Some(word) = self.words.get_mut(&key) {
            (word.place, word.usage, word.is_used) = (Place::Nowhere(self.left), 0, false);
        }
    }

    fn release(&mut self, place: Place) {
        match (place, &mut self.far) {
            (Place::Near(frame), _) => self.main.release(frame),
            (Place::Far(frame), Some(far)) => far.release(frame),
            _ => {}
        }
    }
}

/// Which unit is in which place of near memory.
#[derive(Debug)]
struct DirectTags(Vec<u64>);

impl DirectTags {
    fn new(places: usize) -> DirectTags {
        DirectTags(vec![0; places.max(1)])
    }

    /// Records an access to units; returns how many were not there.
    fn access(&mut self, first: u64, units: u64) -> u64 {
        let mut missed = 0;
        for unit in first..first + units {
            let place = (unit % self.0.len() as u64) as usize;
            missed += u64::from(self.0[place] != unit + 1);
            self.0[place] = unit + 1;
        }
        missed
    }
}

/// Draws with a probability, always the same ones.
#[derive(Debug)]
struct Draw {
    random: fastrand::Rng,
    promote: f64,
}

impl Draw {
    fn new(promote: f64) -> Draw {
        Draw { random: fastrand::Rng::with_seed(1), promote }
    }

    fn wins(&mut self) -> bool {
        self.promote > 0.0 && self.random.f64() < self.promote
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_mode_with_more_pages_than_can_be_simulated_is_refused() {
        let shape = |page_bytes| CacheShape {
            page_bytes,
            near_bytes: 1 << 36,
            memory: CacheMemory::DirectMapped { far_bytes: 1 << 42 },
        };
        let why = PageCacheModel::new(&shape(1), 1.0, true).expect_err("too many");
        assert!(why.contains("are the most"), "{why}");
        assert!(PageCacheModel::new(&shape(1), 1e-6, true).is_ok());
        assert!(PageCacheModel::new(&shape(8192), 1.0, true).is_ok());
    }
}
