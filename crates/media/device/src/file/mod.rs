//! Devices that are files of one directory.
//!
//! ```text
//!   DIRECTORY/
//!     lock              flock'ed by the one process that writes; contains its process number
//!     journal-00000001  a device: its bytes, nothing else
//!     .NAME.making      a device that create has not finished; removed by the next writer
//! ```
//!
//! # How a device is created
//!
//! Reserve (fallocate), write zeros over all of it, fsync the file, rename it to its name, fsync the directory. The
//! zeros have a purpose: the first write to a reserved but unwritten extent turns it into a written one. That changes
//! metadata, which fdatasync must commit through the file system's journal. Once all extents are written, later writes
//! change no metadata at all. `cargo run --release -p device --example sync_cost` measures the difference; the figures
//! are at [`FileOptions`].
//!
//! # Why a flush can be trusted
//!
//! Linux reports a failed write-back once per open file description (errseq_t, lib/errseq.c). If two threads flushed
//! through one description, one of them could get the error, and the other success, before the first has poisoned the
//! device. So every flush in flight has its own description: the device's, and a second one if two threads flush in
//! parallel (`flushers.rs`). A process has a limited number of descriptors, and a store has one file for each 256 MiB:
//! most devices have one descriptor and never need another.
//!
//! # Direct I/O
//!
//! With `O_DIRECT` the bytes go to the drive from the caller's buffer and are not cached. If the file system refuses
//! it, files are opened buffered, and [`FileShelf::kind`] reports that. Reopening after a failure reads from the medium
//! in both cases: the clean pages of buffered files are dropped at opening.
//!
//! # Batches
//!
//! [`Device::submit`](crate::Device::submit) goes through one io_uring of the shelf, where the kernel has it (`batches`). Single calls do not: one thread
//! that waits for one call is served best by the plain one.
//!
//! # What it does not do
//!
//! It does not cache, retry, or grow a file. It trusts the drive to perform a cache flush. It does not detect another
//! process that ignores the lock.

mod batches;
mod device;
mod flushers;
mod lock;
mod ring;
mod shelf;
mod slots;
mod system_error;
mod transfer;

pub(crate) use device::FileDevice;
pub(crate) use lock::LOCK_NAME;
pub use shelf::{FileKind, FileOptions, FileShelf};
pub(crate) use system_error::failed;
