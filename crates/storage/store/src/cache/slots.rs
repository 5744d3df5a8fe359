//! Memory of inner pages: slots of atomic words, each with a version.
//!
//! ```text
//!   slot   version u64 (odd: being written) | owner: page | words[page bytes / 8]
//!
//!   read   version even? -> read words -> version unchanged? else again
//!   write  version odd   -> write words -> version even
//! ```
//!
//! All words are atomics: a reader that meets a writer sees torn content, never undefined behaviour, and detects it by
//! the version. The owner of a slot also changes only while the version is odd.
//!
//! Slots are allocated in pieces as they are needed, up to a budget; beyond it only if the caller requests that (all
//! slots contain changes). This module does not choose which slot is evicted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::thread;

use parking_lot::Mutex;

use crate::page::PageId;

/// Slots of one piece.
const PIECE: u32 = 32;

/// How often an odd version is read before the thread yields: copying a page takes less time than this.
const SPINS: u32 = 200;

/// Owner of a slot that has none.
const NOBODY: u32 = u32::MAX;

struct Piece {
    words: Box<[AtomicU64]>,
    versions: [AtomicU64; PIECE as usize],
    owners: [AtomicU32; PIECE as usize],
}

/// See the head comment of this file.
pub(super) struct Slots {
    page_words: usize,
    /// Slots that may be allocated before eviction is tried.
    budget: u32,
    pieces: Box<[OnceLock<Piece>]>,
    free: Mutex<Free>,
    hand: AtomicU32,
}

#[derive(Default)]
struct Free {
    slots: Vec<u32>,
    made: u32,
}

/// A slot whose version is odd; even again when dropped.
pub(super) struct Writing<'a> {
    slots: &'a Slots,
    pub(super) slot: u32,
}

impl Slots {
    /// Slots for pages of `page_bytes`: `budget` of them, and at most `most`.
    pub(super) fn new(page_bytes: usize, budget: u32, most: u32) -> Slots {
        let pieces = (0..most.max(budget).div_ceil(PIECE)).map(|_| OnceLock::new()).collect();
        Slots { page_words: page_bytes / 8, budget, pieces, free: Mutex::default(), hand: AtomicU32::new(0) }
    }

    fn piece(&self, slot: u32) -> &Piece {
        let make = || Piece {
            words: (0..self.page_words * PIECE as usize).map(|_| AtomicU64::new(0)).collect(),
            versions: [const { AtomicU64::new(0) }; PIECE as usize],
            owners: [const { AtomicU32::new(NOBODY) }; PIECE as usize],
        };
        self.pieces[(slot / PIECE) as usize].get_or_init(make)
    }

