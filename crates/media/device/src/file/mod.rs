//! Devices that are files of one directory.
//!
//! ```text
//!   DIRECTORY/
//!     lock              flock'ed by the one process that writes; holds its process number
//!     journal-00000001  a device: its bytes, nothing else
//!     .NAME.making      a device that create has not finished; removed by the next writer
//! ```
//!
//! # How a device is made
//!
//! Reserve (fallocate), write zeros over all of it, fsync the file, rename it to its name, fsync the directory. The zeros
//! are not for cleanliness: a reserved but unwritten extent turns into a written one at its first write, and that is
//! a change of metadata which fdatasync must commit through the file system's journal. Written once, later writes change
//! no metadata at all. `cargo run --release -p device --example sync_cost` measures the difference; the figures are
//! at [`FileOptions`].
//!
//! # How a flush is believed
//!
//! Linux reports a failed write-back once per open file description (errseq_t, lib/errseq.c). If two threads flushed
//! through one description, one of them could take the error and the other be told success before the first has marked
//! the device poisoned. So every flush in flight has a description of its own: the device's, and a second one where two
//! threads flush side by side (`flushers.rs`). A process has a bounded number of descriptors, and a store one file for each
//! 256 MiB: most devices have one descriptor and never need another.
//!
//! # Direct I/O
//!
//! With `O_DIRECT` the bytes go to the drive from the caller's buffer and nothing is cached; where the file system refuses
//! it, files are opened buffered, and [`FileShelf::kind`] says so. Reopening after a failure reads from the medium in both
//! cases: buffered files have their clean pages dropped at open.
//!
//! # What it does not do
//!
//! It does not cache, retry, or grow a file. It trusts the drive to honour a cache flush. It does not notice another
//! process that ignores the lock.

mod device;
mod flushers;
mod lock;
mod ring;
mod shelf;
mod slots;
mod transfer;

pub(crate) use device::FileDevice;
pub(crate) use lock::LOCK_NAME;
pub(crate) use shelf::failed;
pub use shelf::{FileKind, FileOptions, FileShelf};
