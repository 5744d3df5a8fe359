//! Devices on persistent memory: bytes that a CPU stores to and that survive a power failure.
//!
//! ```text
//!   PmemShelf           names, lock, lengths: a FileShelf                     shelf.rs
//!      |
//!   PmemDevice          its stores, write-backs and fences                     device.rs
//!      |
//!    Lines              load | store | store past the cache | write back | fence | sync     lines.rs
//!      |
//!   FileMapping         pages of a file in the address space                  mapping.rs
//!      |         \
//!   Instructions   Watch                                                      instructions, guard.rs
//!   machine code   a lost page becomes an error
//! ```
//!
//! # The path of a store
//!
//! ```text
//!   CPU  -->  caches  -->  memory controller's queues  -->  modules
//!             |<-- eADR: the power supply keeps these, too -->|
//!                          |<-- ADR: it keeps these --------->|
//! ```
//!
//! A store that is visible to every CPU can still be lost, because it is in a cache. Only the *persistence domain* is
//! safe. On an **ADR** platform it begins at the memory controller, so lines must be written back, or stored past the
//! cache. On an **eADR** platform it includes the caches, so no write-back is needed; the fence stays, because stores
//! past the cache wait in buffers of the CPU outside of it. A platform that does not report its domain is treated as
//! ADR ([`domain`]). If a file system is not on persistent memory at all, the pages are copies, and only the kernel can
//! make them persistent, by **page** ([`Absent`]).
//!
//! # Why a write has one fence, and a flush none
//!
//! A fence covers only the stores and write-backs of the thread that executes it. A flush is often called by another
//! thread than those that wrote, and could not fence for them. So each write ends with its own fence and is persistent
//! when it returns, and a flush has nothing left to do. One fence is enough for a write of any length: records certify
//! themselves (length, checksum), so no store of a write needs to precede another. A second fence, for a pointer to the
//! end of the log, would be a second wait for the medium, and would write back the same line repeatedly, which is slow
//! on modules (`media.csv`: two write-backs of one line in a row 319 to 355 ns, one 165 to 273).
//!
//! # The cost of a first touch
//!
//! With `MAP_SYNC` a page becomes writable only after the file system has made its own metadata for it persistent: 85
//! us instead of 11 us for 4 KiB (XFS in a guest on an emulated module, 2026-11). So a device is filled with zeros when
//! it is created, and all its pages are touched when it is created and when it is opened, not in the middle of a
//! commit.
//!
//! # The cost of a write
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
//! It does not search for poison before it is read: the kernel's list of bad blocks is not used. It does not read how
//! often the modules lost power without a proper shutdown (the unsafe shutdown count), because checksums decide which
//! data is valid. It keeps no copies: a lost range is an error, and the caller must restore it. It does not map device
//! DAX, only files. It never grows a device.

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

// For the crash simulator, which runs the same algorithm on lines that lose everything that no fence covers.
pub(crate) use device::PmemDevice;
pub(crate) use lines::{LINE_BYTES, Lines, Lost, lines_of};
