//! Everything that stores bytes is a [`Device`]; a place that holds named devices is a [`Shelf`].
//!
//! ```text
//!   journal, store, volume            (no unsafe code, no file names, no system calls)
//!            |
//!      Shelf / Device                 contract.rs: the promise, with its states and errors
//!            |
//!   +--------+---------+-----------+------------------+
//!   memory   file      crash       faulty
//!   DRAM     a folder  a recording a script of errors around any other shelf
//!            of files  that loses, tears and reorders what was not flushed
//! ```
//!
//! The point of one contract is that a crash test runs the real engine: the code that is tested on the crash
//! shelf is, line for line, the code that runs on files.
//!
//! # Modules
//!
//! * [`contract`]: the traits, word by word; read it first
//! * [`error`]: what can go wrong, named by what the caller can do
//! * [`buffer`]: memory aligned for direct I/O
//! * [`memory`]: devices in DRAM
//! * [`near`]: near memory as a cache in front of far memory
//! * [`mod@file`]: devices that are files of a directory
//! * [`crash`]: devices that lose, tear and reorder what was not flushed, at every moment of a recording
//! * [`pmem`]: devices on persistent memory
//! * [`faulty`]: a script of faults around any other shelf
//! * [`os`]: what the standard library does not offer of Linux, as safe functions
//!
//! # Where later media take their place
//!
//! *Persistent memory* (a file mapped with `MAP_SYNC`) is one more kind behind the same two traits: `write` stores past the
//! cache, `flush` is a store fence. [`BLOCK_BYTES`] is then a promise that kind keeps needlessly, and the unit that
//! survives a crash becomes 8 bytes instead of [`SECTOR_BYTES`]: an engine whose records certify themselves (length,
//! checksum) assumes neither. *Timing models* (a device slowed to the published figures of a medium) wrap another device,
//! as `faulty` does; what they report is [`Durability::Emulated`], whatever they wrap.
//!
//! # Unsafe code
//!
//! All unsafe code of the project is in this crate, in blocks of a few lines that state the invariant they rely on.
//! The crates above forbid it.

pub mod buffer;
pub mod contract;
pub mod crash;
pub mod error;
pub mod faulty;
pub mod file;
pub mod memory;
pub mod near;
pub mod os;
pub mod pmem;
mod poison;

pub use buffer::AlignedBuffer;
pub use contract::{BLOCK_BYTES, Device, Durability, SECTOR_BYTES, Shelf, WORD_BYTES};
pub use crash::CrashShelf;
pub use error::{DeviceError, Operation};
pub use faulty::FaultyShelf;
pub use file::{FileKind, FileOptions, FileShelf};
pub use memory::MemoryShelf;
pub use os::free_bytes;