    /// Takes a slot without an owner, locked for writing; beyond the budget only if `beyond`.
    pub(super) fn take(&self, beyond: bool) -> Option<Writing<'_>> {
        let slot = {
            let mut free = self.free.lock();
            match free.slots.pop() {
                Some(slot) => slot,
                None => {
                    let most = if beyond { self.pieces.len() as u32 * PIECE } else { self.budget };
                    if free.made >= most {
                        return None;
                    }
                    free.made += 1;
                    free.made - 1
                }
            }
        };
        Some(self.write(slot))
    }

    /// Releases a slot.
    pub(super) fn give(&self, writing: Writing<'_>) {
        let slot = writing.slot;
        writing.set_owner(None);
        drop(writing);
        self.free.lock().slots.push(slot);
    }

    /// Locks a slot for writing; waits for other writers.
    pub(super) fn write(&self, slot: u32) -> Writing<'_> {
        let mut wait = Wait::default();
        loop {
            if let Some(writing) = self.try_write(slot) {
                return writing;
            }
            wait.once();
        }
    }

    /// Locks a slot for writing, unless another thread has.
    pub(super) fn try_write(&self, slot: u32) -> Option<Writing<'_>> {
        let version = self.version(slot);
        let even = version.load(Ordering::Relaxed);
        if even & 1 == 1 || version.compare_exchange(even, even + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        // The writes after this are not visible without the odd version.
        fence(Ordering::Release);
        Some(Writing { slots: self, slot })
    }

    fn version(&self, slot: u32) -> &AtomicU64 {
        &self.piece(slot).versions[(slot % PIECE) as usize]
    }

    fn words(&self, slot: u32) -> &[AtomicU64] {
        let start = (slot % PIECE) as usize * self.page_words;
        &self.piece(slot).words[start..start + self.page_words]
    }

    /// One attempt at an optimistic read: `still` checks under the version whether the slot belongs to the requested
    /// page. Returns `None` if the slot is being written, was written meanwhile, or does not belong to it.
    pub(super) fn read<R>(
        &self,
        slot: u32,
        still: impl FnOnce() -> bool,
        probe: impl FnOnce(&[AtomicU64]) -> R,
    ) -> Option<R> {
        let version = self.version(slot);
        let before = version.load(Ordering::Acquire);
        if before & 1 == 1 || !still() {
            return None;
        }
        let result = probe(self.words(slot));
        fence(Ordering::Acquire);
        (version.load(Ordering::Relaxed) == before).then_some(result)
    }

    /// The page that owns a slot.
    pub(super) fn owner(&self, slot: u32) -> Option<PageId> {
        let owner = self.piece(slot).owners[(slot % PIECE) as usize].load(Ordering::Relaxed);
        (owner != NOBODY).then_some(PageId(owner))
    }

    /// Returns the next slot under the CLOCK hand, and how many there are.
    pub(super) fn next(&self) -> (u32, u32) {
        let made = self.free.lock().made;
        let hand = self.hand.fetch_add(1, Ordering::Relaxed);
        (if made == 0 { 0 } else { hand % made }, made)
    }

    /// Slots allocated so far.
    pub(super) fn made(&self) -> u32 {
        self.free.lock().made
    }
}

impl Writing<'_> {
    pub(super) fn set_owner(&self, page: Option<PageId>) {
        let owner = page.map_or(NOBODY, |page| page.0);
        self.slots.piece(self.slot).owners[(self.slot % PIECE) as usize].store(owner, Ordering::Relaxed);
    }

    /// Writes an image into the slot.
    pub(super) fn put(&self, image: &[u8]) {
        let (chunks, _) = image.as_chunks::<8>();
        for (word, bytes) in self.slots.words(self.slot).iter().zip(chunks) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Reads the image from the slot.
    pub(super) fn copy(&self, image: &mut [u8]) {
        copy(self.slots.words(self.slot), image);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.slots.version(self.slot).fetch_add(1, Ordering::Release);
    }
}

/// Copies words into bytes.
pub(super) fn copy(words: &[AtomicU64], image: &mut [u8]) {
    let (chunks, _) = image.as_chunks_mut::<8>();
    for (bytes, word) in chunks.iter_mut().zip(words) {
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
}

/// Spins a little, then yields.
#[derive(Default)]
pub(super) struct Wait(u32);

impl Wait {
    pub(super) fn once(&mut self) {
        self.0 += 1;
        if self.0 < SPINS { std::hint::spin_loop() } else { thread::yield_now() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn slots_beyond_the_budget_are_made_only_on_demand_and_used_again() {
        let slots = Slots::new(4096, 2, 40);
        let (first, second) = (slots.take(false).expect("one"), slots.take(false).expect("two"));
        assert!(slots.take(false).is_none());
        let third = slots.take(true).expect("beyond");
        let number = second.slot;
        slots.give(second);
        assert_eq!(slots.take(false).map(|writing| writing.slot), Some(number));
        assert_eq!((slots.made(), first.slot, third.slot), (3, 0, 2));
    }

    #[test]
    fn a_reader_never_accepts_words_of_two_images() {
        let slots = Slots::new(4096, 1, 1);
        let writing = slots.take(false).expect("a slot");
        let slot = writing.slot;
        writing.put(&[0; 4096]);
        drop(writing);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=20_000u32 {
                    slots.write(slot).put(&[round as u8; 4096]);
                }
                stop.store(true, Ordering::Relaxed);
            });
            let mut accepted = 0;
            while !stop.load(Ordering::Relaxed) || accepted == 0 {
                let mut image = [0; 4096];
                if slots.read(slot, || true, |words| copy(words, &mut image)).is_some() {
                    accepted += 1;
                    assert!(image.iter().all(|byte| *byte == image[0]), "two images in one");
                }
            }
        });
    }
}
