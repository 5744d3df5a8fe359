//! Devices on persistent memory: bytes that a CPU stores to, and that are there after the power was not.
//!
//! ```text
//!   PmemShelf           names, lock, lengths: a FileShelf                     shelf.rs
//!      |
//!   PmemDevice          which stores, which write-backs, which fence          device.rs
//!      |
//!    Lines              load | store | store past the cache | write back | fence | sync     lines.rs
//!      |
//!   FileMapping         pages of a file in the address space                  mapping.rs
//!      |         \
//!   Instructions   Watch                                                      instructions, guard.rs
//!   machine code   a lost page becomes an error
//! ```
//!
//! # The way of a store
//!
//! ```text
//!   CPU  -->  caches  -->  memory controller's queues  -->  modules
//!             |<-- eADR: the power supply keeps these, too -->|
//!                          |<-- ADR: it keeps these --------->|
//! ```
//!
//! A store that is visible to every CPU can still be lost: it is in a cache. What is safe is the *persistence domain*. On
//! an **ADR** platform it begins at the memory controller, so lines must be written back, or be stored past the cache in
//! the first place. On an **eADR** platform it holds the caches, so nothing needs to be written back; the fence stays,
//! because stores past the cache wait in buffers of the CPU outside of it. A platform that does not say is taken for ADR
//! ([`domain`]). And where a file system is not on persistent memory at all, the pages are copies, and only the kernel
//! can make them persistent, by **page** ([`Absent`]).
//!
//! # Why a write has one fence, and a flush none
//!
//! A fence covers the stores and write-backs of the thread that executes it and of no other. A flush is asked for by
//! whoever wants to know, often another thread than those that wrote; it could not do it for them. So each write ends
//! with its own fence and is persistent when it returns, and a flush has nothing left to do. One fence is enough
//! for a write of any length: records certify themselves (length, checksum), so no store of a write needs to come
//! before another. A second fence, for a pointer to the end of the log, would be a second wait on the medium and a line
//! that is written back again and again, which modules are slow at (`media.csv`: two write-backs of one line in a row
//! 319 to 355 ns, one 165 to 273).
//!
//! # What a first touch costs
//!
//! With `MAP_SYNC` a page becomes writable only after the file system has made its own metadata for it persistent: 85 us
//! instead of 11 us for 4 KiB (XFS in a guest on an emulated module, 2026-11). So a device is filled with zeros when it
//! is made, and all its pages are touched when it is made and when it is opened, not in the middle of a commit.
//!
//! # What a write costs
//!
//! `cargo run --release -p device --example pmem_cost`; 2026-11-21, AMD EPYC (Zen 4) with 2 cores, Linux 6.18, on tmpfs, so
//! DRAM and not persistent memory; nanoseconds for one call of one thread, less the clock, mean of the middle four fifths
//! of 96 000; both cores busy with other work:
//!
//! ```text
//!   bytes                                  8     64    256   1024   1280   4096
//!   bare loop of stores, and a fence   122.7  124.5   65.6   85.7   95.6  207.4
//!   write_flush                        129.9  131.9   71.0   91.4  100.9  206.2
//! ```
//!
//! # What it does not do
//!
//! It does not look for poison before somebody reads it: the kernel's list of bad blocks is not asked. It does not read
//! how often the modules lost power without a proper end (the unsafe shutdown count): checksums decide what is good. It
//! does not keep copies: a lost range is an error, and where to restore it from is the caller's knowledge. It does not map
//! device DAX, only files. It never grows a device.

pub mod bare;
mod device;
pub mod domain;
mod guard;
mod instructions;
mod lines;
mod mapping;
mod shelf;

pub use device::{Domain, Granularity};
pub use shelf::{Absent, Mapping, PmemOptions, PmemShelf};

// For the crash simulator, which runs the same algorithm on lines that lose what no fence covers.
pub(crate) use device::PmemDevice;
pub(crate) use lines::{LINE_BYTES, Lines, Lost, lines_of};
