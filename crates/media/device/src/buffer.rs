//! Memory that starts on a block boundary, as direct I/O requires.
//!
//! ```text
//!   blocks:  [ 4096 bytes ][ 4096 bytes ][ 4096 bytes ]     Vec<Block>, each aligned to 4096
//!   bytes:   |<-------- len -------->|<--- spare, initialised --->|
//! ```
//!
//! Invariants: `len <= blocks.len() * BLOCK_BYTES`; every byte of every block is initialised (a block is always created
//! with zeros), so that no operation can expose uninitialised memory. Growing moves the bytes; clearing does not free
//! memory. This is deliberately not a `Vec<u8>`: the memory cannot be taken out and freed with the wrong layout.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::BLOCK_BYTES;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

const ZEROS: Block = Block([0; BLOCK_BYTES]);

// The address of a Block is what direct I/O needs, and an array of them has no gaps: both slice casts below rely on it.
const _: () = assert!(align_of::<Block>() == BLOCK_BYTES && size_of::<Block>() == BLOCK_BYTES);

/// A growable byte buffer whose first byte lies on a [`BLOCK_BYTES`] boundary; used like a `Vec<u8>`.
#[derive(Clone, Default)]
pub struct AlignedBuffer {
    blocks: Vec<Block>,
    len: usize,
}

impl AlignedBuffer {
    /// An empty buffer; allocates nothing.
    pub fn new() -> AlignedBuffer {
        AlignedBuffer::default()
    }

    /// An empty buffer with space for at least `bytes`.
    pub fn with_capacity(bytes: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::new();
        buffer.reserve(bytes);
        buffer
    }

    /// A buffer of `bytes` zeros.
    pub fn zeroed(bytes: usize) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::with_capacity(bytes);
        buffer.len = bytes;
        buffer
    }

    /// Bytes that fit before it must grow; a multiple of [`BLOCK_BYTES`].
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Reserves space for `additional` bytes.
    pub fn reserve(&mut self, additional: usize) {
        let wanted = self.len.checked_add(additional).expect("a buffer fits the address space");
        if wanted > self.capacity() {
            // At least doubling keeps appending linear.
            let blocks = wanted.div_ceil(BLOCK_BYTES).max(self.blocks.len() * 2);
            self.blocks.resize(blocks, ZEROS);
        }
    }

    /// Appends `bytes`.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        let start = self.len;
        self.len += bytes.len();
        self[start..].copy_from_slice(bytes);
    }

    /// Changes the length to `bytes`: truncates, or appends `value`.
    pub fn resize(&mut self, bytes: usize, value: u8) {
        let start = self.len;
        if bytes > start {
            self.reserve(bytes - start);
            self.len = bytes;
            self[start..].fill(value);
        } else {
            self.len = bytes;
        }
    }

    /// Pads with zeros to the next multiple of [`BLOCK_BYTES`], as a device requires.
    pub fn pad_to_block(&mut self) {
        self.resize(self.len.next_multiple_of(BLOCK_BYTES), 0);
    }

    /// Changes the length to `bytes` without writing a byte: what appears is what the memory held before. For a buffer
    /// that is used again and is about to be filled as a whole, where filling it with zeros first would cost as much.
    ///
    /// # Panics
    /// If the capacity is smaller.
    pub fn set_len(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity(), "{bytes} bytes do not fit into {}", self.capacity());
        self.len = bytes;
    }

    /// Keeps the first `bytes`; does nothing if the buffer is shorter.
    pub fn truncate(&mut self, bytes: usize) {
        self.len = self.len.min(bytes);
    }

    /// Makes it empty; keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let spare = self.blocks.as_ptr().cast::<u8>();
        // SAFETY: the blocks are one allocation of capacity() initialised bytes without gaps (asserted above), len is at
        // most that, and the borrow of self keeps them in place. An empty Vec's dangling pointer is good for length 0.
        unsafe { std::slice::from_raw_parts(spare, self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let spare = self.blocks.as_mut_ptr().cast::<u8>();
        // SAFETY: as in deref; and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(spare, self.len) }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).field("capacity", &self.capacity()).finish()
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(bytes: &[u8]) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::new();
        buffer.extend_from_slice(bytes);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_aligned_and_keeps_its_bytes_while_it_grows() {
        let mut buffer = AlignedBuffer::new();
        let mut model: Vec<u8> = Vec::new();
        for step in 0..200u32 {
            let chunk = vec![step as u8; (step as usize * 37) % 5000];
            buffer.extend_from_slice(&chunk);
            model.extend_from_slice(&chunk);
            assert_eq!(&buffer[..], &model[..]);
            assert!(buffer.as_ptr().addr().is_multiple_of(BLOCK_BYTES));
        }
    }

    #[test]
    fn shrinking_and_growing_again_shows_the_fill_not_the_old_bytes() {
        let mut buffer = AlignedBuffer::from(&[7u8; 10_000][..]);
        buffer.truncate(3);
        buffer.resize(5, 1);
        assert_eq!(&buffer[..], [7, 7, 7, 1, 1]);
        buffer.pad_to_block();
        assert_eq!(buffer.len(), BLOCK_BYTES);
        assert!(buffer[5..].iter().all(|b| *b == 0));
        buffer.clear();
        assert!(buffer.is_empty());
        assert_eq!(AlignedBuffer::zeroed(4097).len(), 4097);
        let mut again = AlignedBuffer::from(&[7u8; 100][..]);
        again.set_len(1);
        again.set_len(BLOCK_BYTES);
        assert!(again[..100].iter().all(|b| *b == 7) && again[100..].iter().all(|b| *b == 0));
        assert_eq!(AlignedBuffer::new().capacity(), 0);
    }
}
