//! Profiles: what a workload used, as a file that can be given away.
//!
//! ```text
//!   accesses -> Recorder   counts, reuse distances by hour and structure, the sampled stream
//!                  |
//!               file       format.rs: sections with checksums    writer, reader
//!                  |
//!               Profile    summary and reuse, in memory; the stream chunk by chunk
//! ```
//!
//! A profile contains neither keys nor contents: pages and keys are hashes under a salt that is stored nowhere ([`crate::hash`]). It has a
//! largest size; whoever records for long has a smaller part of all keys in the stream, never a longer file.

mod chunk;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod reader;
mod recorder;
mod spool;
mod summary;
#[cfg(test)]
mod tests;

pub use chunk::{CHUNK_ENTRIES, Chunk, StreamEntry};
pub use format::VERSION;
pub use reader::{Profile, ProfileReader};
pub use recorder::{Access, Recorder, RecorderOptions, STREAM_KEYS_DEFAULT};
pub use spool::FILE_BYTES_DEFAULT;
pub use summary::{
    Committers, CpuUse, Interval, JournalUse, Lack, Origin, PAGE_BYTES_MAX, STRUCTURES_MAX, StructureUse, Summary,
    WriteBacks,
};
