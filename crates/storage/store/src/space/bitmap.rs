//! [`Bitmap`]: which pages of one device are in use, and where a run fits.
//!
//! ```text
//!   word 0                    word 1                    ...
//!   bit 0 = page 0 of the device, bit 63 = page 63
//!
//!   a run of n pages starts on a multiple of its class (the next power of two), so that it is aligned as in the cache
//! ```
//!
//! Invariant: the number of pages is a multiple of 64. Positions are pages of this device; assertions check the caller.

/// Pages of a word.
const WORD: u32 = u64::BITS;

/// One bit for each page of a device, 1 for in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// All pages free.
    pub(crate) fn new(pages: u32) -> Bitmap {
        assert!(pages.is_multiple_of(WORD), "{pages} pages do not fill words");
        Bitmap { words: vec![0; (pages / WORD) as usize] }
    }

    /// Pages in all.
    pub(crate) fn pages(&self) -> u32 {
        self.words.len() as u32 * WORD
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether all pages of the run are in use.
    pub(crate) fn is_used(&self, first: u32, pages: u32) -> bool {
        parts(first, pages).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// Whether all pages of the run are free.
    pub(crate) fn is_free(&self, first: u32, pages: u32) -> bool {
        parts(first, pages).all(|(word, mask)| self.words[word] & mask == 0)
    }

    /// Marks a run as in use. Panics if a page of it is already in use.
    pub(crate) fn take(&mut self, first: u32, pages: u32) {
        assert!(self.is_free(first, pages), "page {first}+{pages} of the device is in use");
        parts(first, pages).for_each(|(word, mask)| self.words[word] |= mask);
    }

    /// Marks a run as free. Panics if a page of it is already free.
    pub(crate) fn give(&mut self, first: u32, pages: u32) {
        assert!(self.is_used(first, pages), "page {first}+{pages} of the device is free already");
        parts(first, pages).for_each(|(word, mask)| self.words[word] &= !mask);
    }

    /// Returns the first place at or after word `from` where a run fits.
    pub(crate) fn find(&self, pages: u32, from: usize) -> Option<u32> {
        let class = pages.next_power_of_two();
        if class > WORD {
            let step = (class / WORD) as usize;
            let starts = (from.next_multiple_of(step)..self.words.len()).step_by(step);
            let mut starts = starts.map(|word| word as u32 * WORD);
            return starts.find(|first| first + class <= self.pages() && self.is_free(*first, pages));
        }
        let mask = ones(pages);
        for (word, bits) in self.words.iter().enumerate().skip(from) {
            if *bits == u64::MAX {
                continue;
            }
            let place = (0..WORD).step_by(class as usize).find(|place| bits >> place & mask == 0);
            if let Some(place) = place {
                return Some(word as u32 * WORD + place);
            }
        }
        None
    }

    /// The words of a map page: `words` from `from` on, fewer at the end.
    pub(crate) fn words(&self, from: usize, words: usize) -> &[u64] {
        &self.words[from..self.words.len().min(from + words)]
    }

    /// Sets words from a map page.
    pub(crate) fn set_words(&mut self, from: usize, words: impl Iterator<Item = u64>) {
        self.words[from..].iter_mut().zip(words).for_each(|(own, new)| *own = new);
    }

    /// Copies words from another bitmap.
    pub(crate) fn copy_words(&mut self, other: &Bitmap, from: usize, words: usize) {
        let to = self.words.len().min(from + words);
        self.words[from..to].copy_from_slice(&other.words[from..to]);
    }
}

/// The lowest bits.
fn ones(count: u32) -> u64 {
    if count == WORD { u64::MAX } else { (1 << count) - 1 }
}

/// The words of a run, each with a mask.
fn parts(first: u32, pages: u32) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (first, first + pages);
    std::iter::from_fn(move || {
        let count = (end - at).min(WORD - at % WORD);
        let part = (count > 0).then(|| ((at / WORD) as usize, ones(count) << (at % WORD)));
        at += count;
        part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches page by page, according to the definition.
    fn find_slowly(bits: &[bool], pages: u32, from: usize) -> Option<u32> {
        let class = pages.next_power_of_two();
        // A run larger than a word starts on a multiple of its class after `from`.
        (0..bits.len() as u32).step_by(class as usize).find(|first| {
            *first as usize >= from * 64
                && first + class <= bits.len() as u32
                && (*first..first + pages).all(|page| !bits[page as usize])
        })
    }

    #[test]
    fn it_finds_takes_and_gives_what_a_search_page_by_page_would() {
        for seed in 0..200 {
            let random = &mut fastrand::Rng::with_seed(seed);
            let mut map = Bitmap::new(1024);
            let mut bits = vec![false; 1024];
            let mut runs = Vec::new();
            for _ in 0..300 {
                if random.u8(..3) == 0 && !runs.is_empty() {
                    let (first, pages) = runs.swap_remove(random.usize(..runs.len()));
                    map.give(first, pages);
                    bits[first as usize..(first + pages) as usize].fill(false);
                    continue;
                }
                let most = [1, 8, 64, 256][random.usize(..4)];
                let pages = random.u32(1..=most);
                let from = random.usize(..4) * 4;
                let found = map.find(pages, from);
                assert_eq!(found, find_slowly(&bits, pages, from), "seed {seed}, {pages} pages from word {from}");
                let Some(first) = found else { continue };
                map.take(first, pages);
                bits[first as usize..(first + pages) as usize].fill(true);
                assert!(map.is_used(first, pages) && !map.is_free(first, 1));
                runs.push((first, pages));
            }
            assert_eq!(map.used() as usize, bits.iter().filter(|bit| **bit).count(), "seed {seed}");
        }
    }

    #[test]
    #[should_panic(expected = "is free already")]
    fn giving_a_free_page_is_a_fault_of_the_caller() {
        Bitmap::new(64).give(3, 1);
    }
}
