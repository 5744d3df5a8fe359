//! The units of devices: what a crash leaves whole, and what offsets are multiples of.

/// The bytes that a crash leaves whole: the old ones or the new ones, never a mixture.
///
/// 512 is the smallest logical block of any block device of Linux. A drive with 4 KiB sectors guarantees more, but no
/// engine here relies on that.
pub const SECTOR_BYTES: usize = 512;

/// The block of most devices: offsets and lengths are multiples of it. Persistent memory mapped by line has a smaller
/// one. The size of every device is a multiple of this one, whatever its block is.
///
/// 4 KiB is the page of the CPU and the physical sector of current drives, so writing a whole block never makes the
/// drive read first.
pub const BLOCK_BYTES: usize = 4096;

/// The bytes that persistent memory leaves whole: an aligned store of a word is atomic, and nothing larger is (Intel 64
/// SDM, vol. 3A, "Guaranteed Atomic Operations").
pub const WORD_BYTES: usize = 8;
