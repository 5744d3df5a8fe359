//! Profiles: what a workload used, as a file that can be given away.
//!
//! ```text
//!   accesses -> Recorder   counts, reuse distances by hour and structure, the sampled stream
//!                  |
//!               file       format.rs: sections with checksums    writer, reader
//!                  |
//!               Profile    summary and reuse, in memory; the stream chunk by chunk
//!
//!   hash      salted hashes            reuse   exact and sampled reuse distances, miss-ratio curves
//!   generate  streams with a known shape, for tests
//! ```
//!
//! Invariants: a profile contains neither keys nor contents: pages and keys are hashes under a salt that is stored nowhere ([`hash`]). What it
//! lacks is named in it, never filled in. It has a largest size; whoever records for long has a smaller part of all keys in the stream, never
//! a longer file. Memory is bounded by settings, not by the length of what is recorded.
//!
//! Not here: where accesses come from. A node's are those of its page cache, an imported trace's those of its lines.
#![forbid(unsafe_code)]

mod beside;
mod chunk;
mod error;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod generate;
pub mod hash;
mod node_use;
mod reader;
mod recorder;
mod recovery;
pub mod reuse;
mod spool;
mod summary;
#[cfg(test)]
mod tests;
mod write_guard;
mod writer;

pub use beside::BesideUse;
pub use chunk::{CHUNK_ENTRIES, Chunk, StreamEntry};
pub use error::ProfileError;
pub use format::VERSION;
pub use node_use::{CacheUse, Committers, CpuUse, JournalUse, NodeFigures, NodeHour, NodeUse, WriteBacks};
pub use reader::{Profile, ProfileReader};
pub use recorder::{Access, AccessCounts, Recorder, RecorderOptions, STREAM_KEYS_DEFAULT, SampledAccess};
pub use recovery::recover;
pub use spool::FILE_BYTES_DEFAULT;
pub use summary::{Interval, Lack, Origin, PAGE_BYTES_MAX, STRUCTURES_MAX, StructureUse, Summary};
pub use write_guard::WriteGuard;
