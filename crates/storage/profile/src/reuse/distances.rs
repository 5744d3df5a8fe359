//! Exact stack distances, in the time of a binary tree for each access (Olken, "Efficient methods for calculating the success function of
//! fixed space replacement policies", 1981).
//!
//! ```text
//!   place     each access takes the next place of a line; a key keeps only its last one
//!   line      0  w  0  w  w  0  w  .        bytes of the key that has its last place there, else 0
//!   distance  of a key: the bytes behind its last place, and its own    a Fenwick tree answers that
//! ```
//!
//! When the line is full, the places that are still some key's last are moved together, in their order. So memory follows the number of
//! keys, not of accesses.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Places of a line at least.
const PLACES_MIN: usize = 1024;

/// See the head comment of this file.
#[derive(Debug, Default)]
pub struct StackDistances {
    last: HashMap<u64, Entry, FixedState>,
    tree: Vec<u64>,
    /// The next free place.
    next: usize,
    /// Bytes of all keys.
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: usize,
    bytes: u64,
}

impl StackDistances {
    /// Records an access to a key that has so many bytes now; returns its distance in bytes, `None` for a key that was not there.
    pub fn access(&mut self, key: u64, bytes: u64) -> Option<u64> {
        if self.next == self.tree.len() {
            self.make_room();
        }
        let before = self.last.insert(key, Entry { place: self.next, bytes });
        let distance = before.map(|before| {
            let behind = self.bytes.saturating_sub(self.upto(before.place));
            self.add(before.place, before.bytes.wrapping_neg());
            self.bytes = self.bytes.wrapping_sub(before.bytes);
            behind.saturating_add(bytes)
        });
        self.add(self.next, bytes);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.next += 1;
        distance
    }

    /// Forgets a key, as if it had never been used.
    pub fn remove(&mut self, key: u64) {
        if let Some(entry) = self.last.remove(&key) {
            self.add(entry.place, entry.bytes.wrapping_neg());
            self.bytes = self.bytes.wrapping_sub(entry.bytes);
        }
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.last.len()
    }

    /// The bytes of all keys.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory that it takes, bytes: about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let entry = std::mem::size_of::<(u64, Entry)>() + 1;
        self.last.capacity() * 8 / 7 * entry + self.tree.capacity() * 8
    }

    /// Moves the places together, into a line twice as long as there are keys.
    fn make_room(&mut self) {
        let mut entries: Vec<(usize, u64)> = self.last.iter().map(|(key, entry)| (entry.place, *key)).collect();
        entries.sort_unstable();
        self.tree = vec![0; (2 * entries.len()).max(PLACES_MIN)];
        self.next = entries.len();
        for (place, (_, key)) in entries.iter().enumerate() {
            if let Some(entry) = self.last.get_mut(key) {
                entry.place = place;
                self.tree[place] = entry.bytes;
            }
        }
        // A Fenwick tree is made in place: each node adds itself to the one above it.
        for node in 0..self.tree.len() {
            let above = node | (node + 1);
            if above < self.tree.len() {
                self.tree[above] = self.tree[above].wrapping_add(self.tree[node]);
            }
        }
    }

    /// Adds to a place; subtracts by adding the complement.
    fn add(&mut self, place: usize, bytes: u64) {
        let mut node = place;
        while let Some(sum) = self.tree.get_mut(node) {
            *sum = sum.wrapping_add(bytes);
            node |= node + 1;
        }
    }

    /// The bytes of the places up to and with this one.
    fn upto(&self, place: usize) -> u64 {
        let (mut sum, mut node) = (0u64, place + 1);
        while node > 0 {
            sum = sum.wrapping_add(self.tree[node - 1]);
            node &= node - 1;
        }
        sum
    }
}
