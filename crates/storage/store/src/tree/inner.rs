//! Reading an inner page: finds the child for a key.
//!
//! ```text
//!    0 header     the page's own; 12 count u16 | 14 prefix u16 | 24 heap u16
//!   32 slots      count times: len u16 | offset u16 | head u32, in the order of the separators
//!      children   count + 1 page ids, u32
//!      free
//!      tails      `heap` bytes at the page's end: what separators have after the prefix and the head; the prefix is last
//! ```
//!
//! Child `i` has the keys from separator `i - 1` (inclusive) to separator `i` (exclusive). `prefix` is the common
//! prefix of all separators; unlike a leaf's it does not apply to keys. `len` is a separator's length without the
//! prefix; its first four bytes are in `head`, and only the rest is in the heap.
//!
//! Readers probe the node as atomic words without a latch, so the words may belong to different versions. Invariant:
//! every function here is total: for any words it returns some result or `None`, in bounded time. The cache then
//! determines whether the result is valid.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::leaf::{Slot, head_of};
use crate::TreeId;
use crate::page::{HEADER_BYTES, Kind, PageId, u64_at};

/// Little-endian words of a page, in whatever memory.
pub(super) trait Words {
    /// The word at an index; `None` after the end.
    fn word(&self, at: usize) -> Option<u64>;
    /// Size of all words in bytes.
    fn bytes(&self) -> usize;
}

impl Words for [AtomicU64] {
    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        self.get(at).map(|word| word.load(Relaxed))
    }

    fn bytes(&self) -> usize {
        self.len() * 8
    }
}

