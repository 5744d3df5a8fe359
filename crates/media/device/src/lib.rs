//! Everything that stores bytes is a [`Device`]; a place that holds named devices is a [`Shelf`].
//!
//! ```text
//!   journal, store, volume            (no unsafe code, no file names, no system calls)
//!            |
//!      Shelf / Device                 contract.rs: the promise, with its states and errors
//!            |
//!   +--------+---------+-----------+------------+------------------+
//!   memory   file      pmem        crash        faulty, near
//!   DRAM,    a folder  a folder of a recording  around any other shelf or device:
//!   a node's of files  mapped      that loses,  a script of errors, a cache
//!                      files       tears and reorders what was not flushed
//! ```
//!
//! There is one contract so that crash tests run the real engine: the code that is tested on the crash shelf is, line
//! by line, the code that runs on files and on persistent memory.
//!
//! # Modules
//!
//! * [`contract`]: the traits and their guarantees; read it first
//! * [`error`]: the errors, named by what the caller can do
//! * [`arena`]: memory divided into latched frames, for caches
//! * [`batch`]: many requests at once
//! * [`buffer`]: memory aligned for direct I/O
//! * [`memory`]: devices in DRAM, or in the memory of one node of the machine
//! * [`near`]: near memory as a cache in front of far memory
//! * [`mod@file`]: devices that are files of a directory
//! * [`crash`]: devices that lose, tear and reorder what was not flushed, at every moment of a recording
//! * [`device_shelf`]: a shelf whose devices are parts of one device
//! * [`overlay`]: a layer of memory over a read-only shelf
//! * [`pmem`]: devices on persistent memory
//! * [`faulty`]: a script of faults around any other shelf
//! * [`quota`]: a medium of a chosen size, which can be full
//! * [`supervise`]: threads and tasks whose panics are reported
//! * [`wrapped`]: another shelf whose devices are wrapped one by one
//! * [`measured`]: a shelf whose devices count and time what is done to them
//! * [`distribution`]: how long things took, noted by many threads without a lock
//! * [`heap`]: counts the heap memory of threads
//! * [`inherited`]: listening sockets that a process was started with
//! * [`sockets`]: a connected socket that somebody else owns, to be ended from outside
//! * [`os`]: calls of Linux that the standard library does not offer, as safe functions
//!
//! # What differs between media
//!
//! *Persistent memory* is one more kind behind the same two traits. If it is mapped by line, a write is persistent when
//! it returns, and a flush has nothing left to do. Blocks are words of 8 bytes ([`Device::block_bytes`]), and a crash
//! leaves 8 bytes whole, instead of [`SECTOR_BYTES`] ([`Device::atom_bytes`]): an engine whose records certify
//! themselves (length, checksum) relies on neither. A write takes about as long as passing it to another thread would,
//! so callers write on their own threads ([`Device::is_inline`]). *Timing models* (a device slowed to the published
//! figures of a medium) wrap another device, as `faulty` does; they report [`Durability::Emulated`], whatever they
//! wrap.
//!
//! # Unsafe code
//!
//! All unsafe code of the project is in this crate, in blocks of a few lines with the invariant they rely on. The
//! crates above forbid it.

pub mod arena;
pub mod batch;
pub mod buffer;
pub mod contract;
pub mod crash;
pub mod device_shelf;
pub mod distribution;
pub mod error;
pub mod faulty;
pub mod file;
pub mod heap;
pub mod inherited;
pub mod measured;
pub mod memory;
pub mod near;
pub mod os;
pub mod overlay;
pub mod pmem;
mod poison;
pub mod quota;
pub mod sockets;
mod sub_shelf;
pub mod supervise;
mod units;
pub mod wrapped;

pub use arena::Arena;
pub use batch::{IoKind, IoRequest, IoSink};
pub use buffer::AlignedBuffer;
pub use contract::{Device, Durability, Extent, Shelf};
pub use crash::CrashShelf;
pub use device_shelf::DeviceShelf;
pub use distribution::{Distribution, Noted};
pub use error::{DeviceError, Operation};
pub use faulty::FaultyShelf;
pub use file::{FileKind, FileOptions, FileShelf};
pub use heap::{CountedHeap, HeapCount};
pub use measured::{DeviceTraffic, TrafficKind};
pub use memory::MemoryShelf;
pub use os::free_bytes;
pub use overlay::OverlayShelf;
pub use pmem::{PmemOptions, PmemShelf};
pub use quota::QuotaShelf;
pub use sub_shelf::SubShelf;
pub use units::{BLOCK_BYTES, SECTOR_BYTES, WORD_BYTES};
pub use wrapped::WrappedShelf;