impl Words for [u8] {
    #[inline]
    fn word(&self, at: usize) -> Option<u64> {
        u64_at(self, at * 8)
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}

/// The target of a descent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Toward<'k> {
    /// The leaf that has the key if it exists.
    At(&'k [u8]),
    /// The leaf that has the greatest key less than this one.
    Before(&'k [u8]),
    /// The last leaf.
    Last,
}

/// First word of the slots.
const SLOTS: usize = HEADER_BYTES / 8;

/// An inner page with a valid header.
pub(super) struct InnerPage<'a, W: Words + ?Sized> {
    words: &'a W,
    /// Height above the leaves, at least 1.
    pub(super) level: u8,
    /// Number of separators.
    pub(super) count: usize,
    prefix: usize,
}

impl<'a, W: Words + ?Sized> InnerPage<'a, W> {
    /// Checks the header; returns `None` if the page is not an inner page of that tree.
    #[inline]
    pub(super) fn of(words: &'a W, tree: TreeId) -> Option<InnerPage<'a, W>> {
        let (first, second) = (words.word(0)?, words.word(1)?);
        let (kind, level) = ((first >> 32) as u8, (first >> 40) as u8);
        if kind != Kind::Inner as u8 || level == 0 || second as u32 != tree.0 {
            return None;
        }
        let (count, prefix) = (usize::from((second >> 32) as u16), usize::from((second >> 48) as u16));
        let room = HEADER_BYTES + count * 8 + (count + 1) * 4 + prefix <= words.bytes();
        room.then_some(InnerPage { words, level, count, prefix })
    }

    /// One of its `count + 1` children.
    #[inline]
    pub(super) fn child(&self, index: usize) -> Option<PageId> {
        (index <= self.count).then_some(())?;
        let word = self.words.word(SLOTS + self.count + index / 2)?;
        Some(PageId((word >> (32 * (index % 2))) as u32))
    }

    #[inline]
    pub(super) fn slot(&self, index: usize) -> Option<Slot> {
        self.words.word(SLOTS + index).map(Slot::of)
    }

    /// Returns the index of the child for the target.
    #[inline]
    pub(super) fn position(&self, toward: Toward<'_>) -> Option<usize> {
        let (key, equal_is_before) = match toward {
            Toward::At(key) => (key, true),
            Toward::Before(key) => (key, false),
            Toward::Last => return Some(self.count),
        };
        let suffix = match self.prefix {
            0 => key,
            prefix => {
                let shared = key.len().min(prefix);
                match compare(self.words, self.words.bytes() - prefix, &key[..shared])? {
                    // The comparison is of the prefix against the key.
                    Ordering::Less => return Some(self.count),
                    Ordering::Greater => return Some(0),
                    Ordering::Equal if shared < prefix => return Some(0),
                    Ordering::Equal => &key[prefix..],
                }
            }
        };
        let head = head_of(suffix);
        let first = self.first_head(head)?;
        let (mut from, mut to) = (first, self.count);
        if first == self.count || self.slot(first)?.head != head {
            return Some(first);
        }
        while from < to {
            let middle = from.midpoint(to);
            let slot = self.slot(middle)?;
            let before = match slot.head.cmp(&head) {
                Ordering::Equal => match self.compare_tail(slot, suffix)? {
                    Ordering::Equal => equal_is_before,
                    other => other == Ordering::Less,
                },
                other => other == Ordering::Less,
            };
            if before { from = middle + 1 } else { to = middle }
        }
        Some(from)
    }

    /// The first slot whose head is not smaller.
    #[inline]
    fn first_head(&self, head: u32) -> Option<usize> {
        let (mut from, mut size) = (0, self.count);
        while size > 0 {
            let half = size / 2;
            let less = ((self.words.word(SLOTS + from + half)? >> 32) as u32) < head;
            from = if less { from + half + 1 } else { from };
            size = if less { size - half - 1 } else { half };
        }
        Some(from)
    }

    /// Compares a separator with a key that has the same head, both without the prefix.
    fn compare_tail(&self, slot: Slot, suffix: &[u8]) -> Option<Ordering> {
        if slot.len <= 4 || suffix.len() <= 4 {
            return Some(slot.len.cmp(&suffix.len()));
        }
        let (tail, other) = (slot.len - 4, &suffix[4..]);
        let shared = tail.min(other.len());
        Some(compare(self.words, slot.offset, &other[..shared])?.then(tail.cmp(&other.len())))
    }

    /// The smallest key after a child; none after the last child.
    pub(super) fn separator(&self, index: usize) -> Option<Vec<u8>> {
        (index < self.count).then_some(())?;
        let mut separator = Vec::new();
        self.prefix_into(&mut separator)?;
        self.suffix_into(index, &mut separator)?;
        Some(separator)
    }

    /// Appends the common prefix of all separators to `out`.
    pub(super) fn prefix_into(&self, out: &mut Vec<u8>) -> Option<()> {
        copy(self.words, self.words.bytes() - self.prefix, self.prefix, out)
    }

    /// Appends a separator without the prefix to `out`.
    pub(super) fn suffix_into(&self, index: usize, out: &mut Vec<u8>) -> Option<()> {
        let slot = self.slot(index)?;
        out.extend_from_slice(&slot.head.to_be_bytes()[..slot.len.min(4)]);
        copy(self.words, slot.offset, slot.len.saturating_sub(4), out)
    }
}

/// Eight bytes from a byte offset on, with zeros after the end.
#[inline]
fn chunk<W: Words + ?Sized>(words: &W, at: usize) -> Option<u64> {
    let (index, shift) = (at / 8, at % 8 * 8);
    let low = words.word(index)? >> shift;
    Some(if shift == 0 { low } else { low | words.word(index + 1).unwrap_or(0) << (64 - shift) })
}

/// Compares the bytes at an offset with others of the same length.
fn compare<W: Words + ?Sized>(words: &W, at: usize, other: &[u8]) -> Option<Ordering> {
    (at + other.len() <= words.bytes()).then_some(())?;
    for (index, part) in other.chunks(8).enumerate() {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        // Big-endian, because the first byte is the most significant; only as many bytes as the part has.
        let mine = chunk(words, at + index * 8)?.swap_bytes() & u64::MAX << (64 - 8 * part.len());
        match mine.cmp(&u64::from_be_bytes(bytes)) {
            Ordering::Equal => {}
            other => return Some(other),
        }
    }
    Some(Ordering::Equal)
}

fn copy<W: Words + ?Sized>(words: &W, at: usize, bytes: usize, out: &mut Vec<u8>) -> Option<()> {
    (at + bytes <= words.bytes()).then_some(())?;
    for part in (0..bytes).step_by(8) {
        out.extend_from_slice(&chunk(words, at + part)?.to_le_bytes()[..(bytes - part).min(8)]);
    }
    Some(())
}
